from dataclasses import replace
from datetime import datetime, time, timedelta

from forewarn.domain.actions import StartReason
from forewarn.domain.course import Course
from forewarn.domain.decisions import next_deadline
from forewarn.domain.event import Approval, Approver, ScheduledEvent, approve, start
from forewarn.domain.explanation import explain
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import MaintenanceId, OperationId, VmName
from forewarn.domain.precedence import due_starts, needing_somebody
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.standstill import find_standstill
from forewarn.domain.topology import Topology
from forewarn.domain.why import ReasonKind, Remedy, Verb
from forewarn.domain.windows import Calendar, Window
from forewarn.protocol.vocabulary import EventId, EventType

VM = VmName("web-0")
OS = MaintenanceId("os")
BY_HAND = Impact(status=ImpactStatus.RUNNING, is_by_hand=True)


def test_impact_behind_one_by_hand_needs_that_to_be_completed(
    event: ScheduledEvent, fleet: Topology, now: datetime
) -> None:
    first = replace(start(event, now=now), resources=(VM,))
    second = replace(first, event_id=EventId("E2"))
    seen = Snapshot(
        topology=fleet,
        events={each.event_id: each for each in (first, second)},
        impacts={(first.event_id, VM): BY_HAND},
    )

    assert needing_somebody(first, seen) == needing_somebody(second, seen) == (first.event_id,)


def test_event_behind_one_that_ends_by_itself_needs_nobody(
    event: ScheduledEvent, fleet: Topology, now: datetime
) -> None:
    first = replace(start(event, now=now), resources=(VM,))
    second = replace(event, event_id=EventId("E2"))
    seen = Snapshot(topology=fleet, events={each.event_id: each for each in (first, second)})

    assert needing_somebody(second, seen) == ()


AFTERNOON = Calendar(
    windows=(Window(days=frozenset({0}), opens=time(14), closes=time(15), zone="UTC"),)
)


def in_maintenance(
    fleet: Topology, *events: ScheduledEvent, calendar: Calendar = AFTERNOON, outside: bool = True
) -> Snapshot:
    """See *events* of a Maintenance whose impact takes half an hour."""
    maintenance = Maintenance(
        maintenance_id=OS,
        event_type=EventType.REBOOT,
        started_at=events[0].created_at,
        duration_in_seconds=1800,
        course=Course(calendar=calendar, notice_outside=outside),
    )
    known = {each.event_id: replace(each, maintenance_id=OS) for each in events}
    return Snapshot(topology=fleet, events=known, maintenances={OS: maintenance})


def approved(event: ScheduledEvent, now: datetime) -> ScheduledEvent:
    return approve(event, Approval(approver=Approver.OPERATOR, name="alice", approved_at=now))


def test_event_approved_before_the_window_starts_when_it_opens(
    event: ScheduledEvent, fleet: Topology, now: datetime
) -> None:
    seen = in_maintenance(fleet, approved(event, now))
    opens = now.replace(hour=14)

    assert due_starts(seen, now) == {}
    assert due_starts(seen, opens) == {event.event_id: StartReason.APPROVED}
    assert next_deadline(seen, event.not_before) == opens


def test_event_that_is_late_starts_only_with_room_for_its_impact(
    event: ScheduledEvent, fleet: Topology, now: datetime
) -> None:
    seen = in_maintenance(fleet, event)
    last_call = now.replace(hour=14, minute=30)

    assert due_starts(seen, last_call)
    assert due_starts(seen, last_call + timedelta(minutes=1)) == {}


def test_scheduler_that_wakes_up_a_moment_late_still_has_room_for_the_impact(
    event: ScheduledEvent, fleet: Topology, now: datetime
) -> None:
    last_call = now.replace(hour=14, minute=30)

    assert due_starts(in_maintenance(fleet, event), last_call + timedelta(seconds=2))


def test_no_event_starts_outside_the_calendar_wherever_its_notice_was_to_be(
    event: ScheduledEvent, fleet: Topology, now: datetime
) -> None:
    """It may have been announced outside before that was changed, or be late."""
    seen = in_maintenance(fleet, approved(event, now), outside=False)

    assert due_starts(seen, now) == {}
    assert due_starts(seen, now.replace(hour=14)) == {event.event_id: StartReason.APPROVED}


def test_host_operation_waits_for_the_window_as_a_whole(
    event: ScheduledEvent, fleet: Topology, now: datetime
) -> None:
    first = replace(approved(event, now), operation_id=OperationId("kvm"), resources=(VM,))
    second = replace(first, event_id=EventId("E2"), resources=(VmName("web-2"),))
    seen = in_maintenance(fleet, first, second)

    assert due_starts(seen, now) == {}
    assert due_starts(seen, now.replace(hour=14)).keys() == {"E1", "E2"}


def test_explanation_says_when_the_window_opens(
    event: ScheduledEvent, fleet: Topology, now: datetime
) -> None:
    seen = in_maintenance(fleet, approved(event, now))

    reason = explain(seen.events[event.event_id], seen, now)[0]

    assert reason.holds
    assert reason.sentence == (
        "The event starts only while the calendar of its maintenance is open, "
        "next at 2026-03-02 14:00:00 GMT."
    )


def test_latest_start_is_not_promised_when_the_calendar_is_closed_then(
    event: ScheduledEvent, fleet: Topology, now: datetime
) -> None:
    seen = in_maintenance(fleet, event)

    reasons = explain(seen.events[event.event_id], seen, now)

    assert [reason.kind for reason in reasons[:2]] == [
        ReasonKind.APPROVAL_OF_ANY,
        ReasonKind.WINDOW,
    ]
    assert ReasonKind.NOT_BEFORE not in {reason.kind for reason in reasons}
    later = replace(event, not_before=now.replace(hour=14))
    seen = in_maintenance(fleet, later)
    kinds = {reason.kind for reason in explain(seen.events[event.event_id], seen, now)}
    assert ReasonKind.NOT_BEFORE in kinds
    assert ReasonKind.WINDOW not in kinds


def test_event_whose_window_has_become_too_short_needs_somebody(
    event: ScheduledEvent, fleet: Topology, now: datetime
) -> None:
    short = Calendar(windows=(replace(AFTERNOON.windows[0], closes=time(14, 20)),))
    seen = in_maintenance(fleet, event, calendar=short)

    standstill = find_standstill(seen.maintenances[OS], seen, now)

    assert [blocker.kind for blocker in standstill.blockers] == [
        ReasonKind.APPROVAL_OF_ANY,
        ReasonKind.WINDOW,
    ]
    assert standstill.blockers[1].sentence.endswith(
        "The event starts only while the calendar of its maintenance is open."
    )
    assert standstill.verdict.remedies == ((Remedy(verb=Verb.START, ids=("E1",)),),)
    assert next_deadline(in_maintenance(fleet, approved(event, now), calendar=short), now) == (
        event.not_before
    )
