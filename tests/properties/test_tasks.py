"""Several servers that die, come back and lose touch at any moment: nothing is begun twice.

The database is a real one, and every change is made by the verbs that servers use. A server that
begins a task says on its disk that it intends to, commits that it begins, and only then claims it
on its disk and really begins. It may die between any two of these. What it began survives it.
"""

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.tasks import Assigner, word

from forewarn.domain.event import Outcome
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import VmName
from forewarn.domain.task import Owner, Task, TaskKey, TaskState
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.context import Context, Rules
from forewarn.operations.events import EventOrder, complete_event, create_events, start_event
from forewarn.operations.inventory import apply_fleet
from forewarn.operations.pausing import find_pause, pause_server, resume_server
from forewarn.operations.tasks import (
    begin_task,
    give_back_task,
    is_still_begun,
    lose_own_tasks,
    report_tasks,
)
from forewarn.protocol.vocabulary import EventId, EventStatus, EventType, event_id
from forewarn.scheduler.tick import decide_and_record
from forewarn.storage.sqlite import open_sqlite

FLEET: Final = read_fleet_file('[[virtual_machine]]\nname = "a"\n[[virtual_machine]]\nname = "b"\n')
NODES: Final = ["n1", "n2", "n3"]
MOMENTS: Final = [1, 2, 11, 60, 299, 301]
"""Seconds: less than a permit lasts or an owner may be silent, and more."""
PERMIT: Final = timedelta(seconds=10)
ENDINGS: Final = [ImpactStatus.DONE, ImpactStatus.FAILED]


@dataclass
class Attempt:
    """What a server is about to begin, and whether it has committed that."""

    task: Task
    since: datetime
    is_committed: bool = False


@dataclass
class Server:
    """One server, with what is in its memory and on its disk."""

    node: str
    is_alive: bool = False
    is_cut_off: bool = False
    generation: int = 0
    attempts: dict[TaskKey, Attempt] = field(default_factory=dict)
    intents: set[TaskKey] = field(default_factory=set)
    claims: dict[TaskKey, Impact] = field(default_factory=dict)
    has_lost_records: bool = False

    @property
    def can_write(self) -> bool:
        return self.is_alive and not self.is_cut_off


class TasksMachine(RuleBasedStateMachine):
    """Impacts by scripts, each at most once, on two virtual machines."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = open_sqlite(Path(self.folder.name) / "forewarn.db", is_durable=False)
        self.now = datetime(2026, 1, 5, 8, tzinfo=UTC)
        self.ids = (event_id(f"{number:032x}") for number in count(1))
        self.servers = [Server(node) for node in NODES]
        self.leader = self.servers[0]
        self.epoch = 0
        self.events: list[EventId] = []
        self.witness: Counter[TaskKey] = Counter()
        self.over: dict[TaskKey, Task] = {}
        self.doubtful: set[TaskKey] = set()
        self.store.write(lambda tx: apply_fleet(tx, self.context("n1"), FLEET))
        for server in self.servers:
            self.server_starts(server)
        self.server_leads(self.leader)

    def teardown(self) -> None:
        try:
            self.all_is_well_again()
        finally:
            self.store.close()
            self.folder.cleanup()

    def context(self, node: str) -> Context:
        return Context(
            who=node,
            now=self.now,
            at=self.now,
            new_id=self.ids.__next__,
            rules=Rules(node=node, is_shared=True),
        )

    def tasks(self) -> dict[TaskKey, Task]:
        """Return all tasks there ever were."""
        found = self.store.read(
            lambda reading: [task for each in self.events for task in reading.tasks_of(each)]
        )
        return {task.key: task for task in found}

    def alive(self) -> list[Server]:
        return [each for each in self.servers if each.is_alive]

    def writing(self) -> list[Server]:
        return [each for each in self.servers if each.can_write]

    @precondition(lambda self: len(self.events) < 4)
    @rule(
        vms=st.sampled_from([("a",), ("a",), ("b",), ("a", "b")]),
        started=st.booleans(),
        is_seen=st.booleans(),
    )
    def event_is_made(self, vms: tuple[str, ...], *, started: bool, is_seen: bool) -> None:
        order = EventOrder(event_type=EventType.REBOOT, resources=vms, started=started)
        created = self.store.write(lambda tx: create_events(tx, self.context("ada"), order))
        self.events += [event.event_id for event in created]
        if is_seen and self.leader.can_write:
            self.leader_looks()

    def in_flight(self, status: EventStatus) -> list[EventId]:
        found = self.store.read(lambda reading: reading.events_in_flight())
        return [event.event_id for event in found if event.event_status is status]

    @precondition(lambda self: self.in_flight(EventStatus.SCHEDULED))
    @rule(data=st.data())
    def operator_starts(self, data: st.DataObject) -> None:
        event_id = data.draw(st.sampled_from(self.in_flight(EventStatus.SCHEDULED)))
        self.store.write(lambda tx: start_event(tx, self.context("ada"), event_id))

    @precondition(lambda self: self.in_flight(EventStatus.STARTED))
    @rule(data=st.data(), outcome=st.sampled_from(Outcome))
    def operator_completes(self, data: st.DataObject, outcome: Outcome) -> None:
        event_id = data.draw(st.sampled_from(self.in_flight(EventStatus.STARTED)))
        self.store.write(lambda tx: complete_event(tx, self.context("ada"), event_id, outcome))

    @rule()
    def operator_pauses_or_resumes(self) -> None:
        is_paused = self.store.read(find_pause) is not None
        self.pause(is_paused=not is_paused)

    def pause(self, *, is_paused: bool) -> None:
        context = self.context("ada")
        if is_paused:
            self.store.write(lambda tx: pause_server(tx, context))
        else:
            self.store.write(lambda tx: resume_server(tx, context))

    @rule(seconds=st.sampled_from(MOMENTS))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        for server in self.servers:
            if server.can_write:
                self.register(server)

    def owner(self, server: Server) -> Owner:
        return Owner(
            node=server.node,
            name=server.node,
            generation=server.generation,
            heard_at=self.now,
        )

    def register(self, server: Server) -> None:
        self.store.write(lambda tx: tx.put_owner(self.owner(server)))

    @precondition(lambda self: len(self.alive()) < len(self.servers))
    @rule(data=st.data())
    def some_server_starts(self, data: st.DataObject) -> None:
        dead = [each for each in self.servers if not each.is_alive]
        self.server_starts(data.draw(st.sampled_from(dead)))

    def server_starts(self, server: Server) -> None:
        server.is_alive, server.is_cut_off = True, False
        server.generation += 1
        self.register(server)
        if server.has_lost_records:
            server.has_lost_records = False
            own = self.store.read(lambda reading: reading.open_tasks(server.node))
            self.doubtful |= {task.key for task in own}
            self.store.write(
                lambda tx: lose_own_tasks(tx, server.node, "the records were lost", self.now)
            )

    @precondition(lambda self: self.alive())
    @rule(data=st.data(), loses_records=st.sampled_from([False] * 7 + [True]))
    def server_dies(self, data: st.DataObject, *, loses_records: bool) -> None:
        # The ones that are at something die more often.
        busy = [each for each in self.alive() if each.attempts or each is self.leader]
        server = data.draw(st.sampled_from(busy or self.alive()))
        server.is_alive = False
        server.attempts.clear()
        if loses_records:
            server.has_lost_records = True
            server.intents.clear()
            server.claims.clear()

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def server_loses_or_regains_touch(self, data: st.DataObject) -> None:
        server = data.draw(st.sampled_from(self.alive()))
        server.is_cut_off = not server.is_cut_off

    @precondition(lambda self: self.writing())
    @rule(data=st.data(), is_at_once=st.booleans())
    def another_server_leads(self, data: st.DataObject, *, is_at_once: bool) -> None:
        self.server_leads(data.draw(st.sampled_from(self.writing())))
        if is_at_once:
            self.leader_looks()

    def server_leads(self, server: Server) -> None:
        self.leader = server
        self.epoch = self.store.write(lambda tx: tx.next_epoch())

    @precondition(lambda self: self.leader.can_write)
    @rule()
    def leader_looks(self) -> None:
        while self.store.write(
            lambda tx: decide_and_record(
                tx, self.context(self.leader.node), {}, Assigner(), epoch=self.epoch
            )
        ).decisions:
            pass

    @precondition(lambda self: any(map(self.waiting, self.writing())))
    @rule(data=st.data(), until=st.sampled_from(["intent", "commit", "claim"]))
    def server_begins(self, data: st.DataObject, until: str) -> None:
        server = data.draw(st.sampled_from(list(filter(self.waiting, self.writing()))))
        task = data.draw(st.sampled_from(self.waiting(server)))
        self.intend(server, task)
        if until != "intent":
            self.commit(server, task.key)
        if until == "claim" and task.key in server.attempts:
            self.claim(server, task.key)

    @precondition(lambda self: any(server.attempts for server in self.alive()))
    @rule(data=st.data())
    def server_goes_on(self, data: st.DataObject) -> None:
        at_it = [server for server in self.alive() if server.attempts]
        server = data.draw(st.sampled_from(at_it))
        key = data.draw(st.sampled_from(list(server.attempts)))
        if server.attempts[key].is_committed:
            self.claim(server, key)
        elif server.can_write:
            self.commit(server, key)

    def waiting(self, server: Server) -> list[Task]:
        """Return what *server* may be about to begin."""
        tasks = self.store.read(lambda reading: reading.open_tasks(server.node))
        return [
            task
            for task in tasks
            if task.state is TaskState.RESERVED
            and task.key not in server.attempts
            and task.key not in server.claims
        ]

    def intend(self, server: Server, task: Task) -> None:
        server.intents.add(task.key)
        server.attempts[task.key] = Attempt(task, self.now)

    def commit(self, server: Server, key: TaskKey) -> None:
        attempt = server.attempts[key]
        attempt.is_committed = self.store.write(
            lambda tx: begin_task(tx, self.owner(server), attempt.task, self.now)
        )
        if not attempt.is_committed:
            del server.attempts[key]

    def claim(self, server: Server, key: TaskKey) -> None:
        """Really begin, unless that took so long that somebody may have decided otherwise."""
        attempt = server.attempts.pop(key)
        if self.now - attempt.since > PERMIT and not self.is_valid(server, attempt.task):
            return
        if key not in server.claims:
            server.claims[key] = word(ImpactStatus.RUNNING)
            self.witness[key] += 1

    def is_valid(self, server: Server, task: Task) -> bool:
        is_paused = self.store.read(find_pause) is not None
        return (
            server.can_write
            and not is_paused
            and self.store.read(lambda reading: is_still_begun(reading, self.owner(server), task))
        )

    @precondition(lambda self: self.running())
    @rule(data=st.data(), status=st.sampled_from(ENDINGS))
    def script_ends(self, data: st.DataObject, status: ImpactStatus) -> None:
        server, key = data.draw(st.sampled_from(self.running()))
        server.claims[key] = word(status)

    def running(self) -> list[tuple[Server, TaskKey]]:
        return [
            (server, key)
            for server in self.servers
            for key, said in server.claims.items()
            if not said.is_over
        ]

    @precondition(lambda self: self.events and self.writing())
    @rule(data=st.data())
    def server_attends(self, data: st.DataObject) -> None:
        self.attend(data.draw(st.sampled_from(self.writing())))

    def attend(self, server: Server) -> None:
        """Write down what the records say, as the watcher of a server does."""
        words: list[tuple[Task, Impact]] = []
        for task in self.store.read(lambda reading: reading.open_tasks(server.node)):
            if task.key in server.attempts:
                continue
            if said := server.claims.get(task.key):
                words.append((task, said))
            elif task.state is not TaskState.RESERVED and task.key in server.intents:
                self.give_back(server, task)
            elif task.state is not TaskState.RESERVED:
                words.append((task, word(ImpactStatus.UNKNOWN)))
        self.store.write(lambda tx: report_tasks(tx, self.owner(server), words, self.now))

    def give_back(self, server: Server, task: Task) -> None:
        self.store.write(lambda tx: give_back_task(tx, self.owner(server), task, self.now))

    @invariant()
    def nothing_is_begun_twice(self) -> None:
        assert all(times == 1 for times in self.witness.values())

    @invariant()
    def what_is_reserved_was_begun_by_nobody(self) -> None:
        for task in self.tasks().values():
            assert task.state is not TaskState.RESERVED or not self.witness[task.key]

    @invariant()
    def what_is_over_stays_as_it_is(self) -> None:
        for key, task in self.tasks().items():
            if task.is_over:
                first = self.over.setdefault(key, task)
                assert (task.state, task.said, task.node, task.ended_at) == (
                    first.state,
                    first.said,
                    first.node,
                    first.ended_at,
                )
            else:
                assert key not in self.over

    @invariant()
    def machine_has_one_impact_at_a_time(self) -> None:
        open_on: Counter[VmName | None] = Counter()
        under_way = self.store.read(lambda reading: reading.events_in_flight())
        in_flight = {event.event_id for event in under_way}
        for task in self.tasks().values():
            open_on[task.vm] += not task.is_over and task.subject in in_flight
        assert all(number <= 1 for number in open_on.values())

    def all_is_well_again(self) -> None:
        """Bring every server back and let time pass: every task comes to its end."""
        self.pause(is_paused=False)
        for server in self.servers:
            server.is_cut_off = False
            if not server.is_alive:
                self.server_starts(server)
        self.now += timedelta(hours=1)
        for _ in range(4 + 3 * len(self.events)):
            self.time_passes(20)
            self.leader_looks()
            for server in self.servers:
                self.work_off(server)
        self.leader_looks()
        left = {key: task for key, task in self.tasks().items() if not task.is_over}
        assert {task.state for task in left.values()} <= {TaskState.UNKNOWN, TaskState.RESERVED}
        # Nobody knows what became of these, and the others on the same machine wait for them.
        unknown = {key for key, task in left.items() if task.state is TaskState.UNKNOWN}
        assert unknown <= self.doubtful
        assert unknown or not left
        self.nothing_is_begun_twice()
        self.operator_ends_the_rest()

    def work_off(self, server: Server) -> None:
        for key in [key for key, each in server.attempts.items() if not each.is_committed]:
            self.commit(server, key)
        for key in list(server.attempts):
            self.claim(server, key)
        self.attend(server)
        for task in self.waiting(server):
            self.intend(server, task)
        for running, key in self.running():
            running.claims[key] = word(ImpactStatus.DONE)

    def operator_ends_the_rest(self) -> None:
        while started := self.in_flight(EventStatus.STARTED):
            for each in started:
                self.store.write(
                    partial(complete_event, context=self.context("ada"), event_id=each)
                )
            self.leader_looks()
        assert all(task.is_over for task in self.tasks().values())
        self.what_is_over_stays_as_it_is()
        assert self.store.read(lambda reading: reading.tasks()) == ()


TestTasks = TasksMachine.TestCase
TestTasks.settings = settings(max_examples=settings().max_examples * 3 // 4)
