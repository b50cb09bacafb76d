"""/virtual-time: a clock to advance, scenarios to run, faults to set; under `--clock virtual`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, assert_never

from forewarn.console.rendering import span
from forewarn.console.visit import (
    ActionRoute,
    ConsoleRoute,
    Done,
    Form,
    FormError,
    Page,
    PageRoute,
    Visit,
)
from forewarn.desk.clock import advance_clock
from forewarn.desk.faults import all_faults, clear_faults, set_fault
from forewarn.domain.fault import FAULTS, UNKNOWN_TYPE, Fault, FaultKind, FaultPart
from forewarn.domain.limits import FASTEST
from forewarn.domain.names import VmName
from forewarn.domain.roles import Role
from forewarn.domain.scenario import (
    Announcement,
    ClearStep,
    FaultStep,
    Intervention,
    Scenario,
    ScenarioRun,
    ScenarioStep,
)
from forewarn.operations.scenarios import (
    find_scenario,
    find_scenario_runs,
    start_scenario,
    stop_scenario,
)
from forewarn.ports.store import Reading
from forewarn.wording.moments import parse_span

MOST_TO_CLICK: Final = 60
"""How many virtual machines can be chosen from a list; in a larger fleet, names are typed."""
_RUNS: Final = 20

STEPS: Final = (("1m", "1 min"), ("5m", "5 min"), ("15m", "15 min"), ("1h", "1 h"))
"""How far the buttons go, as it is sent and as it is shown."""

HINTS: Final[Mapping[str, tuple[str, str]]] = {
    "seconds": ("Seconds", "More than 0 and at most 3600."),
    "status": ("HTTP status", "An error such as 404, 410, 429, 500 or 503."),
    "retry_after": ("Retry-After", "Seconds. Leave empty to send none."),
    "event_type": ("EventType", f"Leave empty for {UNKNOWN_TYPE}."),
    "times": ("Number of requests", "Leave empty to keep the fault until it is cleared."),
}
"""What each parameter is called, and what it can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One field of the form for a fault."""

    name: str
    label: str
    hint: str
    is_needed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultChoice:
    """A kind of fault that can be set, and what the form asks for."""

    kind: FaultKind
    effect: str
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioChoice:
    """A scenario that can be run, and its steps in words."""

    scenario: Scenario
    steps: tuple[str, ...]


def show_virtual_time(visit: Visit) -> Page:
    """Show the clock, scenarios and faults; or that the clock is real."""
    services = visit.caller.services
    if services.clock.kind != "virtual":
        return Page(title="Virtual time", template="virtual_time_off.html")
    older_than = visit.query.text("older_than").lower() or None

    def look(reading: Reading) -> tuple[tuple[ScenarioRun, ...], list[VmName], int]:
        machines = reading.topology().virtual_machines
        names = list(machines) if len(machines) <= MOST_TO_CLICK else []
        runs = find_scenario_runs(reading, older_than=older_than, limit=_RUNS + 1)
        return runs[::-1], names, len(machines)

    runs, names, number = visit.read(look)
    older = f"/virtual-time?older_than={runs[_RUNS - 1].run_id}" if len(runs) > _RUNS else ""
    return Page(
        title="Virtual time",
        template="virtual_time.html",
        values={
            "steps": STEPS,
            "scenarios": [_scenario(each) for each in services.scenarios.values()],
            "runs": runs[:_RUNS],
            "older": older,
            "names": names,
            "number": number,
            "fastest": FASTEST,
            "parts": {
                part: [_choice(kind) for kind in FaultKind if FAULTS[kind].part is part]
                for part in FaultPart
            },
            "faults": all_faults(visit.caller),
            "parameters": HINTS,
        },
    )


def advance(visit: Visit) -> Done:
    """Let time pass, with everything that falls due in it."""
    said = visit.form.text("duration")
    advance_clock(visit.caller, said)
    return Done(message=f"Advanced the clock by {span(parse_span(said))}.")


def run_scenario(visit: Visit) -> Done:
    """Begin a built-in scenario on the chosen virtual machines."""
    form = visit.form
    scenario = find_scenario(visit.caller.services.scenarios, form.text("scenario"))
    vms = (*form.texts("vm"), *form.lines("names"))
    said = _decimal(form, "speed", "Speed")
    speed = 1.0 if said is None else said
    visit.caller.write(lambda tx, context: start_scenario(tx, context, scenario, vms, speed))
    return Done(message=f"Started the scenario {scenario.name}.")


def stop_run(visit: Visit) -> Done:
    """Stop a run, and cancel its Scheduled events."""
    run_id = visit.path_values["run_id"].lower()
    run = visit.caller.write(lambda tx, context: stop_scenario(tx, context, run_id))
    return Done(message=f"Stopped the scenario {run.name}.")


def put_fault(visit: Visit) -> Done:
    """Set a fault of one virtual machine."""
    form, kind = visit.form, _kind(visit.path_values["kind"])
    fault = Fault(
        kind=kind,
        times=_whole(form, "times"),
        seconds=_decimal(form, "seconds", HINTS["seconds"][0]),
        status=_whole(form, "status"),
        retry_after=_whole(form, "retry_after"),
        event_type=form.text("event_type") or None,
    )
    vm = form.text("vm")
    if not vm:
        raise FormError("Choose a virtual machine.")
    return Done(message=f"Set the fault {kind} for {set_fault(visit.caller, vm, fault)}.")


def remove_fault(visit: Visit) -> Done:
    """End a fault of one virtual machine."""
    kind = _kind(visit.path_values["kind"])
    vm = clear_faults(visit.caller, visit.path_values["name"], kind)
    return Done(message=f"Cleared the fault {kind} of {vm}.")


def _scenario(scenario: Scenario) -> ScenarioChoice:
    return ScenarioChoice(scenario=scenario, steps=tuple(map(_say, scenario.steps)))


def _say(step: ScenarioStep) -> str:
    at = f"After {span(step.at)}" if step.at else "Immediately"
    match step:
        case Intervention():
            return f"{at}: {step.trigger} it."
        case FaultStep():
            return f"{at}: set {step.fault.kind}."
        case ClearStep():
            return f"{at}: clear {step.kind or 'every fault'}."
        case Announcement():
            return f"{at}: {_announce(step)}."
        case _:
            assert_never(step)


def _announce(step: Announcement) -> str:
    notice = "without notice" if step.notice is None else f"with {span(step.notice)} of notice"
    return f"{step.event_type} {notice}, then {span(step.impact)} of impact"


def _choice(kind: FaultKind) -> FaultChoice:
    known = FAULTS[kind]
    names = (name for name in HINTS if name in known.needed | known.optional)
    return FaultChoice(
        kind=kind,
        effect=known.effect,
        parameters=tuple(
            Parameter(
                name=name, label=HINTS[name][0], hint=HINTS[name][1], is_needed=name in known.needed
            )
            for name in names
        ),
    )


def _kind(text: str) -> FaultKind:
    try:
        return FaultKind(text)
    except ValueError:
        raise FormError(f"Unknown fault {text!r}.") from None


def _whole(form: Form, name: str) -> int | None:
    return form.number(name, 0, label=HINTS[name][0]) if form.text(name) else None


def _decimal(form: Form, name: str, label: str) -> float | None:
    said = form.text(name)
    try:
        return float(said) if said else None
    except ValueError:
        raise FormError(f"{label}: enter a number.") from None


_ADMIN: Final = Role.ADMIN
ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    PageRoute(path="/virtual-time", show=show_virtual_time),
    ActionRoute(path="/virtual-time/advance", act=advance, role=_ADMIN, name="clock advance"),
    ActionRoute(path="/virtual-time/runs", act=run_scenario, role=_ADMIN, name="scenario run"),
    ActionRoute(
        path="/virtual-time/runs/{run_id}/stop",
        act=stop_run,
        role=_ADMIN,
        name="scenario stop",
        subject="run_id",
    ),
    ActionRoute(path="/virtual-time/faults/{kind}", act=put_fault, role=_ADMIN, name="fault set"),
    ActionRoute(
        path="/virtual-time/faults/{kind}/{name}/clear",
        act=remove_fault,
        role=_ADMIN,
        name="fault clear",
        subject="name",
    ),
)
