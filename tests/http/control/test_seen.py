"""/virtual-machines/{name}/seen: the bytes of a moment gone by."""

from datetime import timedelta

import httpx2
import pytest

from forewarn.desk.services import ClockControl

EMPTY = b'{"DocumentIncarnation":0,"Events":[]}'


@pytest.fixture
def history(api: httpx2.Client, clock: ClockControl) -> httpx2.Client:
    """A server on which solo was announced a reboot at 08:05, and it is 08:30 now."""
    clock.advance(timedelta(minutes=5))
    order = {"event_type": "Reboot", "resources": ["solo"], "not_before": "20m"}
    assert api.post("events", json=order).status_code == 201
    clock.advance(timedelta(minutes=25))
    return api


@pytest.mark.parametrize(
    ("at", "is_empty"),
    [
        ("08:04", True),
        ("08:04:59", True),
        ("08:05", False),
        ("26m ago", True),
        ("25m ago", False),
        ("2026-01-05T08:04:59Z", True),
        ("2026-01-05 09:05:00+01:00", False),
        (None, False),
    ],
)
def test_moment_is_told_in_many_ways(
    history: httpx2.Client, at: str | None, *, is_empty: bool
) -> None:
    answer = history.get("virtual-machines/SOLO/seen", params={} if at is None else {"at": at})

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert (answer.content == EMPTY) is is_empty


def test_document_is_that_of_the_api_version(history: httpx2.Client) -> None:
    answer = history.get("virtual-machines/solo/seen", params={"api-version": "2017-03-01"})

    assert answer.content == (
        b'{"DocumentIncarnation":1,"Events":[{"EventId":"00000000-0000-4000-8000-000000000004",'
        b'"EventStatus":"Scheduled","EventType":"Reboot","ResourceType":"VirtualMachine",'
        b'"Resources":["solo"],"NotBefore":"2026-01-05T08:25:00Z"}]}'
    )


@pytest.mark.parametrize(
    ("query", "status", "kind"),
    [
        ({"at": "08:31"}, 409, "not-seen"),
        ({"at": "2026-01-05T07:59:59Z"}, 409, "not-seen"),
        ({"at": "40d ago"}, 409, "not-seen"),
        ({"at": "24:00"}, 422, "moment"),
        ({"at": "yesterday"}, 422, "moment"),
        ({"at": "x ago"}, 422, "moment"),
        ({"at": "99999d ago"}, 422, "moment"),
        ({"at": ""}, 422, "moment"),
        ({"at": "2026-01-05T08:04:59"}, 422, "moment"),
        ({"api-version": "2016-01-01"}, 422, "unknown-api-version"),
    ],
)
def test_moment_that_cannot_be_told_is_refused(
    history: httpx2.Client, query: dict[str, str], status: int, kind: str
) -> None:
    answer = history.get("virtual-machines/solo/seen", params=query)

    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:forewarn:problem:{kind}")


def test_refusal_says_from_when_on_it_is_known(history: httpx2.Client) -> None:
    answer = history.get("virtual-machines/solo/seen", params={"at": "31m ago"})

    assert answer.json()["since"] == "2026-01-05T08:00:00+00:00"


def test_machine_that_never_was_is_not_found(history: httpx2.Client) -> None:
    assert history.get("virtual-machines/ghost/seen").status_code == 404
