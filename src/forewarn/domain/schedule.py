"""Schedules: a Maintenance that begins by itself each time its window opens.

Each occurrence is met once: a Maintenance is begun, or the reason is noted why not. An occurrence
that nobody has met yet is due from the moment its window opens, so one that a server could not meet
in time is met when it is back, and begun if enough of its window is left.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from enum import StrEnum
from itertools import islice
from typing import Final

from forewarn.domain.errors import InvalidError
from forewarn.domain.maintenance import MaintenanceOrder
from forewarn.domain.names import MaintenanceId, ScheduleName, check_name
from forewarn.domain.phrases import say_moment
from forewarn.domain.recurrence import (
    Opening,
    Recurrence,
    Timetable,
    describe_recurrence,
    next_opening_after,
    openings,
)
from forewarn.domain.server_pause import ServerPause
from forewarn.domain.windows import describe

KEPT_OCCURRENCES: Final = 50
"""How many past occurrences a schedule remembers; the audit has them all."""


class ScheduleError(InvalidError):
    """A schedule that cannot be as it was asked for."""


class OccurrenceOutcome(StrEnum):
    """What became of an occurrence."""

    STARTED = "started"
    SKIPPED = "skipped"
    MISSED = "missed"


class ScheduleStatus(StrEnum):
    """Where a schedule is. One that has ended has no dates left."""

    ACTIVE = "active"
    PAUSED = "paused"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """What became of the opening at *opens_at* when it was met, at *met_at*."""

    opens_at: datetime
    met_at: datetime
    outcome: OccurrenceOutcome
    reason: str = ""
    maintenance_id: MaintenanceId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """An order that is given again at every occurrence, from one date until another, if any.

    *met_until* is the last opening that was met, or when the schedule was created: what opens later
    is to be met. *maintenance_id* is the last Maintenance that was begun. *occurrences* are the
    newest, oldest first.
    """

    name: ScheduleName
    order: MaintenanceOrder
    every: Recurrence
    from_date: date
    until_date: date | None
    created_at: datetime
    met_until: datetime
    is_paused: bool = False
    maintenance_id: MaintenanceId | None = None
    occurrences: tuple[Occurrence, ...] = ()

    @property
    def timetable(self) -> Timetable:
        """When it comes round."""
        return Timetable(
            recurrence=self.every,
            first=self.from_date,
            last=self.until_date,
            calendar=self.order.course.calendar,
        )

    @property
    def next_opening(self) -> Opening | None:
        """The next one that is to be met, due or not."""
        return next_opening_after(self.timetable, self.met_until)

    @property
    def status(self) -> ScheduleStatus:
        if self.next_opening is None:
            return ScheduleStatus.ENDED
        return ScheduleStatus.PAUSED if self.is_paused else ScheduleStatus.ACTIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class PassOccurrence:
    """Note why an occurrence does not start; *is_planned* if somebody wanted that beforehand."""

    name: ScheduleName
    occurrence: Occurrence
    is_planned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOccurrence:
    """Begin the Maintenance of an occurrence, if it can be drafted."""

    name: ScheduleName
    opening: Opening


def check_schedule(schedule: Schedule) -> None:
    """Refuse a schedule that would never start anything, or not when its owner thinks."""
    check_name(schedule.name, "schedule")
    windows = schedule.order.course.calendar.windows
    if not windows:
        raise ScheduleError(
            "A schedule needs a window, because it starts when a window opens. Set `windows`, "
            "for example to 'Tue 22:00-04:00 Europe/Berlin'."
        )
    zones = sorted({window.zone for window in windows})
    if len(zones) > 1:
        raise ScheduleError(
            f"The windows of a schedule must be in one time zone, not in {', '.join(zones)}."
        )
    _check_dates(schedule)
    if schedule.next_opening is None:
        raise ScheduleError(
            f"{describe_recurrence(schedule.every)!r} never falls on a day on which a window opens "
            f"({'; '.join(map(describe, windows))}) between the first and the last date."
        )


def pause_schedule(schedule: Schedule) -> Schedule:
    """Skip what comes, until the schedule is resumed."""
    return replace(schedule, is_paused=True)


def resume_schedule(schedule: Schedule) -> Schedule:
    """Start again from the next occurrence on."""
    return replace(schedule, is_paused=False)


def upcoming(schedule: Schedule, now: datetime, count: int) -> tuple[Opening, ...]:
    """Return the next *count* openings after *now*."""
    return tuple(islice(openings(schedule.timetable, now), count))


def due_occurrences(
    schedules: Iterable[Schedule], unfinished: Collection[MaintenanceId], now: datetime
) -> Iterator[PassOccurrence | StartOccurrence]:
    """Yield what is to be done about the first occurrence of each schedule that is due at *now*.

    *unfinished* are the Maintenances that have not ended.
    """
    for schedule in schedules:
        opening = schedule.next_opening
        if opening is None or opening.opens_at > now:
            continue
        met = _pass(schedule, opening, unfinished, now)
        if met is None:
            yield StartOccurrence(name=schedule.name, opening=opening)
        else:
            is_planned = schedule.is_paused or opening.blackout is not None
            yield PassOccurrence(name=schedule.name, occurrence=met, is_planned=is_planned)


def explain_wait(schedule: Schedule, pause: ServerPause | None, now: datetime) -> str:
    """Return why an occurrence that is due has not started; nothing if none is due."""
    opening = schedule.next_opening
    if pause is None or schedule.is_paused or opening is None or opening.opens_at > now:
        return ""
    return (
        f"The server has been paused by {pause.who} since {say_moment(pause.since)}. "
        f"The date that opened at {say_moment(opening.opens_at)} starts when the server resumes, "
        f"unless its window has closed by then, at {say_moment(opening.closes_at)}."
    )


def next_openings(schedules: Iterable[Schedule]) -> Iterator[datetime]:
    """Yield when each schedule is due next, or has been due since."""
    for schedule in schedules:
        opening = schedule.next_opening
        if opening is not None:
            yield opening.opens_at


def note(schedule: Schedule, occurrence: Occurrence) -> Schedule:
    """Return *schedule* with *occurrence* met."""
    return replace(
        schedule,
        met_until=occurrence.opens_at,
        maintenance_id=occurrence.maintenance_id or schedule.maintenance_id,
        occurrences=(*schedule.occurrences, occurrence)[-KEPT_OCCURRENCES:],
    )


def _pass(
    schedule: Schedule, opening: Opening, unfinished: Collection[MaintenanceId], now: datetime
) -> Occurrence | None:
    """Return the occurrence with the reason it does not start; None if it may."""
    outcome, reason = OccurrenceOutcome.SKIPPED, ""
    if schedule.is_paused:
        reason = "the schedule was paused"
    elif opening.blackout is not None:
        reason = f"it falls into the blackout {describe(opening.blackout)}"
    elif now >= opening.closes_at:
        outcome = OccurrenceOutcome.MISSED
        reason = (
            "the server was paused or not running until its window closed "
            f"at {say_moment(opening.closes_at)}"
        )
    elif schedule.maintenance_id in unfinished:
        reason = f"the last maintenance {schedule.maintenance_id} has not finished"
    if not reason:
        return None
    return Occurrence(opens_at=opening.opens_at, met_at=now, outcome=outcome, reason=reason)


def _check_dates(schedule: Schedule) -> None:
    first, last = schedule.from_date, schedule.until_date
    for day in filter(None, (first, last)):
        if not 2000 <= day.year <= 2999:
            raise ScheduleError(f"{day} is out of range; the year must be from 2000 to 2999.")
    if last is not None and last < first:
        raise ScheduleError(f"The schedule ends on {last}, before it begins on {first}.")
