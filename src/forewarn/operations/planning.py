"""What a Maintenance would do, before anybody begins it. Nothing is changed."""

from typing import Final

from forewarn.domain.forecast import measure
from forewarn.domain.maintenance import is_in_the_way
from forewarn.domain.planning import Plan, Terms, make_plan
from forewarn.operations.context import Context
from forewarn.operations.maintenances import MaintenanceOrder, draft_maintenance
from forewarn.ports.store import Reading
from forewarn.protocol.vocabulary import EventStatus

_HISTORY: Final = 1_000
"""How many events of the past a forecast looks at: the newest."""


def plan_maintenance(
    reading: Reading, context: Context, order: MaintenanceOrder, *, gates: frozenset[str]
) -> Plan:
    """Return the plan of what *order* asks for; *gates* are those that the server knows."""
    topology = reading.topology()
    maintenance = draft_maintenance(topology, context, order)
    ended = reading.events(
        status=[EventStatus.COMPLETED], event_type=order.event_type, limit=_HISTORY
    )
    terms = Terms(
        now=context.now,
        speed=context.rules.speed,
        is_simulated=context.rules.is_simulated,
        gates=gates,
        busy=frozenset(
            event.scope_id for event in reading.events_in_flight() if is_in_the_way(event)
        ),
        samples=measure(ended),
    )
    return make_plan(maintenance, topology, terms)
