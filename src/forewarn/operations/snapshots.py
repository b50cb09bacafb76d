"""All that a decision depends on, in one look at the store."""

from collections.abc import Mapping
from typing import TypeAlias

from forewarn.domain.gate import Answer, Question
from forewarn.domain.impact import Impact
from forewarn.domain.names import VmName
from forewarn.domain.snapshot import Snapshot
from forewarn.operations.context import Rules
from forewarn.operations.pausing import find_pause
from forewarn.ports.store import Reading
from forewarn.protocol.vocabulary import EventId

Impacts: TypeAlias = Mapping[tuple[EventId, VmName], Impact]
"""What the executors last said."""

Answers: TypeAlias = Mapping[Question, Answer]
"""What the gates last said."""


def look(reading: Reading, impacts: Impacts, answers: Answers, rules: Rules) -> Snapshot:
    """Return all that the next decision depends on."""
    maintenances = {
        maintenance.maintenance_id: maintenance
        for maintenance in reading.maintenances(finished=False)
    }
    runs = {run.run_id: run for run in reading.scenario_runs(finished=False)}
    return Snapshot(
        topology=reading.topology(),
        events={event.event_id: event for event in reading.events_under_way()},
        maintenances=maintenances,
        scenario_runs=runs,
        impacts=impacts,
        answers=answers,
        schedules={schedule.name: schedule for schedule in reading.schedules()},
        overdue_after=rules.overdue_after,
        speed=rules.speed,
        server_pause=find_pause(reading),
        soaks=reading.soaks(),
    )
