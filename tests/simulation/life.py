"""The simulation of one seed: servers, machines, an operator and faults, until all is over."""

import errno
import logging
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog
from tests.roll_out import COMMAND_LINE, carry_out_command
from tests.simulation.agents import SimulatedAgent
from tests.simulation.checker import CommitChecker, Violation
from tests.simulation.database import EPOCH_OF_UNIX, Database
from tests.simulation.disk import Disk, Disks, Processes
from tests.simulation.relay import Relay, drive
from tests.simulation.scenario import Scenario
from tests.simulation.server import Common, Server
from tests.simulation.world import HOUR, MINUTE, SECOND, Chance, Process, World

from forewarn.domain.course import Course
from forewarn.domain.finding import FindingVerdict
from forewarn.domain.gate import Question
from forewarn.domain.maintenance import MaintenanceOrder
from forewarn.domain.names import MaintenanceId
from forewarn.domain.task import TaskKey
from forewarn.files.fleet import read_fleet_file
from forewarn.gates.asked_gates import KnownGate
from forewarn.gates.verdict import GateVerdict
from forewarn.operations.context import Context
from forewarn.operations.explain import explain_event, explain_maintenance
from forewarn.operations.maintenances import (
    pause_maintenance,
    report_maintenance,
    resume_maintenance,
    retry_failures,
    skip_failures,
    start_maintenance,
)
from forewarn.operations.pausing import find_pause, pause_server, resume_server
from forewarn.ports.board import Posting
from forewarn.ports.store import (
    SERVER_PAUSE,
    Reading,
    StoreError,
    StoreUnavailableError,
    Transaction,
)
from forewarn.protocol.errors import ForewarnError
from forewarn.protocol.versions import NEWEST
from forewarn.protocol.vocabulary import EventId, event_id
from forewarn.settings import make_settings
from forewarn.storage.transaction import Changes
from forewarn.wording.command_lines import say_blocker, say_reason, say_verdict

T = TypeVar("T")

LONGEST_END: Final = 72 * HOUR
"""How long a Maintenance may take to end once nothing goes wrong any more."""
_HARMLESS: Final = ("pause", "resume", "pause all", "resume all")
"""What may be typed whatever really runs."""
_VERBS: Final = (
    *(*_HARMLESS, *_HARMLESS, "retry", "retry", "skip", "skip", "abort"),
    *("event start", "event complete", "event complete"),
    *("host complete", "host fail", "host skip", "task done", "task failed"),
)
_PAUSE: Final = f"SELECT 1 FROM settings WHERE name = '{SERVER_PAUSE}' AND value <> ''"  # noqa: S608
_EVENTS_OF: Final = """
SELECT event_id FROM events WHERE maintenance_id = ? AND event_status IN ('Scheduled', 'Started')
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a seed."""

    seed: int
    violation: str
    simulated: int
    steps: int
    polls: int
    orders: int
    injected: Counter[str]
    lines: list[str] = field(repr=False)
    story: list[str] = field(repr=False)


def simulate(scenario: Scenario) -> Outcome:
    """Simulate *scenario* from its beginning to its end."""
    life = Life(scenario)
    violation = ""
    with ExitStack() as stack:
        stack.enter_context(life.disks.installed())
        stack.enter_context(_logs(life.world))
        stack.callback(life.close)
        try:
            life.run()
        except Violation as error:
            violation = str(error)
        except Exception as error:  # noqa: BLE001 - it is reported as what the seed has found
            violation = f"{type(error).__name__}: {error}"
            life.world.note("ERROR", _trace_of(error))
    world = life.world
    return Outcome(
        seed=scenario.seed,
        violation=violation,
        simulated=world.now,
        steps=world.steps,
        polls=life.checker.polls,
        orders=len(life.started),
        injected=world.injected,
        lines=world.lines,
        story=list(world.story),
    )


def _trace_of(error: BaseException) -> str:
    return " | ".join(
        f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)[-8:]
    )


@contextmanager
def _logs(world: World) -> Iterator[None]:
    """Have what the servers log in the trace; an exception that they log is a failure."""

    def take(_: object, method: str, event: MutableMapping[str, Any]) -> str:
        name = event["event"]
        if event.get("exc_info") or method == "exception":
            error = event.get("exc_info")
            known = error if isinstance(error, BaseException) else sys.exc_info()[1]
            if isinstance(known, OSError) and known.errno == errno.ENOSPC:
                raise structlog.DropEvent
            text = f"{type(known).__name__}: {known} {_trace_of(known) if known else ''}"
            world.note("LOG", f"{name} {text}")
            raise Violation(f"{name}: {text}")
        if method in {"warning", "error", "critical"}:
            said = event.get("error") or event.get("reason") or event.get("detail") or ""
            world.note("log", f"{name} {said}".rstrip())
        raise structlog.DropEvent

    before, agents = structlog.get_config(), logging.getLogger("forewarn.agent")
    agents.disabled = True
    structlog.configure(
        processors=[take],
        wrapper_class=structlog.make_filtering_bound_logger(0),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)
        agents.disabled = False


class _Gate:
    """Opens as often as the seed says; always, when all is well."""

    def __init__(self, world: World, chance: float) -> None:
        self._chance = Chance(world.seed, "gates")
        self.rate = chance

    async def ask(self, question: Question, *, now: object) -> GateVerdict:
        del question, now
        is_open = self._chance.happens(self.rate)
        return GateVerdict(is_open=is_open, output="" if is_open else "not now")

    def close(self) -> None:
        pass


class Life:
    """Everything that lives under one seed."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.world = world = World(scenario.seed)
        self.folder = Path(tempfile.mkdtemp(prefix="forewarn-", dir="/dev/shm"))
        self.database = Database(world, changes_kept=60)
        self.checker = CommitChecker(world, self.database.driver, scenario.model, EPOCH_OF_UNIX)
        self.disks = Disks(world)
        self.tasks = Processes(world, self.disks, lasts=self._lasts)
        self.tasks.begun = self._begins
        self.tasks.ended = self.checker.task_ends
        self.tasks.told = self._told
        self.tasks.failure_rate = scenario.faults["failure"]
        self.tasks.lost_rate = scenario.faults["lost"]
        self.tasks.hang_rate = scenario.faults["hang"]
        self.tasks.lie_rate = scenario.faults["nonsense"]
        self.tasks.late_rate = scenario.faults["late"]
        self.life = Chance(scenario.seed, "life")
        self.typing = Chance(scenario.seed, "operator")
        ids = count(1)
        self.gate = _Gate(world, scenario.gate_open)
        self.common = Common(
            world=world,
            database=self.database,
            processes=self.tasks,
            new_id=lambda: event_id(f"{next(ids):032x}"),
            rules=scenario.rules,
            gates={
                "smoke": KnownGate(gate=self.gate, kind="simulated", every=timedelta(minutes=1))
            },
            fleet=read_fleet_file(scenario.fleet),
        )
        self.servers = [self._server(number) for number in range(scenario.servers)]
        hosts = sorted({each.host for each in scenario.model.machines.values()})
        self.relays = {host: Relay(world, host) for host in self.life.some(hosts, 3)}
        self.agents = {
            machine: SimulatedAgent(
                world, machine, approve=partial(self._approve, machine), fail=self.checker.fail
            )
            for machine, character in scenario.characters.items()
            if character == "agent"
        }
        self.started: dict[str, MaintenanceOrder] = {}
        self.database.committed = self._commits
        self.database.begun = self.checker.transaction_begins
        self.database.done = self.checker.transaction_is_done
        self.pending: set[str] = set()
        """The scopes whose machines are about to look at a new document."""
        self.members = self.checker.members
        self.ended_by_hand: set[str] = set()
        """The hosts whose end an operator has reported."""
        self.is_ending = False
        world.after_step = self._look_after

    def _server(self, number: int) -> Server:
        name = f"r{number}"
        disk = Disk(self.folder / name)
        disk.folder.mkdir()
        self.disks.disks[name] = disk
        settings = make_settings(
            {
                "database": "postgresql://simulated/forewarn",
                "state_dir": str(disk.folder),
                "executor": "manual",
                "owner_grace": "5m",
            }
        )
        server = Server(name, self.common, settings, disk)
        server.started = self._serves
        server.gained = self.checker.lease_is_gained
        server.others_are_well = lambda: all(each.is_serving for each in self.servers)
        return server

    def close(self) -> None:
        self.tasks.close()
        for server in self.servers:
            server.outbound.close()
        for relay in self.relays.values():
            relay.leave()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.database.connection.sql.close()
        self.database.driver.close()

    # The course of it.

    def run(self) -> None:
        """Have everybody live for the hours of the scenario, then see that all comes to its end."""
        world, scenario = self.world, self.scenario
        world.note("world", f"has these rates: {scenario.rates} {scenario.faults}")
        for number, server in enumerate(self.servers):
            world.later(number * 300_000, server.start)
        ends = scenario.size.hours * HOUR
        for at, order in scenario.orders:
            world.later(at + 5 * SECOND, partial(self._order, order))
        world.later(10 * SECOND, self._begin_faults)
        for machine in scenario.model.machines:
            world.later(self.life.between(5 * SECOND, ends), partial(self._poll_at_random, machine))
        for agent in self.agents.values():
            agent.crash_rate = scenario.faults["agent"]
        for relay in self.relays.values():
            relay.break_rate = scenario.faults["feed"]
            world.later(5 * SECOND, partial(self._follow, relay))
        for _ in range(int(scenario.faults["verbs"]) * scenario.size.hours):
            world.later(self.typing.below(ends), self._type_something)
        for _ in range(scenario.size.hours * 2):
            world.later(self.typing.below(ends), self._type_what_is_printed)
        world.run(ends)
        self._end()

    def _begin_faults(self) -> None:
        self.world.rates = self.scenario.rates
        hours = self.scenario.size.hours
        kinds: dict[str, Callable[[], None]] = {
            "power": self._lose_power,
            "cut": self._cut_off,
            "away": self._take_database_away,
            "clock": self._move_clock,
            "disk": self._fill_disk,
            "aimed": self._aim,
        }
        for kind, fault in kinds.items():
            rate = self.scenario.faults[kind] * hours
            times = int(rate) + self.world.faults.happens(rate % 1)
            for _ in range(times):
                self.world.later(self.world.faults.below(hours * HOUR), fault)

    def _end(self) -> None:
        """Have nothing go wrong any more; every Maintenance ends, or says what makes it go on."""
        world = self.world
        world.note("world", "nothing goes wrong any more")
        self.is_ending = True
        world.rates = type(world.rates)()
        world.armed.clear()
        world.aimed_at_begins.clear()
        world.aimed_at_effects.clear()
        self.tasks.failure_rate = self.tasks.lost_rate = self.tasks.hang_rate = 0.0
        self.tasks.lie_rate = self.tasks.late_rate = 0.0
        self.gate.rate = 1.0
        for relay in self.relays.values():
            relay.break_rate = 0.0
        for agent in self.agents.values():
            agent.crash_rate = 0.0
        self.database.come_back()
        for server in self.servers:
            server.disk.is_full = False
            server.process.changed()
            server.process.is_cut_off = False
            server.process.skew = 0
            server.look_out()
        world.run(world.now + 10 * MINUTE)
        since = world.now
        idle = 0
        while left := self._unfinished():
            before = self._progress()
            world.run(world.now + 10 * MINUTE)
            if self._progress() == before:
                idle += 1
                typed = self._help(left)
                if not typed and idle > 60:
                    self.checker.fail(f"{left[0]} does not go on, and nothing is printed to do")
            else:
                idle = 0
            if world.now - since > LONGEST_END:
                self.checker.fail(f"{left[0]} does not end")
        self.checker.check_acknowledged()
        if any(rule.has_verify for rule in self.scenario.rules):
            self.checker.check_hosts(except_for=self.ended_by_hand)
        world.run(world.now + 20 * MINUTE)
        if self.tasks.running:
            self.checker.fail(f"{sorted(self.tasks.running)} run although all is over")
        self._check_what_is_shown()
        self._check_agents()

    def _unfinished(self) -> list[str]:
        rows = self.database.driver.execute(
            "SELECT maintenance_id FROM maintenances WHERE finished_at IS NULL"
        )
        return [row[0] for row in rows]

    def _progress(self) -> tuple[int, ...]:
        query = self.database.driver.execute
        return (
            query("SELECT max(sequence) FROM ledger").fetchone()[0] or 0,
            query("SELECT count(*) FROM tasks WHERE state NOT IN ('reserved', 'begun')").fetchone()[
                0
            ],
            len(self.checker.begun),
            query("SELECT count(*) FROM maintenances WHERE finished_at IS NULL").fetchone()[0],
        )

    def _look_after(self, owner: Process | None) -> None:
        for server in self.servers:
            if owner is not None and owner.name != server.name:
                continue  # it has done nothing, and nobody has woken it
            server.look_after()
            if not server.process.is_alive and server.starts and server.replica is not None:
                self._bury(server)

    def _bury(self, server: Server) -> None:
        """Note that a server has died, and have it start again."""
        server.replica = None
        if server.store is not None:
            server.store.leave()
        self._watch_out()
        again = self.world.timing.pick((SECOND, 10 * SECOND, MINUTE, 7 * MINUTE))
        self.world.later(SECOND if self.is_ending else again, server.start)

    def _watch_out(self) -> None:
        for each in self.servers:
            each.look_out()

    def _serves(self, server: Server) -> None:
        self.disks.processes[server.name] = server.process
        assert server.replica is not None
        server.replica.board.listen(self._posted)
        server.replica.board.listen(lambda _: self._tell_relays(server))
        self._watch_out()

    def _commits(self, process: Process, changes: Changes) -> None:
        for scope, number in changes.incarnations.items():
            self.world.lines.append(
                f"{self.world.now:>12} {process.name} publishes {scope} {number}"
            )
        self.checker.commits(
            process.name,
            has_documents=bool(changes.incarnations),
            has_ledger=changes.has_ledger_grown,
        )

    # Tasks.

    def _lasts(self, key: TaskKey) -> int:
        if key[1].startswith("verify"):
            return self.life.between(2, 20) * SECOND
        return self.life.between(20, 400) * SECOND

    def _begins(self, key: TaskKey, server: str) -> None:
        self.checker.task_begins(key, server)

    def _told(self, name: str) -> None:
        for server in self.servers:
            if server.name == name:
                server.wake("tasks")

    # Machines.

    def _posted(self, posting: Posting) -> None:
        for scope in posting.scope_ids:
            if scope not in self.pending:
                self.pending.add(scope)
                self.world.later(self.life.between(10_000, 20 * SECOND), partial(self._read, scope))

    def _tell_relays(self, server: Server) -> None:
        for relay in self.relays.values():
            if relay.server is server.process:
                self.world.later(self.life.between(200_000, 3 * SECOND), relay.read)

    def _follow(self, relay: Relay) -> None:
        """Have a relay follow some server, and look after its connection."""
        if not relay.is_connected and (answering := self._answering()):
            server = self.life.pick(answering)
            relay.follow(server.hub, server.process)
        if self.world.faults.happens(self.scenario.faults["feed"]) and not self.is_ending:
            self.world.injected["relay restarted"] += 1
            relay.start()
        relay.read()
        self.world.later(
            (5 if not relay.is_connected else 300) * SECOND, partial(self._follow, relay)
        )

    def _read(self, scope: str) -> None:
        self.pending.discard(scope)
        for machine in self.life.some(self.members[scope], 4):
            self._poll(machine)

    def _poll_at_random(self, machine: str) -> None:
        self._poll(machine)
        if not self.is_ending:
            self.world.later(
                self.life.between(5 * MINUTE, HOUR), partial(self._poll_at_random, machine)
            )

    def _check_agents(self) -> None:
        """Fail unless every machine that its agent has taken out is put back."""
        for _ in range(3):
            for machine in self.agents:
                self._poll(machine)
            self.world.run(self.world.now + HOUR)
        for machine, agent in self.agents.items():
            if agent.out:
                self.checker.fail(f"{machine} is not put back after {sorted(agent.out)}")

    def _check_what_is_shown(self) -> None:
        """Fail unless every server shows the newest documents, and one of them leads."""
        for server in self._serving():
            assert server.replica is not None
            board = server.replica.board
            for machine in self.scenario.model.machines:
                vm = board.vm_named(machine)
                content = b"{}" if vm is None else board.page(vm, NEWEST.name).body
                if vm is None or not self.checker.is_current(machine, content):
                    self.checker.fail(f"{server.name} shows {machine} an old document: {content!r}")
        for relay in self.relays.values():
            for machine in self.checker.on_host[relay.host]:
                vm = relay.board.vm_named(machine)
                content = b"{}" if vm is None else relay.board.page(vm, NEWEST.name).body
                if vm is None or not self.checker.is_current(machine, content):
                    self.checker.fail(f"{relay.name} shows {machine} an old document: {content!r}")
        leaders = [each.name for each in self._serving() if each.replica.candidate.epoch]  # type: ignore[union-attr]
        if len(leaders) != 1:
            self.checker.fail(f"{leaders} lead when all is well")
        found = {server.name: server.look_at_findings() for server in self._serving()}
        said = dict.fromkeys(each for findings in found.values() for each in findings)
        if any(set(findings) != said.keys() for findings in found.values()):
            self.checker.fail(f"servers differ in what is wrong: {found}")
        for each in said:
            # What happened to tasks is told for a day.
            if each.verdict is FindingVerdict.FAIL and each.check != "tasks":
                self.checker.fail(f"all is well, but {each.sentence}")

    def _serving(self) -> list[Server]:
        return [each for each in self.servers if each.is_serving]

    def _answering(self) -> list[Server]:
        """Return the servers that show documents; one that is cut off may show old ones."""
        return [each for each in self.servers if each.is_answering]

    def _poll(self, machine: str) -> None:
        """Have *machine* read its document at a server, and do as it is."""
        # An agent acts on each document: it does not read older ones of other servers in between.
        serving = self._serving() if machine in self.agents else self._answering()
        if not serving or self.scenario.characters[machine] == "dead":
            return
        server = self.life.pick(serving)
        relay = self.relays.get(self.scenario.model.machines[machine].host)
        replica = server.replica
        assert replica is not None
        board = replica.board if relay is None else relay.board
        vm = board.vm_named(machine)
        if vm is None:
            return
        content = board.page(vm, NEWEST.name).body
        shown_by = f"{server.name}/{server.starts}"
        if relay is not None:
            shown_by = f"{relay.name}/{relay.starts}"
        document = self.checker.is_shown(machine, shown_by, content)
        if self.life.happens(0.25):
            replica.polls.note_all([vm.name])
        if agent := self.agents.get(machine):
            agent.read(content)
            return
        for event in document["Events"]:
            if event["EventStatus"] == "Scheduled":
                self._react(machine, event)

    def _react(self, machine: str, event: dict[str, Any]) -> None:
        character = self.scenario.characters[machine]
        key = EventId(event["EventId"])
        if character == "approves late":
            self.world.later(
                self.life.between(MINUTE, 20 * MINUTE), partial(self._approve, machine, key)
            )
        elif character.startswith("approves"):
            self.world.later(
                self.life.between(1_000, 2 * MINUTE), partial(self._approve, machine, key)
            )
            if character == "approves twice":
                self.world.later(
                    self.life.between(1_000, MINUTE), partial(self._approve, machine, key)
                )
        elif character == "for others":
            others = sorted(self.checker.statuses)
            self.world.later(
                SECOND, partial(self._approve, machine, EventId(self.life.pick(others)))
            )

    def _approve(
        self, machine: str, key: EventId, answer: Callable[[str], None] = lambda _: None
    ) -> None:
        serving = self._serving()
        if not serving:
            self.world.later(5 * SECOND, lambda: answer("unavailable"))
            return
        server = self.life.pick(serving)
        found = self.database.driver.execute(
            "SELECT scope_id FROM events WHERE event_id = ?", [key]
        ).fetchone()
        is_own = found is not None and found[0] == self.scenario.model.machines[machine].scope
        if is_own:
            self.checker.approval_is_asked(machine, key)

        relay = self.relays.get(self.scenario.model.machines[machine].host)

        def post() -> None:
            verbs = server.verbs if relay is None else replace(server.verbs, host=relay.host)
            if not server.is_serving:
                answer("unavailable")
                return
            try:
                drive(verbs.request_start(machine, (key,), where=""))  # type: ignore[arg-type]
            except StoreUnavailableError:
                answer("unavailable")
                return
            except ForewarnError as error:
                self.world.note(machine, f"may not approve {key}: {type(error).__name__}")
                answer(str(error))
                return
            self.world.note(machine, f"approves {key} at {server.name}")
            if not is_own:
                self.checker.fail(f"{machine} approves {key}, which is not of its scope")
            self.checker.approval_is_acknowledged(machine, key)
            answer("")

        self.world.later(self.life.between(100, 50_000), post, server.process)

    # The operator.

    def _ask(self, what: Callable[[Server], object]) -> None:
        """Have the operator ask some server, as a request of its own."""
        serving = self._serving()
        if not serving:
            self.world.later(5 * SECOND, partial(self._ask, what))
            return
        server = self.typing.pick(serving)

        def request() -> None:
            if server.is_serving:
                what(server)
            else:
                self._ask(what)

        self.world.later(self.typing.between(100, 50_000), request, server.process)

    def _context(self, server: Server) -> Context:
        assert server.replica is not None
        return server.replica.context("ada")

    def _say(self, server: Server, what: str, work: Callable[[Transaction], T]) -> T | None:
        assert server.replica is not None
        paused_since = self.checker.paused_since
        if what in {"resume all", "forewarn resume"}:
            self.checker.paused_since = None
        try:
            result = server.replica.store.write(work)
        except ForewarnError as error:
            kind = type(error).__name__
            said = "unavailable" if isinstance(error, StoreUnavailableError) else kind
            self.world.note("ada", f"types {what} at {server.name}: {said}")
            if self.database.driver.execute(_PAUSE).fetchone() is not None:
                self.checker.paused_since = paused_since
            return None
        self.world.note("ada", f"types {what} at {server.name}")
        # Somebody may have resumed it before the answer came.
        if what == "pause all" and self.database.driver.execute(_PAUSE).fetchone() is not None:
            self.checker.paused_since = self.world.now
        return result

    def _order(self, order: MaintenanceOrder) -> None:
        known: list[MaintenanceId] = []

        def start(server: Server) -> None:
            def work(tx: Transaction) -> MaintenanceId:
                begun = start_maintenance(
                    tx, self._context(server), order, gates=tuple(self.common.gates)
                )
                known.append(begun.maintenance_id)
                self.checker.model.min_available[begun.maintenance_id] = order.course.min_available
                return begun.maintenance_id

            if done := self._say(server, f"maintenance start {order.event_type}", work):
                self.checker.maintenance_is_acknowledged(done)

        self._ask(start)
        self.world.later(MINUTE, partial(self._order_again, order, known))

    def _order_again(self, order: MaintenanceOrder, known: list[MaintenanceId]) -> None:
        """Order it again, without what may have been refused, unless it was stored."""
        query = "SELECT 1 FROM maintenances WHERE maintenance_id = ?"
        stored = [key for key in known if self.database.driver.execute(query, [key]).fetchone()]
        if stored:
            self.started[stored[0]] = order
        else:
            self._order(replace(order, course=Course(gates=order.course.gates)))

    def _type_something(self) -> None:
        def say(server: Server) -> None:
            left = self._unfinished()
            if not left:
                return
            key = self.typing.pick(left)
            context = self._context(server)
            verb = self.typing.pick(_VERBS)
            if verb not in _HARMLESS and self._is_running_unheard():
                return
            works: dict[str, Callable[[Transaction], object]] = {
                "pause": lambda tx: pause_maintenance(tx, context, key),
                "resume": lambda tx: resume_maintenance(tx, context, key),
                "retry": lambda tx: retry_failures(tx, context, key),
                "skip": lambda tx: skip_failures(tx, context, key),
                "pause all": lambda tx: pause_server(tx, context),
                "resume all": lambda tx: resume_server(tx, context),
            }
            if verb in works:
                self._say(server, verb, works[verb])
            elif command := self._compose(verb, key):
                self._type(server, command)

        self._ask(say)

    def _compose(self, verb: str, maintenance: str) -> str:
        """Return a command about something of a *maintenance*; nothing if there is none."""
        queries = {
            "abort": "SELECT maintenance_id FROM maintenances WHERE maintenance_id = ?",
            "event": _EVENTS_OF,
            "host": "SELECT DISTINCT host FROM host_operations WHERE maintenance_id = ?",
            "task": "SELECT subject, name FROM tasks WHERE state = 'unknown' AND ? <> ''",
        }
        kind, _, word = verb.partition(" ")
        rows = self.database.driver.execute(queries[kind], [maintenance]).fetchall()
        if not rows:
            return ""
        found = "/".join(self.typing.pick(sorted(rows)))
        return {
            "abort": f"forewarn maintenance abort {maintenance}",
            "event": f"forewarn event {word} {found}",
            "host": f"forewarn maintenance {word} {maintenance} {found}",
            "task": f"forewarn task settle {found} {word}",
        }[kind]

    def _is_running_unheard(self) -> bool:
        """Tell whether something runs of which nobody knows; an operator who looks waits."""
        unwell = {each.name for each in self.servers if not each.process.is_well}
        unknown = self.database.driver.execute(
            "SELECT subject, name FROM tasks WHERE state = 'unknown'"
        ).fetchall()
        running = self.tasks.running
        return bool(running.keys() & set(unknown)) or any(
            each.server in unwell for each in running.values()
        )

    def _type_what_is_printed(self) -> None:
        self._ask(self._type_printed)

    def _type_printed(self, server: Server) -> bool:
        left = self._unfinished()
        if not left or self._is_running_unheard():
            return False
        key = self.typing.pick(left)
        try:
            commands = self._printed(server, key)
        except StoreError:
            return False
        if not commands:
            return False
        self._type(server, self.typing.pick(commands))
        return True

    def _type(self, server: Server, command: str) -> None:
        if command.startswith(("forewarn maintenance complete", "forewarn maintenance skip")):
            self.ended_by_hand.update(command.split()[4:])
        if command.startswith("forewarn event"):
            self.checker.by_operator.add(command.rsplit(maxsplit=1)[-1])
        self._say(server, command, lambda tx: carry_out_command(tx, self._context(server), command))

    def _printed(self, server: Server, key: str) -> tuple[str, ...]:
        """Return the commands that `explain` prints of a Maintenance and its events."""
        context = self._context(server)

        def look(reading: Reading) -> list[str]:
            maintenance_id = report_maintenance(reading, context, key).maintenance.maintenance_id
            found = explain_maintenance(reading, context, key).standstill
            said = [say_verdict(found.verdict)]
            said += [text for each in found.blockers for text in say_blocker(each, maintenance_id)]
            for event in report_maintenance(reading, context, key).events:
                if event.is_in_flight:
                    explained = explain_event(reading, context, event.event_id)
                    said += [say_reason(reason) for reason in explained.reasons]
            return said

        assert server.replica is not None
        server.look_at_findings()
        said = server.replica.store.read(look)
        return tuple(dict.fromkeys(each for text in said for each in COMMAND_LINE.findall(text)))

    def _help(self, left: list[str]) -> bool:
        """Type what is printed of the Maintenances that are *left*; tell whether there is any."""
        serving = self._serving()
        if not serving or self._is_running_unheard():
            return True
        server = serving[0]
        assert server.replica is not None
        if server.replica.store.read(find_pause) is not None:
            self._type(server, "forewarn resume")
            return True
        commands = [each for key in left for each in self._printed(server, key)]
        if commands:
            self._type(server, self.typing.pick(commands))
        return bool(commands)

    # Faults.

    def _alive(self) -> list[Server]:
        return [each for each in self.servers if each.process.is_alive and each.starts]

    def _lose_power(self) -> None:
        if self.is_ending or not (alive := self._alive()):
            return
        server = self.world.faults.pick(alive)
        self.world.injected["power lost"] += 1
        self.world.note(server.name, "loses power")
        server.process.changed()
        server.process.is_alive = False
        self.tasks.lose(server.name)
        server.disk.lose_power(self.world)

    def _cut_off(self) -> None:
        if self.is_ending or not (alive := self._alive()):
            return
        server = self.world.faults.pick(alive)
        self.world.injected["network cut"] += 1
        self.world.note(server.name, "loses touch with the database")
        server.process.changed()
        server.process.is_cut_off = True
        self._watch_out()
        lasts = self.world.faults.pick((2 * SECOND, 20 * SECOND, 3 * MINUTE, 20 * MINUTE))
        process = server.process

        def mend() -> None:
            self.world.note(server.name, "is in touch again")
            process.changed()
            process.is_cut_off = False
            if server.process is not process:
                server.process.is_cut_off = False
            self._watch_out()

        self.world.later(lasts, mend)
        relay = self.world.faults.pick([*self.relays.values()])
        self.world.later(lasts * 3 // 4, partial(self._connect_to_old, relay, server))

    def _connect_to_old(self, relay: Relay, server: Server) -> None:
        """Have a relay follow a server that may be behind what the relay shows already."""
        if self.is_ending or not server.is_answering or not server.process.is_cut_off:
            return
        self.world.injected["relay at a server that is behind"] += 1
        machines = self.checker.on_host[relay.host]
        for machine in machines:
            self._poll(machine)
        relay.follow(server.hub, server.process)
        relay.read()
        for machine in machines:
            self._poll(machine)

    def _take_database_away(self) -> None:
        if self.is_ending or self.database.is_away:
            return
        self.world.injected["database away"] += 1
        self.world.note("database", "goes away")
        self.database.go_away()
        self._watch_out()

        def back() -> None:
            self.world.note("database", "is back")
            self.database.come_back()
            self._watch_out()

        self.world.later(self.world.faults.between(SECOND, 3 * MINUTE), back)

    def _move_clock(self) -> None:
        if self.is_ending:
            return
        server = self.world.faults.pick(self.servers)
        self.world.injected["clock moved"] += 1
        skew = self.world.faults.pick((-30 * SECOND, -1_500_000, 0, 1_500_000, 30 * SECOND, HOUR))
        self.world.note(server.name, f"has a clock that is ahead by {skew // 1000} ms")
        server.process.skew = skew
        server.look_out()

    def _aim(self) -> None:
        """Have a server, most often the leader, die or stand still at a write or an effect soon."""
        if self.is_ending or not (serving := self._serving()):
            return
        faults = self.world.faults
        leaders = [each for each in serving if each.replica and each.replica.candidate.epoch]
        server = faults.pick(leaders if leaders and faults.happens(0.6) else serving)
        kind = faults.below(10)
        if kind < 3:
            self.world.aimed_at_effects.add(server.name)
        elif kind < 6:
            self.world.aimed_at_begins.add(server.name)
        else:
            self.world.armed[server.name] = [int(faults.happens(0.5)), faults.below(6)]

    def _fill_disk(self) -> None:
        if self.is_ending:
            return
        server = self.world.faults.pick(self.servers)
        self.world.injected["disk full"] += 1
        self.world.note(server.name, "has a full disk")
        server.disk.is_full = True

        def make_room() -> None:
            server.disk.is_full = False
            server.look_out()

        self.world.later(self.world.faults.between(MINUTE, 20 * MINUTE), make_room)
