"""Polls that are answered from a recording, and requests of machines that nobody has declared."""

import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from time import monotonic
from typing import Any, Final
from uuid import uuid4

import pytest
from tests.http.metadata.conftest import (
    FLEET,
    POLL,
    TIMEOUT,
    VERSION,
    Service,
    compose,
    read_all,
    read_reply,
    running,
    wait_until,
)

from forewarn.domain.fault import FAULTS, Fault, FaultKind, FaultPart
from forewarn.domain.names import VmName, check_name
from forewarn.domain.topology import VirtualMachine
from forewarn.files.recording import RecordedAnswer
from forewarn.metadata.http import App
from forewarn.metadata.newcomers import Newcomers
from forewarn.metadata.replay import Replay
from forewarn.protocol.start_requests import encode_start_requests

FIRST = b'{ "DocumentIncarnation": 7,\n "Events": [] }'
SECOND = b"\xff not a document"
ETAG = {"Content-Type": "text/plain", "ETag": 'W/"7"'}
LATER = 3600.0
VM = VmName("web-0")
NEEDED: Final[dict[str, Any]] = {"seconds": 0.2, "status": 503}


def replaying(*answers: RecordedAnswer, speed: float = 1) -> partial[Replay]:
    return partial(Replay, answers=answers, speed=speed)


@pytest.fixture(scope="module")
def replay(_road: None) -> Iterator[Service]:
    """A service that shows the first answer of a recording for an hour."""
    answers = (
        RecordedAnswer(at=5, headers=ETAG, body=FIRST),
        RecordedAnswer(at=LATER, body=SECOND),
    )
    with running(around=replaying(*answers)) as service:
        yield service


def test_poll_gets_what_was_recorded_to_the_byte(replay: Service) -> None:
    reply = replay.request()

    assert (reply.status, reply.body) == (200, FIRST)
    assert (reply.headers["content-type"], reply.headers["etag"]) == ("text/plain", 'W/"7"')
    assert reply.headers["content-length"] == str(len(FIRST))


def test_every_machine_and_every_version_get_the_same(replay: Service) -> None:
    target = "/vm/solo/Metadata/ScheduledEvents/?api-version=2017-08-01"

    assert replay.request(target, source="127.0.0.1").body == FIRST


def test_head_has_no_body(replay: Service) -> None:
    reply = replay.request(method="HEAD")

    assert (reply.headers["content-length"], reply.body) == (str(len(FIRST)), b"")


@pytest.mark.parametrize("tag", ['"7"', 'W/"7"', "7", "*"])
def test_known_answer_is_not_sent_again(replay: Service, tag: str) -> None:
    reply = replay.request(headers={"If-None-Match": tag})

    assert (reply.status, reply.headers["etag"], reply.body) == (304, 'W/"7"', b"")
    assert "content-type" not in reply.headers


@pytest.mark.parametrize("tag", ['""', 'W/""', ""])
@pytest.mark.parametrize("headers", [{}, {"If-None-Match": ""}, {"If-None-Match": '"7"'}])
def test_empty_tag_is_known_to_nobody_who_does_not_name_it(
    tag: str, headers: dict[str, str]
) -> None:
    recorded = RecordedAnswer(at=0, headers={"ETag": tag}, body=FIRST)
    with running(around=replaying(recorded)) as service:
        reply = service.request(headers=headers)

    assert (reply.status, reply.body) == (200, FIRST)


def test_trouble_is_sent_again_even_if_its_tag_is_known() -> None:
    recorded = RecordedAnswer(at=0, status=503, headers=ETAG, body=SECOND)
    with running(around=replaying(recorded)) as service:
        reply = service.request(headers={"If-None-Match": "7"})

    assert (reply.status, reply.body) == (503, SECOND)


@pytest.mark.parametrize("status", [204, 304])
def test_answer_that_can_have_no_body_has_no_length(status: int) -> None:
    with (
        running(around=replaying(RecordedAnswer(at=0, status=status))) as service,
        service.connect() as connection,
    ):
        connection.sendall(compose("GET", POLL, {"Metadata": "true", "Connection": "close"}))
        said = read_all(connection)

    assert said.startswith(b"HTTP/1.1 %d " % status)
    assert said.endswith(b"\r\n\r\n")
    assert b"content-length" not in said.lower()


def test_another_answer_is_sent_at_once(replay: Service) -> None:
    reply = replay.request(headers={"If-None-Match": "6", "Prefer": "wait=30"})

    assert (reply.body, reply.headers["preference-applied"]) == (FIRST, "wait=30")


def test_what_the_endpoint_refuses_stays_refused(replay: Service) -> None:
    assert replay.request(metadata=None).status == 400
    assert replay.request("/metadata/scheduledevents").status == 400
    assert replay.request("/metadata/scheduledevents?api-version=2031-01-01").status == 404
    assert (
        replay.request("/vm/nobody/metadata/scheduledevents?api-version=2020-07-01").status == 404
    )
    assert replay.request(method="DELETE").status == 405
    assert replay.post(b"{}").status == 400


def test_approval_of_a_recorded_event_is_taken(replay: Service) -> None:
    reply = replay.approve(str(uuid4()))

    assert (reply.status, reply.body) == (200, b"")


def test_other_paths_are_those_of_the_endpoint(replay: Service) -> None:
    reply = replay.request(f"/metadata/instance/compute/name?api-version={VERSION}&format=text")

    assert reply.body == b"web-0"


@pytest.fixture(scope="module")
def same(_road: None) -> Iterator[tuple[Service, Service]]:
    """An endpoint, and a service that shows a recording of the very same answer."""
    with running() as service:
        reply = service.request()
        headers = {name: reply.headers[name] for name in ("content-type", "etag")}
        recorded = RecordedAnswer(at=0, headers=headers, body=reply.body)
        with running(around=replaying(recorded)) as replay:
            yield service, replay


def ask(service: Service, method: str, body: bytes) -> tuple[list[bytes], bytes]:
    """Return the lines and the body that arrive, but for what differs each time."""
    length = {"Content-Length": str(len(body))} if body else {}
    headers = {"Metadata": "true", "Connection": "close", **length}
    with service.connect() as connection:
        connection.sendall(compose(method, POLL, headers) + body)
        head, _, answer = read_all(connection).partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.startswith((b"Date:", b"x-ms-"))]
    return sorted(line.lower() for line in lines), answer


@pytest.mark.parametrize(
    ("method", "body"),
    [("GET", b""), ("HEAD", b""), ("POST", encode_start_requests([]))],
    ids=["GET", "HEAD", "POST"],
)
@pytest.mark.parametrize("kind", FaultKind)
def test_faults_come_before_the_recording(
    same: tuple[Service, Service], kind: FaultKind, method: str, body: bytes
) -> None:
    """What they do to the recording is what they do to the same document, unless they change it."""
    parameters = {name: NEEDED[name] for name in FAULTS[kind].needed}
    endpoint, replay = same
    if FAULTS[kind].part is not FaultPart.DOCUMENT:
        endpoint.faults.put(VM, Fault(kind=kind, **parameters))
    replay.faults.put(VM, Fault(kind=kind, **parameters))

    right, shown = (ask(service, method, body) for service in same)
    for service in same:
        service.faults.remove(VM)

    assert shown == right


def test_fault_is_used_up_before_the_recording_goes_on() -> None:
    with running(around=replaying(RecordedAnswer(at=0, body=FIRST))) as service:
        service.faults.put(VM, Fault(kind=FaultKind.BOM, times=1))

        assert [service.request().body for _ in range(2)] == [b"\xef\xbb\xbf" + FIRST, FIRST]


def test_fault_of_a_document_is_not_used_up_by_a_recording() -> None:
    with running(around=replaying(RecordedAnswer(at=0, body=FIRST))) as service:
        service.faults.put(VM, Fault(kind=FaultKind.VANISH, times=1))

        assert service.request().body == FIRST
        assert VM in service.faults


def test_client_that_has_gone_is_not_answered() -> None:
    with running(around=replaying(RecordedAnswer(at=0, body=FIRST))) as service:
        service.faults.put(VM, Fault(kind=FaultKind.SLOW, seconds=30, times=1))
        with service.connect() as connection:
            connection.sendall(compose("GET", POLL, {"Metadata": "true"}))
            wait_until(lambda: service.requests == 1, "the request is held up")
        wait_until(lambda: service.requests == 0, "the request has ended")

        assert service.request().body == FIRST


def test_first_poll_begins_it_and_speed_divides_its_times() -> None:
    answers = (
        RecordedAnswer(at=0, body=FIRST),
        RecordedAnswer(at=30, status=429, headers={"Retry-After": "5"}, body=SECOND),
    )
    with running(around=replaying(*answers, speed=100)) as service:
        threading.Event().wait(0.4)
        first, began = service.request(), monotonic()
        wait_until(lambda: service.request().status == 429, "the second answer comes")
        passed, second = monotonic() - began, service.request()

    assert first.body == FIRST
    assert 0.2 < passed < 15
    assert (second.body, second.headers["retry-after"]) == (SECOND, "5")


def wait_for_change(service: Service, seconds: int) -> socket.socket:
    headers = {"Metadata": "true", "If-None-Match": "7", "Prefer": f"wait={seconds}"}
    connection = service.connect()
    connection.sendall(compose("GET", POLL, headers))
    return connection


def test_poll_waits_for_the_next_answer() -> None:
    answers = (
        RecordedAnswer(at=0, headers=ETAG, body=FIRST),
        RecordedAnswer(at=0.3, headers={"ETag": "8"}, body=SECOND),
    )
    with running(around=replaying(*answers)) as service, wait_for_change(service, 30) as connection:
        reply = read_reply(connection)

    assert (reply.body, reply.headers["preference-applied"]) == (SECOND, "wait=30")


def test_poll_waits_no_longer_than_it_wants(replay: Service) -> None:
    began = monotonic()
    with wait_for_change(replay, 1) as connection:
        assert read_reply(connection).status == 304

    assert 0.9 < monotonic() - began < TIMEOUT / 2


def test_end_of_the_server_ends_the_waiting() -> None:
    answer = RecordedAnswer(at=0, headers=ETAG, body=FIRST)
    with running(around=replaying(answer)) as service, wait_for_change(service, 60) as connection:
        wait_until(lambda: service.requests == 1, "the poll waits")
        service.begin_to_stop()

        assert read_reply(connection).status == 304


def test_where_nothing_was_answered_the_connection_breaks() -> None:
    silence = RecordedAnswer(at=0, no_answer="it refuses connections")
    with running(around=replaying(silence)) as service, service.connect() as connection:
        connection.sendall(compose("GET", POLL, {"Metadata": "true"}))

        assert read_all(connection) == b""


def welcoming(added: list[str]) -> Callable[[App], Newcomers]:
    """Return what makes newcomers read what `here` reads, and notes their names."""
    here = FLEET.virtual_machines[VmName("here")]

    def add(name: str) -> VirtualMachine:
        check_name(name, "virtual machine")
        added.append(name)
        return here

    return partial(Newcomers, add=add)


NEWCOMER = "/vm/web-9"
QUERY = f"?api-version={VERSION}"


@pytest.mark.parametrize("path", ["/vm/solo/metadata/versions", POLL, f"/vm/%20{POLL}"])
def test_nobody_is_added_whose_name_is_known_or_missing_or_impossible(path: str) -> None:
    added: list[str] = []
    with running(around=welcoming(added)) as service:
        service.request(path, source="127.0.0.1")

    assert added == []


def test_impossible_name_is_answered_as_unknown() -> None:
    with running(around=welcoming([])) as service:
        assert service.request(f"/vm/%20{POLL}").status == 404


@pytest.mark.parametrize("path", [POLL, "/metadata/versions", f"/metadata/instance{QUERY}"])
def test_newcomer_is_added_before_it_is_answered(path: str) -> None:
    added: list[str] = []
    with running(around=welcoming(added)) as service:
        reply = service.request(f"{NEWCOMER}{path}", source="127.0.0.1")

    assert (reply.status, added) == (200, ["web-9"])


def test_newcomer_can_wait_for_a_change() -> None:
    added: list[str] = []
    headers = {"If-None-Match": "*", "Prefer": "wait=1"}
    with running(around=welcoming(added)) as service:
        reply = service.request(f"{NEWCOMER}{POLL}", headers=headers, source="127.0.0.1")

    assert (reply.status, added) == (304, ["web-9"])


@pytest.mark.parametrize(
    ("path", "options"),
    [
        (POLL, {"headers": {"Origin": "http://elsewhere"}}),
        (POLL, {"headers": {"X-Forwarded-For": "10.0.0.1"}}),
        (POLL, {"metadata": None}),
        (POLL, {"method": "DELETE"}),
        (POLL, {"method": "POST", "body": b"["}),
        (f"/metadata/nothing{QUERY}", {}),
        ("/metadata/scheduledevents", {}),
        ("/metadata/scheduledevents?api-version=2031-01-01", {}),
        ("/metadata/instance", {}),
    ],
)
def test_request_that_is_refused_whoever_sends_it_adds_nobody(
    path: str, options: dict[str, Any]
) -> None:
    added: list[str] = []
    with running(around=welcoming(added)) as service:
        reply = service.request(f"{NEWCOMER}{path}", source="127.0.0.1", **options)

    assert reply.status >= 400
    assert added == []
