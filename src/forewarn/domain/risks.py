"""What a plan warns of: how much is out at once, and what calendar and other Maintenances do to it.

How much is out at once at the most follows from the rules alone: by host, the `at_once` largest
hosts; by scope, the largest step of each, in the `at_once` largest scopes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from forewarn.domain.maintenance import Maintenance, Step, set_sizes
from forewarn.domain.phrases import count_of, say_moment, say_names
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.standing import NEEDS_OPERATOR
from forewarn.domain.timetable import Stretch
from forewarn.domain.topology import Topology
from forewarn.domain.walk import find_state
from forewarn.domain.windows import Blackout, Calendar, closes_at, describe

RISKY_PERCENT: Final = 10
"""More of the fleet than this, out at once, is worth a warning."""
_NAMED: Final = 3
"""How many steps are named one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """At most *out* of the *fleet*'s virtual machines are out at once, in so many *places*.

    A place is a host, or a scope.
    """

    out: int
    fleet: int
    places: int
    is_by_host: bool

    @property
    def percent(self) -> int:
        """The part of the fleet, rounded up."""
        return -(-self.out * 100 // self.fleet) if self.fleet else 0

    @property
    def sentence(self) -> str:
        where = f"on {count_of(self.places, 'host')}"
        if not self.is_by_host:
            where = f"in {count_of(self.places, 'scope')}"
        return f"Unavailable at once: at most {self._share}, {where}."

    @property
    def _share(self) -> str:
        return f"{self.out} of {count_of(self.fleet, 'virtual machine')} ({self.percent} %)"


def find_exposure(maintenance: Maintenance, steps: Sequence[Step], topology: Topology) -> Exposure:
    """Return how much *steps* take down at once at the most."""
    largest: dict[str, int] = {}
    for step in steps:
        vms = sum(len(share.resources) for share in step.shares)
        largest[step.place] = max(vms, largest.get(step.place, 0))
    at_once = sorted(largest.values(), reverse=True)[: maintenance.course.at_once]
    return Exposure(
        out=sum(at_once),
        fleet=len(topology.virtual_machines),
        places=len(at_once),
        is_by_host=bool(maintenance.hosts),
    )


def find_warnings(
    maintenance: Maintenance, steps: Sequence[Step], topology: Topology
) -> Iterator[str]:
    """Yield what is risky about *steps*, though nothing keeps them from being walked."""
    course, exposure = maintenance.course, find_exposure(maintenance, steps, topology)
    whole = list(_whole_sets(steps, topology))
    if whole:
        yield f"Some steps take a whole set down: {say_names(whole)}."
    if exposure.out * 100 > exposure.fleet * RISKY_PERCENT:
        advice = " Limit this with `at_once`." if exposure.places > 1 else ""
        yield f"More than {RISKY_PERCENT} % of the fleet may be unavailable at once.{advice}"
    if not course.hold_all:
        place = "host" if exposure.is_by_host else "scope"
        yield f"A failure holds only its own {place}; the others continue (`hold_all: false`)."
    if exposure.is_by_host and exposure.places > 1 and not course.min_available:
        yield (
            f"{exposure.places} hosts may be unavailable at once without a minimum for each set. "
            "Set one with `min_available`."
        )


def _whole_sets(steps: Sequence[Step], topology: Topology) -> Iterator[str]:
    sizes = set_sizes(topology)
    for number, step in enumerate(steps, start=1):
        for share in step.shares:
            if len(share.resources) == sizes.get(share.scope_id):
                yield f"{share.scope_id} (step {number})"


def find_overlaps(
    maintenance: Maintenance, steps: Sequence[Step], snapshot: Snapshot, now: datetime
) -> Iterator[str]:
    """Warn of each other Maintenance that hosts, or scopes, of *steps* are part of as well."""
    noun = "host" if maintenance.hosts else "scope"
    for other in snapshot.maintenances.values():
        if other.is_aborted or other.maintenance_id == maintenance.maintenance_id:
            continue
        places = len(_shared_places(steps, other, snapshot))
        if places:
            status = find_state(other, snapshot, now).status
            yield (
                f"{count_of(places, noun)} {'is' if places == 1 else 'are'} also part of "
                f"Maintenance {other.maintenance_id}, which is "
                f"{status if status in NEEDS_OPERATOR else 'still under way'}."
            )


def _shared_places(steps: Sequence[Step], other: Maintenance, snapshot: Snapshot) -> set[str]:
    hosts = set(other.hosts)
    vms = {*other.resources} or {
        vm.name for vm in snapshot.topology.virtual_machines.values() if vm.host in hosts
    }
    return {
        step.place
        for step in steps
        if step.host in hosts or any(not vms.isdisjoint(share.resources) for share in step.shares)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Steps that are *ready* at a moment, and have no room before the calendar *opens*.

    Before it *closes* there is too little; without that it is closed. *blackouts* are between the
    two moments. *pace* says in which timetable it came up, if not in each.
    """

    steps: tuple[int, ...]
    ready: datetime
    opens: datetime
    closes: datetime | None
    blackouts: tuple[str, ...]
    pace: str = ""

    @property
    def sentence(self) -> str:
        many = len(self.steps) > 1
        why = (
            "the calendar is closed"
            if self.closes is None
            else f"the calendar has no room before it closes at {say_moment(self.closes)}"
        )
        closed = f" Blackouts: {'; '.join(self.blackouts)}." if self.blackouts else ""
        return (
            f"{say_steps(self.steps)} could begin at {say_moment(self.ready)}{self.pace}, but "
            f"{why}, so {'they wait' if many else 'it waits'} until {say_moment(self.opens)}."
            f"{closed}"
        )


def find_conflicts(
    calendar: Calendar,
    earliest: Sequence[Stretch | None],
    latest: Sequence[Stretch | None],
) -> tuple[Conflict, ...]:
    """Return what the calendar moves in the two timetables of a plan."""
    of_earliest, of_latest = _moved(earliest), _moved(latest)
    paces = {
        **dict.fromkeys(of_earliest.items(), " if all approve at once"),
        **dict.fromkeys(of_latest.items(), " if none approves"),
        **dict.fromkeys(of_earliest.items() & of_latest.items(), ""),
    }
    return tuple(
        Conflict(
            steps=steps,
            ready=ready,
            opens=opens,
            closes=None if (closes := closes_at(calendar, ready)) == ready else closes,
            blackouts=tuple(describe(each) for each in _between(calendar, ready, opens)),
            pace=pace,
        )
        for ((ready, opens), steps), pace in paces.items()
    )


def say_steps(numbers: Sequence[int]) -> str:
    """Return how steps are called that have these *numbers*."""
    if len(numbers) == 1:
        return f"Step {numbers[0]}"
    named, more = numbers[:_NAMED], len(numbers) - _NAMED
    if more > 0:
        return f"Steps {', '.join(map(str, named))} and {more} more"
    return f"Steps {', '.join(map(str, named[:-1]))} and {named[-1]}"


def _moved(
    stretches: Sequence[Stretch | None],
) -> dict[tuple[datetime, datetime], tuple[int, ...]]:
    moved: dict[tuple[datetime, datetime], list[int]] = {}
    for number, stretch in enumerate(stretches, start=1):
        if stretch is not None and stretch.ready < stretch.opens:
            moved.setdefault((stretch.ready, stretch.opens), []).append(number)
    return {moments: tuple(numbers) for moments, numbers in moved.items()}


def _between(calendar: Calendar, ready: datetime, opens: datetime) -> Iterator[Blackout]:
    for blackout in calendar.blackouts:
        zone = ZoneInfo(blackout.zone)
        first, last = ready.astimezone(zone).date(), opens.astimezone(zone).date()
        if blackout.first <= last and first <= blackout.last:
            yield blackout
