"""The flags that say what a Maintenance is of, and how it goes about it."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from forewarn.cli.completing import vm_names
from forewarn.cli.event import TypeOption
from forewarn.cli.files import read_text
from forewarn.cli.waiting import check_duration
from forewarn.operations.durations import parse_duration


def _check_labels(labels: list[str] | None) -> list[str] | None:
    given = [label.partition("=") for label in labels or ()]
    for key, sign, value in given:
        if not (key and sign):
            raise typer.BadParameter(f"{key + sign + value!r} is not KEY=VALUE")
    if len({key for key, _, _ in given}) < len(given):
        raise typer.BadParameter("nothing carries two values of one label")
    return labels


Scope = Annotated[list[str] | None, typer.Option(help="A set, service or scale set; repeat it.")]
Vm = Annotated[
    list[str] | None, typer.Option(help="A virtual machine; repeat it.", autocompletion=vm_names)
]
Label = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Virtual machines that carry all of these labels; repeat it.",
        callback=_check_labels,
    ),
]
Host = Annotated[list[str] | None, typer.Option(help="A host with all it carries; repeat it.")]
HostLabel = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Hosts that carry all of these labels; repeat it.",
        callback=_check_labels,
    ),
]
Description = Annotated[str | None, typer.Option(metavar="TEXT", help="What it is for.")]
Duration = Annotated[
    int | None, typer.Option(min=0, metavar="S", help="How long each takes, in seconds.")
]
Canary = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A scope or host that goes first, alone; repeat it."),
]
AtOnce = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Most scopes at a time, or hosts (default 1)."),
]
Soak = Annotated[
    str,
    typer.Option(
        metavar="DURATION",
        help="Leave a scope alone after each step, and all after the canary.",
        callback=check_duration,
    ),
]
MinAvailable = Annotated[
    int,
    typer.Option(min=0, max=100, metavar="PERCENT", help="What stays of a scope, at the least."),
]
Gate = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Ask this gate before each step; repeat it."),
]
GatePatience = Annotated[
    str,
    typer.Option(
        metavar="DURATION",
        help="Hold a step whose gate stays shut for so long.",
        callback=check_duration,
    ),
]
Window = Annotated[
    list[str] | None,
    typer.Option(
        metavar="WINDOW", help="Only then: 'Sat,Sun 22:00-06:00 Europe/Berlin'; repeat it."
    ),
]
Blackout = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DATES", help="Never then: '2026-12-24..2027-01-02 Europe/Berlin'; repeat it."
    ),
]
Holidays = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Nor on the days of this calendar (.ics).")
]
HolidaysZone = Annotated[str, typer.Option(metavar="ZONE", help="Where these holidays are.")]
InOrder = Annotated[
    bool, typer.Option("--in-order", help="Let no step overtake an earlier one of its scopes.")
]
HoldAll = Annotated[bool, typer.Option(help="Let one failure hold everything.")]


Order: TypeAlias = dict[str, object]
"""What the control API is asked for."""


def ordering(function: Callable[..., None]) -> Callable[..., None]:
    """Give a verb every flag that says what a Maintenance is to be, and hand it the order."""
    flags = inspect.signature(_read_order).parameters
    session, _, *own = inspect.signature(function).parameters.values()

    @wraps(function)
    def run(*session_only: Any, **given: Any) -> None:
        order = _read_order(**{name: given.pop(name) for name in flags})
        function(*session_only, order, **given)

    run.__dict__["__signature__"] = inspect.Signature([session, *flags.values(), *own])
    return run


def _read_order(  # noqa: PLR0913 - one for each flag
    *,
    event_type: TypeOption,
    scope: Scope = None,
    vm: Vm = None,
    label: Label = None,
    host: Host = None,
    host_label: HostLabel = None,
    description: Description = None,
    duration: Duration = None,
    canary: Canary = None,
    at_once: AtOnce = None,
    soak: Soak = "0s",
    min_available: MinAvailable = 0,
    gate: Gate = None,
    gate_patience: GatePatience = "1h",
    window: Window = None,
    blackout: Blackout = None,
    holidays: Holidays = None,
    holidays_zone: HolidaysZone = "UTC",
    hold_all: HoldAll = True,
    in_order: InOrder = False,
) -> Order:
    return {
        "event_type": event_type,
        "scopes": scope or [],
        "virtual_machines": vm or [],
        "labels": _read_labels(label),
        "hosts": host or [],
        "host_labels": _read_labels(host_label),
        "description": description,
        "duration_in_seconds": duration,
        "canary": canary or [],
        "at_once": at_once,
        "soak_in_seconds": _read_seconds(soak),
        "min_available": min_available,
        "gates": gate or [],
        "gate_patience_in_seconds": _read_seconds(gate_patience),
        "windows": window or [],
        "blackouts": blackout or [],
        "holidays": holidays and read_text(holidays, command="maintenance start"),
        "holidays_zone": holidays_zone,
        "hold_all": hold_all,
        "in_order": in_order,
    }


def _read_labels(labels: Iterable[str] | None) -> dict[str, str]:
    return {key: value for key, _, value in (label.partition("=") for label in labels or ())}


def _read_seconds(duration: str) -> int:
    return int(parse_duration(duration).total_seconds())
