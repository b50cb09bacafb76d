"""All that a decision depends on, in one look at the store."""

from collections.abc import Mapping
from dataclasses import replace

from forewarn.domain.gate import Answer, Question
from forewarn.domain.snapshot import Snapshot
from forewarn.operations.context import Context
from forewarn.operations.pausing import find_pause
from forewarn.operations.tasks import find_ownership
from forewarn.ports.store import Reading


def look(
    reading: Reading, context: Context, answers: Mapping[Question, Answer] | None = None
) -> Snapshot:
    """Return all that the next decision depends on.

    *answers* are those that the leader has heard; for others it is what the leader wrote down.
    """
    rules = context.rules
    maintenances = {
        maintenance.maintenance_id: maintenance
        for maintenance in reading.maintenances(finished=False)
    }
    runs = {run.run_id: run for run in reading.scenario_runs(finished=False)}
    snapshot = Snapshot(
        topology=reading.topology(),
        events={event.event_id: event for event in reading.events_under_way()},
        maintenances=maintenances,
        operations={each.operation_id: each for each in reading.operations_under_way()},
        scenario_runs=runs,
        answers=reading.gate_answers() if answers is None else answers,
        schedules={schedule.name: schedule for schedule in reading.schedules()},
        host_works=rules.host_works,
        overdue_after=rules.overdue_after,
        speed=rules.speed,
        server_pause=find_pause(reading),
        soaks=reading.soaks(),
    )
    rows = {row.key: row for row in reading.tasks()}
    if not rows:
        return snapshot
    return replace(snapshot, ownership=find_ownership(reading, context)).with_rows(rows)
