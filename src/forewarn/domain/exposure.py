"""How much of the fleet a Maintenance takes down at once at the most, and what is risky about it.

The bound follows from the rules alone: by host, the `at_once` largest hosts; by scope, the largest
step of each, in the `at_once` largest scopes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from forewarn.domain.maintenance import Maintenance, Step, set_sizes
from forewarn.domain.topology import Topology
from forewarn.domain.wording import count_of, say_names

RISKY_PERCENT: Final = 10
"""More of the fleet than this, out at once, is worth a warning."""


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
        return f"Out at once: at most {self._share}, {where}."

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
        advice = " Lower it with --at-once." if exposure.places > 1 else ""
        yield f"More than {RISKY_PERCENT} % of the fleet may be out at once.{advice}"
    if not course.hold_all:
        place = "host" if exposure.is_by_host else "scope"
        yield f"A failure holds only its own {place}; the others continue (--no-hold-all)."
    if exposure.is_by_host and exposure.places > 1 and not course.min_available:
        yield (
            f"{exposure.places} hosts may be out at once without a minimum for each set. "
            "Set one with --min-available."
        )


def _whole_sets(steps: Sequence[Step], topology: Topology) -> Iterator[str]:
    sizes = set_sizes(topology)
    for number, step in enumerate(steps, start=1):
        for share in step.shares:
            if len(share.resources) == sizes.get(share.scope_id):
                yield f"{share.scope_id} (step {number})"
