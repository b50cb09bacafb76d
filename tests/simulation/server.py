"""A simulated server: the real parts, assembled as at every start, and turned by the world."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, cast

from tests.simulation.database import (
    Database,
    SimulatedLeadership,
    SimulatedReplicas,
    SimulatedStore,
)
from tests.simulation.disk import Disk, Processes
from tests.simulation.relay import make_hub
from tests.simulation.world import MINUTE, SECOND, Crash, Process, World, to_moment

from forewarn.bootstrap.presence import introduce
from forewarn.bootstrap.replica import Outside, Replica, assemble
from forewarn.bootstrap.start import StartError, begin
from forewarn.bootstrap.task_records import TaskRecords
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.finding import Finding
from forewarn.domain.host_work import HostTask, HostWorkRule
from forewarn.domain.names import VmName
from forewarn.domain.topology import Topology
from forewarn.executors.processes import ProcessProgram, ProcessRunner
from forewarn.executors.task_input import Runner, TaskInput
from forewarn.executors.watcher import TaskWatcher
from forewarn.files.fleet import Fleet
from forewarn.gates.asked_gates import KnownGate
from forewarn.metadata.verbs import StoreVerbs
from forewarn.operations.findings import ReplicaState, examine_replica, examine_server
from forewarn.outbound.client import Outbound
from forewarn.ports.replicas import name_replica
from forewarn.ports.runner import Assignment
from forewarn.ports.store import LeaseLostError, StoreError
from forewarn.protocol.vocabulary import EventId
from forewarn.rounds import Rounds
from forewarn.settings import Settings

IDLE: Final = 10 * MINUTE
"""How long a part that nobody wakes, and that has nothing due, is left alone."""
_UPKEEP: Final = 240 * MINUTE
_ATTENTION: Final = 2 * MINUTE
_ALERT: Final = 14 * SECOND
"""How long every loop turns as often as it really does, once something has happened to a server."""
_EXACT: Final = ("leadership", "scheduler")
_WATCHFUL: Final = ("leadership", "scheduler", "tasks")


@dataclass(frozen=True, slots=True)
class _Clock:
    """What the clock of a process shows."""

    world: World
    process: Process

    def now(self) -> datetime:
        return to_moment(self.world.now + self.process.skew)


@dataclass(frozen=True, slots=True)
class _Wall:
    """The time of the database, as a replica counts it."""

    world: World

    def now(self) -> datetime:
        return self.world.moment


class SimulatedOutbound:
    """Puts questions to gates as steps of their own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._begun: list[Any] = []
        self.process: Process | None = None

    def begin(self, work: Any) -> Any:
        future: Future[Any] = Future()
        self._begun.append(work)

        def answer() -> None:
            with suppress(StopIteration):
                work.send(None)
            future.set_result(None)

        self._world.later(self._world.timing.between(1_000, 3 * SECOND), answer, self.process)
        return future

    def close(self) -> None:
        """Forget what was asked on behalf of processes that have died."""
        for work in self._begun:
            work.close()


class Runners:
    """Gives every task to commands, run by simulated processes."""

    problem = ""

    def __init__(self, rules: tuple[HostWorkRule, ...], command: Runner) -> None:
        self.rules = rules
        self._command = command

    def assign_impact(
        self, event: ScheduledEvent, vm: VmName, topology: Topology, now: datetime
    ) -> Assignment:
        del event, vm, topology, now
        return Assignment(runner="command")

    def assign_host_task(self, task: HostTask, topology: Topology, now: datetime) -> Assignment:
        del task, topology, now
        return Assignment(runner="command")

    def runner(self, name: str) -> Runner | None:
        return self._command if name == "command" else None


def _describe(task: TaskInput, _: object) -> dict[str, object]:
    return {"input": dict(task.content)}


@dataclass(slots=True, eq=False)
class _Part:
    """A loop, and when its next round is due."""

    name: str
    rounds: Rounds
    due: int = -1
    number: int = 0


@dataclass(slots=True, kw_only=True)
class Common:
    """What all servers of a world are made with."""

    world: World
    database: Database
    processes: Processes
    new_id: Callable[[], EventId]
    rules: tuple[HostWorkRule, ...]
    gates: dict[str, KnownGate]
    fleet: Fleet


class Server:
    """A server by its *name*, which starts, dies and starts again with the same disk."""

    def __init__(self, name: str, common: Common, settings: Settings, disk: Disk) -> None:
        self.name = name
        self.common = common
        self.world = common.world
        self.settings = settings
        self.disk = disk
        self.node = f"{name}:{ord(name[-1]):032x}-1"
        self.process = Process(name, is_alive=False)
        self.outbound = SimulatedOutbound(common.world)
        self.starts = 0
        self.alert_until = 0
        self.replica: Replica | None = None
        self.store: SimulatedStore | None = None
        self._parts: dict[str, _Part] = {}
        self.started: Callable[[Server], None] = lambda _: None

    @property
    def is_serving(self) -> bool:
        return self.process.is_well and self.replica is not None

    @property
    def is_answering(self) -> bool:
        return self.process.is_alive and not self.process.is_paused and self.replica is not None

    def start(self) -> None:
        """Start as a process does; try again soon if that fails."""
        self.starts += 1
        skew = self.process.skew
        self.process = Process(self.name, skew=skew, is_cut_off=self.process.is_cut_off)
        self.world.note(self.name, "starts")
        self.replica, self._parts = None, {}
        try:
            self._assemble()
        except (StoreError, StartError, OSError) as error:
            self.world.note(self.name, f"cannot start: {type(error).__name__}")
            self._abandon()
            self.world.later(5 * SECOND, self.start)
        except Crash:
            self._abandon()
            self.world.later(5 * SECOND, self.start)

    def _abandon(self) -> None:
        self.replica = None
        self.process.changed()
        self.process.is_alive = False
        if self.store is not None:
            self.store.leave()

    def _assemble(self) -> None:
        world, common, process = self.world, self.common, self.process
        self.outbound.process = process
        store = SimulatedStore(common.database, process, node=self.node)
        self.store = store
        clock = _Clock(world, process)
        wall = _Wall(world)
        beginning = begin(
            store, self.settings, common.fleet if self.starts == 1 else None, wall.now()
        )
        records = TaskRecords(self.disk.folder, store, self.node, self.name)
        command = ProcessRunner(
            lambda _: True,
            ProcessProgram(name="command", words=("attendant",), describe=_describe),
            log=records.log,
            environment={},
            clock=clock,
            elapsed=lambda: world.now / SECOND,
            start_thread=lambda work: world.later(
                world.timing.between(100, 20_000), lambda: self._begin(process, work), process
            ),
            start_process=self._start_process,
        )
        runners = Runners(common.rules, command)

        def register() -> Any:
            owner = records.begin(wall.now())
            store.generation = owner.generation
            return owner

        watcher = TaskWatcher(
            store, runners=runners, register=register, records=records.log, wall=wall
        )
        outside = Outside(
            outbound=cast("Outbound", self.outbound),
            runners=runners,
            new_id=common.new_id,
            watcher=watcher,
            archives=(records,),
            gates=common.gates,
            wall=wall,
        )
        store.holder = name_replica(self.node, str(self.starts))
        leadership = SimulatedLeadership(store, store.holder)
        leadership.gained = self._note_epoch
        replica = assemble(
            self.settings,
            store,
            replace(beginning, clock=clock),
            outside,
            leadership=leadership,
        )
        store.leads_under = lambda: replica.candidate.epoch
        itself = replace(introduce(self.settings, f"http://{self.name}"), replica_id=store.holder)
        replicas = SimulatedReplicas(store, replace(itself, name=self.name))
        replicas.examine = lambda: self._examine(replica)
        replicas.report()
        self.replica = replica = replace(replica, replicas=replicas)
        self.verbs = StoreVerbs(store, replica.context)
        self.hub = make_hub(world, replica.board, process)
        replica.board.listen(self.hub.note)
        self._add("leadership", replica.candidate.rounds)
        self._add("tasks", watcher.rounds)
        self._add("board", replica.store_feed.rounds)
        self._add("polls", replica.polls.rounds)
        self._add("showings", replica.showings.rounds)
        world.later(world.timing.below(SECOND), lambda: self._turn("leadership", 0), process)
        self.started(self)

    gained: Callable[[str, int], None] = lambda *_: None

    def _note_epoch(self, epoch: int) -> None:
        self.gained(self.name, epoch)
        self.world.note(self.name, f"leads under epoch {epoch}")

    def _examine(self, replica: Replica) -> Iterable[Finding]:
        state = ReplicaState(
            records_problem=replica.candidate.records_problem,
            clock_offset=replica.candidate.clock_offset * replica.candidate.is_clock_off,
        )
        return examine_replica(state, self.world.moment)

    def look_at_findings(self) -> tuple[Finding, ...]:
        """Return what the server would answer to `forewarn status`."""
        assert self.replica is not None
        context, store = self.replica.context("ada"), self.replica.store
        roll, figures = self.replica.replicas.call_roll(), store.figures()
        _, findings = store.read(
            lambda reading: examine_server(reading, context, roll, figures, has_all_scopes=True)
        )
        return findings

    @staticmethod
    def _begin(process: Process, work: Callable[[], object]) -> None:
        process.is_beginning = True
        try:
            work()
        finally:
            process.is_beginning = False

    def _start_process(self, words: Any, **options: Any) -> Any:
        self.world.crash_point(self.process, "effect")
        running = self.common.processes.start(self.name, words, **options)
        self.world.point(self.process, "effect done")
        return running

    # Its loops.

    def _add(self, name: str, rounds: Rounds) -> None:
        self._parts[name] = _Part(name, rounds)

    def look_after(self) -> None:
        """Have the loops turn that somebody has woken, and know those of a new leader."""
        if self.replica is None or not self.process.is_alive:
            return
        leader = self.replica.candidate._leader  # noqa: SLF001 - it has no other name
        scheduler = self._parts.get("scheduler")
        if leader is None:
            self._parts.pop("scheduler", None)
            self._parts.pop("upkeep", None)
        elif scheduler is None or scheduler.rounds is not leader.scheduler.rounds:
            self._add("scheduler", leader.scheduler.rounds)
            self._add("upkeep", leader.upkeep.rounds)
            self._plan("scheduler", self.world.timing.between(100, 50_000))
            self._plan("upkeep", _UPKEEP)
        for part in self._parts.values():
            latest = self.world.now + 50_000
            if part.rounds.is_awake and not self.world.now <= part.due <= latest:
                self._plan(part.name, self.world.timing.between(100, 50_000))

    def _plan(self, name: str, delay: int) -> None:
        part = self._parts[name]
        part.number += 1
        part.due = self.world.now + delay
        number = part.number
        self.world.later(delay, lambda: self._turn(name, number), self.process)

    def _turn(self, name: str, number: int) -> None:
        part = self._parts.get(name)
        if part is None or number != part.number:
            return
        part.rounds.begins()
        part.due = -1
        try:
            wait = part.rounds.turn()
        except LeaseLostError:
            self.world.note(self.name, f"{name} ends: the lease is lost")
            self.wake("leadership")
            return
        except StoreError as error:
            self.world.note(self.name, f"{name} fails: {type(error).__name__}")
            wait = 1.0
        if self._parts.get(name) is part and part.number == number:
            self._plan(name, self._next(name, wait))

    def _next(self, name: str, wait: float) -> int:
        """Return when to turn the loop again, if nobody wakes it.

        What would only find that all is as it was is left out: it happens less often.
        """
        exact = max(int(wait * SECOND), 1_000)
        is_alert = self.world.now < self.alert_until
        if is_alert and name in _EXACT:
            return exact
        if name == "scheduler":
            assert self.replica is not None
            leader = self.replica.candidate._leader  # noqa: SLF001
            deadline = leader.scheduler.deadline if leader else None
            owners = IDLE if self.others_are_well() else max(exact, 30 * SECOND)
            return owners if deadline is None else max(exact, min(owners, self._until(deadline)))
        if name == "tasks":
            return _ATTENTION if wait <= 1 else IDLE
        return {"leadership": 5 * MINUTE, "upkeep": _UPKEEP}.get(name, IDLE)

    others_are_well: Callable[[], bool] = lambda: True

    def _until(self, deadline: datetime) -> int:
        assert self.replica is not None
        now = self.replica.context("").now
        return max((deadline - now) // timedelta(microseconds=1), 1_000)

    def wake(self, name: str) -> None:
        """Have a loop turn soon."""
        part = self._parts.get(name)
        if part is not None and self.process.is_alive:
            self._plan(name, self.world.timing.between(100, SECOND))

    def look_out(self) -> None:
        """Turn the loops that find out who is there: something has happened to a server."""
        self.alert_until = self.world.now + _ALERT
        for name in _WATCHFUL:
            self.wake(name)
