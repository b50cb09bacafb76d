"""The plan of a Maintenance: what it would do and when, before anybody begins it.

The steps are those of the walk, and so are the rules they wait by. Times come from rehearsals: the
earliest if everybody approves at once, the latest if nobody ever does, and what is likely from
what events took before. Whatever keeps the Maintenance from being walked is said, not only the
first of it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache

from forewarn.domain.conflicts import Conflict, find_conflicts, say_length, say_moment, say_steps
from forewarn.domain.course import Course
from forewarn.domain.errors import (
    CapacityError,
    EmptySelectionError,
    NoOpeningError,
    PlanError,
    UnknownCanaryError,
    UnknownGateError,
)
from forewarn.domain.event import Share
from forewarn.domain.forecast import HIGH, LOW, Sample, Timing, expect
from forewarn.domain.maintenance import Maintenance, Step, remaining_steps, shared_hosts
from forewarn.domain.names import HostName, ScopeId, name_key, names_scope
from forewarn.domain.notice import minimum_notice
from forewarn.domain.policy import Policy
from forewarn.domain.rehearsal import Rehearsed, Stretch, rehearse
from forewarn.domain.scenario import USUAL_IMPACT
from forewarn.domain.topology import Topology
from forewarn.domain.windows import describe, longest_opening, next_opening
from forewarn.protocol.vocabulary import EventType


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What else a plan depends on.

    Impact takes as long as it was announced with. Without that nobody can say how long, unless it
    *is_simulated*, and so takes as long as usual. *gates* are those the server knows, *busy* the
    scopes in which something is in flight, and *samples* what events took before.
    """

    now: datetime
    speed: float = 1
    is_simulated: bool = False
    gates: frozenset[str] = frozenset()
    busy: frozenset[ScopeId] = frozenset()
    samples: Sequence[Sample] = ()


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
    """How many of a scope's members are up in its worst step."""

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
            f"Ends {say_moment(self.low)} to {say_moment(self.high)} "
            f"(p{LOW} to p{HIGH} of {self.samples} measured approvals)."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a Maintenance would do. With *errors* it cannot be begun, or never ends.

    It ends at *earliest* or at *latest*, or some time between, where that is known.
    """

    steps: tuple[PlannedStep, ...] = ()
    capacities: tuple[Capacity, ...] = ()
    earliest: datetime | None = None
    latest: datetime | None = None
    forecast: Forecast | None = None
    conflicts: tuple[Conflict, ...] = ()
    errors: tuple[PlanError, ...] = ()
    remarks: tuple[str, ...] = ()


def make_plan(maintenance: Maintenance, topology: Topology, terms: Terms) -> Plan:
    """Return the plan of *maintenance*, which has not begun."""
    steps = remaining_steps(maintenance, topology, events=())
    if not steps:
        return Plan(errors=(EmptySelectionError(),))
    lengths = _Lengths(maintenance, topology, terms)
    walk = _walk(maintenance, steps, lengths)
    earliest = rehearse(walk, lengths.at_once, terms.now)
    latest = rehearse(walk, lengths.at_last, terms.now)
    members = Counter(vm.scope_id for vm in topology.virtual_machines.values())
    planned = tuple(
        PlannedStep(
            number=number,
            host=step.host,
            shares=tuple(_planned_share(share, members) for share in step.shares),
            earliest=early,
            latest=late,
        )
        for number, (step, early, late) in enumerate(
            zip(steps, earliest, latest, strict=True), start=1
        )
    )
    calendar = maintenance.course.calendar
    return Plan(
        steps=planned,
        capacities=_capacities(planned),
        earliest=_end(earliest),
        latest=_end(latest),
        forecast=_forecast(walk, terms),
        conflicts=find_conflicts(calendar, earliest, latest),
        errors=tuple(_errors(maintenance, steps, lengths, terms, members)),
        remarks=tuple(_remarks(maintenance, steps, lengths, terms)),
    )


def summarise(plan: Plan) -> tuple[str, ...]:
    """Return what matters most of *plan*, in sentences."""
    vms = sum(len(share.resources) for step in plan.steps for share in step.shares)
    summary = [f"Steps: {len(plan.steps)}, for {vms} virtual machines."]
    if plan.earliest is not None:
        last = "nobody can say when" if plan.latest is None else say_moment(plan.latest)
        summary.append(f"Ends {say_moment(plan.earliest)} at the earliest, {last} at the latest.")
    if plan.forecast is not None:
        summary.append(plan.forecast.sentence)
    if plan.capacities:
        worst = min(plan.capacities, key=lambda capacity: capacity.percent)
        summary.append(f"Never below {worst.percent} % of {worst.scope_id}.")
    return tuple(summary)


class _Lengths:
    """How long the events of a Maintenance take by the rules."""

    def __init__(self, maintenance: Maintenance, topology: Topology, terms: Terms) -> None:
        seconds = maintenance.duration_in_seconds
        usual = USUAL_IMPACT[maintenance.event_type] / terms.speed
        self._maintenance = maintenance
        self._topology = topology
        self._speed = terms.speed
        self.impact = usual if seconds is None else timedelta(seconds=seconds)
        self.is_known = terms.is_simulated or seconds is not None

    def at_once(self, scope_id: ScopeId) -> Timing:
        """Return how long an event takes that is approved as soon as it is announced."""
        del scope_id
        return Timing(waits=timedelta(0), lasts=self.impact)

    def at_last(self, scope_id: ScopeId) -> Timing:
        """Return how long an event takes that is postponed as far as it may be."""
        postponed = self._topology.scopes[scope_id].policy.postpone_until / self._speed
        return Timing(
            waits=self.notice(scope_id) + postponed, lasts=self.impact if self.is_known else None
        )

    def notice(self, scope_id: ScopeId) -> timedelta:
        policy = self._topology.scopes[scope_id].policy
        return policy_notice(policy, self._maintenance.event_type, self._speed)

    def longest_notice(self, step: Step) -> timedelta:
        return max(map(self.notice, step.scope_ids))

    def needs(self, step: Step) -> timedelta:
        """Return how long the calendar has to be open for *step*."""
        return self.longest_notice(step) + self.impact


def policy_notice(policy: Policy, event_type: EventType, speed: float) -> timedelta:
    least = minimum_notice(event_type, terminate_notice=policy.terminate_notice, speed=speed)
    return max(least, (policy.notice or timedelta(0)) / speed)


def is_canary(step: Step, course: Course) -> bool:
    return any(
        (step.host is not None and name_key(step.host) == name_key(name))
        or any(names_scope(name, scope_id) for scope_id in step.scope_ids)
        for name in course.canary
    )


def _walk(maintenance: Maintenance, steps: Sequence[Step], lengths: _Lengths) -> Rehearsed:
    course = maintenance.course

    @cache
    def opening(needs: timedelta, moment: datetime) -> datetime | None:
        return next_opening(course.calendar, moment, needs)

    return Rehearsed(
        steps=steps,
        canaries=frozenset(number for number, step in enumerate(steps) if is_canary(step, course)),
        at_once=course.at_once,
        soak=course.soak,
        opening=lambda step, moment: opening(lengths.needs(step), moment) if step.is_safe else None,
    )


def _planned_share(share: Share, members: Mapping[ScopeId, int]) -> PlannedShare:
    total = members[share.scope_id]
    return PlannedShare(
        scope_id=share.scope_id,
        update_domain=share.update_domain,
        resources=share.resources,
        available=total - len(share.resources),
        members=total,
    )


def _capacities(steps: Sequence[PlannedStep]) -> tuple[Capacity, ...]:
    least: dict[ScopeId, PlannedShare] = {}
    for step in steps:
        for share in step.shares:
            known = least.setdefault(share.scope_id, share)
            if share.available < known.available:
                least[share.scope_id] = share
    return tuple(
        Capacity(scope_id=scope_id, available=share.available, members=share.members)
        for scope_id, share in least.items()
    )


def _forecast(walk: Rehearsed, terms: Terms) -> Forecast | None:
    ends = []
    for percent in (LOW, HIGH):
        timings = expect(terms.samples, percent)
        end = None if timings is None else _end(rehearse(walk, timings, terms.now))
        if end is None:
            return None
        ends.append(end)
    return Forecast(low=min(ends), high=max(ends), samples=len(terms.samples))


def _end(stretches: Sequence[Stretch | None]) -> datetime | None:
    """Return when the last of them ends, if each of them does."""
    ends = [stretch.ends for stretch in stretches if stretch is not None and stretch.ends]
    return max(ends) if len(ends) == len(stretches) else None


def _errors(
    maintenance: Maintenance,
    steps: Sequence[Step],
    lengths: _Lengths,
    terms: Terms,
    members: Mapping[ScopeId, int],
) -> Iterator[PlanError]:
    course = maintenance.course
    yield from shared_hosts(steps)
    for name in course.canary:
        if not any(is_canary(step, replace(course, canary=(name,))) for step in steps):
            yield UnknownCanaryError(name)
    for gate in course.gates:
        if gate not in terms.gates:
            yield UnknownGateError(gate, terms.gates)
    yield from _too_large(course, steps, members)
    yield from _too_long(course, steps, lengths, terms.now)


def _too_large(
    course: Course, steps: Sequence[Step], members: Mapping[ScopeId, int]
) -> Iterator[CapacityError]:
    for number, step in enumerate(steps, start=1):
        for share in step.shares:
            total = members[share.scope_id]
            if (total - len(share.resources)) * 100 < course.min_available * total:
                yield CapacityError(
                    say_steps([number]),
                    share.scope_id,
                    share.resources,
                    members=total,
                    percent=course.min_available,
                )


def _too_long(
    course: Course, steps: Sequence[Step], lengths: _Lengths, now: datetime
) -> Iterator[NoOpeningError]:
    numbers: dict[timedelta, list[int]] = {}
    for number, step in enumerate(steps, start=1):
        numbers.setdefault(lengths.longest_notice(step), []).append(number)
    for notice, found in numbers.items():
        if next_opening(course.calendar, now, notice + lengths.impact) is None:
            yield NoOpeningError(
                f"{say_steps(found)} need{'s' if len(found) == 1 else ''} "
                f"{say_length(notice + lengths.impact)} "
                f"({say_length(notice)} notice and {say_length(lengths.impact)} impact)",
                say_length(longest_opening(course.calendar, now)),
                [describe(window) for window in course.calendar.windows],
            )


def _remarks(
    maintenance: Maintenance, steps: Sequence[Step], lengths: _Lengths, terms: Terms
) -> Iterator[str]:
    if maintenance.course.gates:
        gates = ", ".join(maintenance.course.gates)
        yield f"Every gate is taken to be open when it is asked: {gates}."
    if not lengths.is_known:
        yield (
            "How long the impact takes nobody can say, as it has no duration: at the earliest it "
            f"is taken for {say_length(lengths.impact)}, and at the latest there is no end."
        )
    busy = sorted({scope_id for step in steps for scope_id in step.scope_ids} & terms.busy)
    if busy:
        yield (
            f"Something is in flight in {', '.join(busy)}: "
            "there the first step waits until it has ended."
        )
