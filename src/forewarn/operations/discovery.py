"""The fleet follows what sources report, and operators see how the sources are."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Final

from forewarn.domain.errors import DomainError
from forewarn.domain.names import VmName, name_key
from forewarn.files.fleet import Fleet, FleetMistakesError
from forewarn.operations.context import Context
from forewarn.operations.inventory import DISCOVER, FleetChange, FleetPlan, apply_fleet, plan_fleet
from forewarn.operations.reconciling import Census, Reconciliation, Terms, reconcile
from forewarn.operations.safeguards import ApplyOptions
from forewarn.ports.store import Reading, Transaction
from forewarn.protocol.errors import ForewarnError

_SETTING: Final = "discovery"
MOST_REMARKS: Final = 20
"""How many remarks about one source are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """How a source of machines is, as of the last answer or failure.

    It works unless it has a *problem*, which is so *since* a moment of real time. The fleet has
    *machines* from it, of which *missing* are not in its last answer.
    """

    name: str
    kind: str
    problem: str = ""
    since: datetime
    machines: int = 0
    missing: int = 0
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Synchronisation:
    """What a census has changed, and what is to be known about that."""

    reconciliation: Reconciliation
    change: FleetChange
    remarks: tuple[str, ...] = ()


def look_at_census(
    reading: Reading, census: Census, terms: Terms, absences: Mapping[VmName, int]
) -> Reconciliation:
    """Return what follows from *census* for the fleet as it is."""
    busy = {vm for event in reading.events_in_flight() for vm in event.resources}
    return reconcile(reading.topology(), census, terms, absences=absences, busy=busy)


def follow_census(
    tx: Transaction,
    context: Context,
    census: Census,
    terms: Terms,
    absences: Mapping[VmName, int],
) -> Synchronisation:
    """Make the fleet as *census* has it, as far as the source may decide and nothing is busy.

    Where machines are has happened already, so it is stated as a fact. A machine that cannot be in
    the fleet as it is reported is left out.
    """
    found = look_at_census(tx, census, terms, absences)
    if not found.is_needed:
        return Synchronisation(
            reconciliation=found, change=FleetChange(), remarks=found.remarks[:MOST_REMARKS]
        )
    fleet, plan, wrong = _leave_out_mistakes(
        found.fleet, lambda fleet: plan_fleet(tx, context, fleet, _options(found, fleet))
    )
    options = _options(found, fleet)
    change = apply_fleet(tx, context, fleet, options=options, action=DISCOVER, plan=plan)
    skipped = dict.fromkeys(each.reason for each in change.skipped)
    remarks = (*wrong, *skipped, *found.remarks)
    return Synchronisation(
        reconciliation=found, change=change, remarks=tuple(remarks[:MOST_REMARKS])
    )


def _options(found: Reconciliation, fleet: Fleet) -> ApplyOptions:
    """Return how to apply *fleet*; who cannot be there under a new name keeps the old one."""
    names = {each.vm.name for each in fleet.virtual_machines}
    stay = {old for old, new in found.renamed.items() if new not in names}
    gone = tuple(name for name in found.gone if name not in stay)
    return ApplyOptions(skip_busy=True, as_is=True, remove=gone, allow_removals=len(gone))


def _leave_out_mistakes(
    fleet: Fleet, plan: Callable[[Fleet], FleetPlan]
) -> tuple[Fleet, FleetPlan, list[str]]:
    """Plan *fleet* without the machines that are wrong, and return what is wrong with them."""
    said: list[str] = []
    while True:
        try:
            return fleet, plan(fleet), said
        except DomainError as refusal:
            mistakes = refusal.mistakes if isinstance(refusal, FleetMistakesError) else (refusal,)
            names = {name_key(name) for mistake in mistakes for name in _names_in(mistake)}
            rest = tuple(
                each
                for each in fleet.virtual_machines
                if not names & {name_key(each.vm.name), name_key(each.scope.name)}
            )
            if len(rest) == len(fleet.virtual_machines):
                raise  # it is about a host, or whatever no machine can be left out for
            said += map(str, mistakes)
            kept = {each.scope.name for each in rest}
            scopes = tuple(scope for scope in fleet.scopes if scope.name in kept)
            fleet = replace(fleet, virtual_machines=rest, scopes=scopes)


def _names_in(mistake: ForewarnError) -> Iterable[str]:
    found = (getattr(mistake, key, None) for key in ("vm", "entry", "name", "scope"))
    # Some call a set by its id, whose last part is the name.
    return [name.rpartition("/")[2] for name in found if isinstance(name, str)]


def find_sources(reading: Reading) -> tuple[SourceStatus, ...]:
    """Return how each source is, in the order of their file."""
    stored = reading.setting(_SETTING)
    return tuple(
        SourceStatus(
            **{
                **each,
                "since": datetime.fromisoformat(each["since"]),
                "remarks": tuple(each["remarks"]),
            }
        )
        for each in (json.loads(stored) if stored else ())
    )


def put_sources(tx: Transaction, statuses: Iterable[SourceStatus]) -> None:
    """Write down how the sources are, for those who ask on any replica or after a restart."""
    rows = [{**asdict(each), "since": each.since.isoformat()} for each in statuses]
    tx.put_setting(_SETTING, json.dumps(rows))
