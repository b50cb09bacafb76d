"""What holds a Maintenance of hosts with many virtual machines: said once, with true counts."""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from forewarn.domain.amending import build_topology
from forewarn.domain.blockers import VerdictKind
from forewarn.domain.course import Course
from forewarn.domain.event import (
    Approval,
    Approver,
    Draft,
    ScheduledEvent,
    Share,
    approve,
    schedule,
    start,
)
from forewarn.domain.explanation import explain
from forewarn.domain.host_operation import HostOperation, HostPhase
from forewarn.domain.host_work import HostWorkRule
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import HostName, MaintenanceId, OperationId, ScopeId, VmName
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.standstill import Standstill, find_standstill
from forewarn.domain.topology import VirtualMachine, standalone
from forewarn.domain.why import ReasonKind
from forewarn.protocol.vocabulary import EventId, EventSource, EventType

OS = MaintenanceId("os")


def announced(draft: Draft, now: datetime, *, hosts: int, machines: int) -> Snapshot:
    """Show a Maintenance that has announced all its hosts, each with so many machines."""
    places = [(f"h{host}", f"vm-{host}-{vm}") for host in range(hosts) for vm in range(machines)]
    vms = [
        VirtualMachine(
            name=VmName(vm),
            scope_id=ScopeId(f"virtual-machine/{vm}"),
            update_domain=0,
            host=HostName(host),
        )
        for host, vm in places
    ]
    fleet = build_topology(scopes=[standalone(vm.name) for vm in vms], virtual_machines=vms)
    events = [
        schedule(
            replace(
                draft,
                share=Share(scope_id=vm.scope_id, update_domain=0, resources=(vm.name,)),
                maintenance_id=OS,
                host=vm.host,
                operation_id=OperationId(f"{vm.host}-operation"),
            ),
            event_id=EventId(f"E-{vm.name}"),
            now=now,
            notice=timedelta(minutes=15),
        )
        for vm in vms
    ]
    operations = [
        HostOperation(
            operation_id=OperationId(f"{host}-operation"),
            maintenance_id=OS,
            event_type=EventType.REBOOT,
            host=HostName(host),
            created_at=now,
        )
        for host in dict(places)
    ]
    maintenance = Maintenance(
        maintenance_id=OS,
        event_type=EventType.REBOOT,
        started_at=now,
        hosts=tuple(each.host for each in operations),
        course=Course(hold_all=False),
    )
    return Snapshot(
        topology=fleet,
        events={event.event_id: event for event in events},
        maintenances={OS: maintenance},
        operations={each.operation_id: each for each in operations},
    )


def changed(seen: Snapshot, change: Callable[[ScheduledEvent], ScheduledEvent]) -> Snapshot:
    return replace(seen, events={key: change(event) for key, event in seen.events.items()})


def started(seen: Snapshot, now: datetime, impact: Impact) -> Snapshot:
    """Show *seen* when everything has started."""
    running = changed(seen, lambda event: start(event, now=now))
    impacts = {(e.event_id, vm): impact for e in running.events.values() for vm in e.resources}
    operations = {
        key: replace(each, phase=HostPhase.IMPACT) for key, each in seen.operations.items()
    }
    return replace(running, impacts=impacts, operations=operations)


def approved(event: ScheduledEvent, now: datetime) -> ScheduledEvent:
    return approve(event, Approval(approver=Approver.OPERATOR, name="alice", approved_at=now))


def busy(seen: Snapshot, draft: Draft, now: datetime) -> Snapshot:
    """Show *seen* while the owner of each machine restarts it."""
    restarts = [
        start(
            schedule(
                replace(draft, event_source=EventSource.USER, share=share_of(event)),
                event_id=EventId(f"U-{event.resources[0]}"),
                now=now,
                notice=timedelta(0),
            ),
            now=now,
        )
        for event in seen.events.values()
    ]
    return replace(seen, events={**seen.events, **{each.event_id: each for each in restarts}})


def share_of(event: ScheduledEvent) -> Share:
    return Share(scope_id=event.scope_id, update_domain=0, resources=event.resources)


def standstill(seen: Snapshot, now: datetime) -> Standstill:
    return find_standstill(seen.maintenances[OS], seen, now)


RUNNING = Impact(status=ImpactStatus.RUNNING)
DONE = Impact(status=ImpactStatus.DONE)


def test_what_holds_the_events_of_a_host_is_said_once(draft: Draft, now: datetime) -> None:
    seen = announced(draft, now, hosts=2, machines=12)

    first, second = standstill(seen, now).blockers

    assert first.sentence == (
        "12 events on h0: Not approved yet; one approval is enough for each event (vm-0-0, "
        "vm-0-1, vm-0-2, vm-0-3, vm-0-4, vm-0-5, vm-0-6, vm-0-7 and 4 more). The events start "
        "at 2026-03-02 12:15:00 GMT at the latest."
    )
    assert (len(first.event_ids), len(first.vms), len(first.scope_ids)) == (12, 12, 12)
    assert {*first.event_ids, *second.event_ids} == seen.events.keys()


def test_only_those_that_are_not_ready_are_counted(draft: Draft, now: datetime) -> None:
    seen = announced(draft, now, hosts=1, machines=3)
    late = EventId("E-vm-0-2")
    seen = changed(seen, lambda each: each if each.event_id == late else approved(each, now))

    (blocker,) = standstill(seen, now).blockers

    assert blocker.event_ids == (late,)
    assert standstill(seen, now).verdict.until == now + timedelta(minutes=15)


def test_impacts_of_a_host_are_said_once_whenever_they_are_asked_about_again(
    draft: Draft, now: datetime
) -> None:
    seen = started(announced(draft, now, hosts=1, machines=3), now, RUNNING)
    impacts = {
        key: replace(RUNNING, ask_again_at=now + timedelta(seconds=number))
        for number, key in enumerate(seen.impacts, 1)
    }

    (blocker,) = standstill(replace(seen, impacts=impacts), now).blockers

    assert blocker.sentence == (
        "3 events on h0: The impact on vm-0-0, vm-0-1, vm-0-2 has been running since 2026-03-02 "
        "12:00:00 GMT; the executor is asked again at 2026-03-02 12:00:03 GMT."
    )


def test_each_remark_about_the_impacts_of_a_host_is_said(draft: Draft, now: datetime) -> None:
    seen = started(announced(draft, now, hosts=1, machines=3), now, RUNNING)
    lost = Impact(status=ImpactStatus.UNKNOWN, reason="no answer")
    impacts = {**seen.impacts, (EventId("E-vm-0-1"), VmName("vm-0-1")): lost}

    blockers = standstill(replace(seen, impacts=impacts), now).blockers

    assert {each.kind: each.vms for each in blockers} == {
        ReasonKind.RUNNING: ("vm-0-0", "vm-0-2"),
        ReasonKind.UNKNOWN: ("vm-0-1",),
    }


def test_work_of_a_host_is_said_once(draft: Draft, now: datetime) -> None:
    seen = started(announced(draft, now, hosts=1, machines=12), now, RUNNING)
    seen = replace(seen, host_works=(HostWorkRule(hosts=("h0",)),))

    assert [each.kind for each in standstill(seen, now).blockers] == [
        ReasonKind.RUNNING,
        ReasonKind.HOST_GUESTS,
    ]


@pytest.mark.parametrize(
    ("other", "verdict"), [(DONE, VerdictKind.NEVER), (RUNNING, VerdictKind.STUCK)]
)
def test_work_that_waits_for_a_lost_impact_is_no_other_step_that_continues(
    draft: Draft, now: datetime, other: Impact, verdict: VerdictKind
) -> None:
    seen = started(announced(draft, now, hosts=1, machines=2), now, other)
    lost = Impact(status=ImpactStatus.UNKNOWN, reason="no answer")
    impacts = {**seen.impacts, (EventId("E-vm-0-1"), VmName("vm-0-1")): lost}
    seen = replace(seen, impacts=impacts, host_works=(HostWorkRule(hosts=("h0",)),))

    found = standstill(seen, now)

    assert found.blockers[-1].kind is ReasonKind.HOST_GUESTS
    assert found.verdict.kind is verdict


def test_scopes_that_a_caller_does_not_cover_are_said_apart(draft: Draft, now: datetime) -> None:
    seen = announced(draft, now, hosts=1, machines=4)
    own = ScopeId("virtual-machine/vm-0-2")

    found = find_standstill(seen.maintenances[OS], seen, now, covers=lambda each: each == own)

    assert [each.vms for each in found.blockers] == [("vm-0-0", "vm-0-1", "vm-0-3"), ("vm-0-2",)]


@pytest.mark.parametrize("machines", [2, 20])
def test_event_names_its_partners_once(draft: Draft, now: datetime, machines: int) -> None:
    seen = busy(announced(draft, now, hosts=1, machines=machines), draft, now)
    event = seen.events[EventId("E-vm-0-0")]

    reasons = explain(event, seen, now)

    assert [reason.kind for reason in reasons if reason.holds] == [
        ReasonKind.APPROVAL_OF_ANY,
        ReasonKind.OTHER_EVENT,
        ReasonKind.HOST_OPERATION_BUSY,
        ReasonKind.HOST_OPERATION,
    ]
    assert all(len(reason.event_ids) == machines - 1 for reason in reasons[2:4])
    if machines == 20:
        assert reasons[3].sentence.startswith(
            "The event starts together with E-vm-0-1, E-vm-0-2, E-vm-0-3, E-vm-0-4, E-vm-0-5, "
            "E-vm-0-6, E-vm-0-7, E-vm-0-8 and 11 more on h0, which are not approved by "
        )


STATES: dict[str, Callable[[Snapshot, Draft, datetime], Snapshot]] = {
    "announced": lambda seen, _, __: seen,
    "busy": busy,
    "running": lambda seen, _, now: started(seen, now, RUNNING),
    "by hand": lambda seen, _, now: started(seen, now, replace(RUNNING, is_by_hand=True)),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(("hosts", "machines"), [(5, 80), (40, 10)])
def test_effort_per_machine_does_not_grow(
    draft: Draft, now: datetime, state: str, hosts: int, machines: int
) -> None:
    small = announced(draft, now, hosts=5, machines=10)
    large = announced(draft, now, hosts=hosts, machines=machines)

    efforts = [effort(STATES[state](seen, draft, now), now) for seen in (small, large)]

    assert efforts[1] / efforts[0] < 1.2 * len(large.events) / len(small.events)


def effort(seen: Snapshot, now: datetime) -> int:
    """Return how many calls it takes to say what holds the Maintenance."""
    calls: Counter[str] = Counter()

    def count(_frame: object, what: str, _: object) -> None:
        calls[what] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        standstill(seen, now)
    finally:
        sys.setprofile(before)
    return calls["call"] + calls["c_call"]
