"""Why a Maintenance is where it is: what holds its events and its next steps, and for how long.

No rule is written here: the blockers are what `explanation.explain` says of the events in flight,
and the brakes that `walk.walk` puts on the steps that remain.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain

from forewarn.domain.blockers import Blocker, Release, Verdict, VerdictKind, remedies_for
from forewarn.domain.blockers_ahead import Ahead, Interruption
from forewarn.domain.blockers_in_flight import InFlight
from forewarn.domain.failures import Standings
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import HostName, ScopeId
from forewarn.domain.reasons import ReasonKind
from forewarn.domain.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Standstill:
    """Everything that holds a Maintenance, and what becomes of it if nobody does anything.

    *not_done* are the places it has left undone for good, each with the reason.
    """

    blockers: tuple[Blocker, ...]
    verdict: Verdict
    not_done: Standings = field(default_factory=dict)


def find_standstill(
    maintenance: Maintenance,
    snapshot: Snapshot,
    now: datetime,
    *,
    interruption: Interruption | None = None,
    is_simulated: bool = False,
) -> Standstill:
    """Say what holds *maintenance* at *now*.

    *interruption* is the last time it was paused or aborted. The end of impact that *is_simulated*
    is known, that of any other is not.
    """
    if maintenance.finished_at is not None:
        return Standstill(blockers=(), verdict=Verdict(kind=VerdictKind.OVER))
    flight = InFlight(maintenance, snapshot, now, is_simulated=is_simulated)
    ahead = Ahead(
        maintenance, snapshot, now, interruption=interruption, under_way=tuple(flight.places)
    )
    blockers = (
        *ahead.of_abort(),
        *chain.from_iterable((*flight.of_events, *flight.of_operations.values())),
        *_merged(chain.from_iterable((*ahead.of_stages, ahead.of_failures))),
    )
    movers = [*flight.movers(), *ahead.movers()]
    verdict = _verdict(movers, now)
    if verdict.kind is VerdictKind.NEVER:
        remedies = remedies_for(blockers, maintenance.maintenance_id)
        verdict = replace(verdict, remedies=remedies)
    return Standstill(blockers=blockers, verdict=verdict)


def _merged(blockers: Iterable[Blocker]) -> Iterator[Blocker]:
    """Yield each blocker once, with all the scopes and hosts it holds."""
    held: dict[Blocker, tuple[dict[ScopeId, None], dict[HostName, None]]] = {}
    for blocker in blockers:
        scope_ids, hosts = held.setdefault(replace(blocker, scope_ids=(), hosts=()), ({}, {}))
        scope_ids.update(dict.fromkeys(blocker.scope_ids))
        hosts.update(dict.fromkeys(blocker.hosts))
    for blocker, (scope_ids, hosts) in held.items():
        yield replace(blocker, scope_ids=tuple(scope_ids), hosts=tuple(hosts))


def _verdict(movers: Sequence[Sequence[Blocker]], now: datetime) -> Verdict:
    """Say when the first of *movers* goes on, each of which waits for all of its blockers."""
    if not movers or not all(movers):
        return Verdict(kind=VerdictKind.NOW, until=now)
    # That something takes longer than expected is good to know, but does not hold it.
    releases = [
        {blocker.release for blocker in mover if blocker.kind is not ReasonKind.OVERDUE}
        for mover in movers
    ]
    moments = [
        max(blocker.until or now for blocker in mover)
        for mover, found in zip(movers, releases, strict=True)
        if found == {Release.BY_TIME}
    ]
    if moments:
        return Verdict(kind=VerdictKind.BY_TIME, until=min(moments))
    if any(Release.BY_HAND not in found for found in releases):
        return Verdict(kind=VerdictKind.BY_PROGRESS)
    return Verdict(kind=VerdictKind.NEVER)
