"""What went wrong in a Maintenance, and what the operator decided about it.

A host or a scope in which something failed or was canceled holds the Maintenance until somebody
has it tried again or passed over. Neither happens by itself, nor by resuming.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, TypeAlias, TypeVar, assert_never

from forewarn.domain.errors import ConflictError, NotFoundError, says
from forewarn.domain.event import Outcome, ScheduledEvent
from forewarn.domain.host_operation import HostOperation, OperationOutcome
from forewarn.domain.maintenance import (
    Maintenance,
    MaintenanceOutcome,
    Resolution,
    check_under_way,
    is_retried,
    own_events,
    own_operations,
)
from forewarn.domain.names import (
    HostName,
    OperationId,
    ScopeId,
    VmName,
    names_place,
    nearest_names,
    plain_name,
)
from forewarn.domain.phrases import say_names
from forewarn.domain.standing import Standing
from forewarn.protocol.vocabulary import EventId, EventStatus


class UnknownFailureError(ConflictError):
    """Something to retry or skip where nothing has failed."""

    def __init__(self, maintenance_id: str, place: str | None, failed: Sequence[str]) -> None:
        where = f"Maintenance {maintenance_id}" if place is None else repr(place)
        others = f" Failed: {say_names(failed)}." if failed else ""
        super().__init__(f"Nothing has failed in {where}.{others}")
        self.maintenance_id = maintenance_id
        self.place = place
        self.failed = tuple(failed)


class UnknownPlaceError(NotFoundError):
    """A host or scope to retry or skip that is not part of the Maintenance."""

    def __init__(
        self, maintenance: Maintenance, place: str, known: Collection[HostName | ScopeId]
    ) -> None:
        noun = "host" if maintenance.hosts else "scope"
        near = nearest_names(place, map(plain_name, known))
        hint = (
            f"Did you mean {' or '.join(near)}?" if near else f"It includes {say_names([*known])}."
        )
        super().__init__(f"Unknown {noun} {place!r} in this Maintenance. {hint}")
        self.maintenance_id = maintenance.maintenance_id
        self.place = place
        self.near = near


@says("{place} is still under way. Wait until its last event has ended.")
class StillUnderWayError(ConflictError):
    """Something to retry or skip before it has ended."""

    maintenance_id: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One thing that failed or was canceled, on a host or in a scope, and is not resolved.

    *key* is the host operation, or else the event; *is_over* unless other events of the operation
    are still in flight.
    """

    key: OperationId | EventId
    host: HostName | None
    scope_ids: tuple[ScopeId, ...]
    event_ids: tuple[EventId, ...]
    vms: tuple[str, ...]
    ended_at: datetime | None
    has_failed: bool
    reason: str
    is_over: bool = True

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        return "failed" if self.has_failed else "was canceled"

    @property
    def place(self) -> HostName | ScopeId:
        """Where it happened: by this name it is retried or skipped."""
        return self.host or self.scope_ids[0]


def find_failures(
    maintenance: Maintenance,
    events: Iterable[ScheduledEvent],
    operations: Iterable[HostOperation],
) -> tuple[Failure, ...]:
    """Return what holds *maintenance* until somebody retries or skips it."""
    of_operations: dict[OperationId, list[ScheduledEvent]] = {}
    failures: list[Failure] = []
    for event in own_events(maintenance, events):
        if event.operation_id is not None:
            of_operations.setdefault(event.operation_id, []).append(event)
        elif _went_wrong(event) and event.event_id not in maintenance.resolutions:
            failures.append(_of_event(event))
    for operation in own_operations(maintenance, operations):
        bad = [e for e in of_operations.get(operation.operation_id, ()) if _went_wrong(e)]
        is_bad = operation.outcome is not None and operation.outcome.is_bad
        if (bad or is_bad) and operation.operation_id not in maintenance.resolutions:
            failures.append(_of_operation(operation, bad))
    return tuple(failures)


def check_places(
    maintenance: Maintenance, places: Iterable[str], known: Collection[HostName | ScopeId]
) -> None:
    """Refuse those of *places* that *maintenance* is not about; *known* are where it is now."""
    check_under_way(maintenance)
    known = tuple(dict.fromkeys((*maintenance.hosts, *known)))
    for place in places:
        if not any(names_place(place, each) for each in known):
            raise UnknownPlaceError(maintenance, place, known)


def resolve(
    maintenance: Maintenance,
    failures: Sequence[Failure],
    resolution: Resolution,
    places: Collection[str] = (),
) -> Maintenance:
    """Have the *failures* at *places* tried again or passed over; without places, all of them."""
    check_under_way(maintenance)
    if not failures and not places:
        raise UnknownFailureError(maintenance.maintenance_id, None, ())
    for place in places:
        if not any(_is_at(failure, place) for failure in failures):
            failed = tuple(dict.fromkeys(failure.place for failure in failures))
            raise UnknownFailureError(maintenance.maintenance_id, place, failed)
    chosen = [
        failure
        for failure in failures
        if not places or any(_is_at(failure, place) for place in places)
    ]
    for failure in chosen:
        if not failure.is_over:
            raise StillUnderWayError(maintenance.maintenance_id, failure.place)
    decided = {str(failure.key): resolution for failure in chosen}
    return replace(maintenance, resolutions={**maintenance.resolutions, **decided})


def outcome_of(
    maintenance: Maintenance,
    events: Collection[ScheduledEvent],
    operations: Collection[HostOperation],
) -> MaintenanceOutcome:
    """Return how *maintenance* has ended, now that nothing of it is left."""
    if maintenance.is_aborted:
        return MaintenanceOutcome.ABORTED
    is_skipped = Resolution.SKIP in maintenance.resolutions.values()
    if is_skipped or any(_untried(maintenance, events, operations)):
        return MaintenanceOutcome.INCOMPLETE
    return MaintenanceOutcome.SUCCEEDED


Standings: TypeAlias = Mapping[HostName | ScopeId, Standing]
"""Where a Maintenance is with each of its hosts, or scopes."""

_RANKS: Final = {standing: rank for rank, standing in enumerate(Standing)}


def find_standings(
    maintenance: Maintenance,
    events: Collection[ScheduledEvent],
    operations: Collection[HostOperation],
    waiting: Iterable[HostName | ScopeId],
) -> Standings:
    """Say where *maintenance* is with each place; *waiting* are those that have a step left."""
    standings: dict[HostName | ScopeId, Standing] = {}
    left = Standing.SKIPPED if maintenance.is_aborted else Standing.WAITING
    found: tuple[tuple[HostName | ScopeId, Standing], ...] = (
        *_event_standings(maintenance, events),
        *_operation_standings(maintenance, operations),
        *((place, Standing.GONE) for place in _untried(maintenance, events, operations)),
        *((place, left) for place in waiting),
    )
    for place, standing in found:
        known = standings.setdefault(place, standing)
        standings[place] = max(known, standing, key=_RANKS.__getitem__)
    return standings


def _untried(
    maintenance: Maintenance,
    events: Collection[ScheduledEvent],
    operations: Collection[HostOperation],
) -> Iterator[HostName | ScopeId]:
    """Yield where something was to be tried again and has not been, yet.

    When no step is left, it never will be: the host or virtual machine has left the fleet.
    """
    tried: set[HostName | VmName] = set()
    again: list[tuple[HostName | ScopeId, HostName | VmName]] = []
    for operation in own_operations(maintenance, operations):
        if is_retried(maintenance, operation.operation_id):
            again.append((operation.host, operation.host))
        else:
            tried.add(operation.host)
    for event in own_events(maintenance, events):
        if is_retried(maintenance, event.event_id):
            again += [(event.scope_id, vm) for vm in event.resources]
        elif event.operation_id is None:
            tried |= set(event.resources)
    return (place for place, who in again if who not in tried)


def _event_standings(
    maintenance: Maintenance, events: Iterable[ScheduledEvent]
) -> Iterator[tuple[ScopeId, Standing]]:
    for event in own_events(maintenance, events):
        if event.operation_id is not None:
            continue
        if event.is_in_flight:
            yield event.scope_id, Standing.UNDER_WAY
        elif not _went_wrong(event):
            yield event.scope_id, Standing.SUCCEEDED
        else:
            yield from _resolved(maintenance, event, event.event_id, event.scope_id)


def _operation_standings(
    maintenance: Maintenance, operations: Iterable[HostOperation]
) -> Iterator[tuple[HostName, Standing]]:
    for operation in own_operations(maintenance, operations):
        if operation.outcome is None:
            yield operation.host, Standing.UNDER_WAY
        elif operation.outcome.is_bad:
            yield from _resolved(maintenance, operation, operation.operation_id, operation.host)
        else:
            yield operation.host, Standing(operation.outcome.value)


P = TypeVar("P", HostName, ScopeId)
_WITHDRAWN: Final = frozenset({None, OperationOutcome.CANCELED})
"""The outcomes of what was canceled: events have none."""


def _resolved(
    maintenance: Maintenance, ended: ScheduledEvent | HostOperation, key: str, place: P
) -> Iterator[tuple[P, Standing]]:
    match maintenance.resolutions.get(key):
        case None:
            # What was withdrawn by aborting is left out like what was never announced.
            is_left_out = maintenance.is_aborted and ended.outcome in _WITHDRAWN
            yield place, Standing.SKIPPED if is_left_out else Standing.FAILED
        case Resolution.SKIP:
            yield place, Standing.SKIPPED
        case Resolution.RETRY:
            return  # what became of that is said by its own events
        case resolution:
            assert_never(resolution)


def _went_wrong(event: ScheduledEvent) -> bool:
    return event.outcome is Outcome.FAILED or event.event_status is EventStatus.CANCELED


def _is_at(failure: Failure, place: str) -> bool:
    where = failure.scope_ids if failure.host is None else (failure.host,)
    return any(names_place(place, each) for each in where)


def _of_event(event: ScheduledEvent) -> Failure:
    return Failure(
        key=event.event_id,
        host=None,
        scope_ids=(event.scope_id,),
        event_ids=(event.event_id,),
        vms=event.resources,
        ended_at=event.ended_at,
        has_failed=event.outcome is Outcome.FAILED,
        reason=event.reason,
    )


def _of_operation(operation: HostOperation, bad: Sequence[ScheduledEvent]) -> Failure:
    has_failed = operation.outcome is OperationOutcome.FAILED or any(e.outcome for e in bad)
    ends = [event.ended_at for event in bad if event.ended_at]
    said = dict.fromkeys(event.reason for event in bad if event.reason)
    return Failure(
        key=operation.operation_id,
        host=operation.host,
        scope_ids=tuple(dict.fromkeys(event.scope_id for event in bad)),
        event_ids=tuple(event.event_id for event in bad),
        vms=tuple(vm for event in bad for vm in event.resources),
        ended_at=operation.ended_at or max(ends, default=None),
        has_failed=has_failed,
        reason=operation.reason or "; ".join(said),
        is_over=operation.is_over,
    )
