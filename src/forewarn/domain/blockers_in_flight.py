"""What holds that part of a Maintenance which is in flight: its events and its host operations."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from forewarn.domain.blockers import Blocker, Release
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.explanation import explain, explain_operation
from forewarn.domain.host_operation import HostOperation
from forewarn.domain.maintenance import Maintenance, own_events, own_operations
from forewarn.domain.precedence import needing_somebody
from forewarn.domain.reasons import OF_HOST, Reason, ReasonKind
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.wording import say_moment
from forewarn.protocol.vocabulary import EventId, EventStatus

_APPROVALS: Final = frozenset(
    {ReasonKind.APPROVAL_OF_ANY, ReasonKind.APPROVAL_OF_ALL, ReasonKind.APPROVAL_OF_LEADER}
)
_OTHERS: Final = frozenset(
    {ReasonKind.OTHER_EVENT, ReasonKind.HOST_OPERATION_BUSY, ReasonKind.OTHER_IMPACT}
)
"""The reasons that are other events on the same virtual machines."""

_BY_HAND: Final = frozenset({ReasonKind.BY_HAND, ReasonKind.NO_EXECUTOR, ReasonKind.HOST_PAUSED})
"""The reasons that remain until somebody acts."""


class InFlight:
    """The events and host operations of one Maintenance that are not over.

    *of_events* and *of_operations* are what holds each of them.
    """

    def __init__(
        self, maintenance: Maintenance, snapshot: Snapshot, now: datetime, *, is_simulated: bool
    ) -> None:
        self._maintenance = maintenance
        self._snapshot = snapshot
        self._now = now
        self._is_simulated = is_simulated
        events = own_events(maintenance, snapshot.events.values())
        operations = own_operations(maintenance, snapshot.operations.values())
        self.events = tuple(event for event in events if event.is_in_flight)
        self.operations = tuple(each for each in operations if not each.is_over)
        self.of_events = tuple(tuple(self._of_event(event)) for event in self.events)
        self.of_operations = {each: tuple(self._of_operation(each)) for each in self.operations}

    @property
    def places(self) -> Iterator[str]:
        """The hosts or scopes that are under way."""
        yield from (event.host or event.scope_id for event in self.events)
        yield from (operation.host for operation in self.operations)

    def movers(self) -> Iterator[tuple[Blocker, ...]]:
        """Yield all that holds each event, and each host operation that has none in flight."""
        by_id = {each.operation_id: found for each, found in self.of_operations.items()}
        for event, found in zip(self.events, self.of_events, strict=True):
            yield (*found, *(by_id.get(event.operation_id, ()) if event.operation_id else ()))
        told = {event.operation_id for event in self.events}
        yield from (found for key, found in by_id.items() if key not in told)

    def _of_event(self, event: ScheduledEvent) -> Iterator[Blocker]:
        """Yield what holds *event*, and whether that takes longer than expected."""
        reasons = explain(event, self._snapshot, self._now, speed=self._snapshot.speed)
        # Events of a host operation start together: what holds another one holds this one too.
        latest = max((each.until for each in reasons if each.holds and each.until), default=None)
        if any(each.kind in _OTHERS or _is_shut_out(each) for each in reasons):
            latest = None
        for reason in reasons:
            # What holds a host operation is said once, not for each of its events.
            is_of_event = reason.kind not in OF_HOST
            if is_of_event and (reason.holds or reason.kind is ReasonKind.OVERDUE):
                yield self._of_reason(event, reason, latest)

    def _of_operation(self, operation: HostOperation) -> Iterator[Blocker]:
        """Yield what holds *operation*, beside what holds its events."""
        events = [each for each in self.events if each.operation_id == operation.operation_id]
        for reason in explain_operation(operation, self._snapshot, self._now):
            is_lost = reason.kind is ReasonKind.HOST_UNKNOWN and reason.until is None
            is_by_hand = is_lost or reason.kind in _BY_HAND
            yield Blocker(
                kind=reason.kind,
                release=Release.BY_HAND if is_by_hand else Release.BY_PROGRESS,
                scope_ids=tuple(dict.fromkeys(event.scope_id for event in events)),
                hosts=(operation.host,),
                vms=reason.vms,
                event_ids=tuple(event.event_id for event in events),
                until=reason.until,
                about=reason.sentence,
                place=operation.host,
            )

    def _of_reason(self, event: ScheduledEvent, reason: Reason, latest: datetime | None) -> Blocker:
        about, until = reason.sentence, reason.until
        awaited: tuple[EventId, ...] = ()
        if reason.kind is ReasonKind.SERVER_PAUSED or _is_shut_out(reason):
            release = Release.BY_HAND
        elif reason.kind in _OTHERS:
            awaited = needing_somebody(event, self._snapshot)
            release = Release.BY_HAND if awaited else Release.BY_PROGRESS
        elif event.event_status is EventStatus.SCHEDULED:
            release, until = Release.BY_TIME, until or self._now
            if latest and reason.kind in _APPROVALS:
                about += f" It starts at {say_moment(latest)} at the latest."
        else:
            release = self._release(reason)
        return Blocker(
            kind=reason.kind,
            release=release,
            scope_ids=(event.scope_id,),
            hosts=(event.host,) if event.host else (),
            vms=reason.vms,
            event_ids=(event.event_id,),
            since=reason.since,
            until=until,
            about=about,
            awaited=awaited,
        )

    def _release(self, reason: Reason) -> Release:
        is_asked_again = reason.until is not None
        if reason.kind in _BY_HAND:
            return Release.BY_HAND
        if reason.kind is ReasonKind.UNKNOWN and not is_asked_again:
            return Release.BY_HAND
        # When it is asked again, impact that is simulated has ended.
        is_over_then = self._is_simulated and reason.kind is ReasonKind.RUNNING and is_asked_again
        return Release.BY_TIME if is_over_then else Release.BY_PROGRESS


def _is_shut_out(reason: Reason) -> bool:
    """Tell whether the calendar never has room for the event again."""
    return reason.kind is ReasonKind.WINDOW and reason.until is None
