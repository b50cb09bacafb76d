"""How a Maintenance goes about it, as it is asked for and shown.

What there is to say is in `domain/course.py`, and the models follow from that: lengths of time are
seconds here, and a calendar is the texts that people write.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from datetime import timedelta
from typing import Annotated, Any, Final

from pydantic import Field, StrictBool, StrictInt, StrictStr

from forewarn.desk.schemas import Names, RequestModel, Seconds, Text, View
from forewarn.desk.shapes import with_fields
from forewarn.domain.course import FIXED, Course, knobs_of
from forewarn.domain.windows import Blackout, Calendar, read_blackout, read_window

# All are searched for openings, years ahead, while the order is written down and others wait.
Windows = Annotated[list[Text], Field(max_length=50)]
Blackouts = Annotated[list[Text], Field(max_length=1000)]

_PARTS: Final[Mapping[str, Callable[[str], Any]]] = {
    "windows": read_window,
    "blackouts": read_blackout,
}
"""What a calendar has, and how it is read."""
_ASKED: Final[Mapping[Any, Any]] = {
    tuple[str, ...]: Names,
    bool: StrictBool,
}
"""The types of the domain in a request; numbers have limits besides."""


def describe_course(course: Course) -> dict[str, Any]:
    """Return *course* as it travels."""
    told: dict[str, Any] = {}
    for name, value in knobs_of(course).items():
        if isinstance(value, timedelta):
            told[_in_seconds(name)] = int(value.total_seconds())
        else:
            told[name] = list(value) if isinstance(value, tuple) else value
    return told


def _in_seconds(name: str) -> str:
    return f"{name}_in_seconds"


_USUAL: Final = describe_course(Course())


def _types() -> Iterator[tuple[str, Any, Any]]:
    """Yield every name with its type in requests, and in answers if it is there."""
    for knob in fields(Course):
        if knob.type is Calendar:
            yield "windows", Windows, tuple[str, ...]
            yield "blackouts", Blackouts, tuple[str, ...]
            yield "holidays", Text, None
            yield "holidays_zone", Text, None
        elif knob.type is timedelta:
            yield _in_seconds(knob.name), Seconds, int
        else:
            number = Annotated[StrictInt, Field(**knob.metadata)]
            yield knob.name, _ASKED.get(knob.type, number), knob.type


def _usual(asked: Any, key: str) -> tuple[Any, Any]:
    usual = _USUAL.get(key)
    return (asked | None if usual is None else asked, usual)


@with_fields({key: _usual(asked, key) for key, asked, _ in _types()})
class CourseRequest(RequestModel):
    """Options of a Maintenance."""

    holidays: Annotated[StrictStr, Field(description="The text of an iCalendar file.")] | None = (
        None
    )
    holidays_zone: Text = "UTC"


@with_fields(
    {key: (asked | None, None) for key, asked, shown in _types() if shown and key not in FIXED}
)
class CoursePatch(RequestModel):
    """Change the named options of a Maintenance; null sets the default (JSON merge patch)."""


@with_fields({key: (shown, ...) for key, _, shown in _types() if shown})
class CourseView(View):
    """Options of a Maintenance."""


def course_change(
    told: Mapping[str, Any], holidays: tuple[Blackout, ...] = ()
) -> Callable[[Course], Course]:
    """Return what changes a course into what is *told* of one; what is None is as usual."""
    told = {key: _USUAL.get(key) if value is None else value for key, value in told.items()}
    parts = {part: tuple(map(read, told[part])) for part, read in _PARTS.items() if part in told}
    if holidays:
        parts["blackouts"] += holidays
    knobs: dict[str, Any] = {}
    for knob in fields(Course):
        if _in_seconds(knob.name) in told:
            knobs[knob.name] = timedelta(seconds=told[_in_seconds(knob.name)])
        elif knob.name in told:
            value = told[knob.name]
            knobs[knob.name] = tuple(value) if isinstance(value, list) else value
    return lambda course: replace(course, calendar=replace(course.calendar, **parts), **knobs)


def patch_course(request: CoursePatch) -> Callable[[Course], Course]:
    """Return what changes a course as *request* asks for."""
    known = set(CoursePatch.model_fields)
    return course_change(request.model_dump(exclude_unset=True, include=known))
