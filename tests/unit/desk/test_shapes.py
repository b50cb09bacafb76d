"""Views with the fields of dataclasses."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from forewarn.cli.maintenance_options import COURSE, ORDER
from forewarn.desk.courses import CoursePatch, CourseView, course_change, describe_course
from forewarn.desk.shapes import fill, mirrors
from forewarn.domain.course import Course
from forewarn.domain.windows import Calendar, read_blackout, read_window


@dataclass(frozen=True, kw_only=True)
class Cat:
    name: str
    lives: int = 9

    @property
    def is_alive(self) -> bool:
        return self.lives > 0


def test_view_has_the_fields_of_what_it_shows() -> None:
    @mirrors(Cat)
    class CatView(BaseModel):
        """A cat."""

    assert CatView.__doc__ == "A cat."
    assert _types(CatView) == {"name": str, "lives": int}
    assert fill(CatView, Cat(name="Tom")).model_dump() == {"name": "Tom", "lives": 9}


def test_view_names_fields_and_properties_and_declares_others() -> None:
    @mirrors(Cat, "colour is_alive name")
    class CatView(BaseModel):
        colour: str
        toys: int

    assert _types(CatView) == {"colour": str, "is_alive": bool, "name": str, "toys": int}
    view = fill(CatView, Cat(name="Tom"), Cat(name="Tim"), colour="black", toys=1)
    assert view.model_dump() == {"colour": "black", "is_alive": True, "name": "Tom", "toys": 1}


def test_view_of_what_is_not_there_is_refused() -> None:
    with pytest.raises(AttributeError, match="nmae"):
        mirrors(Cat, "nmae")(BaseModel)


def test_view_with_more_than_fields_is_refused() -> None:
    class CatView(BaseModel):
        colour: str

        @field_validator("colour")
        @classmethod
        def _check(cls, colour: str) -> str:
            return colour

    with pytest.raises(TypeError, match=r"^CatView can only declare fields, not _check\.$"):
        mirrors(Cat, "name")(CatView)


def test_course_is_read_as_it_is_shown() -> None:
    course = Course(
        canary=("web",),
        at_once=2,
        soak=timedelta(minutes=1),
        calendar=Calendar(
            windows=(read_window("Sat 22:00-06:00 UTC"),),
            blackouts=(read_blackout("2026-12-24 UTC Christmas"),),
        ),
        hold_all=False,
    )

    assert course_change(describe_course(course))(Course()) == course


def test_every_field_of_a_course_is_shown_and_has_a_flag() -> None:
    shown = describe_course(Course())

    assert CourseView.model_fields.keys() == shown.keys()
    assert CoursePatch.model_fields.keys() == shown.keys() - {"canary"}
    assert shown.keys() <= {flag.key or name for name, flag in ORDER.items()}
    assert len(COURSE) == len(shown) + 1


def _types(view: type[BaseModel]) -> dict[str, Any]:
    return {name: field.annotation for name, field in view.model_fields.items()}
