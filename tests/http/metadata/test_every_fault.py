"""Every fault as bytes on the wire: one row for each, compared with the answer that is right."""

import json
import socket
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import format_datetime
from time import monotonic
from typing import Any, Final

import pytest
from tests.docs.named_tests import find_tests
from tests.http.metadata.conftest import (
    NOW,
    POLL,
    Service,
    compose,
    read_all,
    running,
    wait_until,
)

from forewarn.domain.fault import FAULTS, Fault, FaultKind, FaultPart
from forewarn.domain.names import VmName
from forewarn.protocol.vocabulary import EventType

VM: Final = VmName("web-0")
NEIGHBOUR: Final = "127.0.0.11"
CLOSING: Final = {"Metadata": "true", "Connection": "close"}
NOT_BEFORE: Final = NOW + timedelta(minutes=15)
NEEDED: Final[dict[str, Any]] = {"seconds": 0.2, "status": 503}


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """An answer, or what there is of one, as bytes; headers by the name as it is written."""

    status: bytes = b""
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def read_raw(connection: socket.socket) -> Raw:
    """Read all that comes until the end, but what differs from one answer to the next."""
    head, _, body = read_all(connection).partition(b"\r\n\r\n")
    status, *lines = head.split(b"\r\n")
    headers = dict(line.split(b": ", 1) for line in lines)
    varying = {b"Date", b"x-ms-request-id"}
    left = {name: value for name, value in headers.items() if name not in varying}
    return Raw(status=status, headers=left, body=body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """What a fault makes of an answer. A header that is None is missing."""

    body: Callable[[bytes], bytes] = bytes
    headers: dict[bytes, bytes | None] = field(default_factory=dict)
    length: Callable[[int, int], int] = lambda _, sent: sent
    """Content-Length, by what it is usually and what is sent."""
    parameters: dict[str, Any] = field(default_factory=dict)


def without_etag(body: Callable[[bytes], bytes], **parameters: Any) -> Wire:
    return Wire(body=body, headers={b"ETag": None}, parameters=parameters)


def replaced(old: str, new: str, **parameters: Any) -> Wire:
    def replace(body: bytes) -> bytes:
        assert old.encode() in body
        return body.replace(old.encode(), new.encode())

    return without_etag(replace, **parameters)


def rewritten(change: Callable[[dict[str, Any]], object], **parameters: Any) -> Wire:
    def rewrite(body: bytes) -> bytes:
        return json.dumps(change(json.loads(body)), separators=(",", ":")).encode()

    return without_etag(rewrite, **parameters)


def date(seconds: float = 0) -> str:
    return format_datetime(NOT_BEFORE + timedelta(seconds=seconds), usegmt=True)


KEPT: Final = ("EventId", "EventStatus", "EventType", "Resources")
EXTRA: Final = {"ImpactScore": 5, "Region": {"Name": "nowhere", "Zones": []}}
ON_THE_WIRE: Final[dict[FaultKind, Wire]] = {
    FaultKind.TRUNCATED: Wire(
        body=lambda body: body[: len(body) // 2], length=lambda whole, _: whole
    ),
    FaultKind.LONG_LENGTH: Wire(length=lambda whole, _: whole + 64),
    FaultKind.SHORT_LENGTH: Wire(length=lambda whole, _: whole // 2),
    FaultKind.BOM: Wire(body=lambda body: b"\xef\xbb\xbf" + body),
    FaultKind.PLAIN_TEXT: Wire(headers={b"Content-Type": b"text/plain"}),
    FaultKind.STRING_INCARNATION: rewritten(
        lambda document: {**document, "DocumentIncarnation": str(document["DocumentIncarnation"])}
    ),
    FaultKind.VANISH: rewritten(lambda document: {**document, "Events": []}),
    FaultKind.SECOND_IMPACT: replaced('"Started"', '"Scheduled"'),
    FaultKind.DUPLICATE_EVENTS: rewritten(
        lambda document: {**document, "Events": document["Events"] * 2}
    ),
    FaultKind.NULL_EVENTS: rewritten(lambda document: {**document, "Events": None}),
    FaultKind.NOT_BEFORE_SLIP: replaced(date(), date(600), seconds=600),
    FaultKind.SHORT_NOTICE: replaced(date(), date(-870), seconds=870),
    FaultKind.WRONG_WEEKDAY: replaced("Mon, ", "Tue, "),
    FaultKind.ISO_DATE: replaced(date(), "2026-03-02T12:15:00Z"),
    FaultKind.EMPTY_NOT_BEFORE: replaced(f'"{date()}"', '""'),
    FaultKind.UNKNOWN_TYPE: replaced('"Reboot"', '"Hibernate"'),
    FaultKind.UNKNOWN_STATUS: rewritten(
        lambda document: {
            **document,
            "Events": [{**event, "EventStatus": "Deferred"} for event in document["Events"]],
        }
    ),
    FaultKind.LOWER_CASE_IDS: rewritten(
        lambda document: {
            **document,
            "Events": [
                {**event, "EventId": event["EventId"].lower()} for event in document["Events"]
            ],
        }
    ),
    FaultKind.EXTRA_FIELDS: rewritten(
        lambda document: {
            **document,
            "Events": [{**event, **EXTRA} for event in document["Events"]],
            **EXTRA,
        }
    ),
    FaultKind.MISSING_FIELDS: rewritten(
        lambda document: {
            **document,
            "Events": [{name: event[name] for name in KEPT} for event in document["Events"]],
        }
    ),
    FaultKind.CAMEL_CASE: rewritten(
        lambda document: {
            "documentIncarnation": document["DocumentIncarnation"],
            "events": [
                {name[0].lower() + name[1:]: value for name, value in event.items()}
                for event in document["Events"]
            ],
        }
    ),
}
SHOWN_BY: Final[dict[FaultKind, str]] = {
    # What takes time, happens to connections, or needs something to happen meanwhile.
    FaultKind.SLOW: "test_faults.py::test_slow_first_call_is_slow_once",
    FaultKind.RESET: "test_faults.py::test_reset_is_seen_as_a_reset",
    FaultKind.STATUS: "test_faults.py::test_status_is_an_error_in_azures_form",
    FaultKind.EMPTY_BODY: "test_faults.py::test_empty_body_is_200_of_length_0",
    FaultKind.PUBLISH_DELAY: "test_faults.py::test_publish_delay_shows_the_last_document_meanwhile",
    FaultKind.INCARNATION_RESET: (
        "test_faults.py::test_incarnation_is_counted_anew_for_one_and_for_nobody_else"
    ),
    FaultKind.CLOSE: "test_every_fault.py::test_connection_is_closed_without_an_answer",
    FaultKind.DRIP: "test_every_fault.py::test_body_drips",
    FaultKind.FAILED_POST: "test_every_fault.py::test_post_fails_while_polls_are_answered",
    FaultKind.HTML: "test_every_fault.py::test_page_of_a_proxy_answers",
    FaultKind.REDIRECT: "test_every_fault.py::test_request_is_sent_elsewhere",
    FaultKind.STALE: "test_every_fault.py::test_document_gets_stale",
    FaultKind.INCARNATION_JUMP: "test_every_fault.py::test_incarnation_jumps",
}


@pytest.fixture(scope="module")
def shared(_road: None) -> Generator[Service]:
    """Share a service whose document has a Scheduled and a Started event."""
    with running() as service:
        service.create()
        service.start(service.create())
        yield service


@pytest.fixture
def service(shared: Service) -> Generator[Service]:
    """Return the shared service, without faults."""
    yield shared
    shared.faults.remove(VM)


def set_fault(service: Service, kind: FaultKind, **parameters: Any) -> None:
    needed = {name: NEEDED[name] for name in FAULTS[kind].needed}
    service.faults.put(VM, Fault(kind=kind, **{**needed, **parameters}))


def ask(
    service: Service, source: str = "127.0.0.10", *, method: str = "GET", body: bytes = b""
) -> Raw:
    """Return the bytes that come for one request on a connection of its own."""
    headers = CLOSING | ({"Content-Length": str(len(body))} if body else {})
    with service.connect(source) as connection:
        connection.sendall(compose(method, POLL, headers) + body)
        return read_raw(connection)


def start_request(identifier: str) -> bytes:
    return json.dumps({"StartRequests": [{"EventId": identifier}]}).encode()


def test_every_fault_is_shown() -> None:
    named = {f"tests/http/metadata/{name}" for name in SHOWN_BY.values()}

    assert ON_THE_WIRE.keys() | SHOWN_BY.keys() == set(FaultKind)
    assert named <= find_tests({name.partition("::")[0] for name in named})


@pytest.mark.parametrize(("kind", "wire"), ON_THE_WIRE.items(), ids=ON_THE_WIRE)
def test_fault_is_on_the_wire_of_one_machine(service: Service, kind: FaultKind, wire: Wire) -> None:
    right = ask(service)
    set_fault(service, kind, **wire.parameters)

    shown, neighbour = ask(service), ask(service, NEIGHBOUR)
    service.faults.remove(VM)

    body = wire.body(right.body)
    length = wire.length(len(right.body), len(body))
    headers = {**right.headers, b"Content-Length": str(length).encode(), **wire.headers}
    assert shown.status == right.status == b"HTTP/1.1 200 OK"
    assert shown.body == body
    assert shown.headers == {name: value for name, value in headers.items() if value is not None}
    assert (shown.headers, shown.body) != (right.headers, right.body)
    assert neighbour == right
    assert ask(service) == right


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in FaultKind
        if "times" in FAULTS[kind].optional and kind is not FaultKind.FAILED_POST
    ],
)
def test_fault_is_used_up(service: Service, kind: FaultKind) -> None:
    set_fault(service, kind, times=1)

    ask(service)

    assert VM not in service.faults


@pytest.mark.parametrize(
    "kind",
    [kind for kind in ON_THE_WIRE if FAULTS[kind].part is FaultPart.DOCUMENT],
)
def test_condition_hides_no_altered_document(service: Service, kind: FaultKind) -> None:
    etag = service.request().headers["etag"]
    set_fault(service, kind, **ON_THE_WIRE[kind].parameters)

    assert service.request(headers={"If-None-Match": etag}).status == 200


@pytest.mark.parametrize(
    "kind", [kind for kind in FaultKind if FAULTS[kind].part is not FaultPart.DOCUMENT]
)
def test_head_has_no_body_and_does_not_drip(service: Service, kind: FaultKind) -> None:
    set_fault(service, kind, **({"seconds": 3600} if kind is FaultKind.DRIP else {}))

    assert ask(service, method="HEAD").body == b""


def test_connection_is_closed_without_an_answer(service: Service) -> None:
    set_fault(service, FaultKind.CLOSE)

    with service.connect() as connection:
        connection.sendall(compose("GET", POLL, {"Metadata": "true"}))
        assert connection.recv(1) == b""


def test_body_drips(service: Service) -> None:
    right = ask(service)
    set_fault(service, FaultKind.DRIP, seconds=0.4)
    came: list[tuple[float, bytes]] = []

    with service.connect() as connection:
        connection.sendall(compose("GET", POLL, CLOSING))
        while part := connection.recv(65536):
            came.append((monotonic(), part))

    (first, _), (last, _) = came[0], came[-1]
    assert b"".join(part for _, part in came).partition(b"\r\n\r\n")[2] == right.body
    assert len(came) > 10
    assert last - first >= 0.35


def test_who_has_left_is_dripped_at_no_more(service: Service) -> None:
    set_fault(service, FaultKind.DRIP, seconds=3600)
    with service.connect() as connection:
        connection.sendall(compose("GET", POLL, {"Metadata": "true"}))
        assert connection.recv(5) == b"HTTP/"

    wait_until(lambda: service.requests == 0, "the server has let go of the poll")


def test_stop_does_not_wait_for_the_last_drop() -> None:
    with running() as service:
        set_fault(service, FaultKind.DRIP, seconds=3600)
        with service.connect() as connection:
            connection.sendall(compose("GET", POLL, {"Metadata": "true"}))
            head = connection.recv(5)
            service.begin_to_stop()
            rest = read_all(connection)

    assert (head + rest).endswith(b'{"DocumentIncarnation":0,"Events":[]}')


@pytest.mark.parametrize("status", [500, 503, None])
def test_post_fails_while_polls_are_answered(service: Service, status: int | None) -> None:
    identifier = service.create(EventType.FREEZE)
    right = ask(service)
    set_fault(service, FaultKind.FAILED_POST, status=status, times=1)

    polled = ask(service)
    failed = ask(service, method="POST", body=start_request(identifier))
    approvers = service.approvers(identifier)
    again = ask(service, method="POST", body=start_request(identifier))
    service.start(identifier)
    service.complete(identifier)

    assert polled == right
    assert failed.status.partition(b" ")[2][:3] == (b"" if status is None else b"%d" % status)
    assert approvers == ()
    assert again.status == b"HTTP/1.1 200 OK"


def test_page_of_a_proxy_answers(service: Service) -> None:
    set_fault(service, FaultKind.HTML)

    shown = ask(service)

    assert shown.status == b"HTTP/1.1 200 OK"
    assert shown.headers[b"Content-Type"] == b"text/html; charset=utf-8"
    assert shown.headers[b"Content-Length"] == str(len(shown.body)).encode()
    assert shown.body.startswith(b"<!DOCTYPE html>")
    assert b"ETag" not in shown.headers


def test_request_is_sent_elsewhere(service: Service) -> None:
    set_fault(service, FaultKind.REDIRECT)

    shown = ask(service)

    assert shown.status == b"HTTP/1.1 302 Found"
    assert shown.headers[b"Location"] == b"http://proxy.invalid/login"
    assert (shown.headers[b"Content-Length"], shown.body) == (b"0", b"")


def test_document_gets_stale(service: Service) -> None:
    before = ask(service)
    etag = before.headers[b"ETag"].decode()
    set_fault(service, FaultKind.STALE, times=3)
    identifier = service.create(EventType.FREEZE, ("web-0",))

    shown, known = ask(service), service.request(headers={"If-None-Match": etag})
    neighbour = ask(service, NEIGHBOUR)
    last, current = ask(service), ask(service)
    service.cancel(identifier)

    assert (shown, last) == (before, before)
    assert (known.status, known.headers["etag"]) == (304, etag)
    assert neighbour == current
    assert current.json["DocumentIncarnation"] == before.json["DocumentIncarnation"] + 1


def test_incarnation_jumps(service: Service) -> None:
    right = ask(service)
    set_fault(service, FaultKind.INCARNATION_JUMP)

    shown = ask(service)

    number = right.json["DocumentIncarnation"] + 2**31
    assert shown.json == {**right.json, "DocumentIncarnation": number}
    assert shown.headers[b"ETag"] == str(number).encode()
    assert service.request(headers={"If-None-Match": str(number)}).status == 304


def test_length_that_is_too_long_leaves_the_client_waiting(service: Service) -> None:
    set_fault(service, FaultKind.LONG_LENGTH)
    received = b""

    with service.connect() as connection:
        connection.sendall(compose("GET", POLL, {"Metadata": "true"}))
        while not received.endswith(b"}]}"):
            received += connection.recv(65536)
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)


def test_length_that_is_too_short_leaves_the_rest_to_the_next_answer(service: Service) -> None:
    right = ask(service)
    set_fault(service, FaultKind.SHORT_LENGTH, times=1)

    with service.connect() as connection:
        requests = compose("GET", POLL, {"Metadata": "true"}) + compose("GET", POLL, CLOSING)
        connection.sendall(requests)
        _, _, rest = read_all(connection).partition(b"\r\n\r\n")

    assert rest.startswith(right.body + right.status)
    assert rest.endswith(right.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """What comes of a POST."""

    status: bytes = b"HTTP/1.1 200 OK"
    length: bytes | None = b"0"
    is_approved: bool = True


POSTED: Final[dict[FaultKind, Posted]] = {
    FaultKind.RESET: Posted(status=b"", length=None, is_approved=False),
    FaultKind.CLOSE: Posted(status=b"", length=None),
    FaultKind.STATUS: Posted(
        status=b"HTTP/1.1 503 Service Unavailable", length=b"34", is_approved=False
    ),
    FaultKind.FAILED_POST: Posted(status=b"", length=None, is_approved=False),
    FaultKind.HTML: Posted(length=b"133", is_approved=False),
    FaultKind.REDIRECT: Posted(status=b"HTTP/1.1 302 Found", is_approved=False),
    FaultKind.TRUNCATED: Posted(length=b"64"),
    FaultKind.LONG_LENGTH: Posted(length=b"64"),
}
"""Where that is not what a well-behaved server would do."""


@pytest.mark.parametrize("kind", FaultKind)
def test_post_is_carried_out_or_changes_nothing(service: Service, kind: FaultKind) -> None:
    identifier = service.create(EventType.FREEZE)
    set_fault(service, kind)

    answer = ask(service, method="POST", body=start_request(identifier))
    approvers = service.approvers(identifier)
    service.faults.remove(VM)
    again = ask(service, method="POST", body=start_request(identifier))
    approvers_at_last = service.approvers(identifier)
    service.start(identifier)
    service.complete(identifier)

    expected = POSTED.get(kind, Posted())
    assert answer.status == expected.status
    assert answer.headers.get(b"Content-Length") == expected.length
    assert approvers == (("web-0",) if expected.is_approved else ())
    assert (again.status, approvers_at_last) == (b"HTTP/1.1 200 OK", ("web-0",))


@pytest.mark.parametrize("kind", FaultKind)
def test_fault_is_of_other_metadata_only_if_it_is_of_any_answer(
    service: Service, kind: FaultKind
) -> None:
    target = "/metadata/versions"

    def read() -> Raw:
        with service.connect() as connection:
            connection.sendall(compose("GET", target, CLOSING))
            return read_raw(connection)

    right = read()
    set_fault(service, kind, **({"seconds": 0.01} if "seconds" in FAULTS[kind].needed else {}))
    shown = read()

    is_of_document = FAULTS[kind].part is FaultPart.DOCUMENT
    is_of_others = kind in {FaultKind.EMPTY_BODY, FaultKind.FAILED_POST}
    takes_time = kind in {FaultKind.SLOW, FaultKind.DRIP}
    assert (shown == right) is (is_of_document or is_of_others or takes_time)


def test_refusal_is_not_damaged(service: Service) -> None:
    set_fault(service, FaultKind.TRUNCATED)

    assert service.request(metadata=None).status == 400
    assert VM in service.faults


def test_answers_are_damaged_by_several_faults_at_once(service: Service) -> None:
    right = ask(service)
    for kind in (FaultKind.TRUNCATED, FaultKind.BOM, FaultKind.PLAIN_TEXT, FaultKind.VANISH):
        set_fault(service, kind)

    shown = ask(service)

    document = {**right.json, "Events": []}
    whole = b"\xef\xbb\xbf" + json.dumps(document, separators=(",", ":")).encode()
    assert shown.body == whole[: len(whole) // 2]
    assert shown.headers[b"Content-Length"] == str(len(whole)).encode()
    assert shown.headers[b"Content-Type"] == b"text/plain"
