"""The flags that say what a Maintenance is of, and how it goes about it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from forewarn.cli.completing import vm_names
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
Canary = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A scope or host that goes first, alone; repeat it."),
]
AtOnce = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="In no more scopes, or hosts, at a time.")
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
HoldAll = Annotated[bool, typer.Option("--hold-all", help="Let one failure hold every scope.")]


def read_labels(labels: Iterable[str] | None) -> dict[str, str]:
    """Return the labels that were typed as KEY=VALUE."""
    return {key: value for key, _, value in (label.partition("=") for label in labels or ())}


def read_seconds(duration: str) -> int:
    """Return the seconds of a duration that was typed."""
    return int(parse_duration(duration).total_seconds())
