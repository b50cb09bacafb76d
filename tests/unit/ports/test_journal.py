"""What an entry of the journal says of a request."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from forewarn.domain.names import VmName
from forewarn.ports.journal import JournalEntry
from forewarn.protocol.start_requests import encode_start_requests
from forewarn.protocol.vocabulary import event_id

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
POLL = JournalEntry(
    sequence=1,
    vm=VmName("web-0"),
    at=NOON,
    maintenance_time=NOON,
    method="GET",
    path="/vm/web-0/metadata/scheduledevents?api-version=2020-07-01",
)
SHOWN = replace(
    POLL,
    status=200,
    answer=b'{"DocumentIncarnation":7,"Events":[{"EventId":"A123"}]}',
    seconds=0.0012,
)


@pytest.mark.parametrize(
    ("path", "is_poll"),
    [
        ("/metadata/scheduledevents", True),
        ("/vm/web-0/Metadata/ScheduledEvents/?api-version=2020-07-01", True),
        ("/metadata/instance?api-version=2021-02-01", False),
        ("/?next=/metadata/scheduledevents", False),
    ],
)
def test_poll_is_told_by_its_path(path: str, *, is_poll: bool) -> None:
    assert replace(POLL, path=path).is_poll is is_poll
    assert replace(POLL, path=path, method="POST").is_start_request is is_poll
    assert not replace(POLL, path=path, method="POST").is_poll
    assert not replace(POLL, path=path).is_start_request


def test_document_shows_its_events_and_its_incarnation() -> None:
    assert SHOWN.shows(event_id("A123"))
    assert not SHOWN.shows(event_id("B456"))
    assert SHOWN.document_incarnation == 7


@pytest.mark.parametrize("change", [bytes.lower, bytes.upper])
def test_document_shows_an_event_in_any_case(change: Callable[[bytes], bytes]) -> None:
    assert replace(SHOWN, answer=change(SHOWN.answer)).shows(event_id("a123"))


def test_start_request_that_is_accepted_approves_its_events() -> None:
    posted = replace(POLL, method="POST", status=200, body=encode_start_requests([event_id("A1")]))

    assert posted.approved == (event_id("A1"),)
    assert replace(posted, status=400).approved == ()
    assert replace(posted, body=b"[").approved == ()
    assert replace(posted, method="GET").approved == ()


def test_refused_start_request_with_an_event_shows_nothing() -> None:
    posted = replace(SHOWN, method="POST", status=400)

    assert not posted.shows(event_id("A123"))
    assert posted.document_incarnation is None


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b'{"DocumentIncarnation":"7"}', b"\xff"])
def test_spoiled_document_has_no_incarnation(answer: bytes) -> None:
    assert replace(SHOWN, answer=answer).document_incarnation is None


def test_error_is_the_sentence_of_a_refusal() -> None:
    refused = replace(POLL, status=400, answer=b'{ "error": "Bad request. EventId is unknown" }')

    assert refused.error == "Bad request. EventId is unknown"
    assert replace(refused, status=200).error == ""
    assert replace(refused, status=None).error == ""
    assert replace(refused, answer=b"<html>").error == ""


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (SHOWN, "200 in 0.001 s"),
        (replace(SHOWN, status=404, answer=b'{"error":"Not found"}'), "404 Not found in 0.001 s"),
        (POLL, "being answered"),
        (replace(POLL, seconds=2), "not answered in 2.000 s"),
        (replace(POLL, seconds=0, is_reset=True), "reset in 0.000 s"),
    ],
)
def test_repr_says_who_asked_what_and_what_became_of_it(entry: JournalEntry, said: str) -> None:
    path = "/vm/web-0/metadata/scheduledevents?api-version=2020-07-01"

    assert repr(entry) == f"<web-0 12:00:00 GET {path}: {said}>"


def test_repr_of_what_could_not_be_read_says_so() -> None:
    entry = replace(POLL, vm=None, method="", path="", status=400, seconds=0)

    assert repr(entry) == "<unknown caller 12:00:00 unreadable bytes: 400 in 0.000 s>"
