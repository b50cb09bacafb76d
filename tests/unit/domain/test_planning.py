"""What a plan says, of the fleet in conftest.py: web in domains 0 and 1, db too, and solo."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from forewarn.domain.errors import CapacityError, SharedHostError, WindowTooShortError
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.host_work import HostWorkRule
from forewarn.domain.maintenance import Maintenance, plan_errors, remaining_steps
from forewarn.domain.names import HostName, MaintenanceId, ScopeId, VmName
from forewarn.domain.planning import Capacity, Plan, Scheme, make_plan, summarise
from forewarn.domain.policy import Policy
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.timetable import Sample, Stretch
from forewarn.domain.topology import Topology, standalone
from forewarn.domain.walk import calendar_errors
from forewarn.domain.windows import Calendar, read_blackout, read_window
from forewarn.protocol.vocabulary import EventType

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
WEB = ScopeId("availability-set/web")
DB = ScopeId("availability-set/db")
BY_SCOPE = Maintenance(
    maintenance_id=MaintenanceId("by-scope"),
    event_type=EventType.REBOOT,
    started_at=NOW,
    resources=tuple(VmName(name) for name in ("web-0", "web-1", "web-2", "db-0", "db-1")),
)
WEB_ONLY = replace(BY_SCOPE, resources=BY_SCOPE.resources[:3])
BY_HOST = replace(BY_SCOPE, resources=(), hosts=(HostName("kvm-1"), HostName("kvm-2")))


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What else a plan depends on."""

    now: datetime = NOW
    speed: float = 1
    is_simulated: bool = True
    events: tuple[ScheduledEvent, ...] = ()
    samples: Sequence[Sample] = ()
    host_works: tuple[HostWorkRule, ...] = ()


SIMULATED = Terms()


def plan_of(
    maintenance: Maintenance, fleet: Topology, terms: Terms = SIMULATED, **course: object
) -> Plan:
    changed = replace(maintenance, course=replace(maintenance.course, **course))  # type: ignore[arg-type]
    events = {event.event_id: event for event in terms.events}
    snapshot = Snapshot(
        topology=fleet, events=events, speed=terms.speed, host_works=terms.host_works
    )
    steps = remaining_steps(changed, fleet, events=())
    scheme = Scheme(
        maintenance=changed,
        steps=steps,
        snapshot=snapshot,
        now=terms.now,
        is_simulated=terms.is_simulated,
        samples=terms.samples,
    )
    errors = [
        *plan_errors(changed, fleet, steps),
        *calendar_errors(changed, steps, snapshot, terms.now),
    ]
    return make_plan(scheme, errors)


def with_policy(fleet: Topology, scope_id: ScopeId, policy: Policy) -> Topology:
    scope = replace(fleet.scopes[scope_id], policy=policy)
    return replace(fleet, scopes={**fleet.scopes, scope_id: scope})


def windows(*texts: str) -> Calendar:
    return Calendar(windows=tuple(map(read_window, texts)))


def said(stretch: Stretch | None) -> str:
    assert stretch
    return f"{stretch.begins:%H:%M}-{stretch.ends:%H:%M}" if stretch.ends else "no end"


def earliest(plan: Plan) -> list[str]:
    """Return the steps of *plan* with their earliest times, as they are numbered."""
    return [
        f"{'+'.join(vm for share in step.shares for vm in share.resources)} {said(step.earliest)}"
        for step in plan.steps
    ]


def latest(plan: Plan) -> list[str]:
    return [said(step.latest) for step in plan.steps]


def test_step_follows_step_in_a_scope_and_scopes_go_side_by_side(fleet: Topology) -> None:
    plan = plan_of(BY_SCOPE, fleet)

    assert earliest(plan) == [
        "web-0+web-2 12:00-12:10",
        "db-0 12:00-12:10",
        "web-1 12:10-12:20",
        "db-1 12:10-12:20",
    ]
    assert [step.number for step in plan.steps] == [1, 2, 3, 4]
    assert plan.earliest == NOW + timedelta(minutes=20)


def test_at_the_latest_each_step_has_all_of_its_notice(fleet: Topology) -> None:
    plan = plan_of(WEB_ONLY, fleet)

    assert latest(plan) == ["12:00-12:25", "12:25-12:50"]
    assert plan.latest == NOW + timedelta(minutes=50)


def test_at_the_latest_each_step_is_postponed_as_far_as_it_may(fleet: Topology) -> None:
    lenient = with_policy(fleet, WEB, Policy(postpone_until=timedelta(hours=1)))

    assert latest(plan_of(WEB_ONLY, lenient)) == ["12:00-13:25", "13:25-14:50"]


def test_scope_that_wants_longer_notice_is_planned_with_it(fleet: Topology) -> None:
    slow = with_policy(fleet, WEB, Policy(notice=timedelta(minutes=20)))

    assert latest(plan_of(WEB_ONLY, slow)) == ["12:00-12:30", "12:30-13:00"]


def test_server_that_is_faster_is_planned_faster(fleet: Topology) -> None:
    plan = plan_of(WEB_ONLY, fleet, replace(SIMULATED, speed=5))

    assert latest(plan) == ["12:00-12:05", "12:05-12:10"]


def test_duration_that_is_announced_is_planned_with(fleet: Topology) -> None:
    plan = plan_of(replace(WEB_ONLY, duration_in_seconds=60), fleet, Terms(is_simulated=False))

    assert latest(plan) == ["12:00-12:16", "12:16-12:32"]
    assert not plan.remarks


def test_simulated_impact_takes_what_is_usual_whatever_was_announced(fleet: Topology) -> None:
    plan = plan_of(replace(WEB_ONLY, duration_in_seconds=60), fleet)

    assert latest(plan) == ["12:00-12:25", "12:25-12:50"]


def test_impact_of_unknown_length_has_no_latest_end_and_it_is_said(fleet: Topology) -> None:
    plan = plan_of(WEB_ONLY, fleet, Terms(is_simulated=False))

    first, second = plan.steps
    assert earliest(plan) == ["web-0+web-2 12:00-12:10", "web-1 12:10-12:20"]
    assert first.latest
    assert (first.latest.starts, first.latest.ends) == (NOW + timedelta(minutes=15), None)
    assert second.latest is None
    assert plan.latest is None
    assert plan.remarks == (
        (
            "No duration is set: the earliest end assumes an impact of 10 min, and there is no "
            "latest end."
        ),
    )


def test_canary_is_through_and_has_soaked_before_the_others_begin(fleet: Topology) -> None:
    plan = plan_of(BY_SCOPE, fleet, canary=(DB,), soak=timedelta(minutes=5))

    assert earliest(plan) == [
        "db-0 12:00-12:10",
        "db-1 12:15-12:25",
        "web-0+web-2 12:30-12:40",
        "web-1 12:45-12:55",
    ]


def test_canary_may_be_a_host(fleet: Topology) -> None:
    plan = plan_of(BY_HOST, fleet, canary=("kvm-2",))

    assert earliest(plan) == ["web-1+db-1 12:00-12:10", "web-0+db-0 12:10-12:20"]


def test_no_more_are_under_way_than_may_be_at_once(fleet: Topology) -> None:
    assert earliest(plan_of(BY_SCOPE, fleet, at_once=1)) == [
        "web-0+web-2 12:00-12:10",
        "db-0 12:10-12:20",
        "web-1 12:20-12:30",
        "db-1 12:30-12:40",
    ]


def test_scopes_on_one_host_start_together_and_are_quiet_one_by_one(fleet: Topology) -> None:
    hosts = (*BY_HOST.hosts, HostName("kvm-3"))
    slow = with_policy(fleet, WEB, Policy(notice=timedelta(minutes=30)))

    plan = plan_of(replace(BY_HOST, hosts=hosts), slow)

    assert latest(plan) == ["12:00-12:40", "12:40-13:20", "13:20-14:00"]
    assert earliest(plan)[1] == "web-2+solo 12:10-12:20"


def test_capacity_is_what_stays_up_in_the_worst_step(fleet: Topology) -> None:
    plan = plan_of(BY_SCOPE, fleet)

    first, *_, last = plan.steps
    assert [(share.available, share.members) for share in first.shares] == [(1, 3)]
    assert [(share.available, share.members) for share in last.shares] == [(1, 2)]
    assert plan.capacities == (
        Capacity(scope_id=WEB, available=1, members=3),
        Capacity(scope_id=DB, available=1, members=2),
    )
    assert [capacity.percent for capacity in plan.capacities] == [33, 50]


def test_standalone_virtual_machine_has_no_capacity(fleet: Topology) -> None:
    plan = plan_of(replace(BY_SCOPE, resources=(VmName("solo"),)), fleet)

    assert [(share.available, share.members) for share in plan.steps[0].shares] == [(0, 1)]
    assert plan.capacities == ()
    assert summarise(plan)[0] == "Steps: 1, for 1 virtual machine."


def test_postponement_past_the_window_is_said(fleet: Topology) -> None:
    lenient = with_policy(fleet, WEB, Policy(postpone_until=timedelta(hours=1)))

    plan = plan_of(WEB_ONLY, lenient, calendar=windows("daily 22:00-23:00 UTC"))

    assert plan.remarks == ("Postponed events may have to wait until the calendar opens again.",)


def test_worst_step_of_a_scope_need_not_be_its_first(fleet: Topology) -> None:
    vms = dict(fleet.virtual_machines)
    vms[VmName("web-2")] = replace(vms[VmName("web-2")], update_domain=1)

    plan = plan_of(WEB_ONLY, replace(fleet, virtual_machines=vms))

    assert plan.capacities == (Capacity(scope_id=WEB, available=1, members=3),)


def history(*waits: int) -> Sequence[Sample]:
    return [
        Sample(scope_id=WEB, waited=timedelta(minutes=wait), lasted=timedelta(minutes=1))
        for wait in waits
    ]


def test_history_gives_a_forecast(fleet: Topology) -> None:
    terms = replace(SIMULATED, samples=history(*range(1, 11)))

    forecast = plan_of(WEB_ONLY, fleet, terms).forecast

    assert forecast
    assert forecast.sentence == (
        "Likely to end between 2026-03-02 12:04:00 GMT and 2026-03-02 12:20:00 GMT "
        "(p10 to p90 of 10 measured approvals)."
    )


def test_too_little_history_gives_none(fleet: Topology) -> None:
    assert plan_of(WEB_ONLY, fleet, replace(SIMULATED, samples=history(1))).forecast is None


def test_step_that_does_not_fit_before_the_window_closes_waits_for_the_next(
    fleet: Topology,
) -> None:
    plan = plan_of(WEB_ONLY, fleet, calendar=windows("Mon 11:30-12:30 UTC", "Tue 1:00-2:00 UTC"))

    assert earliest(plan) == ["web-0+web-2 12:00-12:10", "web-1 01:00-01:10"]
    assert [conflict.sentence for conflict in plan.conflicts] == [
        (
            "Step 2 could begin at 2026-03-02 12:10:00 GMT if all approve at once, but the "
            "calendar has no room before it closes at 2026-03-02 12:30:00 GMT, "
            "so it waits until 2026-03-03 01:00:00 GMT."
        ),
        (
            "Step 2 could begin at 2026-03-02 12:25:00 GMT if none approves, but the "
            "calendar has no room before it closes at 2026-03-02 12:30:00 GMT, "
            "so it waits until 2026-03-03 01:00:00 GMT."
        ),
    ]
    assert not plan.errors


def test_notice_outside_is_given_before_the_window_and_the_start_is_inside(
    fleet: Topology,
) -> None:
    calendar = windows("daily 22:00-22:20 UTC")

    plan = plan_of(WEB_ONLY, fleet, calendar=calendar, notice_outside=True)

    for stretch in (plan.steps[0].earliest, plan.steps[0].latest):
        assert stretch
        assert stretch.begins == NOW.replace(hour=21, minute=45)
        assert stretch.starts == NOW.replace(hour=22)
    assert plan.remarks == (
        "Steps are announced before the calendar opens, and start when it is open.",
    )
    assert not plan.errors


def test_all_steps_that_wait_for_a_window_are_one_conflict(fleet: Topology) -> None:
    plan = plan_of(BY_SCOPE, fleet, calendar=windows("daily 22:00-06:00 UTC"))

    (conflict,) = plan.conflicts
    assert conflict.steps == (1, 2)
    assert conflict.sentence == (
        "Steps 1 and 2 could begin at 2026-03-02 12:00:00 GMT, but the calendar is closed, "
        "so they wait until 2026-03-02 22:00:00 GMT."
    )


def test_many_steps_in_one_conflict_are_counted(fleet: Topology) -> None:
    vms = {
        name: replace(vm, scope_id=standalone(name).scope_id, update_domain=0)
        for name, vm in fleet.virtual_machines.items()
    }
    scopes = {scope.scope_id: scope for scope in map(standalone, vms)}
    alone = replace(fleet, virtual_machines=vms, scopes=scopes)

    (conflict,) = plan_of(BY_SCOPE, alone, calendar=windows("daily 22:00-06:00 UTC")).conflicts

    assert conflict.sentence.startswith("Steps 1, 2, 3 and 2 more could begin")


def test_window_shorter_than_notice_and_impact_is_an_error_with_both(fleet: Topology) -> None:
    calendar = windows("Sat 22:00-22:20 Europe/Berlin")

    plan = plan_of(replace(WEB_ONLY, resources=WEB_ONLY.resources[1:2]), fleet, calendar=calendar)

    (error,) = plan.errors
    assert isinstance(error, WindowTooShortError)
    assert str(error) == (
        "A step in availability-set/web needs 25 min (15 min notice and 10 min impact), but the "
        "windows are open for at most 20 min (Sat 22:00-22:20 Europe/Berlin)."
    )
    assert plan.steps[0].earliest is None
    assert plan.earliest is None


def test_window_that_notice_fills_exactly_has_no_room_for_an_impact_without_duration(
    fleet: Topology,
) -> None:
    order = replace(
        WEB_ONLY,
        event_type=EventType.FREEZE,
        duration_in_seconds=0,
        resources=WEB_ONLY.resources[1:2],
    )

    plan = plan_of(order, fleet, calendar=windows("daily 12:00-12:15 UTC"))
    fitting = plan_of(order, fleet, calendar=windows("daily 12:00-12:16 UTC"))

    (error,) = plan.errors
    assert str(error) == (
        "A step in availability-set/web needs 16 min (15 min notice and 1 min impact), but the "
        "windows are open for at most 15 min (daily 12:00-12:15 UTC)."
    )
    assert not fitting.errors


def test_window_that_summer_time_cuts_short_is_not_begun_in(fleet: Topology) -> None:
    """On 29 March 2026 the hour from 2 to 3 does not exist in Berlin."""
    terms = replace(SIMULATED, now=datetime(2026, 3, 28, 12, tzinfo=UTC))

    plan = plan_of(WEB_ONLY, fleet, terms, calendar=windows("Sun,Mon 01:50-03:10 Europe/Berlin"))

    (first, _) = plan.steps
    assert first.earliest
    assert first.earliest.begins == datetime(2026, 3, 29, 23, 50, tzinfo=UTC)


def test_forecast_that_ends_after_the_latest_end_is_explained(fleet: Topology) -> None:
    sample = Sample(scope_id=WEB, waited=timedelta(minutes=5), lasted=timedelta(hours=2))
    terms = Terms(is_simulated=False, samples=[sample] * 10)

    plan = plan_of(replace(WEB_ONLY, duration_in_seconds=60), fleet, terms)

    assert plan.forecast
    assert plan.latest
    assert plan.forecast.high > plan.latest
    (remark,) = plan.remarks
    assert remark == (
        "The latest end assumes an impact of at most 1 min, but events have taken longer before, "
        "so the forecast ends later."
    )


def test_window_on_the_leap_day_is_used(fleet: Topology) -> None:
    terms = replace(SIMULATED, now=datetime(2028, 2, 28, 12, tzinfo=UTC))

    plan = plan_of(WEB_ONLY, fleet, terms, calendar=windows("Tue 8:00-9:00 UTC"))

    assert plan.earliest == datetime(2028, 2, 29, 8, 20, tzinfo=UTC)


def test_holiday_is_kept_free_and_named(fleet: Topology) -> None:
    calendar = Calendar(
        windows=(read_window("Mon,Tue 20:00-23:00 Europe/Berlin"),),
        blackouts=(
            read_blackout("2026-03-02 Europe/Berlin Carnival"),
            read_blackout("2026-04-02 Europe/Berlin Later"),
        ),
    )

    plan = plan_of(WEB_ONLY, fleet, calendar=calendar)

    (conflict,) = plan.conflicts
    assert conflict.sentence == (
        "Step 1 could begin at 2026-03-02 12:00:00 GMT, but the calendar is closed, "
        "so it waits until 2026-03-03 19:00:00 GMT. Blackouts: 2026-03-02 Europe/Berlin Carnival."
    )


def test_host_that_carries_two_domains_of_a_scope_is_an_error_that_names_them(
    fleet: Topology,
) -> None:
    vms = dict(fleet.virtual_machines)
    vms[VmName("web-1")] = replace(vms[VmName("web-1")], host=HostName("kvm-1"))
    vms[VmName("db-1")] = replace(vms[VmName("db-1")], host=HostName("kvm-1"))

    plan = plan_of(BY_HOST, replace(fleet, virtual_machines=vms))

    errors = [error for error in plan.errors if isinstance(error, SharedHostError)]
    assert [(error.host, error.scope, error.vms) for error in errors] == [
        ("kvm-1", WEB, ("web-0", "web-1")),
        ("kvm-1", DB, ("db-0", "db-1")),
    ]
    assert plan.steps[0].earliest is None


def test_step_that_takes_more_than_may_be_missing_is_an_error(fleet: Topology) -> None:
    (error,) = plan_of(WEB_ONLY, fleet, min_available=50).errors

    assert isinstance(error, CapacityError)
    assert str(error) == (
        "Update domain 0 of availability-set/web takes too many virtual machines at once: 1 of "
        "3 would stay available, but the minimum is 2. Lower `min_available`, or give the scope "
        "more update domains."
    )


def test_gates_are_taken_to_be_open_and_it_is_said(fleet: Topology) -> None:
    plan = plan_of(WEB_ONLY, fleet, gates=("smoke",))

    assert not plan.errors
    assert plan.remarks == ("This assumes that every gate is open when asked: smoke.",)


@pytest.mark.parametrize(
    ("host", "remarks"),
    [
        (
            "kvm-2",
            ("The times include notice and impact, but not the work on the hosts themselves.",),
        ),
        ("kvm-9", ()),
    ],
)
def test_work_on_hosts_is_not_counted_and_it_is_said(
    fleet: Topology, host: str, remarks: tuple[str, ...]
) -> None:
    terms = Terms(host_works=(HostWorkRule(hosts=(host,)),))

    assert plan_of(BY_HOST, fleet, terms).remarks == remarks
    assert not plan_of(BY_SCOPE, fleet, terms).remarks


def test_what_is_in_flight_in_a_scope_is_said(fleet: Topology, event: ScheduledEvent) -> None:
    plan = plan_of(WEB_ONLY, fleet, Terms(events=(event,)))

    assert earliest(plan)[0] == "web-0+web-2 12:00-12:10"
    assert plan.remarks == (
        (
            "Events are in flight in availability-set/web: "
            "the first step there waits until they have ended."
        ),
    )


def test_plan_is_summed_up(fleet: Topology) -> None:
    terms = Terms(samples=history(*range(1, 11)))

    assert summarise(plan_of(BY_SCOPE, fleet, terms)) == (
        "Steps: 4, for 5 virtual machines.",
        "Unavailable at once: at most 3 of 6 virtual machines (50 %), in 2 scopes.",
        "Ends 2026-03-02 12:20:00 GMT at the earliest, 2026-03-02 12:50:00 GMT at the latest.",
        (
            "Likely to end between 2026-03-02 12:04:00 GMT and 2026-03-02 12:20:00 GMT "
            "(p10 to p90 of 10 measured approvals)."
        ),
        "Minimum available: 33 % of availability-set/web.",
    )


def test_summary_does_not_say_what_nobody_knows(fleet: Topology) -> None:
    assert summarise(plan_of(WEB_ONLY, fleet, Terms(is_simulated=False)))[2:3] == (
        "Ends 2026-03-02 12:20:00 GMT at the earliest, with no latest end.",
    )


def test_plan_of_nothing_is_empty(fleet: Topology) -> None:
    plan = plan_of(replace(BY_SCOPE, resources=()), fleet)

    assert (plan.steps, plan.earliest, plan.latest) == ((), None, None)
    assert summarise(plan) == ("Steps: 0, for 0 virtual machines.",)
