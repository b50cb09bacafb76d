"""Maintenances by host on a real store in virtual time, with work on the hosts themselves."""

from collections import Counter
from collections.abc import Iterator, MutableMapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.tasks import COMMAND, DONE, Workers

from forewarn.clocks import VirtualClock
from forewarn.domain.arrivals import HostUnderWayError
from forewarn.domain.course import Course
from forewarn.domain.errors import IllegalTransitionError, MaintenanceOverError
from forewarn.domain.event import Outcome, ScheduledEvent
from forewarn.domain.failures import StillUnderWayError, UnknownFailureError, UnknownPlaceError
from forewarn.domain.host_operation import HostPhase, OperationOutcome
from forewarn.domain.host_work import HostTask, HostTaskKind, HostWorkRule
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.maintenance import MaintenanceOrder, MaintenanceOutcome
from forewarn.domain.names import HostName, MaintenanceId, VmName
from forewarn.domain.standing import MaintenanceStatus, Standing
from forewarn.domain.standstill import Standstill
from forewarn.domain.task import Task
from forewarn.domain.topology import Topology
from forewarn.domain.why import ReasonKind
from forewarn.executors.simulated import Simulated
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.context import Context, Rules
from forewarn.operations.events import (
    SharedOperationError,
    approve_event,
    cancel_event,
    complete_event,
    start_event,
)
from forewarn.operations.explain import explain_event, explain_maintenance
from forewarn.operations.inventory import FleetChange, apply_fleet, plan_fleet, remove_vm
from forewarn.operations.maintenances import (
    MaintenanceReport,
    abort_maintenance,
    pause_maintenance,
    report_maintenance,
    resume_maintenance,
    retry_failures,
    skip_failures,
    start_maintenance,
)
from forewarn.operations.pausing import pause_server, resume_server
from forewarn.operations.safeguards import ApplyOptions, HostBusyError
from forewarn.ports.runner import Assignment
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventId, EventStatus, EventType, event_id
from forewarn.scheduler.scheduler import Scheduler
from forewarn.storage.sqlite import open_sqlite
from forewarn.wording.command_lines import say_blocker, say_reason, say_verdict

FLEET = """
[[availability_set]]
name = "web"
update_domains = 3
[[host]]
name = "kvm-0"
[[host]]
name = "empty"
[[virtual_machine]]
name = "web-0"
availability_set = "web"
update_domain = 0
host = "kvm-0"
[[virtual_machine]]
name = "db"
host = "kvm-0"
[[virtual_machine]]
name = "web-1"
availability_set = "web"
update_domain = 1
host = "kvm-1"
[[virtual_machine]]
name = "web-2"
availability_set = "web"
update_domain = 2
"""
ONE_HOST = """
[[virtual_machine]]
name = "web-1"
host = "kvm-1"
"""
PLACEMENT_GROUP = """
[[scale_set]]
name = "batch"

[[virtual_machine]]
name = "batch-0"
scale_set = "batch"
placement_group = "pg1"
"""
MONDAY = datetime(2026, 1, 5, 8, tzinfo=UTC)
WORK = HostWorkRule(
    has_verify=True,
    has_return=True,
    verify_within=timedelta(minutes=5),
    verify_every=timedelta(minutes=1),
)


class Crew:
    """Whoever works on the hosts: does what the test has it say, and counts."""

    def __init__(self, store: Store) -> None:
        self.rules = (WORK,)
        self.says: dict[HostTaskKind, Impact] = {}
        self.assignment = COMMAND
        self.failures: dict[str, str] = {}
        self.workers = Workers(store, self.word_on)
        self._simulated = Simulated(failure_of_impact=lambda _, vm: self.failures.get(vm, ""))

    @property
    def begun(self) -> Counter[tuple[str | None, HostTaskKind, int, str | None]]:
        """How often each task was begun, by host, kind, attempt and virtual machine."""
        found: Counter[tuple[str | None, HostTaskKind, int, str | None]] = Counter()
        for key, times in self.workers.begun.items():
            task = self.workers.store.read(lambda reading, key=key: reading.task(key))  # type: ignore[misc]
            attempt = task.name.partition("-")[2] if kind_of(task) is HostTaskKind.VERIFY else 1
            found[task.host, kind_of(task), int(attempt), task.vm] += times
        return +found

    def word_on(self, task: Task) -> Impact:
        return self.says.get(kind_of(task), DONE)

    def assign_impact(
        self, event: ScheduledEvent, vm: VmName, topology: Topology, now: datetime
    ) -> Assignment:
        return self._simulated.assign_impact(event, vm, topology, now)

    def assign_host_task(self, task: HostTask, topology: Topology, now: datetime) -> Assignment:
        del task, topology, now
        return self.assignment


def kind_of(task: Task) -> HostTaskKind:
    return HostTaskKind(task.name.partition("-")[0])


class Cluster:
    """A server without its network."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = VirtualClock(MONDAY)
        self.rules = Rules(is_simulated=True)
        self.crew = Crew(store)
        self.failures = self.crew.failures
        self._ids = (event_id(f"{number:032x}") for number in count(1))
        self.scheduler = self.lead()
        self.maintenance_id = MaintenanceId("")
        self.apply(FLEET)

    def context(self) -> Context:
        return self._context("alice")

    def _context(self, who: str) -> Context:
        now = self.clock.now()
        return Context(who=who, now=now, at=now, new_id=self._ids.__next__, rules=self.rules)

    def lead(self) -> Scheduler:
        """Take over, knowing nothing but what is stored."""
        self.scheduler = Scheduler(
            store=self.store,
            assigner=self.crew,
            context=lambda: self._context("scheduler"),
            epoch=self.store.write(lambda tx: tx.next_epoch()),
        )
        return self.scheduler

    def give_work(self) -> None:
        self.rules = replace(self.rules, host_works=self.crew.rules)

    def apply(self, text: str, **chosen: Any) -> FleetChange:
        declared, options = read_fleet_file(text), ApplyOptions(**chosen, allow_removals=4)
        change = self.store.write(
            lambda tx: apply_fleet(tx, self.context(), declared, options=options)
        )
        self.settle()
        return change

    def start(self, *hosts: str, **course: object) -> None:
        order = MaintenanceOrder(
            event_type=EventType.REBOOT,
            hosts=hosts,
            course=Course(**course),  # type: ignore[arg-type]
        )
        begun = self.store.write(lambda tx: start_maintenance(tx, self.context(), order))
        self.maintenance_id = begun.maintenance_id
        self.settle()

    def advance(self, **duration: float) -> None:
        self.crew.workers.advance(self.scheduler, self.clock, timedelta(**duration))

    def settle(self) -> None:
        self.crew.workers.settle(self.scheduler, self.clock.now)

    def retry(self, *places: str) -> None:
        self.store.write(lambda tx: retry_failures(tx, self.context(), self.maintenance_id, places))
        self.settle()

    def skip(self, *places: str) -> None:
        self.store.write(lambda tx: skip_failures(tx, self.context(), self.maintenance_id, places))
        self.settle()

    def abort(self) -> None:
        self.store.write(lambda tx: abort_maintenance(tx, self.context(), self.maintenance_id))
        self.settle()

    def approve(self, event: ScheduledEvent) -> None:
        self.store.write(lambda tx: approve_event(tx, self.context(), event.event_id))

    def start_event(self, event: ScheduledEvent) -> None:
        self.store.write(lambda tx: start_event(tx, self.context(), event.event_id))

    def report(self) -> MaintenanceReport:
        return self.store.read(
            lambda reading: report_maintenance(reading, self.context(), self.maintenance_id)
        )

    def in_flight(self) -> dict[str, ScheduledEvent]:
        events = self.store.read(lambda reading: reading.events_in_flight())
        return {vm: event for event in events for vm in event.resources}

    def phase(self, host: str) -> HostPhase:
        (*_, operation) = (each for each in self.report().operations if each.host == host)
        return operation.phase

    def reasons(self, event: ScheduledEvent) -> dict[ReasonKind, str]:
        found = self.store.read(
            lambda reading: explain_event(reading, self.context(), event.event_id)
        )
        return {reason.kind: say_reason(reason) for reason in found.reasons}

    def standstill(self) -> Standstill:
        return self.store.read(
            lambda reading: explain_maintenance(reading, self.context(), self.maintenance_id)
        ).standstill

    def explanation(self) -> str:
        found, key = self.standstill(), MaintenanceId(self.maintenance_id)
        said = [say_blocker(blocker, key)[0] for blocker in found.blockers]
        return " ".join([*said, say_verdict(found.verdict)])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    store = open_sqlite(tmp_path / "forewarn.db")
    yield Cluster(store)
    store.close()


def test_one_host_at_a_time_and_everything_holds_at_the_first_failure(cluster: Cluster) -> None:
    cluster.failures["db"] = "no disk"
    cluster.start("kvm-0", "kvm-1")

    assert cluster.in_flight().keys() == {"web-0", "db"}
    cluster.advance(hours=5)

    report = cluster.report()
    assert (report.status, report.maintenance.finished_at) == (MaintenanceStatus.HELD, None)
    assert report.standings == {"kvm-0": Standing.FAILED, "kvm-1": Standing.WAITING}
    (failure,) = report.failures
    assert (failure.place, failure.vms, failure.reason) == ("kvm-0", ("db",), "db: no disk")
    assert cluster.in_flight() == {}


def test_failure_of_the_last_host_is_held_and_not_completed(cluster: Cluster) -> None:
    cluster.failures["web-1"] = "no disk"
    cluster.start("kvm-1")
    cluster.advance(hours=5)

    assert cluster.report().status is MaintenanceStatus.HELD
    assert f"maintenance retry {cluster.maintenance_id} kvm-1" in cluster.explanation()
    assert "The maintenance does not continue until an operator acts" in cluster.explanation()


def test_resuming_leaves_a_failure_as_it_is(cluster: Cluster) -> None:
    cluster.failures["web-1"] = "no disk"
    cluster.start("kvm-1")
    cluster.advance(hours=5)

    cluster.store.write(
        lambda tx: resume_maintenance(tx, cluster.context(), cluster.maintenance_id)
    )
    cluster.advance(hours=5)

    assert cluster.report().status is MaintenanceStatus.HELD


def test_retry_tries_the_host_again_with_new_events_and_full_notice(cluster: Cluster) -> None:
    cluster.failures["db"] = "no disk"
    cluster.start("kvm-0", "kvm-1")
    cluster.advance(hours=5)
    cluster.failures.clear()

    cluster.retry("KVM-0")

    again = cluster.in_flight()
    assert again.keys() == {"web-0", "db"}
    assert again["db"].not_before == cluster.clock.now() + timedelta(minutes=15)
    cluster.advance(hours=5)
    report = cluster.report()
    assert report.standings == {"kvm-0": Standing.SUCCEEDED, "kvm-1": Standing.SUCCEEDED}
    assert report.maintenance.outcome is MaintenanceOutcome.SUCCEEDED
    assert report.status is MaintenanceStatus.COMPLETED
    assert [each.outcome for each in report.operations] == [
        OperationOutcome.FAILED,
        OperationOutcome.SUCCEEDED,
        OperationOutcome.SUCCEEDED,
    ]


def test_skip_passes_over_the_host_and_the_end_is_incomplete(cluster: Cluster) -> None:
    cluster.failures["db"] = "no disk"
    cluster.start("kvm-0", "kvm-1")
    cluster.advance(hours=5)

    cluster.skip()
    cluster.advance(hours=5)

    report = cluster.report()
    assert report.standings == {"kvm-0": Standing.SKIPPED, "kvm-1": Standing.SUCCEEDED}
    assert report.maintenance.outcome is MaintenanceOutcome.INCOMPLETE
    assert report.status is MaintenanceStatus.INCOMPLETE


def test_scopes_are_retried_and_skipped_by_name(cluster: Cluster) -> None:
    cluster.failures |= {"web-0": "no disk", "db": "no disk"}
    order = MaintenanceOrder(event_type=EventType.REBOOT, scopes=("web", "db"))
    begun = cluster.store.write(lambda tx: start_maintenance(tx, cluster.context(), order))
    cluster.maintenance_id = begun.maintenance_id
    cluster.advance(hours=5)
    cluster.failures.clear()

    cluster.retry("web")
    assert cluster.in_flight() == {}  # the other one holds everything
    cluster.skip("virtual-machine/db")
    cluster.advance(hours=5)

    report = cluster.report()
    assert report.standings == {
        "availability-set/web": Standing.SUCCEEDED,
        "virtual-machine/db": Standing.SKIPPED,
    }


def test_placement_group_is_skipped_by_the_name_of_its_scale_set(cluster: Cluster) -> None:
    cluster.apply(PLACEMENT_GROUP)
    cluster.failures["batch-0"] = "no disk"
    order = MaintenanceOrder(event_type=EventType.REBOOT, scopes=("batch",))
    begun = cluster.store.write(lambda tx: start_maintenance(tx, cluster.context(), order))
    cluster.maintenance_id = begun.maintenance_id
    cluster.advance(hours=5)

    with pytest.raises(UnknownPlaceError, match=r"Unknown scope 'batches' .* Did you mean batch\?"):
        cluster.skip("batches")
    cluster.skip("Batch")

    assert cluster.report().standings == {"scale-set/batch/pg1": Standing.SKIPPED}


def test_host_that_leaves_the_fleet_before_it_is_tried_again_is_not_done(
    cluster: Cluster,
) -> None:
    cluster.failures["db"] = "no disk"
    cluster.start("kvm-0", "kvm-1")
    cluster.advance(hours=5)
    cluster.store.write(lambda tx: pause_maintenance(tx, cluster.context(), cluster.maintenance_id))
    cluster.retry("kvm-0")
    assert cluster.report().standings[HostName("kvm-0")] is Standing.WAITING

    cluster.apply(ONE_HOST, prune=True)

    assert cluster.report().standings == {"kvm-0": Standing.GONE, "kvm-1": Standing.WAITING}
    assert cluster.standstill().not_done == {"kvm-0": Standing.GONE}
    cluster.store.write(
        lambda tx: resume_maintenance(tx, cluster.context(), cluster.maintenance_id)
    )
    cluster.advance(hours=5)
    report = cluster.report()
    assert report.maintenance.outcome is MaintenanceOutcome.INCOMPLETE
    assert report.standings == {"kvm-0": Standing.GONE, "kvm-1": Standing.SUCCEEDED}
    assert cluster.standstill().not_done == {"kvm-0": Standing.GONE}


def test_host_in_maintenance_is_not_removed(cluster: Cluster) -> None:
    cluster.give_work()
    cluster.crew.says[HostTaskKind.WORK] = Impact(status=ImpactStatus.RUNNING)
    cluster.start("empty")
    assert cluster.phase("empty") is HostPhase.WORK

    with pytest.raises(
        HostBusyError, match=f"empty is part of Maintenance {cluster.maintenance_id}"
    ):
        cluster.apply(ONE_HOST, prune=True)
    change = cluster.apply(ONE_HOST, prune=True, skip_busy=True)

    hosts = cluster.store.read(lambda reading: reading.topology()).hosts
    assert hosts.keys() == {"empty", "kvm-1"}
    assert [each.host for each in change.skipped] == ["empty"]
    cluster.crew.says.clear()
    cluster.lead()
    cluster.settle()
    cluster.apply(ONE_HOST, prune=True)
    hosts = cluster.store.read(lambda reading: reading.topology()).hosts
    assert hosts.keys() == {"kvm-1"}


def test_machine_that_leaves_the_fleet_before_it_is_tried_again_is_not_done(
    cluster: Cluster,
) -> None:
    cluster.failures |= {"web-0": "no disk", "db": "no disk"}
    order = MaintenanceOrder(event_type=EventType.REBOOT, scopes=("web", "db"))
    begun = cluster.store.write(lambda tx: start_maintenance(tx, cluster.context(), order))
    cluster.maintenance_id = begun.maintenance_id
    cluster.advance(hours=5)
    cluster.failures.clear()
    cluster.store.write(lambda tx: remove_vm(tx, cluster.context(), "db"))

    cluster.retry()
    cluster.advance(hours=5)

    report = cluster.report()
    assert report.maintenance.outcome is MaintenanceOutcome.INCOMPLETE
    assert report.standings == {
        "availability-set/web": Standing.SUCCEEDED,
        "virtual-machine/db": Standing.GONE,
    }


def test_only_what_has_failed_and_is_over_can_be_retried(cluster: Cluster) -> None:
    cluster.start("kvm-0", "kvm-1")
    with pytest.raises(UnknownFailureError, match="Nothing has failed"):
        cluster.retry()
    with pytest.raises(UnknownFailureError, match="Nothing has failed in 'kvm-1'"):
        cluster.skip("kvm-1")
    with pytest.raises(
        UnknownPlaceError, match=r"Unknown host 'rack' in .* It includes kvm-0, kvm-1"
    ):
        cluster.retry("rack")
    events = cluster.in_flight()
    for event in events.values():
        cluster.start_event(event)

    cluster.store.write(
        lambda tx: complete_event(
            tx, cluster.context(), events["db"].event_id, Outcome.FAILED, "no disk"
        )
    )

    with pytest.raises(StillUnderWayError, match="kvm-0 is still under way"):
        cluster.retry("kvm-0")
    assert not cluster.report().failures[0].is_over


def test_host_without_machines_has_nothing_to_do_and_is_said_so(cluster: Cluster) -> None:
    cluster.start("empty", "kvm-1")
    cluster.advance(hours=2)

    report = cluster.report()
    assert report.standings == {"empty": Standing.NOTHING_TO_DO, "kvm-1": Standing.SUCCEEDED}
    assert report.status is MaintenanceStatus.COMPLETED


def test_host_without_machines_is_worked_on(cluster: Cluster) -> None:
    cluster.give_work()
    cluster.start("empty")
    cluster.advance(minutes=1)

    assert cluster.report().standings == {"empty": Standing.SUCCEEDED}
    assert cluster.crew.begun == {
        ("empty", HostTaskKind.WORK, 1, None): 1,
        ("empty", HostTaskKind.VERIFY, 1, None): 1,
    }


def test_canary_without_machines_goes_first(cluster: Cluster) -> None:
    cluster.give_work()
    cluster.crew.says[HostTaskKind.WORK] = Impact(status=ImpactStatus.RUNNING)
    cluster.start("kvm-1", "empty", canary=("empty",), at_once=2, soak=timedelta(minutes=30))

    assert cluster.phase("empty") is HostPhase.WORK
    assert cluster.in_flight() == {}
    cluster.crew.says[HostTaskKind.WORK] = Impact(status=ImpactStatus.DONE)
    cluster.lead()
    cluster.settle()
    assert cluster.phase("empty") is HostPhase.OVER
    assert "2026-01-05 08:30:00 GMT" in cluster.explanation()
    cluster.advance(minutes=31)
    assert cluster.in_flight().keys() == {"web-1"}


def test_host_is_worked_on_once_when_every_machine_is_out_of_the_way(cluster: Cluster) -> None:
    cluster.give_work()
    cluster.start("kvm-0")
    cluster.crew.says[HostTaskKind.WORK] = Impact(status=ImpactStatus.RUNNING, reason="patching")
    cluster.advance(minutes=20)

    events = cluster.in_flight()
    assert cluster.crew.begun == {}
    assert {event.event_status for event in events.values()} == {EventStatus.STARTED}
    cluster.advance(minutes=10)
    assert cluster.crew.begun == {("kvm-0", HostTaskKind.WORK, 1, None): 1}
    assert cluster.reasons(events["db"])[ReasonKind.HOST_WORK] == (
        "The work on kvm-0 (patching) is under way."
    )
    assert "The work on kvm-0 (patching) is under way." in cluster.explanation()

    cluster.lead()
    cluster.settle()  # a crash: it is asked, and not begun again
    cluster.crew.says.clear()
    cluster.lead()
    cluster.settle()

    assert cluster.in_flight() == {}
    assert cluster.crew.begun == {
        ("kvm-0", HostTaskKind.WORK, 1, None): 1,
        ("kvm-0", HostTaskKind.VERIFY, 1, None): 1,
        ("kvm-0", HostTaskKind.RETURN, 1, "web-0"): 1,
        ("kvm-0", HostTaskKind.RETURN, 1, "db"): 1,
    }
    assert cluster.report().maintenance.outcome is MaintenanceOutcome.SUCCEEDED


def test_machine_that_takes_longer_is_waited_for(cluster: Cluster) -> None:
    cluster.give_work()
    cluster.start("kvm-0")
    events = cluster.in_flight()
    for event in events.values():
        cluster.approve(event)
    cluster.advance(minutes=1)

    assert cluster.reasons(events["db"])[ReasonKind.HOST_GUESTS] == (
        "The work on kvm-0 begins after the impacts on its virtual machines; it waits for "
        "web-0, db."
    )


def test_empty_host_that_failed_last_is_named_in_what_holds(cluster: Cluster) -> None:
    cluster.give_work()
    cluster.crew.says[HostTaskKind.WORK] = Impact(status=ImpactStatus.FAILED, reason="no disk")
    cluster.start("empty", hold_all=False)
    cluster.advance(hours=1)

    assert "so no further step begins on empty." in cluster.explanation()


def test_host_that_is_not_back_in_time_fails_and_is_retried(cluster: Cluster) -> None:
    cluster.give_work()
    cluster.crew.says[HostTaskKind.VERIFY] = Impact(status=ImpactStatus.FAILED, reason="no ssh")
    cluster.start("kvm-1")
    cluster.advance(minutes=27)

    (event,) = cluster.in_flight().values()
    assert cluster.phase("kvm-1") is HostPhase.VERIFY
    assert cluster.reasons(event)[ReasonKind.HOST_VERIFY] == (
        "kvm-1 must be back by 2026-01-05 08:30:00 GMT; the server checks it until then."
    )
    cluster.advance(minutes=5)

    report = cluster.report()
    assert report.failures[0].reason == "kvm-1 was not back by 2026-01-05 08:30:00 GMT: no ssh"
    assert report.events[0].outcome is Outcome.FAILED
    checks = [key for key in cluster.crew.begun if key[1] == HostTaskKind.VERIFY]
    assert len(checks) == 5
    cluster.crew.says.clear()
    cluster.retry()
    cluster.advance(hours=1)
    assert cluster.report().standings == {"kvm-1": Standing.SUCCEEDED}
    assert cluster.crew.begun["kvm-1", HostTaskKind.WORK, 1, None] == 2  # once for each operation


def test_unknown_work_holds_with_the_name_of_the_host_until_it_is_skipped(
    cluster: Cluster,
) -> None:
    cluster.give_work()
    cluster.crew.says[HostTaskKind.WORK] = Impact(status=ImpactStatus.UNKNOWN, reason="no file")
    cluster.start("kvm-0", "kvm-1")
    cluster.advance(hours=2)

    assert "The state of the work on kvm-0 (no file) is unknown." in cluster.explanation()
    assert f"maintenance skip {cluster.maintenance_id} kvm-0" in cluster.explanation()
    assert cluster.phase("kvm-0") is HostPhase.WORK
    with pytest.raises(UnknownFailureError):
        cluster.retry("kvm-0")
    cluster.crew.says.clear()
    cluster.skip("kvm-0")
    cluster.advance(hours=2)

    report = cluster.report()
    assert report.standings == {"kvm-0": Standing.SKIPPED, "kvm-1": Standing.SUCCEEDED}
    assert {event.reason for event in report.events if event.host == "kvm-0"} == {
        "skipped by alice"
    }


def test_work_without_an_executor_waits_for_whoever_corrects_its_file(cluster: Cluster) -> None:
    cluster.give_work()
    again = cluster.clock.now() + timedelta(days=1)
    said = Impact(
        status=ImpactStatus.UNKNOWN, reason="no file.", ask_again_at=again, has_no_executor=True
    )
    cluster.crew.assignment = Assignment(runner="", said=said)
    cluster.start("kvm-0", "kvm-1")
    cluster.advance(hours=2)

    assert "The server cannot use its executors: no file." in cluster.explanation()
    assert cluster.explanation().endswith("the executor file, then send SIGHUP to the server.")


def test_unknown_work_is_asked_about_again_when_the_executor_file_has_it_again(
    cluster: Cluster,
) -> None:
    cluster.give_work()
    cluster.crew.says[HostTaskKind.WORK] = Impact(status=ImpactStatus.RUNNING)
    cluster.start("empty")
    cluster.rules = replace(cluster.rules, host_works=())
    cluster.crew.says[HostTaskKind.WORK] = Impact(status=ImpactStatus.UNKNOWN, reason="no rule")
    cluster.lead()
    cluster.advance(hours=1)
    assert "The state of the work on empty (no rule) is unknown." in cluster.explanation()

    cluster.give_work()
    cluster.crew.says.clear()
    cluster.settle()

    assert cluster.report().standings == {"empty": Standing.SUCCEEDED}
    assert cluster.crew.begun["empty", HostTaskKind.WORK, 1, None] == 1


def test_unknown_work_of_an_aborted_maintenance_is_skipped(cluster: Cluster) -> None:
    cluster.give_work()
    cluster.crew.says[HostTaskKind.WORK] = Impact(status=ImpactStatus.UNKNOWN, reason="no file")
    cluster.start("kvm-0", "kvm-1")
    cluster.advance(hours=2)
    cluster.abort()

    assert f"maintenance skip {cluster.maintenance_id} kvm-0" in cluster.explanation()
    for places in ((), ("kvm-0", "kvm-1")):
        with pytest.raises(MaintenanceOverError):
            cluster.skip(*places)
    assert cluster.phase("kvm-0") is HostPhase.WORK
    cluster.skip("KVM-0")

    report = cluster.report()
    assert (report.status, cluster.in_flight()) == (MaintenanceStatus.ABORTED, {})
    with pytest.raises(MaintenanceOverError):
        cluster.skip("kvm-0")


def test_host_that_was_announced_when_its_maintenance_was_aborted_is_skipped(
    cluster: Cluster,
) -> None:
    cluster.start("kvm-0", "kvm-1")

    cluster.abort()

    report = cluster.report()
    assert report.status is MaintenanceStatus.ABORTED
    assert report.standings == {"kvm-0": Standing.SKIPPED, "kvm-1": Standing.SKIPPED}
    assert [step.host for step in report.left_out] == ["kvm-1"]


def test_host_is_not_worked_on_while_somebody_is_there_whose_event_was_canceled(
    cluster: Cluster,
) -> None:
    cluster.give_work()
    cluster.start("kvm-0")
    cluster.start_event(cluster.in_flight()["db"])
    cluster.settle()

    cluster.abort()  # the event of web-0 is withdrawn, that of db runs out
    cluster.advance(hours=1)

    assert cluster.crew.begun == {("kvm-0", HostTaskKind.RETURN, 1, "db"): 1}
    assert cluster.report().operations[0].outcome is OperationOutcome.FAILED


def test_event_that_is_completed_as_failed_during_the_work_fails_the_host(cluster: Cluster) -> None:
    cluster.give_work()
    cluster.crew.says[HostTaskKind.WORK] = Impact(status=ImpactStatus.RUNNING)
    cluster.start("kvm-1")
    cluster.advance(minutes=30)
    (event,) = cluster.in_flight().values()
    cluster.store.write(
        lambda tx: complete_event(tx, cluster.context(), event.event_id, Outcome.FAILED, "burnt")
    )
    cluster.crew.says.clear()
    cluster.lead()
    cluster.settle()

    report = cluster.report()
    assert (report.status, report.standings) == (MaintenanceStatus.HELD, {"kvm-1": Standing.FAILED})
    cluster.skip("kvm-1")
    assert cluster.report().standings == {"kvm-1": Standing.SKIPPED}


def test_machine_whose_impact_fails_keeps_the_host_from_being_worked_on(cluster: Cluster) -> None:
    cluster.give_work()
    cluster.failures["db"] = "it does not shut down"
    cluster.start("kvm-0")
    cluster.advance(hours=2)

    assert not [key for key in cluster.crew.begun if key[1] == HostTaskKind.WORK]
    reasons = {event.resources: event.reason for event in cluster.report().events}
    assert reasons == {
        ("db",): "db: it does not shut down",
        ("web-0",): "db: it does not shut down",
    }


SET = '[[availability_set]]\nname = "web"\nupdate_domains = 3\n'
MOVED = '[[virtual_machine]]\nname = "web-2"\navailability_set = "web"\nupdate_domain = 2\n'
NEW = '[[virtual_machine]]\nname = "new"\nhost = "kvm-0"\n'


def test_machine_that_comes_to_an_announced_host_joins_with_full_notice(cluster: Cluster) -> None:
    cluster.start("kvm-0")
    cluster.advance(minutes=10)

    cluster.apply(NEW)

    events = cluster.in_flight()
    assert events["new"].operation_id == events["db"].operation_id
    assert events["new"].not_before == cluster.clock.now() + timedelta(minutes=15)
    cluster.advance(minutes=10)  # past NotBefore of the others
    assert {event.event_status for event in cluster.in_flight().values()} == {EventStatus.SCHEDULED}
    cluster.advance(minutes=6)
    assert {event.event_status for event in cluster.in_flight().values()} == {EventStatus.STARTED}


def test_machine_of_another_update_domain_is_not_placed_on_an_announced_host(
    cluster: Cluster,
) -> None:
    cluster.start("kvm-0")

    with pytest.raises(HostUnderWayError, match="another update domain of availability-set/web"):
        cluster.apply(f'{SET}{MOVED}host = "kvm-0"')

    assert "web-2" not in cluster.in_flight()


def test_machine_is_not_placed_where_too_few_would_be_left(cluster: Cluster) -> None:
    cluster.start("kvm-0", min_available=66)
    more = MOVED.replace("web-2", "web-3").replace("update_domain = 2", "update_domain = 0")

    with pytest.raises(HostUnderWayError, match="would stay available"):
        cluster.apply(f'{SET}{more}host = "kvm-0"')


def test_nothing_is_placed_on_a_host_that_has_started_but_a_fact_is_told(cluster: Cluster) -> None:
    cluster.start("kvm-0")
    cluster.advance(minutes=16)

    with pytest.raises(HostUnderWayError, match="it has started") as refusal:
        cluster.apply(NEW)
    assert "`as_is`" in str(refusal.value)
    assert "new" not in cluster.in_flight()

    cluster.apply(NEW, as_is=True)

    told = cluster.in_flight()["new"]
    assert (told.event_status, told.is_announced) == (EventStatus.STARTED, False)
    assert told.operation_id == cluster.in_flight()["db"].operation_id


def test_machine_that_would_come_to_a_host_that_has_started_is_skipped(cluster: Cluster) -> None:
    cluster.start("kvm-0")
    options = ApplyOptions(skip_busy=True)
    declared = read_fleet_file(f'{NEW}[[virtual_machine]]\nname = "other"\n')
    announced = cluster.store.read(
        lambda reading: plan_fleet(reading, cluster.context(), declared, options)
    )
    cluster.advance(minutes=16)

    change = cluster.store.write(
        lambda tx: apply_fleet(tx, cluster.context(), declared, options=options, plan=announced)
    )

    assert announced.change.skipped == ()
    (skipped,) = change.skipped
    assert (skipped.vm, "it has started" in skipped.reason) == ("new", True)
    assert change.added == ("other",)


def test_machine_that_comes_during_the_work_is_told_and_has_no_impact_of_its_own(
    cluster: Cluster,
) -> None:
    cluster.give_work()
    cluster.crew.says[HostTaskKind.WORK] = Impact(status=ImpactStatus.RUNNING)
    cluster.start("kvm-0")
    cluster.advance(minutes=30)

    cluster.apply(NEW, as_is=True)

    told = cluster.in_flight()["new"]
    tasks = cluster.store.read(lambda reading: reading.tasks_of(told.event_id))
    assert (told.event_status, tasks) == (EventStatus.STARTED, ())
    cluster.crew.says.clear()
    cluster.lead()
    cluster.settle()
    assert cluster.report().status is MaintenanceStatus.COMPLETED
    assert cluster.crew.begun["kvm-0", HostTaskKind.RETURN, 1, "new"] == 1


def test_no_other_update_domain_begins_while_a_machine_that_was_told_is_out(
    cluster: Cluster,
) -> None:
    cluster.give_work()
    cluster.crew.says[HostTaskKind.WORK] = Impact(status=ImpactStatus.RUNNING)
    cluster.start("empty")
    came = 'name = "web-9"\navailability_set = "web"\nupdate_domain = 0\nhost = "empty"\n'
    cluster.apply(f"[[virtual_machine]]\n{came}", as_is=True)

    cluster.start("kvm-1")

    assert set(cluster.in_flight()) == {"web-9"}
    assert "waits for event" in cluster.explanation()
    cluster.crew.says.clear()
    cluster.lead()
    cluster.settle()
    assert set(cluster.in_flight()) == {"web-1"}


def test_nothing_is_placed_on_a_host_that_is_worked_on_though_its_maintenance_was_aborted(
    cluster: Cluster,
) -> None:
    cluster.start("kvm-0")
    cluster.advance(minutes=16)
    cluster.abort()

    with pytest.raises(HostUnderWayError, match="it has started"):
        cluster.apply(NEW)


def test_machine_is_placed_on_a_host_whose_maintenance_was_aborted_before_it_started(
    cluster: Cluster,
) -> None:
    cluster.start("kvm-0")
    cluster.store.write(lambda tx: abort_maintenance(tx, cluster.context(), cluster.maintenance_id))

    cluster.apply(NEW)

    assert cluster.in_flight() == {}


def test_machine_that_comes_right_after_its_host_was_canceled_does_not_bring_that_back(
    cluster: Cluster,
) -> None:
    cluster.start("kvm-0")
    first = cluster.in_flight()["db"].event_id
    cluster.store.write(lambda tx: cancel_event(tx, cluster.context(), first, operation=True))

    cluster.apply(NEW)

    assert cluster.in_flight() == {}


def test_host_whose_turn_is_over_takes_machines_again(cluster: Cluster) -> None:
    cluster.start("kvm-0", "kvm-1")
    cluster.advance(minutes=27)

    cluster.apply(NEW)

    assert cluster.in_flight().keys() == {"web-1"}


def test_one_event_of_a_host_is_not_canceled_alone(cluster: Cluster) -> None:
    cluster.start("kvm-0")
    events = cluster.in_flight()

    def cancel(wanted: EventId, *, operation: bool) -> None:
        cluster.store.write(
            lambda tx: cancel_event(tx, cluster.context(), wanted, "no", operation=operation)
        )
        cluster.settle()

    with pytest.raises(SharedOperationError) as refusal:
        cancel(events["db"].event_id, operation=False)
    assert f"{events['web-0'].event_id} (web-0)" in str(refusal.value)
    assert str(refusal.value).endswith("Cancel them all with `operation: true`.")
    assert cluster.in_flight() == events

    cancel(events["db"].event_id, operation=True)

    assert cluster.in_flight() == {}
    report = cluster.report()
    assert report.status is MaintenanceStatus.HELD
    assert [(each.place, each.ending) for each in report.failures] == [("kvm-0", "was canceled")]


def test_nobody_is_told_to_cancel_all_events_of_a_host_when_one_has_started(
    cluster: Cluster,
) -> None:
    cluster.start("kvm-0")
    events = cluster.in_flight()
    started, left = events["web-0"].event_id, events["db"].event_id
    cluster.store.write(lambda tx: start_event(tx, cluster.context(), started))

    with pytest.raises(SharedOperationError, match="Some have started"):
        cluster.store.write(lambda tx: cancel_event(tx, cluster.context(), left))
    with pytest.raises(IllegalTransitionError, match=f"{started}: it is Started"):
        cluster.store.write(lambda tx: cancel_event(tx, cluster.context(), started))


def test_only_event_of_a_host_is_canceled_as_any_other(cluster: Cluster) -> None:
    cluster.start("kvm-1")
    (event,) = cluster.in_flight().values()

    cluster.store.write(lambda tx: cancel_event(tx, cluster.context(), event.event_id))

    assert cluster.in_flight() == {}


def test_each_change_of_work_on_a_host_is_one_line_in_the_log(cluster: Cluster) -> None:
    cluster.give_work()
    cluster.start("kvm-1")

    with capture_logs() as logs:
        cluster.advance(hours=5)

    lines = [line for line in logs if line["event"] == "host_task_changed"]
    assert {line["host"] for line in lines} == {"kvm-1"}
    told = [(line["task"], line["vm"], line["attempt"], line["status"]) for line in lines]
    assert told
    assert len(told) == len(set(told))
    assert all(line["maintenance_id"] == cluster.maintenance_id for line in lines)


@pytest.mark.parametrize(
    ("host", "minutes", "phase"),
    [
        ("kvm-1", 16, HostPhase.IMPACT),
        ("kvm-1", 26, HostPhase.WORK),
        ("empty", 0, HostPhase.WORK),
    ],
)
def test_host_that_goes_no_further_while_the_server_is_paused_says_so(
    cluster: Cluster, host: str, minutes: int, phase: HostPhase
) -> None:
    cluster.give_work()
    cluster.crew.says[HostTaskKind.WORK] = Impact(status=ImpactStatus.RUNNING)
    cluster.start(host)
    cluster.advance(minutes=minutes)
    cluster.store.write(lambda tx: pause_server(tx, cluster.context()))

    cluster.crew.says.clear()
    cluster.lead()
    cluster.advance(hours=1)

    assert cluster.phase(host) is phase
    assert f"Nothing further happens on {host}: the server has been paused" in cluster.explanation()
    assert cluster.explanation().endswith("until an operator acts: forewarn resume.")
    cluster.store.write(lambda tx: resume_server(tx, cluster.context()))
    cluster.advance(hours=1)
    assert cluster.report().standings == {host: Standing.SUCCEEDED}


@pytest.mark.parametrize("seconds", [25 * 60, 25 * 60 + 30, 29 * 60 + 30])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_host_is_checked_once_more_after_a_pause_of_the_server(
    cluster: Cluster, seconds: int, *, is_restarted: bool
) -> None:
    cluster.give_work()
    cluster.crew.says[HostTaskKind.VERIFY] = Impact(status=ImpactStatus.FAILED, reason="no ssh")
    cluster.start("kvm-1")
    cluster.advance(seconds=seconds)
    cluster.store.write(lambda tx: pause_server(tx, cluster.context()))
    cluster.advance(hours=1)
    cluster.crew.says.clear()
    if is_restarted:
        cluster.lead()
        cluster.settle()
    assert cluster.phase("kvm-1") is HostPhase.VERIFY

    cluster.store.write(lambda tx: resume_server(tx, cluster.context()))
    cluster.settle()

    assert cluster.report().standings == {"kvm-1": Standing.SUCCEEDED}


def test_host_that_is_not_back_fails_as_long_after_a_pause_as_it_had_before(
    cluster: Cluster,
) -> None:
    cluster.give_work()
    cluster.crew.says[HostTaskKind.VERIFY] = Impact(status=ImpactStatus.FAILED, reason="no ssh")
    cluster.start("kvm-1")
    cluster.advance(minutes=28)
    cluster.store.write(lambda tx: pause_server(tx, cluster.context()))
    cluster.advance(hours=1)

    cluster.store.write(lambda tx: resume_server(tx, cluster.context()))
    cluster.advance(minutes=1)
    assert cluster.phase("kvm-1") is HostPhase.VERIFY
    cluster.advance(minutes=1)

    assert cluster.report().failures[0].reason == (
        "kvm-1 was not back by 2026-01-05 09:30:00 GMT: no ssh"
    )


def test_aborted_host_that_waits_for_the_server_to_continue_says_so(cluster: Cluster) -> None:
    cluster.start("kvm-1")
    cluster.store.write(lambda tx: pause_server(tx, cluster.context()))
    assert (
        "Nothing further happens" not in cluster.explanation()
    )  # its event says what it waits for

    cluster.abort()

    assert cluster.in_flight() == {}
    assert cluster.explanation().endswith("until an operator acts: forewarn resume.")


def maintenance_lines(logs: list[MutableMapping[str, Any]]) -> list[tuple[object, ...]]:
    lines = [line for line in logs if line["event"] == "maintenance_changed"]
    return [(line["what"], line["who"], line["outcome"], line["log_level"]) for line in lines]


def test_every_change_of_a_maintenance_is_logged_once(cluster: Cluster) -> None:
    cluster.failures["web-1"] = "no disk"
    with capture_logs() as logs:
        cluster.start("kvm-0", "kvm-1")
        cluster.store.write(
            lambda tx: pause_maintenance(tx, cluster.context(), cluster.maintenance_id)
        )
        cluster.advance(hours=1)
        cluster.store.write(
            lambda tx: resume_maintenance(tx, cluster.context(), cluster.maintenance_id)
        )
        cluster.advance(hours=1)
        cluster.lead()
        cluster.settle()  # what was committed before is not logged again
        cluster.advance(hours=1)
        cluster.skip()

    assert maintenance_lines(logs) == [
        ("started", "alice", None, "info"),
        ("paused", "alice", None, "info"),
        ("resumed", "alice", None, "info"),
        ("held", "scheduler", None, "warning"),
        ("finished", "scheduler", "incomplete", "warning"),
    ]


def test_abort_of_a_maintenance_is_logged_before_its_end(cluster: Cluster) -> None:
    with capture_logs() as logs:
        cluster.start("kvm-1")
        cluster.start_event(cluster.in_flight()["web-1"])
        cluster.abort()
        cluster.advance(hours=1)

    assert maintenance_lines(logs) == [
        ("started", "alice", None, "info"),
        ("aborted", "alice", None, "info"),
        ("finished", "scheduler", "aborted", "info"),
    ]
