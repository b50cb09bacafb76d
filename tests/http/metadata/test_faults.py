"""Every kind of misbehaviour as a client sees it, and nobody else."""

import json
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.http.metadata.conftest import (
    POLL,
    TIMEOUT,
    Replies,
    Reply,
    Service,
    compose,
    read_reply,
    running,
    wait_until,
)

from forewarn.domain.fault import Fault, FaultKind
from forewarn.domain.names import ScopeId, VmName
from forewarn.protocol.vocabulary import EventType

VM = VmName("web-0")
NEIGHBOUR = "127.0.0.11"


def set_fault(service: Service, kind: FaultKind, **parameters: Any) -> None:
    service.faults.put(VM, Fault(kind=kind, **parameters))


def is_reset(service: Service, method: str = "GET", body: bytes = b"") -> bool:
    """Send a request and tell whether TCP reset the connection, instead of an answer or an end."""
    headers = {"Metadata": "true", "Content-Length": str(len(body))}
    with service.connect() as connection:
        connection.sendall(compose(method, POLL, headers) + body)
        try:
            connection.recv(1)
        except ConnectionResetError:
            return True
    return False


def without_request_id(reply: Reply) -> tuple[int, dict[str, str], bytes]:
    headers = {
        name: value
        for name, value in reply.headers.items()
        if name not in {"x-ms-request-id", "date"}
    }
    return reply.status, headers, reply.body


def test_slow_first_call_is_slow_once(service: Service) -> None:
    set_fault(service, FaultKind.SLOW, seconds=0.4, times=1)

    began = monotonic()
    assert service.request().status == 200

    assert monotonic() - began >= 0.4
    assert VM not in service.faults


def test_slow_answers_do_not_hold_up_each_other_or_the_neighbour() -> None:
    with running() as service, ThreadPoolExecutor(4) as threads:
        set_fault(service, FaultKind.SLOW, seconds=TIMEOUT)
        slow = [threads.submit(service.request) for _ in range(4)]
        wait_until(lambda: service.requests == 4, "all are slow at the same time")
        neighbour = service.request(source=NEIGHBOUR)
        is_slow = service.requests == 4
        service.begin_to_stop()
        replies = [poll.result() for poll in slow]

    assert neighbour.status == 200
    assert is_slow, "the neighbour was answered meanwhile"
    assert {reply.status for reply in replies} == {200}


def test_slow_post_is_still_an_approval(service: Service) -> None:
    identifier = service.create()
    set_fault(service, FaultKind.SLOW, seconds=0.2)

    assert service.approve(identifier).status == 200
    assert service.approvers(identifier) == ("web-0",)


def test_stop_does_not_wait_for_the_slow() -> None:
    with running() as service:
        set_fault(service, FaultKind.SLOW, seconds=TIMEOUT, times=1)
        with service.connect() as connection:
            connection.sendall(compose("GET", POLL, {"Metadata": "true"}))
            wait_until(lambda: VM not in service.faults, "the poll has begun to be slow")
            began = monotonic()
            service.begin_to_stop()
            assert read_reply(connection).status == 200

    assert monotonic() - began < TIMEOUT / 2


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_empty_body_is_200_of_length_0(service: Service, method: str) -> None:
    service.create()
    set_fault(service, FaultKind.EMPTY_BODY, times=1)

    reply = service.request(method=method, headers={"If-None-Match": "1"})

    assert (reply.status, reply.body, reply.headers["content-length"]) == (200, b"", "0")
    assert "etag" not in reply.headers
    assert service.request().json["DocumentIncarnation"] == 1


def test_empty_body_is_only_of_polls(service: Service) -> None:
    identifier = service.create()
    set_fault(service, FaultKind.EMPTY_BODY, times=1)

    instance = service.request("/metadata/instance?api-version=2021-02-01")
    refused = service.request(metadata=None)
    approved = service.approve(identifier)

    assert instance.json["compute"]["name"] == "web-0"
    assert (refused.status, approved.status) == (400, 200)
    assert service.approvers(identifier) == ("web-0",)
    assert service.request().body == b""


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (404, "Not found"),
        (410, "Gone"),
        (429, "Too many requests"),
        (500, "Internal server error"),
        (503, "Service unavailable"),
    ],
)
def test_status_is_an_error_in_azures_form(service: Service, status: int, sentence: str) -> None:
    set_fault(service, FaultKind.STATUS, status=status)

    reply = service.request()

    assert (reply.status, reply.body) == (status, f'{{ "error": "{sentence}" }}'.encode())
    assert reply.headers["content-type"] == "application/json; charset=utf-8"
    assert reply.headers["server"].startswith("IMDS/")
    assert "retry-after" not in reply.headers


def test_status_can_say_when_to_come_back(service: Service) -> None:
    set_fault(service, FaultKind.STATUS, status=429, retry_after=7)

    assert service.request().headers["retry-after"] == "7"


@pytest.mark.parametrize(
    "target",
    [
        "/metadata/instance?api-version=2021-02-01",
        "/metadata/versions",
        "/metadata/forewarn/v1/whoami",
        "/vm/web-0/metadata/scheduledevents",
        "/Metadata/ScheduledEvents/",
        "/metadata",
    ],
)
def test_status_is_of_all_metadata(service: Service, target: str) -> None:
    set_fault(service, FaultKind.STATUS, status=410)

    assert service.request(target).status == 410


def test_status_is_of_nothing_but_metadata(service: Service) -> None:
    set_fault(service, FaultKind.STATUS, status=410)

    assert service.request("/", metadata=None).status == 400
    assert service.request("/metadatas").status == 404


def test_refused_post_changes_nothing_and_leaves_the_connection_usable(service: Service) -> None:
    identifier = service.create()
    set_fault(service, FaultKind.STATUS, status=503, times=1)
    body = json.dumps({"StartRequests": [{"EventId": identifier}]}).encode()
    headers = {"Metadata": "true", "Content-Length": str(len(body))}

    with service.connect() as connection:
        replies = Replies(connection)
        connection.sendall(compose("POST", POLL, headers) + body)
        refused, approvers = replies.next("POST"), service.approvers(identifier)
        connection.sendall(compose("POST", POLL, headers) + body)
        taken = replies.next("POST")

    assert (refused.status, approvers) == (503, ())
    assert (taken.status, service.approvers(identifier)) == (200, ("web-0",))


def test_head_is_refused_without_a_body(service: Service) -> None:
    set_fault(service, FaultKind.STATUS, status=404)

    reply = service.request(method="HEAD")

    assert (reply.status, reply.body) == (404, b"")
    assert int(reply.headers["content-length"]) > 0


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_reset_is_seen_as_a_reset(
    service: Service, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    identifier = service.create()
    set_fault(service, FaultKind.RESET, times=1)
    body = json.dumps({"StartRequests": [{"EventId": identifier}]}).encode()

    assert is_reset(service, method, body if method == "POST" else b"")
    assert service.approvers(identifier) == ()
    assert service.request(method=method, body=body if method == "POST" else b"").status == 200
    wait_until(lambda: service.connections == 0, "the server has let go of the connections")
    assert not caplog.records


def test_reset_in_the_middle_of_a_connection_ends_it(service: Service) -> None:
    with service.connect() as connection:
        connection.sendall(compose("GET", POLL, {"Metadata": "true"}))
        before = Replies(connection).next()
        set_fault(service, FaultKind.RESET)
        connection.sendall(compose("GET", POLL, {"Metadata": "true"}))

        with pytest.raises(ConnectionResetError):
            connection.recv(1)

    assert before.status == 200


def test_who_has_left_while_it_was_slow_uses_up_no_other_fault(service: Service) -> None:
    set_fault(service, FaultKind.SLOW, seconds=TIMEOUT, times=1)
    set_fault(service, FaultKind.RESET, times=1)

    with capture_logs() as logs:
        with service.connect() as connection:
            connection.sendall(compose("GET", POLL, {"Metadata": "true"}))
            wait_until(lambda: len(service.faults.all()[VM]) == 1, "the poll is being slow")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_until(lambda: service.requests == 0, "the server has let go of the poll")
        is_left = is_reset(service)

    assert is_left
    assert logs == []


def test_reset_over_a_unix_socket_closes_without_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sock"
    with running(unix_path=path, default_vm="web-0") as service:
        set_fault(service, FaultKind.RESET)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(compose("GET", POLL, {"Metadata": "true"}))
            connection.settimeout(TIMEOUT)

            assert connection.recv(1) == b""


def test_incarnation_is_counted_anew_for_one_and_for_nobody_else(service: Service) -> None:
    service.create()
    service.create(resources=("Web-1",))
    before = without_request_id(service.request(source=NEIGHBOUR))

    set_fault(service, FaultKind.INCARNATION_RESET)

    shown, neighbour = service.request(), without_request_id(service.request(source=NEIGHBOUR))
    assert (shown.json["DocumentIncarnation"], shown.headers["etag"]) == (0, "0")
    assert neighbour == before
    assert shown.json["Events"] == json.loads(before[2])["Events"]
    assert shown.body.replace(b":0,", b":2,", 1) == before[2]


def test_incarnation_counted_anew_goes_on_and_is_what_conditions_are_about(
    service: Service,
) -> None:
    service.create()
    set_fault(service, FaultKind.INCARNATION_RESET)
    identifier = service.create()

    grown = service.request(headers={"If-None-Match": "0"})
    known = service.request(headers={"If-None-Match": "1"})
    approved = service.approve(identifier)
    service.faults.remove(VM)

    assert (grown.status, grown.json["DocumentIncarnation"]) == (200, 1)
    assert (known.status, known.body, known.headers["etag"]) == (304, b"", "1")
    assert approved.status == 200
    assert service.request().json["DocumentIncarnation"] == 2


def test_unknown_type_is_shown_in_place_of_every_type(service: Service) -> None:
    service.create()
    service.create(EventType.FREEZE)
    right = service.request()
    set_fault(service, FaultKind.UNKNOWN_TYPE)

    shown = service.request(headers={"If-None-Match": "2"})

    assert [event["EventType"] for event in shown.json["Events"]] == ["Hibernate", "Hibernate"]
    expected = right.body.replace(b"Reboot", b"Hibernate").replace(b"Freeze", b"Hibernate")
    assert shown.body == expected
    assert "etag" not in shown.headers
    assert service.request(source=NEIGHBOUR).body == right.body


def test_unknown_type_can_be_any_word_but_shows_no_events_that_are_too_new(
    service: Service,
) -> None:
    service.create(EventType.TERMINATE)
    set_fault(service, FaultKind.UNKNOWN_TYPE, event_type="Nap", times=2)

    new = service.request()
    old = service.request("/metadata/scheduledevents?api-version=2017-08-01")

    assert [event["EventType"] for event in new.json["Events"]] == ["Nap"]
    assert old.json["Events"] == []
    assert service.request().json["Events"][0]["EventType"] == "Terminate"


def test_publish_delay_shows_the_last_document_meanwhile(service: Service) -> None:
    service.create()
    set_fault(service, FaultKind.PUBLISH_DELAY, seconds=300)
    service.create()

    def incarnations() -> tuple[int, int]:
        return (
            service.request().json["DocumentIncarnation"],
            service.request(source=NEIGHBOUR).json["DocumentIncarnation"],
        )

    at_once = incarnations()
    service.clock.move_to(service.clock.now() + timedelta(seconds=299))
    shortly_before = incarnations()
    service.clock.move_to(service.clock.now() + timedelta(seconds=1))

    assert (at_once, shortly_before, incarnations()) == ((1, 2), (1, 2), (2, 2))


def test_held_back_event_can_be_approved_by_who_knows_of_it(service: Service) -> None:
    set_fault(service, FaultKind.PUBLISH_DELAY, seconds=300)
    identifier = service.create()

    assert service.request().json["Events"] == []
    assert service.approve(identifier).status == 200


def test_publish_delay_follows_into_another_scope(service: Service) -> None:
    service.create(resources=("batch_0",))
    set_fault(service, FaultKind.PUBLISH_DELAY, seconds=300)

    service.move("web-0", ScopeId("scale-set/batch/pg-1"))

    assert service.request().json["Events"] == []
    service.clock.move_to(service.clock.now() + timedelta(seconds=300))
    assert service.request().json["Events"][0]["Resources"] == ["batch_0"]


def test_faults_have_their_turns(service: Service) -> None:
    service.create()
    for kind, parameters in (
        (FaultKind.UNKNOWN_TYPE, {}),
        (FaultKind.EMPTY_BODY, {}),
        (FaultKind.STATUS, {"status": 500}),
        (FaultKind.RESET, {}),
    ):
        set_fault(service, kind, times=1, **parameters)

    assert is_reset(service)
    replies = [service.request() for _ in range(4)]

    assert [reply.status for reply in replies] == [500, 200, 200, 200]
    assert [b"Hibernate" in reply.body for reply in replies] == [False, False, True, False]
    assert replies[1].body == b""
    assert VM not in service.faults


def test_parallel_polls_use_up_what_there_is_and_no_more(service: Service) -> None:
    set_fault(service, FaultKind.STATUS, status=429, times=25)

    with ThreadPoolExecutor(8) as threads:
        statuses = list(threads.map(lambda _: service.request().status, range(100)))

    assert (statuses.count(429), statuses.count(200)) == (25, 75)
    assert service.faults.all() == {}


def test_polls_under_a_fault_count_as_polls(service: Service) -> None:
    set_fault(service, FaultKind.EMPTY_BODY)

    service.request()
    service.request(method="HEAD")

    assert service.polls == ["web-0"]


@pytest.mark.parametrize(
    "kind", [FaultKind.INCARNATION_RESET, FaultKind.UNKNOWN_TYPE, FaultKind.EMPTY_BODY]
)
def test_poll_under_a_fault_is_never_parked(service: Service, kind: FaultKind) -> None:
    set_fault(service, kind)

    reply = service.request(headers={"If-None-Match": "0", "Prefer": "wait=300"})

    assert reply.status in {200, 304}
    assert "preference-applied" not in reply.headers


def test_parked_poll_is_let_go_when_a_fault_is_set(service: Service) -> None:
    headers = {"Metadata": "true", "If-None-Match": "0", "Prefer": "wait=300"}
    with service.connect() as connection, service.connect(NEIGHBOUR) as neighbour:
        for one in (connection, neighbour):
            one.sendall(compose("GET", POLL, headers))
        wait_until(lambda: service.parked == 2, "both polls are parked")
        threading.Thread(target=set_fault, args=(service, FaultKind.RESET)).start()
        reply = read_reply(connection)
        wait_until(lambda: service.parked == 1, "the neighbour is parked again")

    assert reply.status == 304


def test_parked_poll_sees_no_more_than_the_fault_lets_it(service: Service) -> None:
    with service.connect() as connection:
        headers = {"Metadata": "true", "If-None-Match": "0", "Prefer": "wait=300"}
        connection.sendall(compose("GET", POLL, headers))
        wait_until(lambda: service.parked == 1, "the poll is parked")
        with service.loop_held():
            set_fault(service, FaultKind.PUBLISH_DELAY, seconds=300)
            service.create()
        reply = read_reply(connection)

    assert (reply.status, reply.headers["etag"]) == (304, "0")


def test_strangers_have_no_faults(service: Service) -> None:
    set_fault(service, FaultKind.STATUS, status=500)

    assert service.request(source="127.0.0.99").status == 404
