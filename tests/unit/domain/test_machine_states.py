from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from forewarn.domain.event import ScheduledEvent, request_start, start
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.machine_states import MachineState, find_involved, state_in, state_of
from forewarn.domain.names import VmName
from forewarn.domain.policy import ApprovalPolicy, Policy
from forewarn.domain.topology import Topology
from forewarn.protocol.vocabulary import EventId

WEB_0, WEB_2 = VmName("web-0"), VmName("web-2")


def test_scheduled_event_is_approved_when_its_policy_is_satisfied(
    event: ScheduledEvent, now: datetime
) -> None:
    voted = request_start(event, vm=WEB_0, now=now)

    assert state_in(event, Policy(), now) is MachineState.SCHEDULED
    assert state_in(voted, Policy(), now) is MachineState.APPROVED
    assert state_in(voted, Policy(approval=ApprovalPolicy.ALL), now) is MachineState.SCHEDULED


def test_scheduled_event_is_held_from_its_not_before_on(
    event: ScheduledEvent, now: datetime
) -> None:
    voted = request_start(event, vm=WEB_0, now=now)

    assert state_in(event, Policy(), event.not_before) is MachineState.HELD
    assert state_in(voted, Policy(), event.not_before) is MachineState.HELD


def test_started_event_is_held_when_it_is_overdue(event: ScheduledEvent, now: datetime) -> None:
    started = start(event, now=now)

    assert state_in(started, Policy(), now) is MachineState.STARTED
    assert state_in(replace(started, overdue_at=now), Policy(), now) is MachineState.HELD


@pytest.mark.parametrize("status", ImpactStatus)
def test_unknown_impact_holds_only_its_virtual_machine(
    event: ScheduledEvent, fleet: Topology, now: datetime, status: ImpactStatus
) -> None:
    started = start(event, now=now)
    impacts = {(event.event_id, WEB_0): Impact(status=status)}

    involved = find_involved(fleet, [started], impacts, now)

    is_lost = status is ImpactStatus.UNKNOWN
    assert involved[WEB_0].state is (MachineState.HELD if is_lost else MachineState.STARTED)
    assert involved[WEB_2].state is MachineState.STARTED


@pytest.mark.parametrize("is_reversed", [False, True])
def test_of_two_events_the_one_that_needs_attention_more_counts(
    event: ScheduledEvent, fleet: Topology, now: datetime, *, is_reversed: bool
) -> None:
    later = replace(
        event,
        event_id=EventId("E2"),
        resources=(WEB_0,),
        not_before=event.not_before + timedelta(hours=1),
    )
    both = [start(event, now=now), later]

    involved = find_involved(fleet, both[::-1] if is_reversed else both, {}, now)

    assert involved[WEB_0].event.event_id == "E1"
    assert involved.keys() == {WEB_0, WEB_2}


@pytest.mark.parametrize("is_unpolled", [False, True])
def test_machine_in_no_event_is_in_service_if_it_polls(
    event: ScheduledEvent, fleet: Topology, now: datetime, *, is_unpolled: bool
) -> None:
    involved = find_involved(fleet, [event], {}, now)
    (other, *_) = fleet.virtual_machines.keys() - involved.keys()

    assert state_of(WEB_0, involved, is_unpolled=is_unpolled) is MachineState.SCHEDULED
    assert state_of(other, involved, is_unpolled=is_unpolled) is (
        MachineState.UNPOLLED if is_unpolled else MachineState.IN_SERVICE
    )
