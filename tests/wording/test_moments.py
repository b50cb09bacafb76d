"""Times as people type them, seen from now."""

from datetime import UTC, datetime, timedelta

import pytest

from forewarn.wording.moments import (
    MomentError,
    check_reachable,
    parse_ahead,
    parse_past,
    parse_span,
    resolve,
)

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("20m", datetime(2026, 1, 5, 8, 20, tzinfo=UTC)),
        ("+1h30m", datetime(2026, 1, 5, 9, 30, tzinfo=UTC)),
        ("22:00", datetime(2026, 1, 5, 22, tzinfo=UTC)),
        ("07:59:59", datetime(2026, 1, 6, 7, 59, 59, tzinfo=UTC)),
        ("08:00", datetime(2026, 1, 6, 8, tzinfo=UTC)),
        ("2026-01-05T10:15:00+01:00", datetime(2026, 1, 5, 9, 15, tzinfo=UTC)),
    ],
)
def test_time_to_come_is_read_in_every_form(text: str, moment: datetime) -> None:
    assert resolve(parse_ahead(text, NOW), NOW) == moment


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("20m", datetime(2026, 1, 5, 7, 40, tzinfo=UTC)),
        ("1h30m ago", datetime(2026, 1, 5, 6, 30, tzinfo=UTC)),
        ("22:00", datetime(2026, 1, 4, 22, tzinfo=UTC)),
        ("07:59:59", datetime(2026, 1, 5, 7, 59, 59, tzinfo=UTC)),
        ("08:00", NOW),
        ("2026-01-05T08:15:00+01:00", datetime(2026, 1, 5, 7, 15, tzinfo=UTC)),
    ],
)
def test_time_gone_by_is_read_in_every_form(text: str, moment: datetime) -> None:
    assert parse_past(text, NOW) == moment


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not a valid time; use 20m, 22:00 or 2026-01-05T08:15:00Z."),
        ("soon", "is not a valid time"),
        ("24:00", "is not a valid time"),
        ("90", "has no unit"),
        ("8:00", "is not a valid time"),
        ("-20m", "is not a valid time"),
        ("9999d", "is longer than ten years"),
        ("2026-01-05T08:15:00", "has no time zone"),
        ("1960-01-05T08:15:00Z", "is too far away"),
    ],
)
def test_what_is_no_time_is_refused_with_the_forms_there_are(text: str, problem: str) -> None:
    with pytest.raises(MomentError) as ahead:
        parse_ahead(text, NOW)
    with pytest.raises(MomentError) as past:
        parse_past(text, NOW)

    assert str(ahead.value) == str(past.value)
    assert problem in str(ahead.value)


@pytest.mark.parametrize("text", ["20m ago", "++20m"])
def test_time_to_come_is_not_ago(text: str) -> None:
    with pytest.raises(MomentError):
        parse_ahead(text, NOW)


def test_nothing_leads_beyond_what_a_date_can_say() -> None:
    check_reachable(NOW, parse_span("3660d"))
    with pytest.raises(MomentError, match="is too far away"):
        check_reachable(NOW.replace(year=2999), timedelta(days=366))
