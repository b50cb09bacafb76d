"""How far a Maintenance is: by update domain, or by host."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from forewarn.domain.event import Outcome, ScheduledEvent
from forewarn.domain.failures import Standings
from forewarn.domain.maintenance import Maintenance, is_retried, own_events
from forewarn.domain.names import VmName
from forewarn.domain.standing import Standing
from forewarn.domain.topology import Topology


class _Part(Enum):
    DONE = "done"
    FAILED = "failed"
    UNDER_WAY = "under way"
    LEFT_OUT = "left out"
    WAITING = "waiting"


_PARTS: Final[Mapping[Standing, _Part]] = {
    Standing.NOTHING_TO_DO: _Part.DONE,
    Standing.SUCCEEDED: _Part.DONE,
    Standing.GONE: _Part.LEFT_OUT,
    Standing.SKIPPED: _Part.LEFT_OUT,
    Standing.WAITING: _Part.WAITING,
    Standing.FAILED: _Part.FAILED,
    Standing.UNDER_WAY: _Part.UNDER_WAY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkProgress:
    """How many virtual machines of an update domain, or hosts if that is None, are how far.

    Those that are *left_out* were skipped, or have left the fleet.
    """

    update_domain: int | None
    done: int = 0
    failed: int = 0
    under_way: int = 0
    left_out: int = 0
    waiting: int = 0

    @property
    def total(self) -> int:
        return self.done + self.failed + self.under_way + self.left_out + self.waiting


def measure_progress(
    maintenance: Maintenance,
    topology: Topology,
    events: Collection[ScheduledEvent],
    standings: Standings,
) -> tuple[WalkProgress, ...]:
    """Return how far *maintenance* is in each update domain, or with its hosts altogether.

    *standings* say where it is with each host.
    """
    if maintenance.hosts:
        return (_progress(None, Counter(_PARTS[each] for each in standings.values())),)
    parts: dict[int, Counter[_Part]] = {}
    handled: set[VmName] = set()
    for event in own_events(maintenance, events):
        if not is_retried(maintenance, event.event_id):
            handled.update(event.resources)
            found = parts.setdefault(event.update_domain, Counter())
            found[_PARTS[standing_of(event, maintenance)]] += len(event.resources)
    left = _Part.LEFT_OUT if maintenance.is_aborted else _Part.WAITING
    for update_domain in _waiting(maintenance, topology, handled):
        parts.setdefault(update_domain, Counter())[left] += 1
    return tuple(_progress(each, parts[each]) for each in sorted(parts))


def standing_of(event: ScheduledEvent, maintenance: Maintenance) -> Standing:
    """Return where *maintenance* is with the virtual machines of *event*, its last try there."""
    if event.is_in_flight:
        return Standing.UNDER_WAY
    if event.outcome is Outcome.SUCCEEDED:
        return Standing.SUCCEEDED
    # What was withdrawn by aborting is left out like what was never announced.
    is_withdrawn = maintenance.is_aborted and event.outcome is None
    is_left_out = is_withdrawn or event.event_id in maintenance.resolutions
    return Standing.SKIPPED if is_left_out else Standing.FAILED


def _waiting(
    maintenance: Maintenance, topology: Topology, handled: Collection[VmName]
) -> Iterable[int]:
    for name in maintenance.resources:
        vm = topology.virtual_machines.get(name)
        if vm is not None and name not in handled:
            yield vm.update_domain


def _progress(update_domain: int | None, parts: Mapping[_Part, int]) -> WalkProgress:
    counts = {part.name.lower(): number for part, number in parts.items()}
    return WalkProgress(update_domain=update_domain, **counts)
