"""What the page on schedules claims is true today."""

import re
from pathlib import Path

from forewarn.control.app import api_routes
from forewarn.desk.schedules import UPCOMING
from forewarn.domain.recurrence import (
    MOST_MONTHS,
    MOST_WEEKS,
    PLACES,
    describe_recurrence,
    read_recurrence,
)
from forewarn.domain.schedule import KEPT_OCCURRENCES, OccurrenceOutcome

PAGE = (Path(__file__).parent.parent.parent / "docs/reference/schedules.md").read_text(
    encoding="utf-8"
)


def rows(section: str) -> list[str]:
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)


def test_recurrences_of_the_reference_are_some() -> None:
    found = [text for row in rows("Choose the days") for text in re.findall("`([^`]+)`", row)]

    found.remove("--every")
    assert [describe_recurrence(read_recurrence(text)) for text in found] == found
    assert {f"{place} Tue" for place in PLACES} <= set(found)
    assert f"up to {MOST_WEEKS} |" in PAGE
    assert f"up to {MOST_MONTHS} |" in PAGE


def test_outcomes_and_limits_are_in_the_reference() -> None:
    assert {row.strip("`") for row in rows("What happens on a date")} == set(OccurrenceOutcome)
    assert f"remembers its last {KEPT_OCCURRENCES} dates" in PAGE
    assert f"(`upcoming`, {UPCOMING} by default" in PAGE


def test_routes_of_the_reference_are_those_there_are() -> None:
    documented = {tuple(row.strip("`").split(" ")) for row in rows("The control API")}

    assert documented == {
        (method, f"/api/v1{route.path}")
        for route in api_routes()
        if route.path.startswith("/schedules")
        for method in route.methods or ()
    }
