"""The phases of a host operation, one row for each thing that can be said in each of them."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from forewarn.domain.event import Draft, Outcome, ScheduledEvent, Share, cancel, complete, schedule
from forewarn.domain.event import start as start_event
from forewarn.domain.host_operation import (
    HostOperation,
    HostPhase,
    OperationFacts,
    OperationOutcome,
    advance,
    begin,
    due_tasks,
    task_called,
)
from forewarn.domain.host_work import HostTask, HostTaskKind, HostWorkRule
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName, MaintenanceId, OperationId, ScopeId, VmName
from forewarn.protocol.vocabulary import EventId, EventSource, EventType

WORKING = HostTaskKind.WORK
NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
ANNOUNCED = HostOperation(
    operation_id=OperationId("operation"),
    maintenance_id=MaintenanceId("os"),
    event_type=EventType.REBOOT,
    host=HostName("kvm-1"),
    created_at=NOW,
)
WORK = HostWorkRule()
ALL = HostWorkRule(has_verify=True, has_return=True)
DONE, FAILED = Impact(status=ImpactStatus.DONE), Impact(status=ImpactStatus.FAILED, reason="no")
RUNNING = Impact(status=ImpactStatus.RUNNING)
BY_HAND = Impact(status=ImpactStatus.RUNNING, is_by_hand=True)


def announced(vm: str) -> ScheduledEvent:
    share = Share(
        scope_id=ScopeId(f"virtual-machine/{vm}"), update_domain=0, resources=(VmName(vm),)
    )
    draft = Draft(event_type=EventType.REBOOT, event_source=EventSource.PLATFORM, share=share)
    return schedule(draft, event_id=EventId(vm), now=NOW, notice=timedelta(minutes=15))


def started(vm: str) -> ScheduledEvent:
    return start_event(announced(vm), now=NOW)


def ended(vm: str, outcome: Outcome, reason: str = "") -> ScheduledEvent:
    return complete(started(vm), outcome=outcome, reason=reason, now=NOW)


def facts(
    *events: ScheduledEvent,
    rule: HostWorkRule | None = None,
    impacts: Mapping[str, Impact] | None = None,
    tasks: Mapping[HostTask, Impact] | None = None,
) -> OperationFacts:
    return OperationFacts(
        events=events,
        impacts={(EventId(vm), VmName(vm)): said for vm, said in (impacts or {}).items()},
        tasks=tasks or {},
        rule=rule,
    )


def task(kind: HostTaskKind, *, attempt: int = 1, vm: str | None = None) -> HostTask:
    return HostTask(
        operation_id=ANNOUNCED.operation_id,
        maintenance_id=ANNOUNCED.maintenance_id,
        event_type=ANNOUNCED.event_type,
        host=ANNOUNCED.host,
        kind=kind,
        attempt=attempt,
        vm=VmName(vm) if vm else None,
    )


def at(phase: HostPhase) -> HostOperation:
    return replace(ANNOUNCED, phase=phase)


def test_operation_without_machines_or_work_has_nothing_to_do() -> None:
    over = begin(ANNOUNCED, events=(), rule=None)

    assert (over.phase, over.outcome) == (HostPhase.OVER, OperationOutcome.NOTHING_TO_DO)


def test_operation_without_machines_goes_to_work_at_once() -> None:
    assert begin(ANNOUNCED, events=(), rule=WORK).phase is HostPhase.WORK


def test_operation_with_machines_announces_first() -> None:
    assert begin(ANNOUNCED, events=(announced("web-0"),), rule=WORK) == ANNOUNCED


@pytest.mark.parametrize(
    ("phase", "given", "expected"),
    [
        (HostPhase.ANNOUNCED, facts(announced("a")), HostPhase.ANNOUNCED),
        (HostPhase.ANNOUNCED, facts(announced("a"), started("b")), HostPhase.IMPACT),
        (HostPhase.IMPACT, facts(started("a")), HostPhase.IMPACT),
        (HostPhase.IMPACT, facts(started("a"), impacts={"a": DONE}), HostPhase.IMPACT),
        (HostPhase.IMPACT, facts(started("a"), rule=WORK), HostPhase.IMPACT),
        (
            HostPhase.IMPACT,
            facts(started("a"), rule=WORK, impacts={"a": RUNNING}),
            HostPhase.IMPACT,
        ),
        (HostPhase.IMPACT, facts(started("a"), rule=WORK, impacts={"a": DONE}), HostPhase.WORK),
        (HostPhase.IMPACT, facts(started("a"), rule=WORK, impacts={"a": BY_HAND}), HostPhase.WORK),
        (HostPhase.IMPACT, facts(ended("a", Outcome.SUCCEEDED), rule=WORK), HostPhase.OVER),
        (HostPhase.IMPACT, facts(started("a"), rule=ALL, impacts={"a": FAILED}), HostPhase.RETURN),
        (HostPhase.WORK, facts(rule=WORK), HostPhase.WORK),
        (
            HostPhase.WORK,
            facts(rule=WORK, tasks={task(WORKING): RUNNING}),
            HostPhase.WORK,
        ),
        (HostPhase.WORK, facts(rule=ALL, tasks={task(WORKING): DONE}), HostPhase.VERIFY),
        (HostPhase.WORK, facts(rule=WORK, tasks={task(WORKING): DONE}), HostPhase.OVER),
        (HostPhase.WORK, facts(rule=None, tasks={task(WORKING): DONE}), HostPhase.OVER),
        (HostPhase.RETURN, facts(started("a"), rule=ALL), HostPhase.RETURN),
        (HostPhase.OVER, facts(), HostPhase.OVER),
    ],
)
def test_next_phase(phase: HostPhase, given: OperationFacts, expected: HostPhase) -> None:
    assert advance(at(phase), given, NOW).phase is expected


@pytest.mark.parametrize(
    ("phase", "given", "outcome", "reason"),
    [
        (
            HostPhase.ANNOUNCED,
            facts(cancel(announced("a"), now=NOW, reason="not today")),
            OperationOutcome.CANCELED,
            "not today",
        ),
        (HostPhase.IMPACT, facts(ended("a", Outcome.SUCCEEDED)), OperationOutcome.SUCCEEDED, ""),
        (
            HostPhase.IMPACT,
            facts(ended("a", Outcome.FAILED, "a: no")),
            OperationOutcome.FAILED,
            "a: no",
        ),
        (
            HostPhase.IMPACT,
            facts(ended("a", Outcome.SUCCEEDED), cancel(announced("b"), now=NOW)),
            OperationOutcome.CANCELED,
            "",
        ),
        (
            HostPhase.IMPACT,
            facts(ended("a", Outcome.FAILED), started("b"), rule=WORK, impacts={"b": DONE}),
            OperationOutcome.FAILED,
            "failed",
        ),
        (
            HostPhase.IMPACT,
            facts(started("a"), rule=WORK, impacts={"a": FAILED}),
            OperationOutcome.FAILED,
            "a: no",
        ),
        (
            HostPhase.IMPACT,
            facts(
                started("a"),
                cancel(announced("b"), now=NOW),
                rule=WORK,
                impacts={"a": DONE},
            ),
            OperationOutcome.FAILED,
            "b stays on the host because b was canceled",
        ),
        (
            HostPhase.IMPACT,
            facts(ended("a", Outcome.SUCCEEDED), rule=WORK),
            OperationOutcome.FAILED,
            "a is in service again because a has ended",
        ),
        (
            HostPhase.WORK,
            facts(ended("a", Outcome.FAILED, "a: no"), rule=WORK, tasks={task(WORKING): DONE}),
            OperationOutcome.FAILED,
            "a: no",
        ),
        (
            HostPhase.WORK,
            facts(started("a"), rule=None, tasks={task(WORKING): DONE}),
            OperationOutcome.FAILED,
            (
                "the executor file no longer defines the work on kvm-1, so it cannot be verified "
                "or returned"
            ),
        ),
        (
            HostPhase.WORK,
            facts(rule=ALL, tasks={task(WORKING): FAILED}),
            OperationOutcome.FAILED,
            "the work on kvm-1 failed: no",
        ),
        (
            HostPhase.RETURN,
            facts(started("a"), rule=ALL, tasks={task(HostTaskKind.RETURN, vm="a"): DONE}),
            OperationOutcome.SUCCEEDED,
            "",
        ),
        (
            HostPhase.RETURN,
            facts(started("a"), rule=ALL, tasks={task(HostTaskKind.RETURN, vm="a"): FAILED}),
            OperationOutcome.FAILED,
            "a was not returned: no",
        ),
    ],
)
def test_ending(
    phase: HostPhase, given: OperationFacts, outcome: OperationOutcome, reason: str
) -> None:
    over = advance(at(phase), given, NOW)

    assert (over.phase, over.outcome, over.ended_at) == (HostPhase.OVER, outcome, NOW)
    assert over.reason == reason


def test_failed_impact_is_remembered_while_the_others_are_given_back() -> None:
    returning = advance(
        at(HostPhase.IMPACT), facts(started("a"), rule=ALL, impacts={"a": FAILED}), NOW
    )
    over = advance(
        returning,
        facts(started("a"), rule=ALL, tasks={task(HostTaskKind.RETURN, vm="a"): DONE}),
        NOW,
    )

    assert (over.outcome, over.reason) == (OperationOutcome.FAILED, "a: no")


LOST = Impact(status=ImpactStatus.UNKNOWN, reason="nothing is known of it")


@pytest.mark.parametrize("said", [FAILED, LOST])
def test_host_is_checked_again_until_it_is_back(said: Impact) -> None:
    checking = advance(at(HostPhase.WORK), facts(rule=ALL, tasks={task(WORKING): DONE}), NOW)
    (first,) = due_tasks(checking, facts(rule=ALL), NOW)
    not_yet = advance(checking, facts(rule=ALL, tasks={first: said}), NOW)
    later = NOW + ALL.verify_every
    (second,) = due_tasks(not_yet, facts(rule=ALL), later)

    assert list(due_tasks(not_yet, facts(rule=ALL), NOW)) == []
    assert (first.attempt, second.attempt) == (1, 2)
    assert advance(not_yet, facts(rule=ALL), later) == not_yet
    assert advance(not_yet, facts(rule=ALL, tasks={second: DONE}), later).outcome is (
        OperationOutcome.SUCCEEDED
    )


BACK_BY = NOW + timedelta(minutes=15)


@pytest.mark.parametrize(
    ("tasks", "clause"),
    [
        ({}, ""),
        ({task(HostTaskKind.VERIFY): FAILED}, ": no"),
        ({task(HostTaskKind.VERIFY, attempt=2): RUNNING}, ""),
        ({task(HostTaskKind.VERIFY, attempt=2): FAILED}, ": no"),
    ],
)
def test_host_that_is_not_back_in_time_has_failed(
    tasks: Mapping[HostTask, Impact], clause: str
) -> None:
    verify_at = BACK_BY + timedelta(seconds=1)
    checking = replace(at(HostPhase.VERIFY), attempt=2, verify_at=verify_at, verify_by=BACK_BY)

    over = advance(checking, facts(rule=ALL, tasks=tasks), BACK_BY)

    assert over.outcome is OperationOutcome.FAILED
    assert over.reason == f"kvm-1 was not back by 2026-03-02 12:15:00 GMT{clause}"


@pytest.mark.parametrize(
    ("said", "outcome"),
    [(None, None), (DONE, OperationOutcome.SUCCEEDED), (RUNNING, OperationOutcome.FAILED)],
)
def test_check_of_which_nothing_was_heard_is_asked_about_before_the_host_fails(
    said: Impact | None, outcome: OperationOutcome | None
) -> None:
    checking = replace(at(HostPhase.VERIFY), verify_at=NOW, verify_by=BACK_BY)
    tasks = {task(HostTaskKind.VERIFY): said} if said else {}

    given = facts(rule=ALL, tasks=tasks)

    assert advance(checking, given, BACK_BY + timedelta(hours=1)).outcome is outcome
    assert list(due_tasks(checking, given, BACK_BY)) == [task(HostTaskKind.VERIFY)]


def test_check_that_failed_is_not_repeated_once_the_work_is_taken_out_of_the_file() -> None:
    checking = replace(at(HostPhase.VERIFY), verify_at=NOW, verify_by=NOW + timedelta(minutes=1))

    said = facts(rule=None, tasks={task(HostTaskKind.VERIFY): FAILED})

    assert advance(checking, said, NOW) == checking


@pytest.mark.parametrize("phase", [HostPhase.ANNOUNCED, HostPhase.IMPACT, HostPhase.OVER])
def test_nothing_is_asked_of_a_host_before_and_after_its_work(phase: HostPhase) -> None:
    assert list(due_tasks(at(phase), facts(started("a"), rule=ALL), NOW)) == []


def test_work_is_one_task_and_returning_one_for_each_machine() -> None:
    given = facts(started("a"), cancel(announced("b"), now=NOW), started("c"), rule=ALL)

    assert list(due_tasks(at(HostPhase.WORK), given, NOW)) == [task(WORKING)]
    assert [each.vm for each in due_tasks(at(HostPhase.RETURN), given, NOW)] == ["a", "c"]


@pytest.mark.parametrize(
    "known",
    [
        task(WORKING),
        task(HostTaskKind.VERIFY, attempt=12),
        task(HostTaskKind.RETURN, vm="web-0-a"),
    ],
)
def test_task_is_found_by_its_name(known: HostTask) -> None:
    assert task_called(known.name, ANNOUNCED) == known
