"""Starting a Maintenance as its plan was shown, or not at all.

Between the plan and the word to start it the fleet may change. So a plan comes with a digest of
what it would do to which virtual machines, and is only started while that is the same.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from hashlib import sha256

from forewarn.domain.errors import ConflictError, says
from forewarn.domain.maintenance import Maintenance, MaintenanceOrder, Step, remaining_steps
from forewarn.domain.names import MaintenanceId
from forewarn.domain.planning import Plan
from forewarn.domain.risks import find_overlaps
from forewarn.domain.snapshot import Snapshot
from forewarn.operations.context import Context
from forewarn.operations.maintenances import draft_maintenance, start_maintenance
from forewarn.operations.planning import plan_draft
from forewarn.operations.snapshots import look
from forewarn.ports.store import Reading, Transaction


@says("The plan changed after you reviewed it. Nothing was started.")
class PlanChangedError(ConflictError):
    """Something to start that would do something else than its plan said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOffer:
    """A plan, and the *digest* by which it is started."""

    plan: Plan
    digest: str


def offer_plan(
    reading: Reading, context: Context, order: MaintenanceOrder, *, gates: Collection[str] = ()
) -> PlanOffer:
    """Return the plan of what *order* asks for; *gates* are those that the server knows."""
    snapshot = look(reading, context)
    draft = draft_maintenance(snapshot, context, order, gates=gates)
    return PlanOffer(
        plan=plan_draft(reading, context, draft, snapshot),
        digest=_digest(draft.maintenance, draft.steps, snapshot, context),
    )


def start_as_planned(
    tx: Transaction,
    context: Context,
    order: MaintenanceOrder,
    digest: str,
    *,
    gates: Collection[str] = (),
) -> Maintenance:
    """Begin a Maintenance if it does what the plan with *digest* says, or refuse."""
    begun = start_maintenance(tx, context, order, gates=gates)
    snapshot = look(tx, context)
    steps = remaining_steps(begun, snapshot.topology, events=())
    if _digest(begun, steps, snapshot, context) != digest:
        raise PlanChangedError
    return begun


def _digest(
    maintenance: Maintenance, steps: Iterable[Step], snapshot: Snapshot, context: Context
) -> str:
    """Return what is the same as long as the same is done to the same virtual machines.

    Times are not part of it, for they are others with every second.
    """
    steps = tuple(steps)
    intent = replace(
        maintenance, maintenance_id=MaintenanceId(""), started_at=context.now.min, resources=()
    )
    others = tuple(find_overlaps(maintenance, steps, snapshot, context.now))
    return sha256(repr((intent, steps, others)).encode()).hexdigest()[:32]
