from datetime import UTC, datetime, timedelta, timezone

import pytest

from forewarn.protocol.dates import read_date, write_date
from forewarn.protocol.versions import DateForm

MOMENT = datetime(2016, 9, 19, 18, 29, 47, tzinfo=UTC)


@pytest.mark.parametrize("form", DateForm)
def test_date_is_written_like_the_sample_of_its_form(form: DateForm) -> None:
    assert write_date(MOMENT, form) == form.value


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2018, 1, 24, 21, 20, 44, tzinfo=UTC), "Wed, 24 Jan 2018 21:20:44 GMT"),
        (datetime(2025, 2, 1, 10, 13, 13, tzinfo=UTC), "Sat, 01 Feb 2025 10:13:13 GMT"),
        (datetime(2021, 3, 16, 0, 58, 46, tzinfo=UTC), "Tue, 16 Mar 2021 00:58:46 GMT"),
        (datetime(2026, 4, 11, 22, 26, 58, tzinfo=UTC), "Sat, 11 Apr 2026 22:26:58 GMT"),
        (datetime(2023, 5, 5, 5, 5, 5, tzinfo=UTC), "Fri, 05 May 2023 05:05:05 GMT"),
        (datetime(2019, 6, 30, 16, 22, 3, tzinfo=UTC), "Sun, 30 Jun 2019 16:22:03 GMT"),
        (datetime(2021, 7, 22, 4, 50, 17, tzinfo=UTC), "Thu, 22 Jul 2021 04:50:17 GMT"),
        (datetime(2024, 8, 13, 0, 0, 0, tzinfo=UTC), "Tue, 13 Aug 2024 00:00:00 GMT"),
        (datetime(2025, 9, 19, 18, 29, 47, tzinfo=UTC), "Fri, 19 Sep 2025 18:29:47 GMT"),
        (datetime(2026, 10, 31, 12, 0, 1, tzinfo=UTC), "Sat, 31 Oct 2026 12:00:01 GMT"),
        (datetime(2018, 11, 26, 10, 52, 34, tzinfo=UTC), "Mon, 26 Nov 2018 10:52:34 GMT"),
        (datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC), "Thu, 31 Dec 2026 23:59:59 GMT"),
    ],
)
def test_rfc_date_carries_the_right_weekday_in_every_month(moment: datetime, text: str) -> None:
    assert write_date(moment, DateForm.RFC_1123) == text


@pytest.mark.parametrize("form", DateForm)
def test_date_is_written_in_gmt_wherever_it_was_taken(form: DateForm) -> None:
    moment = MOMENT.astimezone(timezone(timedelta(hours=-7)))

    assert write_date(moment, form) == form.value


@pytest.mark.parametrize("form", DateForm)
def test_written_date_drops_the_fraction_of_a_second(form: DateForm) -> None:
    moment = MOMENT.replace(microsecond=999_999)

    assert write_date(moment, form) == form.value


@pytest.mark.parametrize("form", DateForm)
def test_written_date_reads_back_as_the_same_moment(form: DateForm) -> None:
    assert read_date(write_date(MOMENT, form)) == MOMENT


@pytest.mark.parametrize(
    "text",
    [
        "Mon, 19 Sep 2016 18:29:47 GMT",
        "Mon, 19 Sep 2016 18:29:47 +0000",
        "Mon, 19 Sep 2016 18:29:47 -0000",
        "Mon, 19 Sep 2016 18:29:47",
        "Mon, 19 Sep 2016 20:29:47 +0200",
        "19 Sep 2016 18:29:47 GMT",
        "mon, 19 sep 2016 18:29:47 gmt",
        "2016-09-19T18:29:47Z",
        "2016-09-19T18:29:47+00:00",
        "2016-09-19T13:29:47-05:00",
        "2016-09-19T18:29:47",
        "2016-09-19 18:29:47",
        "2016-09-19T18:29:47.000Z",
        "2016-09-19T18:29:47.0000000Z",
        "  2016-09-19T18:29:47Z\r\n",
        "  Mon, 19 Sep 2016 18:29:47 GMT\r\n",
    ],
)
def test_date_is_read_in_every_form(text: str) -> None:
    assert read_date(text) == MOMENT


@pytest.mark.parametrize("text", ["2016-09-19T20:29:47+02:00", "Mon, 19 Sep 2016 20:29:47 +0200"])
def test_date_with_an_offset_is_read_as_utc(text: str) -> None:
    moment = read_date(text)

    assert moment is not None
    assert moment.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("Mon, 11 Apr 2026 22:26:58 GMT", datetime(2026, 4, 11, 22, 26, 58, tzinfo=UTC)),
        ("Mon, 19 Sep 2025 18:29:47 GMT", datetime(2025, 9, 19, 18, 29, 47, tzinfo=UTC)),
    ],
)
def test_weekday_that_does_not_fit_the_date_is_overlooked(text: str, day: datetime) -> None:
    """Microsoft's own examples pair a date with a weekday that it does not fall on."""
    assert read_date(text) == day


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        ",",
        "soon",
        "Mon, 19 Sep 2016",
        "Mon, 32 Sep 2016 18:29:47 GMT",
        "Mon, 19 Sep 2016 25:29:47 GMT",
        "Mon, 19 Sep 99999 18:29:47 GMT",
        "Mon, 19 Sep 2016 18:29:47 +9900",
        "2016-13-19T18:29:47Z",
        "0001-01-01T00:00:00+10:00",
        "9999-12-31T23:59:59-10:00",
        "1474309787",
        "9" * 5_000,
        "\ud800",
    ],
)
def test_text_that_names_no_moment_is_read_as_none(text: str) -> None:
    assert read_date(text) is None


@pytest.mark.parametrize("value", [None, 0, 1474309787, 1.5, True, [], {}, b"2016-09-19"])
def test_value_that_is_no_text_is_read_as_none(value: object) -> None:
    assert read_date(value) is None
