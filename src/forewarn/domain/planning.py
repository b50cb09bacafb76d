"""The plan of a Maintenance: what it would do and when, before anybody begins it.

The steps are those of the walk, and so are the rules they wait by. Times come from timetables: the
earliest if everybody approves at once, the latest if nobody ever does, and what is likely from
what events took before. Whatever keeps the Maintenance from being walked is said, not only the
first of it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from forewarn.domain.event import ScheduledEvent, Share
from forewarn.domain.host_work import work_for
from forewarn.domain.maintenance import Maintenance, Step, is_in_the_way
from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.domain.openings import expected_impact
from forewarn.domain.phrases import count_of, say_length, say_moment, say_names
from forewarn.domain.policy import usual_notice
from forewarn.domain.risks import Conflict, Exposure, find_conflicts, find_exposure, find_warnings
from forewarn.domain.scenario import USUAL_IMPACT
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.timetable import (
    HIGH,
    LOW,
    Sample,
    Stretch,
    Timing,
    Timings,
    UnderWay,
    expect,
    make_timetable,
)
from forewarn.domain.topology import ScopeKind, Topology
from forewarn.domain.windows import ALWAYS
from forewarn.protocol.errors import ForewarnError


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedShare:
    """One update domain of one scope, and how many of the scope's members stay up meanwhile."""

    scope_id: ScopeId
    update_domain: int
    resources: tuple[str, ...]
    available: int
    members: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """One step with its time at the *earliest* and at the *latest*, if it ever begins."""

    number: int
    host: HostName | None
    shares: tuple[PlannedShare, ...]
    earliest: Stretch | None
    latest: Stretch | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """How many of a set's members are up in its worst step."""

    scope_id: ScopeId
    available: int
    members: int

    @property
    def percent(self) -> int:
        return self.available * 100 // self.members


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """When all is done, in all likelihood: by the two percentiles of as many *samples*."""

    low: datetime
    high: datetime
    samples: int

    @property
    def sentence(self) -> str:
        return (
            f"Likely to end between {say_moment(self.low)} and {say_moment(self.high)} "
            f"(p{LOW} to p{HIGH} of {self.samples} measured approvals)."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a Maintenance would do. With *errors* it cannot be begun, or never ends.

    It ends at *earliest* or at *latest*, or some time between, where that is known. *warnings* are
    risks that keep nothing from being begun. Nobody polls for those that are *unpolled*.
    """

    steps: tuple[PlannedStep, ...]
    capacities: tuple[Capacity, ...]
    exposure: Exposure
    warnings: tuple[str, ...]
    earliest: datetime | None
    latest: datetime | None
    forecast: Forecast | None
    conflicts: tuple[Conflict, ...]
    errors: tuple[ForewarnError, ...]
    remarks: tuple[str, ...]
    unpolled: tuple[VmName, ...] = ()

    @property
    def resources(self) -> tuple[VmName, ...]:
        """Every virtual machine of the walk, in its order."""
        return tuple(
            VmName(vm) for step in self.steps for share in step.shares for vm in share.resources
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """What a plan is made of: a Maintenance, the *steps* before it and all around it.

    Impact that *is_simulated* takes as long as usual, any other as long as it was announced with;
    without that nobody can say how long. *samples* are what events took before.
    """

    maintenance: Maintenance
    steps: tuple[Step, ...]
    snapshot: Snapshot
    now: datetime
    is_simulated: bool = False
    samples: Sequence[Sample] = ()

    @property
    def impact(self) -> timedelta:
        if self.is_simulated:
            return USUAL_IMPACT[self.maintenance.event_type] / self.snapshot.speed
        return expected_impact(self.maintenance, self.snapshot)

    @property
    def is_impact_known(self) -> bool:
        return self.is_simulated or self.maintenance.duration_in_seconds is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeseenStep:
    """A step that a Maintenance has before it, and when it is *likely* to take place."""

    maintenance: Maintenance
    step: Step
    likely: Stretch


def make_plan(scheme: Scheme, errors: Sequence[ForewarnError] = ()) -> Plan:
    """Return the plan of *scheme*; *errors* are what keeps it from being walked."""
    earliest = _timetable(scheme, _at_once(scheme))
    latest = _timetable(scheme, _when_due(scheme, at_last=True))
    end, forecast = _end(latest), _forecast(scheme)
    topology = scheme.snapshot.topology
    members = Counter(vm.scope_id for vm in topology.virtual_machines.values())
    away = _away(scheme)
    steps = tuple(
        PlannedStep(
            number=number,
            host=step.host,
            shares=tuple(_planned_share(share, members, away) for share in step.shares),
            earliest=early,
            latest=late,
        )
        for number, (step, early, late) in enumerate(
            zip(scheme.steps, earliest, latest, strict=True), start=1
        )
    )
    return Plan(
        steps=steps,
        capacities=tuple(_capacities(steps, topology)),
        exposure=find_exposure(scheme.maintenance, scheme.steps, topology),
        warnings=tuple(find_warnings(scheme.maintenance, scheme.steps, topology)),
        earliest=_end(earliest),
        latest=end,
        forecast=forecast,
        conflicts=find_conflicts(scheme.maintenance.course.calendar, earliest, latest),
        errors=tuple(errors),
        remarks=(*_remarks(scheme), *_doubts(scheme, forecast, end)),
    )


def foresee(scheme: Scheme) -> Iterator[ForeseenStep]:
    """Yield when each step of a Maintenance that is under way is likely to take place.

    A step that never begins unless somebody acts is left out.
    """
    own = {
        event_id: event
        for event_id, event in scheme.snapshot.events.items()
        if event.maintenance_id == scheme.maintenance.maintenance_id
    }
    stretches = make_timetable(
        scheme.maintenance,
        scheme.steps,
        replace(scheme.snapshot, events=own),
        expect(scheme.samples, HIGH) or _when_due(scheme),
        scheme.now,
        under_way=tuple(_under_way(scheme, own.values())),
    )
    for step, likely in zip(scheme.steps, stretches, strict=True):
        if likely is not None:
            yield ForeseenStep(maintenance=scheme.maintenance, step=step, likely=likely)


def _under_way(scheme: Scheme, own: Iterable[ScheduledEvent]) -> Iterator[UnderWay]:
    steps: dict[str, list[ScheduledEvent]] = {}
    for event in own:
        if event.is_in_flight:
            steps.setdefault(event.host or event.scope_id, []).append(event)
    for events in steps.values():
        yield UnderWay(
            scope_ids=frozenset(event.scope_id for event in events),
            ends=max(event.started_at or event.not_before for event in events) + scheme.impact,
        )


def summarise(plan: Plan) -> tuple[str, ...]:
    """Return what matters most of *plan*, in sentences."""
    machines = count_of(len(plan.resources), "virtual machine")
    summary = [f"Steps: {len(plan.steps)}, for {machines}."]
    if plan.steps:
        summary.append(plan.exposure.sentence)
    if plan.earliest is not None:
        last = (
            "with no latest end"
            if plan.latest is None
            else f"{say_moment(plan.latest)} at the latest"
        )
        summary.append(f"Ends {say_moment(plan.earliest)} at the earliest, {last}.")
    if plan.forecast is not None:
        summary.append(plan.forecast.sentence)
    if plan.capacities:
        worst = min(plan.capacities, key=lambda capacity: capacity.percent)
        summary.append(f"Minimum available: {worst.percent} % of {worst.scope_id}.")
    if plan.unpolled:
        silent = f"{len(plan.unpolled)} of {machines}"
        summary.append(f"No polls in 24 hours from {silent}: {say_names(plan.unpolled)}.")
    return tuple(summary)


def _timetable(scheme: Scheme, timings: Timings) -> tuple[Stretch | None, ...]:
    quiet = replace(scheme.snapshot, events={})
    return make_timetable(scheme.maintenance, scheme.steps, quiet, timings, scheme.now)


def _at_once(scheme: Scheme) -> Timings:
    """Return how long events take that are approved as soon as they are announced."""
    timing = Timing(waits=timedelta(0), lasts=scheme.impact)
    return lambda _: timing


def _when_due(scheme: Scheme, *, at_last: bool = False) -> Timings:
    """Return how long events take that nobody approves; *at_last*, if all are postponed, too."""
    topology, speed = scheme.snapshot.topology, scheme.snapshot.speed
    lasts = scheme.impact if scheme.is_impact_known or not at_last else None

    def timing(scope_id: ScopeId) -> Timing:
        policy = topology.scopes[scope_id].policy
        notice = usual_notice(scheme.maintenance.event_type, policy, speed=speed)
        postponed = policy.postpone_until / speed if at_last else timedelta(0)
        return Timing(waits=notice + postponed, lasts=lasts)

    return timing


def _away(scheme: Scheme) -> dict[ScopeId, set[VmName]]:
    """Return who is in events that no step waits for, such as restarts by their owners."""
    away: dict[ScopeId, set[VmName]] = {}
    for event in scheme.snapshot.events.values():
        if event.is_in_flight and not is_in_the_way(event):
            away.setdefault(event.scope_id, set()).update(event.resources)
    return away


def _planned_share(
    share: Share, members: Mapping[ScopeId, int], away: Mapping[ScopeId, set[VmName]]
) -> PlannedShare:
    total = members[share.scope_id]
    down = away.get(share.scope_id, set()).union(share.resources)
    return PlannedShare(
        scope_id=share.scope_id,
        update_domain=share.update_domain,
        resources=share.resources,
        available=total - len(down),
        members=total,
    )


def _capacities(steps: Sequence[PlannedStep], topology: Topology) -> Iterator[Capacity]:
    # Of a standalone virtual machine nothing is left, whatever the plan.
    least: dict[ScopeId, PlannedShare] = {}
    for step in steps:
        for share in step.shares:
            known = least.setdefault(share.scope_id, share)
            if share.available < known.available:
                least[share.scope_id] = share
    for scope_id, share in least.items():
        if topology.scopes[scope_id].kind is not ScopeKind.VIRTUAL_MACHINE:
            yield Capacity(scope_id=scope_id, available=share.available, members=share.members)


def _forecast(scheme: Scheme) -> Forecast | None:
    ends = []
    for percent in (LOW, HIGH):
        timings = expect(scheme.samples, percent)
        end = None if timings is None else _end(_timetable(scheme, timings))
        if end is None:
            return None
        ends.append(end)
    return Forecast(low=min(ends), high=max(ends), samples=len(scheme.samples))


def _end(stretches: Sequence[Stretch | None]) -> datetime | None:
    """Return when the last of them ends, if each of them does."""
    ends = [stretch.ends for stretch in stretches if stretch is not None and stretch.ends]
    return max(ends) if ends and len(ends) == len(stretches) else None


def _doubts(scheme: Scheme, forecast: Forecast | None, latest: datetime | None) -> Iterator[str]:
    if forecast is not None and latest is not None and forecast.high > latest:
        yield (
            f"The latest end assumes an impact of at most {say_length(scheme.impact)}, but events "
            "have taken longer before, so the forecast ends later."
        )


def _remarks(scheme: Scheme) -> Iterator[str]:
    gates = ", ".join(scheme.maintenance.course.gates)
    if gates:
        yield f"This assumes that every gate is open when asked: {gates}."
    if not scheme.is_impact_known:
        yield (
            "No duration is set: the earliest end assumes an impact of "
            f"{say_length(scheme.impact)}, and there is no latest end."
        )
    yield from _host_remarks(scheme)
    touched = {scope_id for step in scheme.steps for scope_id in step.scope_ids}
    yield from _calendar_remarks(scheme, touched)
    events = filter(is_in_the_way, scheme.snapshot.events.values())
    busy = sorted(touched.intersection(event.scope_id for event in events))
    if busy:
        yield (
            f"Events are in flight in {', '.join(busy)}: "
            "the first step there waits until they have ended."
        )
    vms = {vm for step in scheme.steps for share in step.shares for vm in share.resources}
    away = sorted(vm for found in _away(scheme).values() for vm in found if vm in vms)
    if away:
        yield (
            f"Other events are in flight for {say_names(away)}, such as restarts by their owners: "
            "a step with these virtual machines starts when they have ended."
        )


def _host_remarks(scheme: Scheme) -> Iterator[str]:
    rules, hosts = scheme.snapshot.host_works, scheme.snapshot.topology.hosts
    if any(step.host and work_for(rules, hosts[step.host]) for step in scheme.steps):
        yield "The times include notice and impact, but not the work on the hosts themselves."


def _calendar_remarks(scheme: Scheme, touched: Iterable[ScopeId]) -> Iterator[str]:
    course, scopes = scheme.maintenance.course, scheme.snapshot.topology.scopes
    if course.calendar == ALWAYS:
        return
    is_postponable = any(scopes[scope_id].policy.postpone_until for scope_id in touched)
    if course.notice_outside:
        yield "Steps are announced before the calendar opens, and start when it is open."
    elif is_postponable:
        yield "Postponed events may have to wait until the calendar opens again."
