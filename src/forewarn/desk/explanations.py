"""Why something does not move, as far as the caller may know.

A limited caller is told every reason there is, without the names of what is in other scopes.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from forewarn.desk.caller import Caller
from forewarn.desk.scope_limit import limit_reading
from forewarn.domain.access import Principal
from forewarn.domain.blockers import NAMES_OTHERS, Blocker, BlockerKind, remedies_for
from forewarn.domain.names import ScopeId
from forewarn.domain.standing import MaintenanceState
from forewarn.domain.standstill import Standstill
from forewarn.domain.why import OF_HOST, Reason, ReasonKind
from forewarn.operations.events import find_event
from forewarn.operations.explain import (
    Explanation,
    MaintenanceExplanation,
    explain_event,
    explain_maintenance,
)
from forewarn.operations.maintenances import find_maintenance
from forewarn.operations.snapshots import look as take_snapshot
from forewarn.operations.survey import Survey, Undertaken, find_undertaken, survey
from forewarn.ports.store import Reading
from forewarn.protocol.vocabulary import EventId


def explain_event_to(caller: Caller, event_id: EventId) -> Explanation:
    """Explain an event to somebody who may see it."""
    context = caller.context()

    def look(everything: Reading) -> Explanation:
        limited = limit_reading(everything, caller.principal)
        find_event(limited, event_id)
        found = explain_event(everything, context, event_id)
        if not caller.principal.scopes:
            return found
        reasons = chain.from_iterable(_limit_reason(each, limited) for each in found.reasons)
        # Several elsewhere are said once.
        return replace(found, reasons=tuple(dict.fromkeys(reasons)))

    return caller.services.store.read(look)


def explain_maintenance_to(caller: Caller, maintenance_id: str) -> MaintenanceExplanation:
    """Explain a Maintenance to somebody who may see a part of it."""
    context = caller.context()

    def look(everything: Reading) -> MaintenanceExplanation:
        find_maintenance(limit_reading(everything, caller.principal), maintenance_id)
        covers = caller.principal.covers
        found = explain_maintenance(everything, context, maintenance_id, covers=covers)
        return _limit_explanation(found, caller.principal) if caller.principal.scopes else found

    return caller.services.store.read(look)


def survey_for(caller: Caller) -> Survey:
    """Say what is going on in what *caller* may see."""
    context, principal = caller.context(), caller.principal

    def look(everything: Reading) -> Survey:
        limited = limit_reading(everything, principal)
        found = survey(limited, context, whole=everything, covers=principal.covers)
        if not principal.scopes:
            return found
        return replace(
            found, maintenances=tuple(_limit_undertaken(e, principal) for e in found.maintenances)
        )

    return caller.services.store.read(look)


def undertaken_for(caller: Caller) -> tuple[Undertaken, ...]:
    """Return the Maintenances under way that *caller* may see a part of, oldest first."""
    context, principal = caller.context(), caller.principal

    def look(everything: Reading) -> tuple[Undertaken, ...]:
        limited = limit_reading(everything, principal)
        snapshot = take_snapshot(limited, context)
        covers = principal.covers
        found = find_undertaken(limited, context, snapshot, whole=everything, covers=covers)
        if not principal.scopes:
            return found
        return tuple(_limit_undertaken(each, principal) for each in found)

    return caller.services.store.read(look)


def _limit_undertaken(undertaken: Undertaken, principal: Principal) -> Undertaken:
    return replace(undertaken, explanation=_limit_explanation(undertaken.explanation, principal))


def _limit_reason(reason: Reason, limited: Reading) -> Iterator[Reason]:
    if reason.kind in OF_HOST:
        # It may name others on the host, and what a script printed.
        yield Reason(kind=ReasonKind.HOST_WORK, about="Its host")
        return
    named = tuple(each for each in reason.event_ids if limited.event(each))
    if len(named) == len(reason.event_ids):
        yield reason
        return
    if named:
        vms = tuple(filter(limited.topology().virtual_machines.__contains__, reason.vms))
        yield replace(reason, vms=vms, event_ids=named)
    kind = ReasonKind.HOST_OPERATION_ELSEWHERE
    yield replace(reason, kind=kind, vms=(), event_ids=())


def _limit_explanation(
    explained: MaintenanceExplanation, principal: Principal
) -> MaintenanceExplanation:
    # The detail of its state may name what is elsewhere.
    state = MaintenanceState(status=explained.status)
    return replace(explained, state=state, standstill=_limit_standstill(explained, principal))


def _limit_standstill(explained: MaintenanceExplanation, principal: Principal) -> Standstill:
    found, key = explained.standstill, explained.maintenance.maintenance_id
    # Several elsewhere are said once.
    blockers = tuple(dict.fromkeys(_limit_blocker(each, principal) for each in found.blockers))
    remedies = remedies_for(blockers, key) if found.verdict.remedies else ()
    # A host may carry others, so it is not named.
    not_done = {
        place: said for place, said in found.not_done.items() if principal.covers(ScopeId(place))
    }
    verdict = replace(found.verdict, remedies=remedies)
    return Standstill(blockers=blockers, verdict=verdict, not_done=not_done)


def _limit_blocker(blocker: Blocker, principal: Principal) -> Blocker:
    covered = tuple(filter(principal.covers, blocker.scope_ids))
    is_elsewhere = bool(blocker.scope_ids or blocker.hosts) and not covered
    if is_elsewhere or blocker.kind in NAMES_OTHERS:
        return Blocker(kind=BlockerKind.ELSEWHERE, release=blocker.release, until=blocker.until)
    return replace(blocker, scope_ids=covered, hosts=())
