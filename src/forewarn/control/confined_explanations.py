"""Why something does not move, for a token that is limited to delivery scopes.

The reasons are those there are; what is in other scopes is not named.
"""

from dataclasses import replace

from forewarn.control.confined import confine_reading
from forewarn.domain.access import Principal
from forewarn.domain.blockers import NAMES_OTHERS, Blocker, BlockerKind, actions_for
from forewarn.domain.names import ScopeId
from forewarn.domain.reasons import OF_HOST, Reason, ReasonKind
from forewarn.domain.standstill import Standstill
from forewarn.operations.context import Context
from forewarn.operations.events import find_event
from forewarn.operations.explain import (
    Explanation,
    MaintenanceExplanation,
    explain_event,
    explain_maintenance,
)
from forewarn.operations.maintenances import find_maintenance
from forewarn.operations.snapshots import Knowledge
from forewarn.ports.store import Reading
from forewarn.protocol.vocabulary import EventId


def explain_confined(
    reading: Reading, principal: Principal, context: Context, event_id: EventId, known: Knowledge
) -> Explanation:
    """Explain an event of the scopes of *principal*. What else holds it is said without names."""
    confined = confine_reading(reading, principal)
    find_event(confined, event_id)
    found = explain_event(reading, context, event_id, known)

    def without_names(reason: Reason) -> Reason:
        if principal.scopes and reason.kind in OF_HOST:
            # It may name others on the host, and what a script printed.
            return Reason(kind=ReasonKind.HOST_WORK, about="Its host")
        if all(confined.event(named) for named in reason.event_ids):
            return reason
        kind = ReasonKind.HOST_OPERATION_ELSEWHERE
        return replace(reason, kind=kind, vms=(), event_ids=())

    # Several elsewhere are said once.
    return replace(found, reasons=tuple(dict.fromkeys(map(without_names, found.reasons))))


def explain_maintenance_confined(
    reading: Reading,
    principal: Principal,
    context: Context,
    maintenance_id: str,
    known: Knowledge,
) -> MaintenanceExplanation:
    """Explain a Maintenance with a part in the scopes of *principal*, naming nothing of others."""
    find_maintenance(confine_reading(reading, principal), maintenance_id)
    found = explain_maintenance(reading, context, maintenance_id, known)
    if not principal.scopes:
        return found
    # Several elsewhere are said once.
    blockers = tuple(
        dict.fromkeys(_confine(blocker, principal) for blocker in found.standstill.blockers)
    )
    actions = actions_for(blockers) if found.standstill.verdict.actions else ()
    verdict = replace(found.standstill.verdict, actions=actions)
    # A host may carry others, so it is not named.
    not_done = {
        place: said
        for place, said in found.standstill.not_done.items()
        if principal.covers(ScopeId(place))
    }
    standstill = Standstill(blockers=blockers, verdict=verdict, not_done=not_done)
    return replace(found, standstill=standstill)


def _confine(blocker: Blocker, principal: Principal) -> Blocker:
    covered = tuple(filter(principal.covers, blocker.scope_ids))
    is_elsewhere = bool(blocker.scope_ids or blocker.hosts) and not covered
    if is_elsewhere or blocker.kind in NAMES_OTHERS:
        return Blocker(
            kind=BlockerKind.ELSEWHERE,
            release=blocker.release,
            maintenance_id=blocker.maintenance_id,
            until=blocker.until,
        )
    return replace(blocker, scope_ids=covered, hosts=())
