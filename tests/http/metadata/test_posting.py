"""POST of StartRequests: what is approved, what is refused, and that nothing else happens."""

import asyncio
import json
from collections.abc import Callable, Mapping
from datetime import datetime

import pytest
from structlog.testing import capture_logs
from tests.http.metadata.conftest import POLL, Reply, Service, context, running

from forewarn.domain.errors import UnknownEventError
from forewarn.domain.names import VmName
from forewarn.metadata.verbs import StoreVerbs
from forewarn.ports.verbs import Receipt
from forewarn.protocol.errors import ERROR_ANSWERS, Refusal
from forewarn.protocol.vocabulary import EventId

UNKNOWN = "00000000-0000-4000-8000-000000000000"

FORMS: dict[str, Callable[[str], str]] = {
    "plain": lambda e: f'{{"StartRequests":[{{"EventId":"{e}"}}]}}',
    "incarnation as text": lambda e: (
        f'{{"DocumentIncarnation":"5","StartRequests":[{{"EventId":"{e}"}}]}}'
    ),
    "incarnation as number": lambda e: (
        f'{{"DocumentIncarnation":5,"StartRequests":[{{"EventId":"{e}"}}]}}'
    ),
    "incarnation last, CRLF": lambda e: (
        f'{{\r\n  "StartRequests": [\r\n    {{\r\n      "EventId": "{e}"\r\n    }}\r\n  ],\r\n'
        '  "DocumentIncarnation": 99\r\n}\r\n'
    ),
    "tabs and newlines": lambda e: f'\n\t{{\n"StartRequests":\t[{{ "EventId" : "{e}" }}]\n}}',
    "lower case": lambda e: f'{{"StartRequests":[{{"EventId":"{e.lower()}"}}]}}',
    "twice": lambda e: f'{{"StartRequests":[{{"EventId":"{e}"}},{{"EventId":"{e}"}}]}}',
    "byte order mark": lambda e: f'\ufeff{{"StartRequests":[{{"EventId":"{e}"}}]}}',
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_body_in_the_wild_approves(service: Service, form: str) -> None:
    identifier = service.create()

    reply = service.post(FORMS[form](identifier).encode())

    assert (reply.status, reply.body, reply.headers["content-length"]) == (200, b"", "0")
    assert service.approvers(identifier) == ("web-0",)


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "application/x-www-form-urlencoded",
        "application/json",
        "application/octet-stream",
        "text/plain; charset=utf-8",
        "nonsense",
    ],
)
def test_content_type_does_not_matter(service: Service, content_type: str | None) -> None:
    identifier = service.create()
    headers = {} if content_type is None else {"Content-Type": content_type}

    assert service.approve(identifier, headers=headers).status == 200
    assert service.approvers(identifier) == ("web-0",)


def test_approving_again_and_from_another_machine_is_fine(service: Service) -> None:
    identifier = service.create()

    replies = [service.approve(identifier, source=f"127.0.0.1{n}") for n in (0, 0, 1)]

    assert [reply.status for reply in replies] == [200, 200, 200]
    assert service.approvers(identifier) == ("web-0", "Web-1")


def test_started_completed_and_canceled_events_are_known_and_left_alone(service: Service) -> None:
    started, completed, canceled = (service.create() for _ in range(3))
    service.start(started)
    service.start(completed)
    service.complete(completed)
    service.cancel(canceled)
    before = service.request()

    assert service.approve(started, completed, canceled).status == 200
    assert service.request().body == before.body


def test_approval_is_written_with_where_it_came_from(service: Service) -> None:
    identifier = service.create()

    service.approve(identifier, source="127.0.0.10")

    ledger = service.store.read(lambda reading: reading.ledger(identifier))
    audit = service.store.read(lambda reading: reading.audit())
    assert [(line.who, line.where) for line in ledger[-1:]] == [("web-0", "127.0.0.10")]
    assert [(entry.who, entry.where) for entry in audit[-1:]] == [("web-0", "127.0.0.10")]


def test_several_known_events_are_all_approved(service: Service) -> None:
    first, second = service.create(), service.create()

    assert service.approve(first, second).status == 200
    assert service.approvers(first) == service.approvers(second) == ("web-0",)


def test_one_unknown_event_refuses_all(service: Service) -> None:
    identifier = service.create()

    reply = service.approve(identifier, UNKNOWN)

    assert is_refused(reply, Refusal.EVENT_UNKNOWN)
    assert service.approvers(identifier) == ()


def test_event_of_another_scope_is_unknown(service: Service) -> None:
    identifier = service.create()

    assert is_refused(service.approve(identifier, source="127.0.0.12"), Refusal.EVENT_UNKNOWN)


def test_empty_list_is_fine(quiet_service: Service) -> None:
    assert quiet_service.post(b'{"StartRequests":[]}').status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"{",
        b"StartRequests",
        b"\xff\xfe\xff",
        b'{"StartRequests":null}',
        b'{"StartRequests":{"EventId":"x"}}',
        b'{"StartRequests":["x"]}',
        b'{"StartRequests":[{}]}',
        b'{"StartRequests":[{"EventId":5}]}',
        b'{"startRequests":[]}',
        b"[" * 20_000,
    ],
)
def test_malformed_body_is_refused(quiet_service: Service, body: bytes) -> None:
    assert is_refused(quiet_service.post(body), Refusal.BODY_MALFORMED)


@pytest.mark.parametrize(("version", "status"), [("2017-03-01", 200), ("2017-08-01", 400)])
def test_only_the_preview_takes_a_post_without_the_metadata_header(
    service: Service, version: str, status: int
) -> None:
    identifier = service.create()
    target = f"/metadata/scheduledevents?api-version={version}"

    assert service.approve(identifier, target=target, metadata=None).status == status
    assert bool(service.approvers(identifier)) is (status == 200)


@pytest.mark.parametrize(
    ("query", "refusal"),
    [
        ("", Refusal.API_VERSION_MISSING),
        ("?api-version=latest", Refusal.API_VERSION_LATEST),
        ("?api-version=2024-07-09", Refusal.API_VERSION_UNKNOWN),
        ("?api-version=2020-07-01&api-version=2020-07-01", Refusal.API_VERSION_MISSING),
    ],
)
def test_post_needs_a_served_version(service: Service, query: str, refusal: Refusal) -> None:
    identifier = service.create()

    reply = service.approve(identifier, target=f"/metadata/scheduledevents{query}")

    assert is_refused(reply, refusal)
    assert service.approvers(identifier) == ()


def test_versions_may_mix(service: Service) -> None:
    identifier = service.create()
    shown = service.request(POLL).json["Events"][0]["EventId"]

    target = "/metadata/scheduledevents?api-version=2019-08-01"

    assert service.approve(shown, target=target).status == 200
    assert service.approvers(identifier) == ("web-0",)


def test_if_none_match_on_a_post_is_ignored(service: Service) -> None:
    identifier = service.create()

    assert service.approve(identifier, headers={"If-None-Match": "1"}).status == 200
    assert service.approvers(identifier) == ("web-0",)


def test_body_of_64_kib_is_read_and_a_larger_one_refused(service: Service) -> None:
    identifier = service.create()
    body = json.dumps({"StartRequests": [{"EventId": identifier}]}).encode()

    assert is_refused(service.post(body.ljust(64 * 1024 + 1)), Refusal.BODY_TOO_LARGE)
    assert is_refused(service.post(body.ljust(900_000)), Refusal.BODY_TOO_LARGE)
    assert service.approvers(identifier) == ()
    assert service.post(body.ljust(64 * 1024)).status == 200


def is_refused(reply: Reply, refusal: Refusal) -> bool:
    answer = ERROR_ANSWERS[refusal]
    return (reply.status, reply.body) == (answer.status, answer.body)


@pytest.mark.parametrize("text", ["\\ud800", "ä", "\\u0000ä"])
def test_event_id_that_cannot_be_one_is_malformed(service: Service, text: str) -> None:
    body = f'{{"StartRequests":[{{"EventId":"{text}"}}]}}'.encode()

    assert service.post(body).status == 400


class BrokenVerbs:
    """Fails in a way that nobody has thought of, whatever it is asked."""

    async def request_start(
        self, vm: VmName, event_ids: tuple[EventId, ...], *, where: str
    ) -> Receipt:
        raise LookupError(vm, event_ids, where)

    async def describe_event(self, vm: VmName, event_id: EventId) -> Mapping[str, object]:
        raise LookupError(vm, event_id)

    async def postpone(
        self, vm: VmName, event_id: EventId, not_before: datetime, *, where: str
    ) -> Mapping[str, object]:
        raise LookupError(vm, event_id, not_before, where)


def test_mistake_of_ours_is_logged_and_answered_in_azures_form() -> None:
    with running(verbs=BrokenVerbs()) as service, capture_logs() as logs:
        reply = service.approve("x")

    assert (reply.status, reply.body) == (500, ERROR_ANSWERS[Refusal.FAILED].body)
    assert [line["event"] for line in logs] == ["metadata_request_failed"]


def test_machine_that_has_left_since_it_asked_is_told_of_no_event(service: Service) -> None:
    asked = StoreVerbs(service.store, context).request_start(VmName("gone"), (), where="")

    with pytest.raises(UnknownEventError):
        asyncio.run(asked)
