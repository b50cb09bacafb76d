"""What a Maintenance would do, before anybody begins it. Nothing is changed."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from forewarn.domain.maintenance import Maintenance, MaintenanceOrder, Step, remaining_steps
from forewarn.domain.planning import ForeseenStep, Plan, Scheme, foresee, make_plan
from forewarn.domain.risks import find_overlaps
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.timetable import measure
from forewarn.operations.context import Context
from forewarn.operations.enabling import find_unpolled
from forewarn.operations.maintenances import (
    MaintenanceDraft,
    draft_maintenance,
    find_maintenance,
)
from forewarn.operations.snapshots import look
from forewarn.ports.store import Reading
from forewarn.protocol.vocabulary import EventStatus

_HISTORY: Final = 1_000
"""How many events of the past a forecast looks at: the newest."""
_STEPS_FORESEEN: Final = 500
"""How many steps are foreseen at most, those of all Maintenances together."""


def plan_maintenance(
    reading: Reading, context: Context, order: MaintenanceOrder, *, gates: Collection[str] = ()
) -> Plan:
    """Return the plan of what *order* asks for; *gates* are those that the server knows."""
    snapshot = look(reading, context)
    draft = draft_maintenance(snapshot, context, order, gates=gates)
    return plan_draft(reading, context, draft, snapshot)


def plan_draft(
    reading: Reading, context: Context, draft: MaintenanceDraft, snapshot: Snapshot
) -> Plan:
    """Return the plan of *draft*, which was made of *snapshot*."""
    scheme = _scheme(reading, context, draft.maintenance, draft.steps, snapshot)
    made = make_plan(scheme, draft.errors)
    shared = find_overlaps(draft.maintenance, draft.steps, snapshot, context.now)
    return replace(
        made,
        warnings=(*made.warnings, *shared),
        unpolled=find_unpolled(reading, made.resources, context.now),
    )


def warn_of_overlaps(
    reading: Reading, context: Context, maintenance: Maintenance
) -> tuple[str, ...]:
    """Return what its plan warns of about other Maintenances, when *maintenance* is begun."""
    snapshot = look(reading, context)
    steps = remaining_steps(maintenance, snapshot.topology, events=())
    return tuple(find_overlaps(maintenance, steps, snapshot, context.now))


def foresee_steps(
    reading: Reading, context: Context, snapshot: Snapshot | None = None
) -> Iterator[ForeseenStep]:
    """Yield the next steps of the Maintenances that are under way, as far as they go by themselves.

    There are so many at most that going through them takes no longer than a plan does. The
    *snapshot* is of this moment; it is taken if there is none yet.
    """
    snapshot = look(reading, context) if snapshot is None else snapshot
    left = _STEPS_FORESEEN
    for maintenance in snapshot.maintenances.values():
        steps = _steps_ahead(maintenance, snapshot)[:left] if left else ()
        left -= len(steps)
        if steps:
            yield from foresee(_scheme(reading, context, maintenance, steps, snapshot))


def foresee_maintenance(
    reading: Reading, context: Context, maintenance_id: str
) -> tuple[ForeseenStep, ...]:
    """Return when each step that a Maintenance has before it is likely to take place.

    Steps that wait for somebody are left out, and so are all if there are too many to go through.
    """
    maintenance = find_maintenance(reading, maintenance_id)
    snapshot = look(reading, context)
    steps = _steps_ahead(maintenance, snapshot)
    if not steps or len(steps) > _STEPS_FORESEEN:
        return ()
    return tuple(foresee(_scheme(reading, context, maintenance, steps, snapshot)))


def _steps_ahead(maintenance: Maintenance, snapshot: Snapshot) -> tuple[Step, ...]:
    """Return the steps that *maintenance* begins by itself, some time."""
    is_over = maintenance.is_aborted or maintenance.finished_at
    if snapshot.server_pause or maintenance.is_paused or is_over:
        return ()
    events, operations = snapshot.events.values(), snapshot.operations.values()
    return remaining_steps(maintenance, snapshot.topology, events, operations)


def _scheme(
    reading: Reading,
    context: Context,
    maintenance: Maintenance,
    steps: tuple[Step, ...],
    snapshot: Snapshot,
) -> Scheme:
    past = reading.events(
        status=[EventStatus.COMPLETED], event_type=maintenance.event_type, limit=_HISTORY
    )
    return Scheme(
        maintenance=maintenance,
        steps=steps,
        snapshot=snapshot,
        now=context.now,
        is_simulated=context.rules.is_simulated,
        samples=measure(past),
    )
