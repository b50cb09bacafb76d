"""All that a decision depends on, in one look at the store."""

from collections.abc import Mapping
from datetime import timedelta
from typing import TypeAlias

from forewarn.domain.decisions import Snapshot
from forewarn.domain.impact import Impact
from forewarn.domain.names import VmName
from forewarn.ports.store import Reading
from forewarn.protocol.vocabulary import EventId

Impacts: TypeAlias = Mapping[tuple[EventId, VmName], Impact]
"""What the executors last said."""


def look(reading: Reading, impacts: Impacts, overdue_after: timedelta | None = None) -> Snapshot:
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
        overdue_after=overdue_after,
    )
