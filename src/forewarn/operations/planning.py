"""What a Maintenance would do, before anybody begins it. Nothing is changed."""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from forewarn.domain.forecast import measure
from forewarn.domain.order import MaintenanceOrder
from forewarn.domain.planning import Plan, Scheme, make_plan
from forewarn.operations.context import Context
from forewarn.operations.enabling import find_unpolled
from forewarn.operations.maintenances import draft_maintenance
from forewarn.operations.snapshots import look
from forewarn.ports.store import Reading
from forewarn.protocol.vocabulary import EventStatus

_HISTORY: Final = 1_000
"""How many events of the past a forecast looks at: the newest."""


def plan_maintenance(
    reading: Reading, context: Context, order: MaintenanceOrder, *, gates: Collection[str] = ()
) -> Plan:
    """Return the plan of what *order* asks for; *gates* are those that the server knows."""
    snapshot = look(reading, {}, {}, context.rules)
    draft = draft_maintenance(snapshot, context, order, gates=gates)
    ended = reading.events(
        status=[EventStatus.COMPLETED], event_type=order.event_type, limit=_HISTORY
    )
    scheme = Scheme(
        maintenance=draft.maintenance,
        steps=draft.steps,
        snapshot=snapshot,
        now=context.now,
        is_simulated=context.rules.is_simulated,
        samples=measure(ended),
    )
    made = make_plan(scheme, draft.errors)
    return replace(made, unpolled=find_unpolled(reading, made.resources, context.now))
