from datetime import UTC, date, datetime, time, timedelta

import pytest

from forewarn.domain.errors import BlackoutError, CalendarError, UnknownZoneError, WindowError
from forewarn.domain.windows import (
    ALWAYS,
    Blackout,
    Calendar,
    Window,
    closes_at,
    dark_between,
    describe,
    longest_opening,
    make_blackout,
    next_opening,
    open_between,
    read_blackout,
    read_window,
)

WEEKEND = frozenset({5, 6})
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def calendar_of(*parts: str) -> Calendar:
    """The windows and blackouts that are written in *parts*: a blackout begins with its year."""
    return Calendar(
        windows=tuple(read_window(part) for part in parts if not part[0].isdigit()),
        blackouts=tuple(read_blackout(part) for part in parts if part[0].isdigit()),
    )


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "days", "opens", "closes", "zone"),
    [
        ("Sat,Sun 22:00-06:00 Europe/Berlin", {5, 6}, time(22), time(6), "Europe/Berlin"),
        ("Mon-Fri 01:00-05:00 UTC", {0, 1, 2, 3, 4}, time(1), time(5), "UTC"),
        ("daily 02:00-04:00 America/New_York", range(7), time(2), time(4), "America/New_York"),
        ("  DAILY   2:05-24:00  UTC ", range(7), time(2, 5), time(0), "UTC"),
        ("fri-mon 00:00-00:00 UTC", {4, 5, 6, 0}, time(0), time(0), "UTC"),
        ("Mon-Wed,Sat 09:30-17:00 UTC", {0, 1, 2, 5}, time(9, 30), time(17), "UTC"),
    ],
)
def test_window_is_read_from_a_line(
    text: str, days: set[int], opens: time, closes: time, zone: str
) -> None:
    expected = Window(days=frozenset(days), opens=opens, closes=closes, zone=zone)

    assert read_window(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Sat,Sun 22:00-06:00", "DAYS HH:MM-HH:MM ZONE"),
        ("22:00-06:00 UTC", "DAYS HH:MM-HH:MM ZONE"),
        ("", "DAYS HH:MM-HH:MM ZONE"),
        ("Sat,Sonntag 22:00-06:00 UTC", "'Sonntag' is not one of Mon, Tue"),
        ("Mon- 22:00-06:00 UTC", "'' is not one of Mon, Tue"),
        ("Sat, 22:00-06:00 UTC", "'' is not one of Mon, Tue"),
        ("Sat 24:00-06:00 UTC", "'24:00' is not a time"),
        ("Sat 22:60-06:00 UTC", "'22:60' is not a time"),
        ("Sat 22:00-25:00 UTC", "'25:00' is not a time"),
        ("Sat 22:00-\u06f06:00 UTC", "DAYS HH:MM-HH:MM ZONE"),
    ],
)
def test_line_that_is_no_window_is_refused_with_an_example(text: str, problem: str) -> None:
    with pytest.raises(WindowError) as refused:
        read_window(text)

    assert problem in str(refused.value)
    assert "'Sat,Sun 22:00-06:00 Europe/Berlin'" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "first", "last", "zone", "name"),
    [
        (
            "2026-12-24..2027-01-02 Europe/Berlin",
            date(2026, 12, 24),
            date(2027, 1, 2),
            "Europe/Berlin",
            "",
        ),
        ("2026-12-31 UTC", date(2026, 12, 31), date(2026, 12, 31), "UTC", ""),
        ("2028-02-29", date(2028, 2, 29), date(2028, 2, 29), "Asia/Tokyo", ""),
        (
            "2026-12-25 UTC  Christmas  Day",
            date(2026, 12, 25),
            date(2026, 12, 25),
            "UTC",
            "Christmas Day",
        ),
    ],
)
def test_blackout_is_read_from_a_line(
    text: str, first: date, last: date, zone: str, name: str
) -> None:
    expected = Blackout(first=first, last=last, zone=zone, name=name)

    assert read_blackout(text, "Asia/Tokyo") == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Christmas", "expected YYYY-MM-DD"),
        ("2026-12-24-2027-01-02 UTC", "expected YYYY-MM-DD"),
        ("20261224 UTC", "expected YYYY-MM-DD"),
        ("2027-02-29 UTC", "'2027-02-29' is not a valid date"),
        ("2026-12-24..2026-12-23 UTC", "it ends before it begins"),
        ("1999-12-31 UTC", "the years must be from 2000 to 2999"),
        ("2026-01-01..3000-01-01 UTC", "the years must be from 2000 to 2999"),
        ("2026-01-01..2036-01-09 UTC", "it is longer than 3660 days"),
    ],
)
def test_line_that_is_no_blackout_is_refused_with_an_example(text: str, problem: str) -> None:
    with pytest.raises(BlackoutError) as refused:
        read_blackout(text)

    assert problem in str(refused.value)
    assert "'2026-12-31 UTC'" in str(refused.value)


@pytest.mark.parametrize(
    "zone", ["Europe/Atlantis", "europe", "Europe", "../UTC", "/etc/passwd", "Europe/\0", "ü"]
)
def test_unknown_zone_is_refused_by_name(zone: str) -> None:
    with pytest.raises(UnknownZoneError, match="Unknown time zone"):
        read_window(f"daily 00:00-01:00 {zone}")
    with pytest.raises(CalendarError, match="Unknown time zone"):
        make_blackout(date(2026, 1, 1), date(2026, 1, 1), zone)


@pytest.mark.parametrize(
    "text",
    [
        "Sat,Sun 22:00-06:00 Europe/Berlin",
        "Mon-Fri 01:00-05:00 UTC",
        "daily 02:00-04:00 America/New_York",
        "Mon,Wed-Fri,Sun 00:00-00:00 UTC",
    ],
)
def test_window_is_described_as_it_is_typed(text: str) -> None:
    assert describe(read_window(text)) == text


@pytest.mark.parametrize(
    "text",
    ["2026-12-24..2027-01-02 Europe/Berlin", "2026-12-31 UTC", "2026-12-31 UTC New Year's Eve"],
)
def test_blackout_is_described_as_it_is_typed(text: str) -> None:
    assert describe(read_blackout(text)) == text


# 2026-03-02 is a Monday. Berlin goes to summer time on 2026-03-29 at 01:00Z, back on 2026-10-25 at
# 01:00Z; New York on 2026-03-08 and 2026-11-01.
@pytest.mark.parametrize(
    ("parts", "earliest", "lasting", "expected"),
    [
        pytest.param((), "2026-03-02T12:00:00.5", 900 * HOUR, "2026-03-02T12:00:00.5", id="always"),
        pytest.param(
            ("daily 22:00-23:00 UTC",), "2026-03-02T12:00", HOUR, "2026-03-02T22:00", id="waits"
        ),
        pytest.param(
            ("daily 22:00-23:00 UTC",),
            "2026-03-02T22:00:01",
            HOUR,
            "2026-03-03T22:00",
            id="a second too late",
        ),
        pytest.param(
            ("daily 22:00-23:00 UTC",),
            "2026-03-02T22:20",
            40 * MINUTE,
            "2026-03-02T22:20",
            id="until it closes",
        ),
        pytest.param(
            ("daily 22:00-23:00 UTC",),
            "2026-03-02T23:00",
            0 * HOUR,
            "2026-03-03T22:00",
            id="closed when it closes",
        ),
        pytest.param(
            ("daily 22:00-23:00 UTC",), "2026-03-02T12:00", HOUR + MINUTE, None, id="never"
        ),
        pytest.param(
            ("daily 22:00-23:00 UTC", "daily 23:00-01:00 UTC"),
            "2026-03-02T12:00",
            3 * HOUR,
            "2026-03-02T22:00",
            id="windows that touch",
        ),
        pytest.param(
            ("daily 21:00-23:00 UTC", "daily 23:30-01:30 Europe/Berlin"),
            "2026-03-02T12:00",
            3 * HOUR + 30 * MINUTE,
            "2026-03-02T21:00",
            id="windows that overlap",
        ),
        pytest.param(
            ("Sun 22:00-06:00 UTC",),
            "2026-03-02T05:30",
            HOUR,
            "2026-03-08T22:00",
            id="the rest of last night is too short",
        ),
        pytest.param(
            ("Sun 22:00-06:00 UTC",),
            "2026-03-02T03:00",
            3 * HOUR,
            "2026-03-02T03:00",
            id="the rest of last night",
        ),
        pytest.param(
            ("daily 00:00-00:00 UTC",),
            "2026-03-02T03:00",
            24 * 900 * HOUR,
            "2026-03-02T03:00",
            id="windows without end",
        ),
        pytest.param(
            ("daily 22:00-06:00 UTC", "2026-03-03 UTC"),
            "2026-03-02T12:00",
            3 * HOUR,
            "2026-03-04T00:00",
            id="blackout from midnight on",
        ),
        pytest.param(
            ("daily 22:00-06:00 UTC", "2026-03-03 UTC"),
            "2026-03-02T12:00",
            2 * HOUR,
            "2026-03-02T22:00",
            id="just before the blackout",
        ),
        pytest.param(
            ("2026-03-01..2026-03-03 UTC", "2026-03-04 Asia/Tokyo"),
            "2026-03-02T12:00",
            HOUR,
            "2026-03-04T15:00",
            id="blackouts that touch, in two zones",
        ),
        pytest.param(
            ("2026-03-10 UTC",), "2026-03-09T23:30", HOUR, "2026-03-11T00:00", id="not into it"
        ),
        pytest.param(
            ("daily 22:00-02:00 Europe/Berlin", "2026-12-24..2027-01-02 Europe/Berlin"),
            "2026-12-23T23:30",
            HOUR,
            "2027-01-02T23:00",
            id="over the end of the year",
        ),
        pytest.param(
            ("Tue 10:00-12:00 UTC", "2028-02-29 UTC"),
            "2028-02-23T00:00",
            HOUR,
            "2028-03-07T10:00",
            id="leap day",
        ),
        pytest.param(
            ("daily 02:30-04:00 Europe/Berlin",),
            "2026-03-28T12:00",
            HOUR,
            "2026-03-29T01:00",
            id="begins in the hour left out",
        ),
        pytest.param(
            ("daily 02:00-03:00 Europe/Berlin",),
            "2026-03-28T12:00",
            HOUR,
            "2026-03-30T00:00",
            id="is the hour left out",
        ),
        pytest.param(
            ("daily 01:00-04:00 Europe/Berlin",),
            "2026-03-28T12:00",
            3 * HOUR,
            "2026-03-29T23:00",
            id="over the hour left out",
        ),
        pytest.param(
            ("daily 01:00-04:00 Europe/Berlin",),
            "2026-10-20T12:00",
            4 * HOUR,
            "2026-10-24T23:00",
            id="over the hour that comes twice",
        ),
        pytest.param(
            ("daily 02:30-03:00 Europe/Berlin",),
            "2026-10-25T00:50",
            30 * MINUTE,
            "2026-10-25T01:30",
            id="comes twice itself",
        ),
        pytest.param(
            ("daily 22:00-04:00 America/New_York", "2026-11-01 America/New_York"),
            "2026-10-31T12:00",
            3 * HOUR,
            "2026-11-02T05:00",
            id="blackout of 25 hours",
        ),
        pytest.param(
            ("daily 01:00-03:00 Australia/Lord_Howe",),
            "2026-04-03T00:00",
            2 * HOUR + 30 * MINUTE,
            "2026-04-04T14:00",
            id="half an hour that comes twice",
        ),
        pytest.param(
            ("daily 02:10-03:00 Australia/Lord_Howe",),
            "2026-10-03T00:00",
            30 * MINUTE,
            "2026-10-03T15:30",
            id="begins in the half hour left out",
        ),
        pytest.param(
            ("Fri 10:00-12:00 Pacific/Apia",),
            "2011-12-26T00:00",
            HOUR,
            "2012-01-05T20:00",
            id="a Friday that never was",
        ),
        pytest.param(
            ("2011-12-30 Pacific/Apia",),
            "2011-12-30T09:59:59",
            HOUR,
            "2011-12-30T09:59:59",
            id="a blackout on a day that never was",
        ),
        pytest.param(
            ("2011-12-29..2011-12-31 Pacific/Apia",),
            "2011-12-29T12:00",
            HOUR,
            "2011-12-31T10:00",
            id="a blackout around a day that never was",
        ),
    ],
)
def test_next_opening(
    parts: tuple[str, ...], earliest: str, lasting: timedelta, expected: str | None
) -> None:
    found = next_opening(calendar_of(*parts), moment(earliest), lasting)

    assert found == (None if expected is None else moment(expected))


def test_opening_is_told_in_utc_whatever_zone_was_asked_in() -> None:
    tokyo = datetime.fromisoformat("2026-03-02T12:00:00+09:00")

    found = next_opening(ALWAYS, tokyo, HOUR)

    assert found == tokyo
    assert found.tzinfo is UTC


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((), timedelta.max),
        (("daily 00:00-12:00 UTC", "daily 12:00-00:00 UTC"), timedelta.max),
        (("daily 01:00-03:00 UTC",), 2 * HOUR),
        (("daily 01:00-04:00 Europe/Berlin",), 4 * HOUR),
        (("2026-01-01..2036-01-01 UTC",), timedelta.max),
        (("Sat,Sun 22:00-06:00 UTC", "Fri 06:00-22:00 UTC"), 16 * HOUR),
        (("Sat,Sun 00:00-00:00 UTC", "Fri 06:00-00:00 UTC"), 66 * HOUR),
    ],
)
def test_longest_opening(parts: tuple[str, ...], expected: timedelta) -> None:
    assert longest_opening(calendar_of(*parts), moment("2026-03-02T12:00")) == expected


def test_longest_opening_is_nothing_where_a_window_never_opens() -> None:
    nothing = Calendar(windows=(Window(days=frozenset(), opens=time(), closes=time(), zone="UTC"),))

    assert longest_opening(nothing, moment("2026-03-02T12:00")) == timedelta(0)
    assert next_opening(nothing, moment("2026-03-02T12:00"), timedelta(0)) is None


@pytest.mark.parametrize(
    ("parts", "at", "until"),
    [
        ((), "2026-03-02T12:00", None),
        (("daily 00:00-00:00 Europe/Berlin",), "2026-03-02T12:00", None),
        (
            ("daily 00:00-00:00 Europe/Berlin", "2030-01-01 UTC"),
            "2026-03-02T12:00",
            "2030-01-01T00:00",
        ),
        (("2030-01-01 UTC",), "2026-03-02T12:00", "2030-01-01T00:00"),
        (("daily 11:00-13:00 UTC",), "2026-03-02T12:00", "2026-03-02T13:00"),
        (("daily 11:00-13:00 UTC",), "2026-03-02T11:00", "2026-03-02T13:00"),
        (
            ("daily 09:00-13:00 UTC", "2026-03-03 Pacific/Kiritimati"),
            "2026-03-02T09:00",
            "2026-03-02T10:00",
        ),
    ],
)
def test_closes_at(parts: tuple[str, ...], at: str, until: str | None) -> None:
    calendar = calendar_of(*parts)

    assert closes_at(calendar, moment(at)) == (None if until is None else moment(until))


@pytest.mark.parametrize("at", ["2026-03-02T10:59", "2026-03-02T13:00", "2026-03-03T12:00"])
def test_what_is_closed_closes_at_once(at: str) -> None:
    calendar = calendar_of("daily 11:00-13:00 UTC", "2026-03-03 UTC")

    assert closes_at(calendar, moment(at)) == moment(at)


def test_open_hours_between_two_moments_are_cut_to_them() -> None:
    nights = calendar_of("daily 22:00-06:00 UTC", "2026-03-03")

    found = open_between(nights, moment("2026-03-01 23:00"), moment("2026-03-05 01:00"))

    assert found == (
        (moment("2026-03-01 23:00"), moment("2026-03-02 06:00")),
        (moment("2026-03-02 22:00"), moment("2026-03-03 00:00")),
        (moment("2026-03-04 00:00"), moment("2026-03-04 06:00")),
        (moment("2026-03-04 22:00"), moment("2026-03-05 01:00")),
    )
    since, until = moment("2026-03-01 00:00"), moment("2026-03-02 00:00")
    assert open_between(ALWAYS, since, until) == ((since, until),)


def test_blackout_between_two_moments_is_cut_to_them() -> None:
    dark = read_blackout("2026-03-03..2026-03-04 Europe/Berlin")
    noon = moment("2026-03-04 12:00")

    assert dark_between(dark, moment("2026-03-01 00:00"), noon) == (
        (moment("2026-03-02 23:00"), noon),
    )
    assert dark_between(dark, noon, moment("2026-03-09 00:00")) == (
        (noon, moment("2026-03-04 23:00")),
    )
    assert dark_between(dark, moment("2026-03-05 00:00"), moment("2026-03-09 00:00")) == ()
    assert dark_between(dark, moment("2026-02-05 00:00"), moment("2026-02-09 00:00")) == ()
