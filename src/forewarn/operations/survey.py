"""What is going on in the whole fleet, and what comes next, in one look."""

from collections.abc import Mapping
from dataclasses import dataclass

from forewarn.domain.failures import Failure, find_failures
from forewarn.domain.maintenance import Maintenance, own_events, own_operations
from forewarn.domain.names import MaintenanceId, VmName
from forewarn.domain.planning import ForeseenStep
from forewarn.domain.progress import WalkProgress, measure_progress
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.standstill import EVERYTHING, Covers
from forewarn.operations.context import Context
from forewarn.operations.enabling import find_unpolled
from forewarn.operations.explain import MaintenanceExplanation, explain_maintenances
from forewarn.operations.maintenances import find_places
from forewarn.operations.planning import foresee_steps
from forewarn.operations.snapshots import look
from forewarn.ports.store import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Undertaken:
    """A Maintenance under way: how far it is, what it waits for, and what has to be decided."""

    maintenance: Maintenance
    progress: tuple[WalkProgress, ...]
    explanation: MaintenanceExplanation
    failures: tuple[Failure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What is going on. *foreseen* are the next steps; *unpolled* are the machines that are silent.

    The snapshot is what the one who asks may see.
    """

    snapshot: Snapshot
    maintenances: tuple[Undertaken, ...]
    foreseen: tuple[ForeseenStep, ...]
    unpolled: tuple[VmName, ...]


def survey(
    reading: Reading, context: Context, *, whole: Reading, covers: Covers = EVERYTHING
) -> Survey:
    """Say what is going on in what *reading* has.

    What a Maintenance waits for may be elsewhere, so that is looked for in the *whole*.
    """
    snapshot = look(reading, context)
    return Survey(
        snapshot=snapshot,
        maintenances=find_undertaken(reading, context, snapshot, whole=whole, covers=covers),
        foreseen=tuple(foresee_steps(reading, context, snapshot)),
        unpolled=find_unpolled(reading, snapshot.topology.virtual_machines, context.now),
    )


def find_undertaken(
    reading: Reading, context: Context, snapshot: Snapshot, *, whole: Reading, covers: Covers
) -> tuple[Undertaken, ...]:
    """Return the Maintenances that are under way in *snapshot*, oldest first; as `survey` does."""
    every = snapshot if whole is reading else look(whole, context)
    explained = explain_maintenances(whole, context, every, covers)
    return tuple(
        _undertaken(reading, snapshot, each, explained) for each in snapshot.maintenances.values()
    )


def _undertaken(
    reading: Reading,
    snapshot: Snapshot,
    maintenance: Maintenance,
    explained: Mapping[MaintenanceId, MaintenanceExplanation],
) -> Undertaken:
    events = tuple(own_events(maintenance, snapshot.events.values()))
    operations = tuple(own_operations(maintenance, snapshot.operations.values()))
    places = find_places(reading, snapshot, maintenance) if maintenance.hosts else {}
    failures = () if maintenance.is_aborted else find_failures(maintenance, events, operations)
    return Undertaken(
        maintenance=maintenance,
        progress=measure_progress(maintenance, snapshot.topology, events, places),
        explanation=explained[maintenance.maintenance_id],
        failures=failures,
    )
