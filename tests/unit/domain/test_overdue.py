"""An event that takes longer than expected is noted once."""

from dataclasses import replace
from datetime import datetime, timedelta

from forewarn.domain.actions import CompleteEvent, NoteOverdue
from forewarn.domain.aftermath import apply_actions
from forewarn.domain.decisions import decide, next_deadline
from forewarn.domain.event import ScheduledEvent, start
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.topology import Topology

HOUR = timedelta(hours=1)
RUNNING = Impact(status=ImpactStatus.RUNNING)


def look(
    fleet: Topology, event: ScheduledEvent, after: timedelta | None, impact: Impact = RUNNING
) -> Snapshot:
    return Snapshot(
        topology=fleet,
        events={event.event_id: event},
        impacts={(event.event_id, vm): impact for vm in event.resources},
        overdue_after=after,
    )


def test_event_is_overdue_beyond_its_announced_duration(
    fleet: Topology, event: ScheduledEvent, now: datetime
) -> None:
    started = start(event, now=now)
    snapshot = look(fleet, started, HOUR)
    moment = now + timedelta(seconds=9) + HOUR

    assert next_deadline(snapshot, now) == moment
    assert not decide(snapshot, moment - timedelta(seconds=1))
    decisions = decide(snapshot, moment)
    assert decisions.actions == (NoteOverdue(event_id=event.event_id),)
    after = apply_actions(snapshot, decisions.actions, now=moment, event_ids=iter(()))
    assert after.events[event.event_id] == replace(started, overdue_at=moment)
    assert not decide(after, moment + HOUR)
    assert next_deadline(after, moment) is None


def test_event_without_announced_duration_is_overdue_too(
    fleet: Topology, event: ScheduledEvent, now: datetime
) -> None:
    started = start(replace(event, duration_in_seconds=None), now=now)

    assert next_deadline(look(fleet, started, HOUR), now) == now + HOUR


def test_what_has_not_started_or_is_not_watched_is_never_overdue(
    fleet: Topology, event: ScheduledEvent, now: datetime
) -> None:
    started = start(event, now=now)

    assert next_deadline(look(fleet, event, HOUR), now) == event.not_before
    assert next_deadline(look(fleet, started, None), now) is None


def test_event_that_ends_at_that_moment_is_not_overdue(
    fleet: Topology, event: ScheduledEvent, now: datetime
) -> None:
    done = Impact(status=ImpactStatus.DONE)

    actions = decide(look(fleet, start(event, now=now), HOUR, done), now + 2 * HOUR).actions

    assert [type(action) for action in actions] == [CompleteEvent]
