"""How far a Maintenance is, by update domain and by host."""

from dataclasses import replace
from datetime import datetime, timedelta

from forewarn.domain.event import Outcome, ScheduledEvent, cancel, complete, schedule, start
from forewarn.domain.failures import Standings
from forewarn.domain.maintenance import Maintenance, Resolution, draft_events, remaining_steps
from forewarn.domain.names import HostName, MaintenanceId
from forewarn.domain.progress import WalkProgress, measure_progress
from forewarn.domain.standing import Standing
from forewarn.domain.topology import Topology
from forewarn.protocol.vocabulary import EventId, EventType


def begin(fleet: Topology, now: datetime) -> tuple[Maintenance, list[ScheduledEvent]]:
    """Return a Maintenance of the whole fleet, with the events of its first two steps."""
    maintenance = Maintenance(
        maintenance_id=MaintenanceId("m"),
        event_type=EventType.REBOOT,
        started_at=now,
        resources=tuple(fleet.virtual_machines),
    )
    drafts = [draft_events(maintenance, step)[0] for step in remaining_steps(maintenance, fleet)]
    return maintenance, [
        schedule(draft, event_id=EventId(f"E{number}"), now=now, notice=timedelta(minutes=15))
        for number, draft in enumerate(drafts[:2])
    ]


def end(event: ScheduledEvent, outcome: Outcome, now: datetime) -> ScheduledEvent:
    return complete(start(event, now=now), outcome=outcome, now=now)


def test_progress_is_counted_by_update_domain(fleet: Topology, now: datetime) -> None:
    maintenance, (web, db) = begin(fleet, now)
    events = [end(web, Outcome.SUCCEEDED, now), db]

    assert measure_progress(maintenance, fleet, events, {}) == (
        WalkProgress(update_domain=0, done=2, under_way=1, waiting=1),
        WalkProgress(update_domain=1, waiting=2),
    )


def test_failures_count_until_they_are_skipped(fleet: Topology, now: datetime) -> None:
    maintenance, (web, db) = begin(fleet, now)
    events = [end(web, Outcome.FAILED, now), db]
    skipped = replace(maintenance, resolutions={web.event_id: Resolution.SKIP})
    retried = replace(maintenance, resolutions={web.event_id: Resolution.RETRY})

    parts = [
        measure_progress(each, fleet, events, {})[0] for each in (maintenance, skipped, retried)
    ]

    assert [(part.failed, part.left_out, part.waiting) for part in parts] == [
        (2, 0, 1),
        (0, 2, 1),
        (0, 0, 3),
    ]
    assert {part.total for part in parts} == {4}


def test_what_is_withdrawn_by_aborting_is_left_out(fleet: Topology, now: datetime) -> None:
    maintenance, (web, db) = begin(fleet, now)
    events = [cancel(web, now=now), end(db, Outcome.FAILED, now)]

    assert measure_progress(replace(maintenance, is_aborted=True), fleet, events, {}) == (
        WalkProgress(update_domain=0, failed=1, left_out=3),
        WalkProgress(update_domain=1, left_out=2),
    )


def test_machines_that_have_left_are_not_waited_for(fleet: Topology, now: datetime) -> None:
    maintenance, _ = begin(fleet, now)
    gone = dict(fleet.virtual_machines)
    del gone[maintenance.resources[0]]
    fewer = Topology(virtual_machines=gone, scopes=fleet.scopes, hosts=fleet.hosts)

    first, _ = measure_progress(maintenance, fewer, (), {})

    assert first.waiting == 3


def test_by_host_all_hosts_are_counted_together(fleet: Topology, now: datetime) -> None:
    maintenance, _ = begin(fleet, now)
    hosts = tuple(HostName(standing) for standing in Standing)
    standings: Standings = dict(zip(hosts, Standing, strict=True))
    by_host = replace(maintenance, hosts=hosts)

    assert measure_progress(by_host, fleet, (), standings) == (
        WalkProgress(update_domain=None, done=2, failed=1, under_way=1, left_out=2, waiting=1),
    )
