"""Holidays from calendar files."""

from datetime import date
from textwrap import dedent

import pytest

from forewarn.domain.errors import UnknownZoneError
from forewarn.domain.windows import describe
from forewarn.files.holidays import LARGEST_FILE, HolidaysError, read_holidays

TODAY = date(2026, 11, 15)
EVERY_DAY = "DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY;BYDAY=MO,TU,WE,TH,FR,SA,SU"
NEVER = "DTSTART;VALUE=DATE:19001225\nRRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"


def calendar(*events: str) -> str:
    """A calendar of *events*, each given by the lines that matter."""
    bodies = (
        f"BEGIN:VEVENT\nUID:{n}\n{dedent(e).strip()}\nEND:VEVENT" for n, e in enumerate(events)
    )
    return "\n".join(("BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:t", *bodies, "END:VCALENDAR", ""))


def read(*events: str, zone: str = "Europe/Berlin") -> list[str]:
    found = read_holidays(calendar(*events), zone=zone, today=TODAY)
    return [describe(blackout).replace(f" {zone}", "") for blackout in found]


@pytest.mark.parametrize(
    ("event", "days"),
    [
        ("DTSTART;VALUE=DATE:20261225", ["2026-12-25"]),
        ("DTSTART;VALUE=DATE:20261225\nDTEND;VALUE=DATE:20261226", ["2026-12-25"]),
        ("DTSTART;VALUE=DATE:20261224\nDTEND;VALUE=DATE:20270102", ["2026-12-24..2027-01-01"]),
        ("DTSTART;VALUE=DATE:20261224\nDURATION:P3D", ["2026-12-24..2026-12-26"]),
        ("DTSTART;VALUE=DATE:20280229\nSUMMARY:Leap\\, day", ["2028-02-29 Leap, day"]),
        ("DTSTART:20261225T230000Z\nDTEND:20261226T010000Z", ["2026-12-26"]),
        ("DTSTART:20261225T223000Z\nDTEND:20261225T233000Z", ["2026-12-25..2026-12-26"]),
        ("DTSTART:20261225T220000Z\nDTEND:20261225T230000Z", ["2026-12-25"]),
        ("DTSTART:20261225T080000\nDTEND:20261225T100000", ["2026-12-25"]),
        ("DTSTART:20261225T080000Z", ["2026-12-25"]),
        (
            "DTSTART;TZID=America/New_York:20261225T190000\nDURATION:PT1H",
            ["2026-12-26"],
        ),
    ],
)
def test_event_keeps_the_days_free_that_it_touches(event: str, days: list[str]) -> None:
    assert read(event) == days


def test_event_that_comes_back_every_year_does_so_for_five_years() -> None:
    days = read("DTSTART;VALUE=DATE:20201225\nRRULE:FREQ=YEARLY\nSUMMARY:Christmas")

    assert days == [f"{year}-12-25 Christmas" for year in range(2026, 2031)]


@pytest.mark.parametrize(
    ("rule", "days"),
    [
        (
            "RRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH;UNTIL=20281231T000000Z",
            ["2026-11-26", "2027-11-25", "2028-11-23"],
        ),
        ("RRULE:FREQ=YEARLY;COUNT=2\nRDATE;VALUE=DATE:20261201", ["2026-12-01"]),
        ("RRULE:FREQ=YEARLY;UNTIL=20271124", []),
        ("RRULE:FREQ=YEARLY;UNTIL=20271127", ["2026-11-27", "2027-11-27"]),
        (
            "RRULE:FREQ=YEARLY;UNTIL=20281127\nEXDATE;VALUE=DATE:20271127",
            ["2026-11-27", "2028-11-27"],
        ),
        (
            "RRULE:FREQ=YEARLY;BYMONTH=1,12;BYMONTHDAY=1;UNTIL=20270601;BYHOUR=3",
            ["2026-12-01", "2027-01-01"],
        ),
    ],
)
def test_rule_says_on_which_days_it_comes_back(rule: str, days: list[str]) -> None:
    first = "20251127" if "COUNT" not in rule else "20241127"
    if not days:
        days = ["2026-11-27"]

    assert read(f"DTSTART;VALUE=DATE:{first}\n{rule}") == days


@pytest.mark.parametrize(
    ("rule", "days"),
    [
        ("RRULE:FREQ=YEARLY;INTERVAL=2", ["2028-02-29"]),
        ("RRULE:FREQ=YEARLY;INTERVAL=3;BYMONTH=3", ["2027-03-29", "2030-03-29"]),
        ("RRULE:FREQ=YEARLY;BYDAY=-1FR;COUNT=3", ["2026-12-25"]),
        ("RRULE:FREQ=YEARLY;BYDAY=MO;BYSETPOS=-1;UNTIL=2028", ["2026-12-28", "2027-12-27"]),
        ("RRULE:FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=1;COUNT=-1\nRDATE:20270101", ["2027-01-01"]),
    ],
)
def test_rule_that_began_in_a_leap_year_is_followed_from_there(rule: str, days: list[str]) -> None:
    rule = rule.replace("UNTIL=2028", "UNTIL=20280101").replace("RDATE:", "RDATE;VALUE=DATE:")

    assert read(f"DTSTART;VALUE=DATE:20240229\n{rule}") == days


def test_rule_without_any_day_adds_none_and_ends() -> None:
    often = [f"{NEVER}\nSUMMARY:{number}" for number in range(500)]

    assert read(*often, "DTSTART;VALUE=DATE:20261225") == ["2026-12-25"]


@pytest.mark.parametrize(
    ("more", "days"),
    [
        ("RDATE:20270705T230000Z", ["2027-01-06", "2027-07-06"]),
        (
            "RRULE:FREQ=YEARLY;COUNT=3\nEXDATE:20280105T230000Z",
            ["2027-01-06", "2029-01-06"],
        ),
        ("RRULE:FREQ=YEARLY;UNTIL=20280105T230000Z", ["2027-01-06", "2028-01-06"]),
        ("EXDATE:20270105T230000Z\nRDATE:20270705T210000Z", ["2027-07-05"]),
    ],
)
def test_times_of_an_event_are_all_read_in_the_zone(more: str, days: list[str]) -> None:
    event = "DTSTART:20270105T230000Z\nDTEND:20270105T233000Z"

    assert read(f"{event}\n{more}") == days


def test_canceled_events_double_ones_and_those_gone_by_do_not_count() -> None:
    days = read(
        "DTSTART;VALUE=DATE:20261225\nSTATUS:CANCELLED",
        "DTSTART;VALUE=DATE:20261114",
        "DTSTART;VALUE=DATE:20261110\nDTEND;VALUE=DATE:20261116",
        "DTSTART;VALUE=DATE:20261231\nSUMMARY:New\\nYear",
        "DTSTART;VALUE=DATE:20261231\nSUMMARY:New Year",
    )

    assert days == ["2026-11-10..2026-11-15", "2026-12-31 New Year"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no components"),
        ("hello", "could not be parsed"),
        ("\0\0\0", "could not be parsed"),
        ("BEGIN:VEVENT\nDTSTART;VALUE=DATE:20261225\nEND:VEVENT\n", "BEGIN:VCALENDAR"),
        (calendar(), "it has no date on or after 2026-11-15"),
        (calendar("SUMMARY:no date"), "DTSTART"),
        (calendar("DTSTART:soon"), "DTSTART"),
        (calendar("DTSTART;VALUE=DATE:30001231"), "the years must be from 2000"),
        (calendar("DTSTART;VALUE=DATE:20261225\nDTEND;VALUE=DATE:20991225"), "is longer than 3660"),
        (calendar("DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=SECONDLY"), "recurs SECONDLY"),
        (calendar("DTSTART;VALUE=DATE:20261225\nRRULE:COUNT=3"), "recurs irregularly"),
        (calendar("DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=WEEKLY"), "recurs WEEKLY"),
        (calendar("DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY;INTERVAL=0"), "every 0 years"),
        (calendar("DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY;INTERVAL=-1"), "every -1 years"),
        (calendar(*[f"{NEVER};COUNT=9"] * 2000), "take too long to evaluate"),
        (calendar(f"{NEVER};BYYEARDAY={','.join(['1'] * 20_000)}"), "take too long to evaluate"),
        (calendar("DTSTART;VALUE=DATE:99991231"), "out of range"),
        (calendar(*[EVERY_DAY, f"{EVERY_DAY}\nSUMMARY:again"]), "more than 2,000"),
        (calendar(*["DTSTART;VALUE=DATE:20261225"] * 2001), "more than 2,000"),
        ("x" * (LARGEST_FILE + 1), "more than 1,000,000 characters"),
        ("\n" * 40_001, "more than 40,000 lines"),
    ],
    ids=range(21),
)
def test_file_without_holidays_is_refused_in_a_sentence(text: str, problem: str) -> None:
    with pytest.raises(HolidaysError) as refused:
        read_holidays(text, zone="UTC", today=TODAY)

    assert str(refused.value).startswith("Cannot read holidays: ")
    assert problem in str(refused.value)


def test_unknown_zone_is_refused() -> None:
    with pytest.raises(UnknownZoneError):
        read_holidays(calendar("DTSTART;VALUE=DATE:20261225"), zone="Nowhere", today=TODAY)
