"""The journal: every request of a virtual machine, however it is answered."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from tests.http.metadata.conftest import (
    NOW,
    POLL,
    Service,
    compose,
    read_all,
    read_reply,
    running,
    wait_until,
)

from forewarn.clocks import SystemClock
from forewarn.domain.fault import Fault, FaultKind
from forewarn.domain.names import VmName
from forewarn.metadata.asgi import LARGEST_BODY
from forewarn.ports.journal import JournalEntry

VM = VmName("web-0")
REQUEST_ID = "x-ms-request-id"


@pytest.fixture
def journaled() -> Iterator[Service]:
    with running(is_journaled=True) as service:
        yield service


def only(service: Service, vm: VmName | None = VM) -> JournalEntry:
    (entry,) = service.journal.requests()
    assert entry.vm == vm
    return entry


def test_poll_is_in_the_journal_once_it_is_answered(journaled: Service) -> None:
    event_id = journaled.create()
    journaled.clock.move_to(NOW + timedelta(minutes=3))

    reply = journaled.request()

    entry = only(journaled)
    assert (entry.method, entry.path, entry.status) == ("GET", POLL, 200)
    assert entry.answer == reply.body
    assert entry.document_incarnation == reply.json["DocumentIncarnation"]
    assert entry.shows(event_id)
    assert entry.maintenance_time == NOW + timedelta(minutes=3)
    assert abs(entry.at - SystemClock().now()) < timedelta(seconds=10)
    assert entry.seconds is not None
    assert 0 <= entry.seconds < 10


def test_answer_is_the_same_with_a_journal_as_without(journaled: Service) -> None:
    with running() as plain:
        replies = [service.request() for service in (plain, journaled)]

    ours, theirs = (
        {name: value for name, value in reply.headers.items() if name not in {"date", REQUEST_ID}}
        for reply in replies
    )
    assert ours == theirs
    assert replies[0].body == replies[1].body


def test_not_modified_is_journaled_without_a_document(journaled: Service) -> None:
    etag = journaled.request().headers["etag"]

    journaled.request(headers={"If-None-Match": etag})

    entry = journaled.journal.requests()[-1]
    assert (entry.status, entry.answer, entry.document_incarnation) == (304, b"", None)


def test_approval_is_journaled_with_its_body(journaled: Service) -> None:
    event_id = journaled.create()

    assert journaled.approve(event_id).status == 200

    entry = only(journaled)
    assert (entry.method, entry.path, entry.status) == ("POST", POLL, 200)
    assert json.loads(entry.body) == {"StartRequests": [{"EventId": event_id}]}


def test_refusal_is_journaled_with_its_sentence(journaled: Service) -> None:
    journaled.approve("no-such-event")
    journaled.request(metadata=None)

    posted, polled = journaled.journal.requests_of(VM)
    assert (posted.status, posted.error) == (400, "Bad request. EventId is unknown")
    assert polled.error == "Bad request: . Required metadata header not specified"


def test_of_a_long_body_the_beginning_is_kept(journaled: Service) -> None:
    body = b"x" * (LARGEST_BODY + 5000)

    assert journaled.post(body).status == 413

    assert only(journaled).body == body[:LARGEST_BODY]


@pytest.mark.parametrize("header", ["Origin", "X-Forwarded-For"])
def test_machine_that_is_refused_for_a_header_is_known_all_the_same(
    journaled: Service, header: str
) -> None:
    assert journaled.request(headers={header: "10.9.9.9"}).status == 400

    assert only(journaled).error.endswith(f"{header} header is not allowed")


@pytest.mark.parametrize("path", [f"/vm/web-0{POLL}", f"/VM/WEB-0{POLL}"])
def test_machine_named_in_the_path_is_known(journaled: Service, path: str) -> None:
    journaled.request(path, source="127.0.0.99")

    entry = only(journaled)
    assert entry.path == path
    assert entry.is_poll


@pytest.mark.parametrize("path", [POLL, f"/vm/web-9{POLL}"])
def test_request_of_nobody_we_know_is_journaled_as_that(journaled: Service, path: str) -> None:
    assert journaled.request(path, source="127.0.0.99").status == 404

    entry = only(journaled, None)
    assert (entry.path, entry.status) == (path, 404)
    assert journaled.journal.requests_of(None) == (entry,)


def test_path_that_is_not_trusted_names_nobody() -> None:
    with running(is_journaled=True, trust_path=False) as service:
        assert service.request(f"/vm/web-1{POLL}", source="127.0.0.99").status == 404

        assert only(service, None).status == 404


def test_reset_by_a_fault_is_journaled_before_the_client_sees_it(journaled: Service) -> None:
    journaled.faults.put(VM, Fault(kind=FaultKind.RESET))

    with journaled.connect() as connection:
        connection.sendall(compose("GET", POLL, {"Metadata": "true"}))
        with pytest.raises(ConnectionResetError):
            connection.recv(1)

    entry = only(journaled)
    assert (entry.is_reset, entry.status, entry.outcome) == (True, None, "reset")


def test_answer_that_comes_in_parts_is_journaled_whole(journaled: Service) -> None:
    journaled.faults.put(VM, Fault(kind=FaultKind.DRIP, seconds=0.1))

    reply = journaled.request()

    assert only(journaled).answer == reply.body


def test_request_that_is_held_up_is_in_the_journal_already(journaled: Service) -> None:
    journaled.faults.put(VM, Fault(kind=FaultKind.SLOW, seconds=600))

    with journaled.connect() as connection:
        connection.sendall(compose("GET", POLL, {"Metadata": "true"}))
        wait_until(lambda: bool(journaled.journal.requests()), "the request is there")
        assert only(journaled).outcome == "being answered"

    wait_until(lambda: only(journaled).seconds is not None, "the client has gone")
    assert only(journaled).outcome == "not answered"


def test_poll_that_waited_says_how_long(journaled: Service) -> None:
    etag = journaled.request().headers["etag"]
    headers = {"If-None-Match": etag, "Prefer": "wait=300"}

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(journaled.request, headers=headers)
        wait_until(lambda: journaled.parked == 1, "the poll waits")
        event_id = journaled.create()
        waiting.result(60)

    first, second = journaled.journal.requests_of(VM)
    assert not first.shows(event_id)
    assert second.shows(event_id)
    assert second.at + timedelta(seconds=second.seconds or 0) > first.at


def test_what_cannot_be_read_is_journaled_as_that(journaled: Service) -> None:
    with journaled.connect() as connection:
        connection.sendall(b"nonsense\r\n\r\n")
        assert b" 400 " in read_all(connection)

    entry = only(journaled)
    assert (entry.method, entry.path, entry.status) == ("", "", 400)
    assert "unreadable bytes" in repr(entry)


@pytest.mark.parametrize(("source", "vm"), [("127.0.0.99", "here"), ("127.0.0.10", "web-0")])
def test_what_cannot_be_read_is_of_the_default_machine_if_of_nobody_else(
    source: str, vm: str
) -> None:
    with running(is_journaled=True, default_vm="here") as service:
        with service.connect(source) as connection:
            connection.sendall(b"nonsense\r\n\r\n")
            assert b" 400 " in read_all(connection)

        assert only(service, VmName(vm)).method == ""


def test_what_cannot_be_read_of_a_proxy_is_of_nobody() -> None:
    options = {"default_vm": "here", "trusted_proxies": ("127.0.0.10",)}
    with running(is_journaled=True, **options) as service:
        with service.connect() as connection:
            connection.sendall(b"nonsense\r\n\r\n")
            assert b" 400 " in read_all(connection)

        assert only(service, None).method == ""


def test_machines_do_not_share_a_journal(journaled: Service) -> None:
    journaled.request()
    journaled.request(source="127.0.0.11")

    assert [entry.vm for entry in journaled.journal.requests()] == ["web-0", "Web-1"]
    assert [entry.vm for entry in journaled.journal.requests_of(VM)] == ["web-0"]


def test_requests_on_one_connection_are_journaled_apart(journaled: Service) -> None:
    event_id = journaled.create()
    body = json.dumps({"StartRequests": [{"EventId": event_id}]}).encode()

    with journaled.connect() as connection:
        for method, content in (("GET", b""), ("POST", body)):
            head = {"Metadata": "true", "Content-Length": str(len(content))}
            connection.sendall(compose(method, POLL, head) + content)
            assert read_reply(connection, method).status == 200

    assert [(entry.method, entry.body) for entry in journaled.journal.requests_of(VM)] == [
        ("GET", b""),
        ("POST", body),
    ]


def test_server_without_a_journal_writes_nothing_down(service: Service) -> None:
    service.request()
    service.approve("no-such-event")

    assert service.journal.requests() == ()
