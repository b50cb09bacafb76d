"""Which words about moves count, and what becomes of the fleet then."""

from dataclasses import replace
from datetime import datetime

import pytest

from forewarn.domain.actions import FollowMove
from forewarn.domain.decisions import decide
from forewarn.domain.event import Outcome, ScheduledEvent, complete, start
from forewarn.domain.host_work import HostTask, HostTaskKind
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.moves import find_moves, follow_moves
from forewarn.domain.names import HostName, MaintenanceId, OperationId, VmName
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.topology import Topology
from forewarn.protocol.vocabulary import EventId, EventType

WEB_0, KVM_2, KVM_3 = VmName("web-0"), HostName("kvm-2"), HostName("kvm-3")
MOVED = Impact(status=ImpactStatus.DONE, moved_to=KVM_2)
RETURN = HostTask(
    operation_id=OperationId("O1"),
    maintenance_id=MaintenanceId("m1"),
    event_type=EventType.REBOOT,
    host=HostName("kvm-1"),
    kind=HostTaskKind.RETURN,
    vm=WEB_0,
)


@pytest.fixture
def started(event: ScheduledEvent, now: datetime) -> ScheduledEvent:
    return replace(start(event, now=now), operation_id=RETURN.operation_id)


def said(fleet: Topology, event: ScheduledEvent, impact: Impact) -> Snapshot:
    impacts = {(event.event_id, WEB_0): impact}
    return Snapshot(topology=fleet, events={event.event_id: event}, impacts=impacts)


def test_word_about_an_impact_that_is_over_is_followed(
    fleet: Topology, started: ScheduledEvent
) -> None:
    key = (started.event_id, WEB_0)

    (move,) = find_moves(said(fleet, started, MOVED))

    assert move == FollowMove(event_id=started.event_id, about=key, vm=WEB_0, host=KVM_2)


@pytest.mark.parametrize("impact", [replace(MOVED, status=each) for each in ImpactStatus])
def test_only_what_is_over_says_where_a_machine_is(
    fleet: Topology, started: ScheduledEvent, impact: Impact
) -> None:
    assert bool(list(find_moves(said(fleet, started, impact)))) is impact.is_over


def test_word_about_an_event_that_is_over_or_unknown_does_not_count(
    fleet: Topology, started: ScheduledEvent, now: datetime
) -> None:
    by_hand = complete(started, outcome=Outcome.SUCCEEDED, now=now)
    unknown = replace(said(fleet, started, MOVED), events={})

    assert not list(find_moves(said(fleet, by_hand, MOVED)))
    assert not list(find_moves(unknown))


def test_return_is_the_last_word(fleet: Topology, started: ScheduledEvent, now: datetime) -> None:
    back = {RETURN: replace(MOVED, moved_to=KVM_3)}
    snapshot = replace(said(fleet, started, MOVED), tasks=back)

    moves = list(find_moves(snapshot))
    after = follow_moves(snapshot, moves, now=now, event_ids=iter(()))

    assert [move.host for move in moves] == [KVM_2, KVM_3]
    assert after.topology.virtual_machines[WEB_0].host == KVM_3
    assert not list(find_moves(after))


@pytest.mark.parametrize(
    "task",
    [
        replace(RETURN, kind=HostTaskKind.WORK, vm=None),
        replace(RETURN, operation_id=OperationId("O2")),
        replace(RETURN, vm=VmName("db-0")),
    ],
)
def test_task_that_is_about_no_machine_of_an_event_moves_nobody(
    fleet: Topology, started: ScheduledEvent, task: HostTask
) -> None:
    snapshot = Snapshot(
        topology=fleet,
        events={started.event_id: started},
        tasks={task: MOVED, RETURN: Impact(status=ImpactStatus.DONE)},
    )

    assert not list(find_moves(snapshot))


def test_machine_that_has_left_the_fleet_is_nowhere(
    fleet: Topology, started: ScheduledEvent, now: datetime
) -> None:
    elsewhere = replace(said(fleet, started, MOVED), impacts={(EventId("E1"), VmName("x")): MOVED})

    after = follow_moves(elsewhere, list(find_moves(elsewhere)), now=now, event_ids=iter(()))

    assert after.topology is fleet
    assert not list(find_moves(after))


def test_moves_come_alone_with_the_events_that_end_with_them(
    fleet: Topology, started: ScheduledEvent, now: datetime
) -> None:
    alone = replace(started, resources=(WEB_0,), operation_id=None)

    due = decide(said(fleet, alone, MOVED), now)
    longer = decide(said(fleet, replace(started, operation_id=None), MOVED), now)

    assert ([move.vm for move in due.moves], len(due.actions), due.effects) == ([WEB_0], 1, ())
    assert (len(longer.moves), longer.actions, longer.effects) == (1, (), ())
    assert longer
