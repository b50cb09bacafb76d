"""The flags that say what a Maintenance is of, and how it goes about it."""

import inspect
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from forewarn.cli.completing import vm_names
from forewarn.cli.event import TypeOption
from forewarn.cli.files import read_text
from forewarn.cli.times import duration_option, read_seconds
from forewarn.domain.errors import CalendarError, UnknownZoneError


class NoticePlace(StrEnum):
    """Where notice may be given, seen from the windows."""

    INSIDE = "inside"
    OUTSIDE = "outside"


def _check_labels(labels: list[str] | None) -> list[str] | None:
    given = [label.partition("=") for label in labels or ()]
    for key, sign, value in given:
        if not (key and sign):
            raise typer.BadParameter(f"{key + sign + value!r} is not KEY=VALUE")
    if len({key for key, _, _ in given}) < len(given):
        raise typer.BadParameter("nothing carries two values of one label")
    return labels


def check_written(read: Callable[[str], object], texts: Iterable[str]) -> None:
    """Refuse what *read* cannot read; an empty text clears, and the server knows its zones."""
    for text in filter(None, texts):
        try:
            read(text)
        except UnknownZoneError:
            continue
        except CalendarError as error:
            raise typer.BadParameter(str(error)) from error


def _check_windows(windows: list[str] | None) -> list[str] | None:
    from forewarn.domain.windows import read_window  # noqa: PLC0415 - slow to load

    check_written(read_window, windows or ())
    return windows


def _check_blackouts(blackouts: list[str] | None) -> list[str] | None:
    from forewarn.domain.windows import read_blackout  # noqa: PLC0415 - slow to load

    check_written(read_blackout, blackouts or ())
    return blackouts


Scope = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="A set, service or scale set; repeatable.")
]
Vm = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A virtual machine; repeatable.", autocompletion=vm_names),
]
Label = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Virtual machines that carry all of these labels; repeatable.",
        callback=_check_labels,
    ),
]
Host = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="A host and all it carries; repeatable.")
]
HostLabel = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Hosts that carry all of these labels; repeatable.",
        callback=_check_labels,
    ),
]
Description = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Description that virtual machines see.")
]
Duration = Annotated[str | None, duration_option("How long each takes.")]
Canary = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A scope or host that goes first, alone; repeatable."),
]
AtOnce = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="How many hosts (default 1) or scopes at once."),
]
_SOAK = duration_option("Pause in each scope after a step, everywhere after canaries.")
Soak = Annotated[str, _SOAK]
NewSoak = Annotated[str | None, _SOAK]
_MIN_AVAILABLE = typer.Option(
    min=0, max=100, metavar="PERCENT", help="Minimum share of each set that stays up."
)
MinAvailable = Annotated[int, _MIN_AVAILABLE]
NewMinAvailable = Annotated[int | None, _MIN_AVAILABLE]
Gate = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Ask this gate before each step; repeatable."),
]
_GATE_PATIENCE = duration_option("How long a gate may stay shut before it holds.")
GatePatience = Annotated[str, _GATE_PATIENCE]
NewGatePatience = Annotated[str | None, _GATE_PATIENCE]
Window = Annotated[
    list[str] | None,
    typer.Option(
        metavar="WINDOW",
        help="Only then: 'Sat,Sun 22:00-06:00 Europe/Berlin'; repeatable.",
        callback=_check_windows,
    ),
]
Blackout = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DATES",
        help="Never then: '2026-12-24..2027-01-02 Europe/Berlin'; repeatable.",
        callback=_check_blackouts,
    ),
]
Holidays = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Never on the days of this calendar (.ics).")
]
HolidaysZone = Annotated[str, typer.Option(metavar="ZONE", help="Time zone of these holidays.")]
_IN_ORDER_HELP = "Never let a step overtake an earlier one."
InOrder = Annotated[bool, typer.Option("--in-order", help=_IN_ORDER_HELP)]
NewInOrder = Annotated[bool | None, typer.Option(help=_IN_ORDER_HELP)]
_HOLD_ALL = typer.Option(help="Let one failure hold everything.")
HoldAll = Annotated[bool, _HOLD_ALL]
NewHoldAll = Annotated[bool | None, _HOLD_ALL]
_NOTICE = typer.Option(help="Give notice inside windows, or before them.")
Notice = Annotated[NoticePlace, _NOTICE]
NewNotice = Annotated[NoticePlace | None, _NOTICE]


Order: TypeAlias = dict[str, object]
"""What the control API is asked for."""


def ordering(function: Callable[..., None]) -> Callable[..., None]:
    """Give a verb every flag that says what a Maintenance is to be, and hand it the order."""
    return _reading(_read_order, function)


def changing(function: Callable[..., None]) -> Callable[..., None]:
    """Give a verb every flag that may change while a Maintenance runs, and hand it the change."""
    return _reading(_read_change, function)


def _reading(read: Callable[..., Order], function: Callable[..., None]) -> Callable[..., None]:
    flags = inspect.signature(read).parameters
    session, _, *own = inspect.signature(function).parameters.values()

    @wraps(function)
    def run(*session_only: Any, **given: Any) -> None:
        order = read(**{name: given.pop(name) for name in flags})
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
    notice: Notice = NoticePlace.INSIDE,
) -> Order:
    return {
        "event_type": event_type,
        "scopes": scope or [],
        "virtual_machines": vm or [],
        "labels": _read_labels(label),
        "hosts": host or [],
        "host_labels": _read_labels(host_label),
        "description": description,
        "duration_in_seconds": None if duration is None else read_seconds(duration),
        "canary": canary or [],
        "at_once": at_once,
        "soak_in_seconds": read_seconds(soak),
        "min_available": min_available,
        "gates": gate or [],
        "gate_patience_in_seconds": read_seconds(gate_patience),
        "windows": window or [],
        "blackouts": blackout or [],
        "holidays": holidays and read_text(holidays, command="maintenance start"),
        "holidays_zone": holidays_zone,
        "hold_all": hold_all,
        "in_order": in_order,
        "notice_outside": notice is NoticePlace.OUTSIDE,
    }


def _read_labels(labels: Iterable[str] | None) -> dict[str, str]:
    return {key: value for key, _, value in (label.partition("=") for label in labels or ())}


def _read_change(  # noqa: PLR0913 - one for each flag
    *,
    at_once: AtOnce = None,
    soak: NewSoak = None,
    min_available: NewMinAvailable = None,
    gate: Gate = None,
    gate_patience: NewGatePatience = None,
    window: Window = None,
    blackout: Blackout = None,
    hold_all: NewHoldAll = None,
    in_order: NewInOrder = None,
    notice: NewNotice = None,
) -> Order:
    """Return what the flags change, for `make_patch`; an empty text clears a list."""
    return {
        "at_once": at_once,
        "soak_in_seconds": None if soak is None else read_seconds(soak),
        "min_available": min_available,
        "gates": gate or None,
        "gate_patience_in_seconds": None if gate_patience is None else read_seconds(gate_patience),
        "windows": window or None,
        "blackouts": blackout or None,
        "hold_all": hold_all,
        "in_order": in_order,
        "notice_outside": None if notice is None else notice is NoticePlace.OUTSIDE,
    }
