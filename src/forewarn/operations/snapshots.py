"""All that a decision depends on, in one look at the store."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from forewarn.domain.gate import Answer, Question
from forewarn.domain.host_work import HostTask
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """What the leader has been told: by executors, by gates, and by whoever works on hosts."""

    impacts: Impacts = field(default_factory=dict)
    answers: Answers = field(default_factory=dict)
    tasks: Mapping[HostTask, Impact] = field(default_factory=dict)


NOTHING: Final = Knowledge()
"""What is known before anybody was asked."""


def look(reading: Reading, known: Knowledge, rules: Rules) -> Snapshot:
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
