"""Where the calendar of a Maintenance has room: for beginning a step, and for starting its events.

A step begins where its notice and its impact fit in. Where notice may be given outside, only the
impact has to: the step begins so long before an opening. Its events start only inside one, whoever
approves them earlier, and whatever makes them late.

What fits in is told by the minute, as windows are: a scheduler that wakes up milliseconds after a
window has opened still has all of it, and an impact takes up at least a minute. An event that falls
due at the moment at which its window closes would otherwise wait for the next one.
"""

from datetime import datetime, timedelta
from typing import Final

from forewarn.domain.course import Course
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.maintenance import Maintenance, Step
from forewarn.domain.notice import earliest_not_before
from forewarn.domain.policy import usual_notice
from forewarn.domain.scenario import USUAL_IMPACT
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.windows import Calendar, next_opening

SHORTEST_IMPACT: Final = timedelta(minutes=1)
"""The room in a window that an impact without a duration takes up."""


def longest_notice(maintenance: Maintenance, step: Step, snapshot: Snapshot) -> timedelta:
    """Return how long after its announcement *step* starts, if nobody approves."""
    notices = (
        usual_notice(
            maintenance.event_type,
            snapshot.topology.scopes[scope_id].policy,
            speed=snapshot.speed,
        )
        for scope_id in step.scope_ids
    )
    return max(notices, default=timedelta(0))


def expected_impact(maintenance: Maintenance, snapshot: Snapshot) -> timedelta:
    """Return how long the impact takes: as announced, or else what is usual."""
    if maintenance.duration_in_seconds is not None:
        return timedelta(seconds=maintenance.duration_in_seconds)
    return USUAL_IMPACT[maintenance.event_type] / snapshot.speed


def next_room(calendar: Calendar, earliest: datetime, lasting: timedelta) -> datetime | None:
    """Return the first moment from *earliest* on at which there is room for *lasting*, if any."""
    opening = next_opening(calendar, _whole_minute(earliest), lasting)
    return None if opening is None else max(opening, earliest)


def next_beginning(
    course: Course, earliest: datetime, *, notice: timedelta, impact: timedelta
) -> datetime | None:
    """Return when a step may begin, from *earliest* on; None if there is never room for it."""
    due = earliest_not_before(earliest, notice)
    if not course.notice_outside:
        lasting = notice + max(impact, SHORTEST_IMPACT)
        opening = next_opening(course.calendar, _whole_minute(due) - notice, lasting)
        return None if opening is None else max(opening, earliest)
    opening = next_room(course.calendar, due, impact)
    if opening is None:
        return None
    return earliest if opening == due else opening - notice


def next_start(event: ScheduledEvent, snapshot: Snapshot, earliest: datetime) -> datetime | None:
    """Return when its calendar lets *event* start, from *earliest* on; None if it never does."""
    maintenance = snapshot.maintenances.get(event.maintenance_id) if event.maintenance_id else None
    if maintenance is None:
        return earliest
    impact = expected_impact(maintenance, snapshot)
    return next_room(maintenance.course.calendar, earliest, impact)


def _whole_minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)
