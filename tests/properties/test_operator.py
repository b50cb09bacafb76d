"""Operators who say the truth, at any time, of what hangs anywhere.

Replicas go away and come back, their scripts end late, fail, or die with their machine. Operators
type every verb, and every command that `explain` prints. What is out of service is counted by what
really runs, and whatever happens, somebody can bring the Maintenance to its end.
"""

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.roll_out import CANNOT_KNOW, DONE, FAILED, WORK, RollOut

from forewarn.domain.errors import ConflictError, UnknownEventError
from forewarn.domain.event import Outcome
from forewarn.domain.host_operation import OperationOutcome
from forewarn.domain.impact import Impact
from forewarn.domain.names import VmName
from forewarn.domain.task import SILENT_AFTER, Task, TaskKey, TaskState
from forewarn.operations.context import Context
from forewarn.operations.events import complete_event
from forewarn.operations.maintenances import (
    abort_maintenance,
    end_host_turn,
    retry_failures,
    skip_failures,
)
from forewarn.operations.pausing import pause_server, resume_server
from forewarn.operations.tasks import TaskSelection, settle_selected
from forewarn.ports.store import Transaction
from forewarn.protocol.vocabulary import EventStatus, event_id
from forewarn.storage.sqlite import open_sqlite

pytestmark = pytest.mark.timeout(300)

HOSTS = ("kvm-1", "kvm-2", "kvm-3")
FLEET = """
[[availability_set]]
name = "web"
update_domains = 3
[[virtual_machine]]
name = "web-0"
availability_set = "web"
update_domain = 0
host = "kvm-1"
[[virtual_machine]]
name = "web-1"
availability_set = "web"
update_domain = 1
host = "kvm-2"
[[virtual_machine]]
name = "web-2"
availability_set = "web"
update_domain = 0
host = "kvm-3"
[[virtual_machine]]
name = "db"
host = "kvm-3"
"""
WORKS = [(replace(WORK, has_verify=False),), (WORK,), ()]
SAID = st.sampled_from([DONE, DONE, FAILED])
VERBS = ["event complete"] * 6 + ["complete", "fail", "skip", "retry"] * 2 + ["event fail", "abort"]
TURNS = 12

Work = Callable[[Transaction], object]


@cache
def empty_database() -> Path:
    """Return a database with all its tables, to copy."""
    path = Path(tempfile.mkdtemp()) / "forewarn.db"
    open_sqlite(path, is_durable=False).close()
    return path


class Operator(RuleBasedStateMachine):
    @initialize(
        works=st.sampled_from(WORKS),
        by_hand=st.sampled_from([(), (), (), ("web-0",), ("db", "web-1")]),
        at_once=st.sampled_from([3, 2, None]),
        hold_all=st.booleans(),
        in_order=st.booleans(),
    )
    def prepare(
        self,
        works: tuple[object, ...],
        by_hand: tuple[str, ...],
        at_once: int | None,
        *,
        hold_all: bool,
        in_order: bool,
    ) -> None:
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "forewarn.db"
        shutil.copy(empty_database(), path)
        self.store = open_sqlite(path, is_durable=False)
        self.made = RollOut(self.store, FLEET, rules=works)  # type: ignore[arg-type]
        self.made.commands.by_hand = frozenset(map(VmName, by_hand))
        self.late: dict[TaskKey, tuple[Task, Impact]] = {}
        self.course = {
            "at_once": at_once,
            "hold_all": hold_all,
            "in_order": in_order,
            "min_available": 30,
        }
        self.made.start(*HOSTS, **self.course)
        self.time_passes(minutes=16, ends=False, begins=True)

    @rule(
        minutes=st.sampled_from([16, 16, 60, 1]),
        ends=st.sampled_from([True, True, False]),
        begins=st.sampled_from([True, True, True, False]),
    )
    def time_passes(self, minutes: int, *, ends: bool, begins: bool) -> None:
        """Let scripts end, and owners begin what is reserved meanwhile, or be slow."""
        for task in list(self.made.running.values()) if ends else ():
            if task.node in self.made.alive:
                self.made.end(task)
        if self.made.report().maintenance.finished_at:
            self.made.start(*HOSTS, **self.course)
        self.made.advance(minutes=minutes)
        for task in self.made.open() if begins else ():
            self.made.begin(task)

    @rule(data=st.data(), is_paused=st.booleans())
    def owner_begins_in_vain(self, data: st.DataObject, *, is_paused: bool) -> None:
        """It stops before it has done anything, or the server is paused."""
        task = self.draw(data, lambda task: task.state is TaskState.RESERVED)
        if task and is_paused:
            self.say(lambda tx: pause_server(tx, self.context()))
            assert not self.made.begin(task)
            self.say(lambda tx: resume_server(tx, self.context()))
        elif task and self.made.begin(task):
            self.made.give_back(task)

    @rule(data=st.data(), said=SAID)
    def script_ends(self, data: st.DataObject, said: Impact) -> None:
        task = self.draw(data, lambda task: task.key in self.made.running)
        if task is None:
            return
        if task.node in self.made.alive:
            self.made.end(task, said)
        else:
            self.late[task.key] = (self.made.running.pop(task.key), said)

    @rule(what=st.sampled_from(["off", "cut off", "back", "back", "told", "silent", "led"]))
    def replicas_come_and_go(self, what: str) -> None:
        made = self.made
        if what in {"off", "cut off"} and made.alive == {"a", "b"}:
            if what == "off":
                for task in [t for t in made.running.values() if t.node == made.rules.node]:
                    self.late[task.key] = (made.running.pop(task.key), CANNOT_KNOW)
            made.lose(made.rules.node)
        for node in {"a", "b"} - made.alive if what == "back" else ():
            made.bring_back(node)
        if what == "told":
            self.tell_what_has_ended()
        if what == "silent":
            made.pass_real_time(SILENT_AFTER)
        if what == "led":
            made.lead(max(made.alive, key=lambda node: node != made.rules.node))

    def tell_what_has_ended(self) -> None:
        """Have replicas that are back report what ended without them."""
        for key, (task, said) in list(self.late.items()):
            if task.node in self.made.alive:
                self.made.say(task, said)
                del self.late[key]

    @rule(data=st.data(), is_done=st.booleans())
    def operator_settles(self, data: st.DataObject, *, is_done: bool) -> None:
        task = self.draw(data, lambda task: not self.is_running_unheard([task]))
        if task:
            chosen = TaskSelection(task_ids=(task.task_id,))
            self.say(lambda tx: settle_selected(tx, self.context(), chosen, is_done=is_done))

    @rule(data=st.data(), verb=st.sampled_from(VERBS))
    def operator_says_something(self, data: st.DataObject, verb: str) -> None:
        report = self.made.report()
        busy = {each.host for each in report.operations if each.has_begun and not each.is_over}
        busy |= {each.host for each in report.failures if each.host}
        host = data.draw(st.sampled_from(sorted(busy) or HOSTS))
        if not self.is_running_unheard(task for task in self.made.open() if task.host == host):
            self.say(self.words(host)[verb])

    def words(self, host: str) -> dict[str, Work]:
        """Return what each verb does."""
        key, done, failed = (
            self.made.maintenance_id,
            OperationOutcome.SUCCEEDED,
            OperationOutcome.FAILED,
        )
        started = EventStatus.STARTED
        found = (
            e for e in self.made.report().events if e.event_status is started and e.host == host
        )
        about = next((event.event_id for event in found), event_id("0" * 32))
        return {
            "event complete": lambda tx: complete_event(tx, self.context(), about),
            "event fail": lambda tx: complete_event(tx, self.context(), about, Outcome.FAILED),
            "complete": lambda tx: end_host_turn(tx, self.context(), key, host, done),
            "fail": lambda tx: end_host_turn(tx, self.context(), key, host, failed),
            "skip": lambda tx: skip_failures(tx, self.context(), key, (host,)),
            "retry": lambda tx: retry_failures(tx, self.context(), key, (host,)),
            "abort": lambda tx: abort_maintenance(tx, self.context(), key),
        }

    @rule(data=st.data())
    def operator_types_what_is_printed(self, data: st.DataObject) -> None:
        commands = self.made.printed()
        if commands:
            command = data.draw(st.sampled_from(commands))
            if not self.is_running_unheard(self.meant(command)):
                self.made.type(command)

    @invariant()
    def enough_machines_are_in_service(self) -> None:
        self.made.check()

    @invariant()
    def one_thing_at_a_time_touches_a_machine(self) -> None:
        vms = self.store.read(lambda reading: reading.topology()).virtual_machines.values()
        touched = Counter(
            vm.name
            for task in self.made.running.values()
            for vm in vms
            if not task.is_check and (task.vm or task.host) in {vm.name, vm.host}
        )
        assert all(number == 1 for number in touched.values()), self.made.running

    @invariant()
    def what_is_printed_is_accepted(self) -> None:
        for command in self.made.printed():
            self.made.try_out(command)

    def teardown(self) -> None:
        """Have everybody come back, and an operator do what is printed, until it is over."""
        try:
            self.come_to_the_end()
        finally:
            self.store.close()
            self.folder.cleanup()

    def come_to_the_end(self) -> None:
        for node in {"a", "b"} - self.made.alive:
            self.made.bring_back(node)
        self.tell_what_has_ended()
        for _ in range(TURNS):
            for task in list(self.made.running.values()):
                self.made.end(task)
            self.made.carry_on()
            if self.made.report().maintenance.finished_at:
                break
            commands = self.made.printed()
            assert commands, self.made.explain().standstill
            self.made.type(commands[-1])
        assert self.made.report().maintenance.finished_at
        assert self.made.open() == ()

    def context(self) -> Context:
        return self.made.context()

    def say(self, work: Work) -> None:
        """Do what an operator says, unless it is refused."""
        try:
            self.made.write(work)
        except (ConflictError, UnknownEventError):
            self.made.scheduler.settle()

    def draw(self, data: st.DataObject, is_fit: Callable[[Task], bool]) -> Task | None:
        found = {task.task_id: task for task in self.made.open() if is_fit(task)}
        return found[data.draw(st.sampled_from(list(found)))] if found else None

    def is_running_unheard(self, tasks: Iterable[Task]) -> bool:
        """Tell whether one of *tasks* still runs where nobody knows; a truthful operator waits."""
        return any(t.key in self.made.running and t.state is TaskState.UNKNOWN for t in tasks)

    def meant(self, command: str) -> list[Task]:
        """Return what *command* may say something of: at most everything."""
        named = [task for task in self.made.open() if task.task_id in command]
        return named or list(self.made.open())


Operator.TestCase.settings = settings(max_examples=120, stateful_step_count=20)
TestOperator = Operator.TestCase
