"""What happened, happens and is likely to happen between two moments, in one look."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.notice_report import NoticeReport, report_notice
from forewarn.domain.planning import ForeseenStep
from forewarn.domain.schedule import Schedule
from forewarn.domain.topology import Topology
from forewarn.operations.context import Context
from forewarn.operations.planning import foresee_steps
from forewarn.ports.store import Reading
from forewarn.protocol.vocabulary import EventStatus, EventType

_ENDED: Final = (EventStatus.COMPLETED, EventStatus.CANCELED)
MOST_EVENTS: Final = 2_000
"""How many events that have ended a timeline or a report looks at: the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Everything there is between two moments; *is_cut* if older events were left out.

    *maintenances* are those under way.
    """

    events: tuple[ScheduledEvent, ...]
    foreseen: tuple[ForeseenStep, ...]
    maintenances: tuple[Maintenance, ...]
    schedules: tuple[Schedule, ...]
    topology: Topology
    is_cut: bool


def read_timeline(
    reading: Reading,
    context: Context,
    since: datetime,
    until: datetime,
    event_type: EventType | None = None,
) -> Timeline:
    """Return what lies between *since* and *until*, only that of one type if it is given."""
    ended = reading.events(
        status=_ENDED,
        event_type=event_type,
        ended=(since, None),
        created_before=until,
        limit=MOST_EVENTS,
    )
    foreseen = foresee_steps(reading, context) if context.now < until else ()
    return Timeline(
        events=(*ended, *_in_flight(reading, until, event_type)),
        foreseen=tuple(_within(foreseen, since, until, event_type)),
        maintenances=reading.maintenances(finished=False),
        schedules=reading.schedules(),
        topology=reading.topology(),
        is_cut=len(ended) == MOST_EVENTS,
    )


def read_notice(reading: Reading, since: datetime) -> tuple[NoticeReport, bool]:
    """Return what became of the notice of events since then, and whether older ones are left out.

    These are the events that ended since then, and those that started and have not ended.
    """
    ended = reading.events(status=_ENDED, ended=(since, None), limit=MOST_EVENTS)
    running = (
        event
        for event in reading.events_in_flight()
        if event.started_at is not None and event.started_at >= since
    )
    scopes = reading.topology().scopes
    policies = {scope_id: scope.policy for scope_id, scope in scopes.items()}
    return report_notice((*ended, *running), policies), len(ended) == MOST_EVENTS


def _in_flight(
    reading: Reading, until: datetime, event_type: EventType | None
) -> Iterable[ScheduledEvent]:
    return (
        event
        for event in reading.events_in_flight()
        if event.created_at < until and event_type in {None, event.event_type}
    )


def _within(
    steps: Iterable[ForeseenStep], since: datetime, until: datetime, event_type: EventType | None
) -> Iterable[ForeseenStep]:
    return (
        each
        for each in steps
        if each.likely.begins < until
        and (each.likely.ends is None or each.likely.ends >= since)
        and event_type in {None, each.maintenance.event_type}
    )
