"""The flags that say what a Maintenance is of, and how it goes about it, which is printed, too."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

import typer

from forewarn.cli.arguments import vm_names
from forewarn.cli.files import read_text
from forewarn.cli.options import EVENT_TYPE, Flag, option, some, switch, text, toggle
from forewarn.cli.output import Columns
from forewarn.cli.times import duration_option, read_seconds
from forewarn.domain.errors import CalendarError, UnknownZoneError
from forewarn.wording.durations import format_duration


class NoticePlace(StrEnum):
    """Where notice may be given, seen from the windows."""

    INSIDE = "inside"
    OUTSIDE = "outside"


def check_written(read: Callable[[str], object], texts: Iterable[str]) -> None:
    """Refuse what *read* cannot read; an empty text clears, and the server knows its zones."""
    for written in filter(None, texts):
        try:
            read(written)
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


def _check_labels(labels: list[str] | None) -> list[str] | None:
    given = [label.partition("=") for label in labels or ()]
    for key, sign, value in given:
        if not (key and sign):
            raise typer.BadParameter(f"{key + sign + value!r} is not KEY=VALUE")
    if len({key for key, _, _ in given}) < len(given):
        raise typer.BadParameter("a label can have only one value")
    return labels


def _read_labels(labels: Iterable[str]) -> dict[str, str]:
    return {key: value for key, _, value in (label.partition("=") for label in labels)}


def _labels(summary: str, key: str) -> Flag:
    return some("KEY=VALUE", summary, key, read=_read_labels, callback=_check_labels)


def _seconds(summary: str, key: str, default: str | None = None) -> Flag:
    option = duration_option(summary)
    return Flag(option=option, key=f"{key}_in_seconds", default=default, read=read_seconds)


_IN_ORDER: Final = "Later steps in a scope wait for held ones."
ORDER: Final = {
    "event_type": EVENT_TYPE,
    "scope": some("NAME", "Set, service or scale set; repeatable.", "scopes"),
    "vm": some("NAME", "Virtual machine; repeatable.", "virtual_machines", autocompletion=vm_names),
    "label": _labels("Virtual machines with all of these labels; repeatable.", "labels"),
    "host": some("NAME", "Host with all its virtual machines; repeatable.", "hosts"),
    "host_label": _labels("Hosts with all of these labels; repeatable.", "host_labels"),
    "description": text("TEXT", "Description shown to virtual machines."),
    "duration": _seconds("Expected duration of each event.", "duration"),
    "canary": some("NAME", "Scope or host to do first, alone; repeatable."),
    "at_once": Flag(
        kind=int,
        option=option("N", "Maximum hosts (default 1) or scopes (default: all) at once.", min=1),
    ),
    "soak": _seconds("Wait after each step in a scope, and after canaries.", "soak", "0s"),
    "min_available": Flag(
        kind=int,
        option=option("PERCENT", "Minimum percentage of each set kept available.", min=0, max=100),
        default=0,
    ),
    "gate": some("NAME", "Ask this gate before each step but the first; repeatable.", "gates"),
    "gate_patience": _seconds(
        "How long a gate may stay shut before it holds the step.", "gate_patience", "1h"
    ),
    "window": some(
        "WINDOW",
        "Only in this window: 'Sat,Sun 22:00-06:00 Europe/Berlin'; repeatable.",
        "windows",
        callback=_check_windows,
    ),
    "blackout": some(
        "DATES",
        "Never on these dates: '2026-12-24..2027-01-02 Europe/Berlin'; repeatable.",
        "blackouts",
        callback=_check_blackouts,
    ),
    "holidays": Flag(
        kind=Path,
        option=option("FILE", "Never on the holidays in this calendar (.ics)."),
        read=partial(read_text, command="maintenance start"),
    ),
    "holidays_zone": Flag(option=option("ZONE", "Time zone of the holidays."), default="UTC"),
    "hold_all": Flag(kind=bool, option=switch("Hold everything after one failure."), default=True),
    "in_order": toggle("--in-order", _IN_ORDER),
    "notice": Flag(
        kind=NoticePlace,
        option=switch("Give notice inside windows, or before them."),
        key="notice_outside",
        default=NoticePlace.INSIDE,
        read=lambda place: place is NoticePlace.OUTSIDE,
    ),
}
"""What a Maintenance is to be."""
_ONCE: Final = {
    "event_type", "scope", "vm", "label", "host", "host_label", "description", "duration", "canary",
    "holidays", "holidays_zone",
}  # fmt: skip
CHANGES: Final = {
    **{name: replace(flag, default=None) for name, flag in ORDER.items() if name not in _ONCE},
    "in_order": Flag(kind=bool, option=switch(_IN_ORDER)),
}
"""What may change while it is under way; an empty text clears a list."""
COURSE: Final[Columns] = {
    "duration": lambda row: _length(row["duration_in_seconds"] or 0),
    "canary": "canary",
    "at once": "at_once",
    "soak": lambda row: _length(row["soak_in_seconds"]),
    "min available": lambda row: f"{row['min_available']} %" if row["min_available"] else "",
    "gates": "gates",
    "gate patience": lambda row: _length(row["gate_patience_in_seconds"]) if row["gates"] else "",
    "windows": lambda row: "; ".join(row["windows"]),
    "blackouts": lambda row: "; ".join(row["blackouts"]),
    "hold all": lambda row: "" if row["hold_all"] else "no",
    "in order": lambda row: "yes" if row["in_order"] else "",
    "notice": lambda row: "outside" if row["notice_outside"] else "",
}
"""How it is done, as far as that is not the default."""


def _length(seconds: int) -> str:
    return format_duration(timedelta(seconds=seconds)) if seconds else ""
