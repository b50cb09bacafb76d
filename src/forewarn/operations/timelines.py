"""What happened, happens and is likely to happen between two moments, in one look."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import ScopeId, name_key
from forewarn.domain.planning import ForeseenStep
from forewarn.domain.schedule import Schedule
from forewarn.domain.topology import Topology
from forewarn.operations.context import Context
from forewarn.operations.planning import foresee_steps
from forewarn.ports.store import Reading
from forewarn.protocol.vocabulary import EventType

MOST_EVENTS: Final = 1_000
"""How many events that have ended a timeline looks at: the newest."""
_MOST_SCOPES: Final = 50
"""How many scopes the store is asked for by name; more are looked for in all that it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineOrder:
    """What somebody wants to see: from *since* until *until*, of one type, or of some scopes.

    *scope* is a part of their names. Where it says nothing, all are meant.
    """

    since: datetime
    until: datetime
    event_type: EventType | None = None
    scope: str = ""


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


def read_timeline(reading: Reading, context: Context, wanted: TimelineOrder) -> Timeline:
    """Return what is *wanted*, and maybe what is in other scopes."""
    ended = reading.events(
        event_type=wanted.event_type,
        scope_ids=_scope_ids(reading, wanted.scope),
        ended=(wanted.since, None),
        created_before=wanted.until,
        limit=MOST_EVENTS,
    )
    foreseen = foresee_steps(reading, context) if context.now < wanted.until else ()
    return Timeline(
        events=(*ended, *_in_flight(reading, wanted)),
        foreseen=tuple(_within(foreseen, wanted)),
        maintenances=reading.maintenances(finished=False),
        schedules=reading.schedules(),
        topology=reading.topology(),
        is_cut=len(ended) == MOST_EVENTS,
    )


def _scope_ids(reading: Reading, part: str) -> tuple[ScopeId, ...] | None:
    """Return the scopes whose names have *part*; None if all are to be looked for."""
    if not part:
        return None
    key = name_key(part)
    found = tuple(each for each in reading.topology().scopes if key in name_key(each))
    # A scope that is gone is in no fleet, but its events are kept.
    return found if 0 < len(found) <= _MOST_SCOPES else None


def _in_flight(reading: Reading, wanted: TimelineOrder) -> Iterable[ScheduledEvent]:
    return (
        event
        for event in reading.events_in_flight()
        if event.created_at < wanted.until and wanted.event_type in {None, event.event_type}
    )


def _within(steps: Iterable[ForeseenStep], wanted: TimelineOrder) -> Iterable[ForeseenStep]:
    return (
        each
        for each in steps
        if each.likely.begins < wanted.until
        and (each.likely.ends is None or each.likely.ends >= wanted.since)
        and wanted.event_type in {None, each.maintenance.event_type}
    )
