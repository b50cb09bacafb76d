from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.hosts import operations_of, resolved

from forewarn.domain.amending import build_topology
from forewarn.domain.course import Course
from forewarn.domain.errors import (
    MaintenanceOverError,
    SharedHostError,
)
from forewarn.domain.event import (
    Outcome,
    ScheduledEvent,
    cancel,
    complete,
    schedule,
    start,
    start_unannounced,
)
from forewarn.domain.failures import find_failures
from forewarn.domain.maintenance import (
    Maintenance,
    MaintenanceOutcome,
    Resolution,
    Step,
    abort,
    draft_events,
    is_in_the_way,
    own_events,
    pause,
    plan_errors,
    remaining_steps,
    resume,
)
from forewarn.domain.names import HostName, MaintenanceId, OperationId, VmName
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.standing import MaintenanceStatus
from forewarn.domain.topology import Topology, VirtualMachine
from forewarn.domain.walk import find_state, walk
from forewarn.protocol.vocabulary import EventId, EventSource, EventStatus, EventType

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
BY_SCOPE = Maintenance(
    maintenance_id=MaintenanceId("by-scope"),
    event_type=EventType.REBOOT,
    started_at=NOW,
    description="Kernel update",
    duration_in_seconds=60,
    resources=tuple(VmName(name) for name in ("web-2", "web-1", "web-0", "db-0", "db-1")),
    course=Course(hold_all=False),
)
BY_HOST = Maintenance(
    maintenance_id=MaintenanceId("by-host"),
    event_type=EventType.FREEZE,
    started_at=NOW,
    hosts=(HostName("kvm-1"), HostName("kvm-2"), HostName("kvm-3")),
    course=Course(hold_all=False),
)


def names(steps: Iterable[Step]) -> list[str]:
    """Return each step as the names it touches, after its host."""
    return [
        " ".join(
            [f"{step.host}:" if step.host else ""]
            + [vm for share in step.shares for vm in share.resources]
        ).strip()
        for step in steps
    ]


def seen(fleet: Topology, events: Iterable[ScheduledEvent] = ()) -> Snapshot:
    known = tuple(events)
    return Snapshot(
        topology=fleet,
        events={event.event_id: event for event in known},
        operations=operations_of(known),
    )


def due(
    maintenance: Maintenance, fleet: Topology, events: Iterable[ScheduledEvent] = ()
) -> list[str]:
    return names(
        stage.step for stage in walk(maintenance, seen(fleet, events), NOW) if not stage.brakes
    )


def status(
    maintenance: Maintenance, fleet: Topology, events: Iterable[ScheduledEvent]
) -> MaintenanceStatus:
    return find_state(maintenance, seen(fleet, events), NOW).status


def announced(maintenance: Maintenance, fleet: Topology, *vms: str) -> list[ScheduledEvent]:
    """Announce the steps of the plan that touch *vms*."""
    return [
        schedule(
            draft,
            event_id=EventId(f"{maintenance.maintenance_id}:{draft.share.resources[0]}"),
            now=NOW,
            notice=timedelta(minutes=15),
        )
        for step in remaining_steps(maintenance, fleet, ())
        for draft in draft_events(maintenance, step, operation_id(step))
        if any(vm in share.resources for share in step.shares for vm in vms)
    ]


def operation_id(step: Step) -> OperationId | None:
    return OperationId(f"operation:{step.host}") if step.host else None


def ended(
    events: Iterable[ScheduledEvent], outcome: Outcome = Outcome.SUCCEEDED
) -> list[ScheduledEvent]:
    return [complete(start(event, now=NOW), outcome=outcome, now=NOW) for event in events]


def canceled(events: Iterable[ScheduledEvent]) -> list[ScheduledEvent]:
    return [cancel(event, now=NOW) for event in events]


def changed(fleet: Topology, *vms: VirtualMachine, without: str = "") -> Topology:
    """Return *fleet* with *vms* in the place of their namesakes."""
    machines = {**fleet.virtual_machines, **{vm.name: vm for vm in vms}}
    kept = [vm for vm in machines.values() if vm.name != without]
    return build_topology(scopes=fleet.scopes.values(), virtual_machines=kept)


def moved(fleet: Topology, name: str, *, host: str) -> Topology:
    return changed(fleet, replace(fleet.virtual_machines[VmName(name)], host=HostName(host)))


def test_maintenance_by_scope_goes_through_update_domains_in_order(fleet: Topology) -> None:
    steps = remaining_steps(BY_SCOPE, fleet, ())

    assert names(steps) == ["web-0 web-2", "db-0", "web-1", "db-1"]


def test_maintenance_by_host_goes_through_hosts_in_order_of_update_domains(
    fleet: Topology,
) -> None:
    steps = remaining_steps(BY_HOST, fleet, ())

    assert names(steps) == ["kvm-1: web-0 db-0", "kvm-3: web-2 solo", "kvm-2: web-1 db-1"]


def test_host_that_carries_two_update_domains_of_one_scope_is_refused_with_its_vms(
    fleet: Topology,
) -> None:
    shared = moved(fleet, "web-1", host="kvm-1")

    steps = remaining_steps(BY_HOST, shared, ())

    (error,) = plan_errors(BY_HOST, shared, steps)

    assert isinstance(error, SharedHostError)
    assert (error.host, error.scope) == ("kvm-1", "availability-set/web")
    assert error.vms == ("web-0", "web-1")


def test_host_may_carry_one_update_domain_of_each_of_many_scopes(fleet: Topology) -> None:
    together = moved(moved(fleet, "web-2", host="kvm-1"), "solo", host="kvm-1")

    steps = remaining_steps(replace(BY_HOST, hosts=(HostName("kvm-1"),)), together, ())

    assert names(steps) == ["kvm-1: web-0 web-2 db-0 solo"]


def test_maintenance_by_scope_does_not_mind_a_shared_host(fleet: Topology) -> None:
    shared = moved(fleet, "web-1", host="kvm-1")

    assert names(remaining_steps(BY_SCOPE, shared, ())) == ["web-0 web-2", "db-0", "web-1", "db-1"]


def test_step_is_announced_by_one_event_per_scope(fleet: Topology) -> None:
    step = remaining_steps(BY_HOST, fleet, ())[0]

    drafts = draft_events(BY_HOST, step)

    assert [draft.share for draft in drafts] == list(step.shares)
    assert {draft.host for draft in drafts} == {"kvm-1"}
    assert step.scope_ids == {"availability-set/web", "availability-set/db"}


def test_events_of_a_maintenance_say_what_it_says(fleet: Topology) -> None:
    (draft,) = draft_events(BY_SCOPE, remaining_steps(BY_SCOPE, fleet, ())[0])

    assert (draft.event_type, draft.event_source) == (EventType.REBOOT, EventSource.PLATFORM)
    assert (draft.description, draft.duration_in_seconds) == ("Kernel update", 60)
    assert (draft.maintenance_id, draft.host) == (BY_SCOPE.maintenance_id, None)


def test_every_scope_begins_with_its_first_update_domain(fleet: Topology) -> None:
    assert due(BY_SCOPE, fleet) == ["web-0 web-2", "db-0"]


@pytest.mark.parametrize("event_status", [EventStatus.SCHEDULED, EventStatus.STARTED])
def test_next_update_domain_waits_for_the_previous(
    fleet: Topology, event_status: EventStatus
) -> None:
    events = announced(BY_SCOPE, fleet, "web-0", "db-0")

    in_flight = [replace(event, event_status=event_status) for event in events]

    assert due(BY_SCOPE, fleet, in_flight) == []


def test_scopes_do_not_wait_for_each_other(fleet: Topology) -> None:
    events = [*ended(announced(BY_SCOPE, fleet, "web-0")), *announced(BY_SCOPE, fleet, "db-0")]

    assert due(BY_SCOPE, fleet, events) == ["web-1"]


def test_only_one_host_of_a_scope_begins(fleet: Topology) -> None:
    assert due(BY_HOST, fleet) == ["kvm-1: web-0 db-0"]


def test_host_of_other_scopes_begins_too(fleet: Topology) -> None:
    alone = changed(fleet, without="web-2")

    assert due(BY_HOST, alone) == ["kvm-1: web-0 db-0", "kvm-3: solo"]


def test_next_host_waits_for_every_scope_it_shares_with_the_previous(fleet: Topology) -> None:
    web, db = announced(BY_HOST, fleet, "web-0")

    assert due(BY_HOST, fleet, [*ended([web]), db]) == ["kvm-3: web-2 solo"]
    assert due(BY_HOST, fleet, [web, *ended([db])]) == []


def test_waiting_host_is_overtaken_unless_in_order(fleet: Topology) -> None:
    """On kvm-3, web-2 waits for web-0, and db-0 with it; db-1 on kvm-2 could go before."""
    apart = moved(changed(fleet, without="web-1"), "db-0", host="kvm-3")
    in_order = replace(BY_HOST, course=Course(in_order=True, hold_all=False))

    events = announced(BY_HOST, apart, "web-0")

    assert due(BY_HOST, apart, events) == ["kvm-2: db-1"]
    assert due(in_order, apart, events) == []


def test_hosts_that_share_a_scope_do_not_begin_together(fleet: Topology) -> None:
    """While kvm-1 gives way, kvm-2 and kvm-3 are free, but for the set that they share."""
    busy = [replace(event, maintenance_id=None) for event in announced(BY_SCOPE, fleet, "db-0")]
    apart = moved(fleet, "db-1", host="kvm-9")

    assert due(BY_HOST, apart, busy) == ["kvm-3: web-2 solo"]


def test_walk_ends_when_every_step_had_its_turn(fleet: Topology) -> None:
    events = ended(announced(BY_HOST, fleet, "web-0", "web-1", "web-2"))

    assert remaining_steps(BY_HOST, fleet, events, operations_of(events).values()) == ()
    assert due(BY_HOST, fleet, events) == []


@pytest.mark.parametrize(
    ("maintenance", "expected"), [(BY_SCOPE, ["db-0"]), (BY_HOST, [])], ids=["scope", "host"]
)
def test_step_waits_for_another_update_domain_in_flight_and_is_not_overtaken(
    fleet: Topology, event: ScheduledEvent, maintenance: Maintenance, expected: list[str]
) -> None:
    elsewhere = replace(event, update_domain=1, resources=(VmName("web-1"),))

    assert due(maintenance, fleet, [elsewhere]) == expected


def test_step_waits_for_what_others_have_announced_in_its_scope(
    fleet: Topology, event: ScheduledEvent
) -> None:
    assert due(BY_SCOPE, fleet, [event]) == ["db-0"]


def test_user_operation_does_not_hold_a_step(fleet: Topology, event: ScheduledEvent) -> None:
    restart = replace(event, event_source=EventSource.USER, update_domain=1)

    assert due(BY_SCOPE, fleet, [restart]) == ["web-0 web-2", "db-0"]


def test_unannounced_failure_does_not_hold_a_step(fleet: Topology) -> None:
    other = replace(BY_SCOPE, maintenance_id=MaintenanceId("other"))
    (draft,) = draft_events(other, remaining_steps(other, fleet, ())[2])

    failure = start_unannounced(
        replace(draft, maintenance_id=None), event_id=EventId("E9"), now=NOW
    )

    assert failure.update_domain == 1
    assert due(BY_SCOPE, fleet, [failure]) == ["web-0 web-2", "db-0"]


def test_scope_is_busy_with_what_the_platform_announced_and_is_in_flight(
    event: ScheduledEvent,
) -> None:
    events = [
        event,
        replace(event, event_source=EventSource.USER),
        replace(event, is_announced=False),
        replace(event, event_status=EventStatus.COMPLETED),
    ]

    assert list(map(is_in_the_way, events)) == [True, False, False, False]


def test_scope_is_busy_with_a_machine_that_came_to_a_host_that_had_started(
    event: ScheduledEvent,
) -> None:
    arrival = replace(event, is_announced=False, operation_id=OperationId("operation:kvm-1"))

    assert is_in_the_way(arrival)


def test_own_events_are_those_the_maintenance_created(
    fleet: Topology, event: ScheduledEvent
) -> None:
    own = announced(BY_SCOPE, fleet, "web-0")

    events = [event, *own, *announced(BY_HOST, fleet, "web-0")]

    assert list(own_events(BY_SCOPE, events)) == own


def test_failure_holds_its_scope_alone(fleet: Topology) -> None:
    failed = ended(announced(BY_SCOPE, fleet, "web-0"), Outcome.FAILED)
    events = [*failed, *ended(announced(BY_SCOPE, fleet, "db-0"))]

    assert due(BY_SCOPE, fleet, events) == ["db-1"]
    (failure,) = find_failures(BY_SCOPE, events, ())
    assert (failure.place, failure.event_ids) == ("availability-set/web", (failed[0].event_id,))


def test_canceled_event_holds_its_scope(fleet: Topology) -> None:
    events = canceled(announced(BY_SCOPE, fleet, "web-0"))

    assert due(BY_SCOPE, fleet, events) == ["db-0"]


def test_failure_of_another_maintenance_holds_nothing(fleet: Topology) -> None:
    other = replace(BY_SCOPE, maintenance_id=MaintenanceId("other"))
    events = ended(announced(other, fleet, "web-0"), Outcome.FAILED)

    assert due(BY_SCOPE, fleet, events) == ["web-0 web-2", "db-0"]


def test_failure_holds_the_hosts_of_its_scope(fleet: Topology) -> None:
    web, db = announced(BY_HOST, fleet, "web-0")

    events = [*ended([web], Outcome.FAILED), *ended([db])]

    assert due(BY_HOST, fleet, events) == []


def test_failure_holds_every_scope_when_told_to(fleet: Topology) -> None:
    maintenance = replace(BY_SCOPE, course=Course(hold_all=True))
    events = ended(announced(maintenance, fleet, "web-0"), Outcome.FAILED)

    assert due(maintenance, fleet, events) == []


def test_maintenance_told_to_hold_all_goes_on_without_failure(fleet: Topology) -> None:
    maintenance = replace(BY_SCOPE, course=Course(hold_all=True))
    events = ended(announced(maintenance, fleet, "web-0", "db-0"))

    assert due(maintenance, fleet, events) == ["web-1", "db-1"]


@pytest.mark.parametrize("hold_all", [True, False])
def test_maintenance_goes_on_past_failed_and_canceled_events_that_are_skipped(
    fleet: Topology, *, hold_all: bool
) -> None:
    maintenance = replace(BY_SCOPE, course=Course(hold_all=hold_all))
    events = [
        *ended(announced(maintenance, fleet, "web-0"), Outcome.FAILED),
        *canceled(announced(maintenance, fleet, "db-0")),
    ]

    skipped = resolved(maintenance, events)

    assert due(skipped, fleet, events) == ["web-1", "db-1"]
    assert find_failures(skipped, events, ()) == ()


def test_resuming_alone_does_not_go_past_a_failure(fleet: Topology) -> None:
    events = ended(announced(BY_SCOPE, fleet, "web-0", "db-0"), Outcome.FAILED)

    assert due(resume(BY_SCOPE, now=NOW), fleet, events) == []


def test_failed_host_has_another_turn_only_when_it_is_retried(fleet: Topology) -> None:
    events = ended(announced(BY_HOST, fleet, "db-0"), Outcome.FAILED)
    operations = operations_of(events).values()

    skipped, retried = (
        remaining_steps(resolved(BY_HOST, events, each), fleet, events, operations)
        for each in (Resolution.SKIP, Resolution.RETRY)
    )

    assert [step.host for step in skipped] == ["kvm-3", "kvm-2"]
    assert [step.host for step in retried] == ["kvm-1", "kvm-3", "kvm-2"]


def test_failure_after_skipping_holds_again(fleet: Topology) -> None:
    first = ended(announced(BY_SCOPE, fleet, "db-0"), Outcome.FAILED)
    skipped = resolved(BY_SCOPE, first)

    events = [*first, *ended(announced(BY_SCOPE, fleet, "web-0"), Outcome.FAILED)]

    assert due(skipped, fleet, events) == ["db-1"]


def test_paused_maintenance_begins_no_step(fleet: Topology) -> None:
    assert due(pause(BY_SCOPE), fleet) == []


def test_resumed_maintenance_is_as_before_the_pause_but_knows_when() -> None:
    resumed = resume(pause(BY_SCOPE), now=NOW)

    assert resumed == replace(BY_SCOPE, resumed_at=NOW)


def test_aborted_maintenance_begins_no_step(fleet: Topology) -> None:
    assert due(abort(BY_SCOPE), fleet) == []


@pytest.mark.parametrize("over", [abort(BY_SCOPE), replace(BY_SCOPE, finished_at=NOW)])
def test_maintenance_that_is_over_cannot_be_steered(over: Maintenance) -> None:
    for steer in (pause, lambda maintenance: resume(maintenance, now=NOW)):
        with pytest.raises(MaintenanceOverError, match="by-scope has ended"):
            steer(over)


def test_maintenance_is_aborted_once_and_before_it_is_over() -> None:
    with pytest.raises(MaintenanceOverError, match="by-scope is already aborted"):
        abort(abort(BY_SCOPE))
    with pytest.raises(MaintenanceOverError, match="by-scope has ended"):
        abort(replace(BY_SCOPE, finished_at=NOW))


def test_finished_maintenance_stays_what_it_was(fleet: Topology) -> None:
    for outcome, expected in (
        (MaintenanceOutcome.SUCCEEDED, MaintenanceStatus.COMPLETED),
        (MaintenanceOutcome.INCOMPLETE, MaintenanceStatus.INCOMPLETE),
        (MaintenanceOutcome.ABORTED, MaintenanceStatus.ABORTED),
    ):
        finished = replace(BY_SCOPE, finished_at=NOW, outcome=outcome)

        assert status(finished, fleet, ()) is expected


def test_vm_that_left_the_fleet_is_passed_over(fleet: Topology) -> None:
    events = ended(announced(BY_SCOPE, fleet, "web-0"))

    smaller = changed(fleet, without="web-1")

    assert due(BY_SCOPE, smaller, events) == ["db-0"]


def test_vm_moved_to_another_update_domain_has_one_turn(fleet: Topology) -> None:
    events = ended(announced(BY_SCOPE, fleet, "web-0"))

    vm = replace(fleet.virtual_machines[VmName("web-0")], update_domain=2)

    assert names(remaining_steps(BY_SCOPE, changed(fleet, vm), events)) == ["db-0", "web-1", "db-1"]


def test_vm_moved_before_its_turn_goes_with_its_new_host(fleet: Topology) -> None:
    events = announced(BY_HOST, fleet, "web-0")

    there = moved(fleet, "solo", host="kvm-2")

    steps = remaining_steps(BY_HOST, there, events, operations_of(events).values())
    assert names(steps) == ["kvm-2: web-1 db-1 solo", "kvm-3: web-2"]


def test_vm_moved_off_the_hosts_is_passed_over(fleet: Topology) -> None:
    away = moved(fleet, "solo", host="kvm-9")

    assert names(remaining_steps(BY_HOST, away, ())) == [
        "kvm-1: web-0 db-0",
        "kvm-3: web-2",
        "kvm-2: web-1 db-1",
    ]


def test_vm_moved_to_a_host_whose_turn_is_to_come_goes_again_with_it(fleet: Topology) -> None:
    events = ended(announced(BY_HOST, fleet, "db-0"))

    there = moved(fleet, "db-0", host="kvm-3")

    assert due(BY_HOST, there, events) == ["kvm-3: web-2 db-0 solo"]


def test_vm_moved_to_a_host_whose_turn_is_over_is_left_alone(fleet: Topology) -> None:
    events = ended(announced(BY_HOST, fleet, "web-0"))

    there = moved(fleet, "solo", host="kvm-1")

    steps = remaining_steps(BY_HOST, there, events, operations_of(events).values())

    assert names(steps) == ["kvm-3: web-2", "kvm-2: web-1 db-1"]


def test_host_that_came_to_carry_two_update_domains_gets_no_turn(fleet: Topology) -> None:
    maintenance = replace(BY_HOST, hosts=(HostName("kvm-3"),))

    shared = moved(fleet, "web-1", host="kvm-3")

    assert due(maintenance, shared) == []
    assert status(maintenance, shared, ()) is MaintenanceStatus.HELD


def test_finished_maintenance_begins_nothing(fleet: Topology) -> None:
    assert due(replace(BY_SCOPE, finished_at=NOW), fleet) == []


def test_walk_that_waits_behind_a_held_scope_is_held(fleet: Topology) -> None:
    """In order, kvm-3 waits behind kvm-2, which waits for db."""
    web_2 = replace(fleet.virtual_machines[VmName("web-2")], update_domain=2)
    chained = moved(moved(changed(fleet, web_2), "solo", host="kvm-9"), "web-0", host="kvm-9")
    events = ended(announced(BY_HOST, chained, "db-0"), Outcome.FAILED)

    in_order = replace(BY_HOST, course=Course(in_order=True, hold_all=False))

    assert due(in_order, chained, events) == []
    assert status(in_order, chained, events) is MaintenanceStatus.HELD
    assert due(BY_HOST, chained, events) == ["kvm-3: web-2"]


@pytest.mark.parametrize("hold_all", [True, False])
def test_maintenance_not_yet_begun_is_running(fleet: Topology, *, hold_all: bool) -> None:
    maintenance = replace(BY_SCOPE, course=Course(hold_all=hold_all))

    assert status(maintenance, fleet, ()) is MaintenanceStatus.RUNNING


def test_maintenance_is_running_until_its_end_is_recorded(fleet: Topology) -> None:
    events = announced(BY_SCOPE, fleet, "web-0", "web-1", "db-0", "db-1")

    assert status(BY_SCOPE, fleet, events) is MaintenanceStatus.RUNNING
    assert status(BY_SCOPE, fleet, ended(events)) is MaintenanceStatus.RUNNING


def test_maintenance_is_paused_while_steps_remain(fleet: Topology) -> None:
    events = announced(BY_SCOPE, fleet, "web-0")

    assert status(pause(BY_SCOPE), fleet, events) is MaintenanceStatus.PAUSED


def test_paused_maintenance_is_not_paused_when_nothing_remains(fleet: Topology) -> None:
    events = ended(announced(BY_SCOPE, fleet, "web-0", "web-1", "db-0", "db-1"))

    assert status(pause(BY_SCOPE), fleet, events) is MaintenanceStatus.RUNNING


def test_aborted_maintenance_is_aborting_until_its_end_is_recorded(fleet: Topology) -> None:
    events = announced(BY_SCOPE, fleet, "web-0")

    assert status(abort(BY_SCOPE), fleet, events) is MaintenanceStatus.ABORTING
    assert status(abort(BY_SCOPE), fleet, ended(events)) is MaintenanceStatus.ABORTING


def test_maintenance_is_held_when_every_remaining_step_is(fleet: Topology) -> None:
    events = ended(announced(BY_SCOPE, fleet, "web-0", "db-0"), Outcome.FAILED)

    assert status(BY_SCOPE, fleet, events) is MaintenanceStatus.HELD


def test_maintenance_is_running_while_another_scope_goes_on(fleet: Topology) -> None:
    failed = ended(announced(BY_SCOPE, fleet, "web-0"), Outcome.FAILED)

    assert status(BY_SCOPE, fleet, failed) is MaintenanceStatus.RUNNING


def test_maintenance_is_running_while_what_was_announced_takes_its_course(
    fleet: Topology,
) -> None:
    failed = ended(announced(BY_SCOPE, fleet, "web-0"), Outcome.FAILED)
    events = [*failed, *announced(BY_SCOPE, fleet, "db-0", "db-1")]

    assert status(BY_SCOPE, fleet, events) is MaintenanceStatus.RUNNING


def test_one_failure_holds_the_whole_maintenance_when_told_to(fleet: Topology) -> None:
    maintenance = replace(BY_SCOPE, course=Course(hold_all=True))
    failed = ended(announced(maintenance, fleet, "web-0"), Outcome.FAILED)

    assert status(maintenance, fleet, failed) is MaintenanceStatus.HELD


def test_maintenance_goes_on_when_its_failures_are_skipped_and_not_when_it_is_resumed(
    fleet: Topology,
) -> None:
    failed = ended(announced(BY_SCOPE, fleet, "web-0", "db-0"), Outcome.FAILED)

    assert status(resume(BY_SCOPE, now=NOW), fleet, failed) is MaintenanceStatus.HELD
    assert status(resolved(BY_SCOPE, failed), fleet, failed) is MaintenanceStatus.RUNNING
