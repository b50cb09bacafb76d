"""The form that plans a Maintenance: its fields, what they are called, and what was filled in.

How a Maintenance goes about it is declared in `domain/course.py`, and the fields follow from that:
only their labels are here.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Final

from pydantic import ValidationError

from forewarn.console.visit import Form, FormError
from forewarn.desk.maintenances import MaintenanceOrderRequest
from forewarn.domain.course import Course, knobs_of
from forewarn.domain.errors import InvalidError
from forewarn.domain.windows import Calendar
from forewarn.wording.durations import format_duration, parse_duration

LABELS: Final[Mapping[str, tuple[str, str]]] = {
    "at_once": ("At once", "Scopes or hosts at the same time. Default: all scopes, or one host."),
    "min_available": ("Minimum available", "Percentage of each scope that stays available."),
    "soak": ("Soak time", "Wait after each step and after the canary: 30m, 2h."),
    "canary": ("Canary", "Scopes or hosts to do first, alone."),
    "windows": ("Windows", "Only at these times: Sat,Sun 22:00-06:00 Europe/Berlin."),
    "blackouts": ("Blackouts", "Never on these days: 2026-12-24..2027-01-02 Europe/Berlin."),
    "notice_outside": ("Notice before the window", "Only the impact must fall inside the window."),
    "gates": ("Gates", "Each is asked before every step except the first."),
    "gate_patience": ("Gate patience", "How long a gate may stay shut before it holds the step."),
    "hold_all": ("Hold all after a failure", "Otherwise only the scope or host that failed."),
    "in_order": ("Keep the order", "Steps that share a scope keep their order."),
    "event_type": ("Event type", ""),
    "description": ("Description", ""),
    "duration": ("Impact duration", ""),
    "scopes": ("Scopes", ""),
    "virtual_machines": ("Virtual machines", ""),
    "labels": ("Virtual machine labels", ""),
    "hosts": ("Hosts", ""),
    "host_labels": ("Host labels", ""),
    "holidays": ("Holidays", ""),
    "holidays_zone": ("Time zone of the holidays", ""),
}  # fmt: skip
"""What each field is called, and a hint for those of the course."""
COMMON: Final = ("at_once", "min_available", "soak", "canary", "windows")
"""The fields of the course that are always visible."""
_SELECTORS: Final[Mapping[str, tuple[str, ...]]] = {
    "scopes": ("scopes", "virtual_machines", "labels"),
    "hosts": ("hosts", "host_labels"),
}
"""What a Maintenance by scope, or by host, is selected by."""
_PAIRS: Final = frozenset({"labels", "host_labels"})
_FIELD: Final = re.compile("`(\\w+)(: false)?`")


@dataclass(frozen=True, slots=True, kw_only=True)
class CourseField:
    """One field of the course; *kind* says how it is typed, and *usual* what stands there."""

    name: str
    kind: str
    usual: str = ""

    @property
    def label(self) -> str:
        return LABELS[self.name][0]

    @property
    def hint(self) -> str:
        return LABELS[self.name][1]


def course_fields() -> Iterator[CourseField]:
    """Yield the fields of the course, in the order of the labels."""
    found = {each.name: each for each in _course_fields()}
    return (found[name] for name in LABELS if name in found)


def _course_fields() -> Iterator[CourseField]:
    usual = knobs_of(Course())
    for knob in fields(Course):
        if knob.type is Calendar:
            yield CourseField(name="windows", kind="lines")
            yield CourseField(name="blackouts", kind="lines")
        elif knob.name == "gates":
            yield CourseField(name=knob.name, kind="choices")
        elif knob.type is bool:
            yield CourseField(name=knob.name, kind="tick", usual="on" if usual[knob.name] else "")
        else:
            yield CourseField(
                name=knob.name,
                kind=_KINDS.get(knob.type, "number"),
                usual=_type_out(usual[knob.name]),
            )


_KINDS: Final[Mapping[Any, str]] = {timedelta: "duration", tuple[str, ...]: "names"}


def _type_out(value: object) -> str:
    if isinstance(value, timedelta):
        return format_duration(value) if value else ""
    return str(value) if isinstance(value, int) and value else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledForm:
    """What somebody asks for, or the *problems* with what they typed."""

    order: MaintenanceOrderRequest | None
    problems: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is selected yet."""
        order = self.order
        return order is not None and not any(
            getattr(order, name) for names in _SELECTORS.values() for name in names
        )


def read_order(form: Form) -> FilledForm:
    """Return what *form* asks for, with everything that is wrong in it."""
    told: dict[str, Any] = {"event_type": form.text("event_type") or None}
    problems: list[str] = []
    for name, key, read in _readers(form):
        try:
            value = read(form, name)
        except InvalidError as error:
            problems.append(f"{LABELS[name][0]}: {error}")
        else:
            if value is not None:
                told[key] = value
    if problems:
        return FilledForm(order=None, problems=tuple(problems))
    try:
        return FilledForm(order=MaintenanceOrderRequest(**told), problems=())
    except ValidationError as error:
        return FilledForm(order=None, problems=tuple(map(_say, error.errors())))


def with_labels(sentence: str) -> str:
    """Return *sentence* with the labels of the form in place of the fields that it names."""

    def label(match: re.Match[str]) -> str:
        name = LABELS.get(match[1], (match[1], ""))[0]
        return f"“{name}” is off" if match[2] else f"“{name}”"

    return _FIELD.sub(label, sentence)


def selection_of(form: Form) -> str:
    """Return whether *form* selects scopes or hosts."""
    is_by_host = form.text("by") == "hosts" or (form.text("hosts") and not form.text("by"))
    return "hosts" if is_by_host else "scopes"


def _readers(form: Form) -> Iterator[tuple[str, str, Callable[[Form, str], Any]]]:
    """Yield every field with its key in a request, and how it is read."""
    for name in _SELECTORS[selection_of(form)]:
        yield name, name, _read_pairs if name in _PAIRS else _read_names
    for name in ("description", "holidays", "holidays_zone"):
        yield name, name, _read_text
    yield "duration", "duration_in_seconds", _read_seconds
    for each in course_fields():
        key = f"{each.name}_in_seconds" if each.kind == "duration" else each.name
        yield each.name, key, _READERS[each.kind]


def _read_text(form: Form, name: str) -> str | None:
    return form.text(name) or None


def _read_names(form: Form, name: str) -> list[str]:
    return list(form.lines(name))


def _read_lines(form: Form, name: str) -> list[str]:
    # Between commas are the days of a window.
    return [line for line in map(str.strip, form.text(name).splitlines()) if line]


def _read_pairs(form: Form, name: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for line in form.lines(name):
        key, sign, value = line.partition("=")
        if not (key and sign):
            raise FormError(f"{line[:60]!r} is not KEY=VALUE.")
        if pairs.setdefault(key, value) != value:
            raise FormError(f"{key[:60]!r} is given twice with different values.")
    return pairs


def _read_seconds(form: Form, name: str) -> int | None:
    said = form.text(name).replace(" ", "")
    return int(parse_duration(said).total_seconds()) if said else None


def _read_number(form: Form, name: str) -> int | None:
    said = form.text(name).removesuffix("%").strip()
    if not said:
        return None
    if not (said.isascii() and said.isdigit()):
        raise FormError(f"{said[:40]!r} is not a number.")
    return int(said[:12])


def _read_tick(form: Form, name: str) -> bool | None:
    return form.is_set(name) if name in form.fields else None


def _read_choices(form: Form, name: str) -> list[str]:
    return list(form.texts(name))


_READERS: Final[Mapping[str, Callable[[Form, str], Any]]] = {
    "lines": _read_lines,
    "names": _read_names,
    "choices": _read_choices,
    "duration": _read_seconds,
    "number": _read_number,
    "tick": _read_tick,
}


def _say(error: Any) -> str:
    name = str(error["loc"][0]).removesuffix("_in_seconds") if error["loc"] else ""
    label = LABELS.get(name, (name, ""))[0]
    return f"{label}: {error['msg']}."
