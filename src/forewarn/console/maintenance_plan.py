"""/maintenances/new: the form, the plan that appears as it is filled in, and the start."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from secrets import token_hex
from typing import Final

from forewarn.console.maintenance_form import (
    COMMON,
    FilledForm,
    course_fields,
    read_order,
    selection_of,
    with_labels,
)
from forewarn.console.visit import Done, Fragment, Page, Visit
from forewarn.desk.maintenances import maintenance_order
from forewarn.desk.schemas import View
from forewarn.domain.errors import ConflictError, InvalidError, NotFoundError
from forewarn.domain.maintenance import MaintenanceOrder
from forewarn.domain.names import name_key
from forewarn.domain.planning import Capacity, Plan
from forewarn.operations.context import Context
from forewarn.operations.planned_starts import PlanChangedError, offer_plan, start_as_planned
from forewarn.operations.repeats import RequestKey
from forewarn.ports.store import Reading, Transaction
from forewarn.protocol.vocabulary import EventType

STEPS_SHOWN: Final = 60
_SUGGESTED: Final = 30
"""How many names are offered for what was typed so far."""


class StartedMaintenanceView(View):
    """What was started."""

    maintenance_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPlan:
    """A plan as the form shows it; without *plan*, the *problems* say why there is none.

    *message* says why it is shown again.
    """

    plan: Plan | None = None
    digest: str = ""
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    message: str = ""
    is_empty: bool = False

    @property
    def may_start(self) -> bool:
        return self.plan is not None and not self.problems


def show_form(visit: Visit) -> Page:
    """Show the form, filled in with what the address says."""
    given, known = visit.query, {each.name: each for each in course_fields()}
    values = {
        "form": given,
        "by": selection_of(given),
        "types": list(EventType),
        "common": [known[name] for name in COMMON],
        "others": [each for name, each in known.items() if name not in COMMON],
        "usual_description": MaintenanceOrder(event_type=EventType.REBOOT).description,
        "gates": tuple(visit.caller.services.gates.kinds()),
    }
    return Page(title="Plan a maintenance", template="maintenance_form.html", values=values)


def show_plan(visit: Visit) -> Fragment:
    """Show what would come of the form as it is filled in now; nothing is changed."""
    return _fragment(visit, _plan(visit, read_order(visit.form)))


def start(visit: Visit) -> Done | Fragment:
    """Begin what the form asks for, if that is what its plan showed; else show the plan again."""
    filled, digest = read_order(visit.form), visit.form.text("digest")
    try:
        begun = _start(visit, filled, digest)
    except PlanChangedError as error:
        return _again(visit, filled, f"{error} Review the new plan before you start.")
    except (InvalidError, NotFoundError, ConflictError):
        return _again(visit, filled, "The plan changed after you reviewed it. Nothing was started.")
    return Done(
        message="The maintenance has been started.",
        location=f"/maintenances/{begun.maintenance_id}",
    )


def _start(visit: Visit, filled: FilledForm, digest: str) -> StartedMaintenanceView:
    if filled.order is None:
        raise PlanChangedError
    services = visit.caller.services
    order, gates = maintenance_order(filled.order, services), services.gates.kinds()

    def operation(tx: Transaction, context: Context) -> StartedMaintenanceView:
        begun = start_as_planned(tx, context, order, digest, gates=gates)
        return StartedMaintenanceView(maintenance_id=begun.maintenance_id)

    key = f"console {visit.form.text('key')[:64]}"
    asked = sha256(f"maintenance start {filled.order!r}".encode()).hexdigest()
    once = RequestKey(key=key, fingerprint=asked)
    return visit.caller.write_once(once, StartedMaintenanceView, operation)


def suggest(visit: Visit) -> Fragment:
    """Offer names that have what was typed in them."""
    noun = visit.path_values["noun"]
    typed = name_key(visit.form.text(f"find_{noun}"))

    def look(reading: Reading) -> tuple[str, ...]:
        fleet = reading.topology()
        names: Mapping[str, Iterable[str]] = {
            "scopes": fleet.scopes,
            "virtual_machines": fleet.virtual_machines,
            "hosts": fleet.hosts,
        }
        found = (name for name in names.get(noun, ()) if typed in name_key(name))
        return tuple(islice(found, _SUGGESTED))

    return Fragment(template="maintenance_names.html", values={"names": visit.read(look)})


def _again(visit: Visit, filled: FilledForm, message: str) -> Fragment:
    return _fragment(visit, _plan(visit, filled, message))


def _plan(visit: Visit, filled: FilledForm, message: str = "") -> ShownPlan:
    if filled.order is None or filled.is_empty:
        return ShownPlan(problems=filled.problems, is_empty=filled.is_empty, message=message)
    services, context = visit.caller.services, visit.caller.context()
    gates = services.gates.kinds()
    try:
        order = maintenance_order(filled.order, services)
        offer = visit.read(lambda reading: offer_plan(reading, context, order, gates=gates))
    except (InvalidError, NotFoundError, ConflictError) as error:
        return ShownPlan(problems=(with_labels(str(error)),), message=message)
    return ShownPlan(
        plan=offer.plan,
        digest=offer.digest,
        problems=tuple(with_labels(str(error)) for error in offer.plan.errors),
        warnings=tuple(map(with_labels, offer.plan.warnings)),
        message=message,
    )


def _fragment(visit: Visit, shown: ShownPlan) -> Fragment:
    values = {
        "shown": shown,
        "plan": shown.plan,
        "worst": _worst(shown.plan),
        "most": STEPS_SHOWN,
        "event_type": visit.form.text("event_type"),
        "by": selection_of(visit.form),
        "key": token_hex(16),
    }
    return Fragment(template="maintenance_plan.html", values=values)


def _worst(plan: Plan | None) -> Capacity | None:
    """Return the set of which the least stays up."""
    found = plan.capacities if plan else ()
    return min(found, key=lambda each: each.percent, default=None)
