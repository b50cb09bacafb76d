"""All that a decision depends on, in one look at the store."""

from forewarn.domain.knowledge import Knowledge, read_at
from forewarn.domain.snapshot import Snapshot
from forewarn.operations.context import Context
from forewarn.operations.pausing import find_pause
from forewarn.ports.store import Reading


def look(reading: Reading, context: Context, known: Knowledge | None = None) -> Snapshot:
    """Return all that the next decision depends on.

    What is *known* is the leader's; for others it is what the leader has written down.
    """
    if known is None:
        known = read_at(reading.knowledge(), context.now)
    rules = context.rules
    maintenances = {
        maintenance.maintenance_id: maintenance
        for maintenance in reading.maintenances(finished=False)
    }
    runs = {run.run_id: run for run in reading.scenario_runs(finished=False)}
    return Snapshot(
        topology=reading.topology(),
        events={event.event_id: event for event in reading.events_under_way()},
        maintenances=maintenances,
        operations={each.operation_id: each for each in reading.operations_under_way()},
        scenario_runs=runs,
        impacts=known.impacts,
        tasks=known.tasks,
        answers=known.answers,
        schedules={schedule.name: schedule for schedule in reading.schedules()},
        host_works=rules.host_works,
        overdue_after=rules.overdue_after,
        speed=rules.speed,
        server_pause=find_pause(reading),
        soaks=reading.soaks(),
    )
