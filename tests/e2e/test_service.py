"""The service as its users live it: real processes, the command line, and HTTP."""

import contextlib
import json
import socket
import sqlite3
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http.client import HTTPResponse

import pytest
from tests.e2e.conftest import (
    ANSWER_SECONDS,
    Answer,
    Server,
    ServerMaker,
    scheduled_events,
    wait_until,
)

pytestmark = pytest.mark.timeout(300)

VIRTUAL = ("--clock", "virtual", "--executor", "simulated")


def test_restart_is_announced_approved_carried_out_and_gone(start_server: ServerMaker) -> None:
    server = start_server(*VIRTUAL)

    event = server.command("vm", "restart", "web-0")
    announced = server.poll("web-0")
    approved = server.approve("web-1", event["event_id"].lower())
    started = server.poll("web-0")
    server.command("clock", "advance", "9m59s")
    running = server.poll("web-0")
    server.command("clock", "advance", "1s")
    gone = server.poll("web-0")

    not_before = datetime.fromisoformat(event["not_before"])
    assert announced.body.decode() == _compact(
        {
            "DocumentIncarnation": 1,
            "Events": [
                {
                    "EventId": event["event_id"],
                    "EventStatus": "Scheduled",
                    "EventType": "Reboot",
                    "ResourceType": "VirtualMachine",
                    "Resources": ["web-0"],
                    "NotBefore": f"{not_before:%a, %d %b %Y %H:%M:%S} GMT",
                    "Description": "Virtual machine is going to be restarted "
                    "as requested by authorized user.",
                    "EventSource": "User",
                    "DurationInSeconds": -1,
                }
            ],
        }
    )
    assert (approved.status, approved.body) == (200, b"")
    assert [(e["EventStatus"], e["NotBefore"]) for e in started.events] == [("Started", "")]
    assert running.body == started.body
    assert (gone.incarnation, gone.events) == (3, [])
    (ended,) = server.command("event", "history", "--vm", "web-0")["events"]
    assert (ended["event_status"], ended["outcome"]) == ("Completed", "succeeded")


def _compact(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))


def test_event_that_nobody_approves_starts_at_its_not_before(start_server: ServerMaker) -> None:
    server = start_server(*VIRTUAL)
    (event,) = server.create("Freeze", "web-0")

    _advance(server, "14m59s")
    before = server.event(event["event_id"])["event_status"]
    _advance(server, "1s")
    at_not_before = server.event(event["event_id"])["event_status"]
    _advance(server, "5m")

    assert (before, at_not_before) == ("Scheduled", "Started")
    assert [entry["what"] for entry in server.event(event["event_id"])["ledger"]] == [
        "scheduled",
        "started",
        "completed",
    ]


def _advance(server: Server, duration: str) -> datetime:
    answer = server.operate("POST", "clock/advance", {"duration": duration})
    assert answer.status == 200, answer
    return datetime.fromisoformat(answer.json()["now"])


def test_virtual_time_goes_on_after_a_restart(start_server: ServerMaker) -> None:
    server = start_server(*VIRTUAL)
    (event,) = server.create("Reboot", "web-0")
    then = _advance(server, "10m")
    document = server.poll("web-0")

    server.restart()

    now = server.operate("GET", "clock").json()["now"]
    assert datetime.fromisoformat(now) == then
    assert server.poll("web-0").body == document.body
    _advance(server, "5m")
    assert server.event(event["event_id"])["event_status"] == "Started"


def test_database_made_under_one_clock_is_refused_under_the_other(
    start_server: ServerMaker,
) -> None:
    server = start_server()
    assert server.stop() == 0
    server.flags = VIRTUAL

    refused = server.run_to_the_end()

    assert refused.returncode != 0
    assert "uses the real clock" in refused.stderr


def test_manual_executor_leaves_an_event_started_until_it_is_completed(
    start_server: ServerMaker,
) -> None:
    server = start_server()
    (event,) = server.create("Redeploy", "solo-0")
    assert server.approve("solo-0", event["event_id"]).status == 200
    server.wait_for(event["event_id"], "Started")

    time.sleep(1)
    still = server.poll("solo-0")
    completed = server.command("event", "complete", event["event_id"], "--reason", "done by hand")

    assert [e["EventStatus"] for e in still.events] == ["Started"]
    assert (completed["event_status"], completed["reason"]) == ("Completed", "done by hand")
    assert server.poll("solo-0").events == []


def test_eleventh_user_operation_is_refused(start_server: ServerMaker) -> None:
    server = start_server()
    vms = [{"name": f"batch-{number}"} for number in range(11)]
    assert server.operate("POST", "fleet", {"fleet": {"virtual_machine": vms}}).status == 200
    restarts = [server.operate("POST", f"virtual-machines/{vm['name']}/restart") for vm in vms[:10]]

    eleventh = server.operate("POST", "virtual-machines/batch-10/restart")
    again = server.operate("POST", "virtual-machines/batch-0/redeploy")
    command = server.try_command("vm", "restart", "batch-10")

    assert [answer.status for answer in restarts] == [201] * 10
    in_flight = [answer.json()["event_id"] for answer in restarts]
    assert eleventh.status == again.status == 409
    assert all(event_id in eleventh.json()["detail"] for event_id in in_flight)
    assert in_flight[0] in again.json()["detail"]
    assert command.returncode == 4, command.stderr
    assert server.poll("batch-10").events == []


@contextmanager
def _parked_poll(server: Server, vm: str, seconds: int) -> Generator[Callable[[], Answer]]:
    """A long poll for the document after the one that *vm* has now."""
    etag = server.poll(vm).headers["etag"]
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(lambda: server.poll(vm, If_None_Match=etag, Prefer=f"wait={seconds}"))
        wait_until(lambda: _parked(server) == 1, "no poll is parked", ANSWER_SECONDS)
        assert not future.done(), future.result()
        yield lambda: future.result(ANSWER_SECONDS)


def _parked(server: Server) -> int:
    with contextlib.closing(server.operator_client()) as client:
        lines = client.ask("GET", "/metrics").body.decode().splitlines()
    (parked,) = (line for line in lines if line.startswith("forewarn_parked_polls "))
    return int(float(parked.split()[1]))


def test_long_poll_is_answered_by_a_change(start_server: ServerMaker) -> None:
    server = start_server()

    with _parked_poll(server, "web-0", seconds=60) as answer:
        (event,) = server.create("Reboot", "web-1")
        answered = answer()

    assert [shown["EventId"] for shown in answered.events] == [event["event_id"]]
    assert answered.headers["preference-applied"] == "wait=60"


def test_stop_answers_parked_polls_and_finishes_writes(start_server: ServerMaker) -> None:
    server = start_server()
    order = json.dumps({"event_type": "Reboot", "resources": ["web-0"]}).encode()

    with _parked_poll(server, "web-0", seconds=60) as answer, _half_sent(server, order) as finish:
        server.terminate()
        parked = answer()
        written = finish()
    status = server.wait()

    assert (parked.status, written.status, status) == (304, 201, 0)
    event_id = written.json()["events"][0]["event_id"]
    with contextlib.closing(sqlite3.connect(server.database)) as database:
        assert database.execute("SELECT event_id FROM events").fetchall() == [(event_id,)]
    assert "Traceback" not in server.said()


def test_client_that_stalls_does_not_hold_up_the_stop(start_server: ServerMaker) -> None:
    server = start_server()

    with _half_sent(server, b"{}"):
        status = server.stop()

    assert status == 0


@contextmanager
def _half_sent(server: Server, body: bytes) -> Generator[Callable[[], Answer]]:
    """A request to create an event, of which all but the last byte is sent."""
    token = server.token()
    head = (
        "POST /api/v1/events HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
    )
    address = ("127.0.0.1", server.control_port)
    with socket.create_connection(address, ANSWER_SECONDS) as connection:
        connection.sendall(head.encode())
        said = b""
        while not said.endswith(b"\r\n\r\n"):  # until the server has begun to read the body
            more = connection.recv(1024)
            assert more, said
            said += more
        assert said.startswith(b"HTTP/1.1 100 "), said
        connection.sendall(body[:-1])

        def finish() -> Answer:
            connection.sendall(body[-1:])
            answer = HTTPResponse(connection)
            answer.begin()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())

        yield finish


def test_user_operation_is_announced_only_where_somebody_polls(start_server: ServerMaker) -> None:
    server = start_server(*VIRTUAL, "--notice", "when-enabled")
    with contextlib.closing(server.vm_client()) as client:
        assert client.ask("HEAD", scheduled_events("solo-0")).status == 200
    time.sleep(1.2)  # a GET would have been committed by now, and a HEAD does not count

    unseen = server.operate("POST", "virtual-machines/solo-0/restart").json()
    at_once = server.poll("solo-0")
    _advance(server, "10m")
    wait_until(lambda: _is_enabled(server, "solo-0"), "the poll is not committed", ANSWER_SECONDS)
    announced = server.operate("POST", "virtual-machines/solo-0/restart").json()

    assert (unseen["event_status"], unseen["is_published"]) == ("Started", False)
    assert (at_once.incarnation, at_once.events) == (0, [])
    assert server.event(unseen["event_id"])["event_status"] == "Completed"
    assert (announced["event_status"], announced["is_published"]) == ("Scheduled", True)
    assert [e["EventId"] for e in server.poll("solo-0").events] == [announced["event_id"]]


def _is_enabled(server: Server, vm: str) -> bool:
    with contextlib.closing(sqlite3.connect(server.database)) as database:
        scopes = database.execute("SELECT scope_id FROM polls").fetchall()
    return (f"virtual-machine/{vm}",) in scopes


def test_speed_divides_notice_and_impact_but_not_the_clock(start_server: ServerMaker) -> None:
    server = start_server("--executor", "simulated", "--speed", "60")
    before = datetime.now(UTC)  # noqa: TID251 - what the server shows is compared with real time

    (reboot,) = server.create("Reboot", "web-0")
    after = datetime.now(UTC)  # noqa: TID251 - the same
    (preempt,) = server.create("Preempt", "solo-0")
    server.wait_for(preempt["event_id"], "Completed")

    (shown,) = server.poll("web-0").events
    not_before = parsedate_to_datetime(shown["NotBefore"])
    assert before + timedelta(seconds=15) <= not_before < after + timedelta(seconds=16)
    assert reboot["event_status"] == "Scheduled"
    life = server.event(preempt["event_id"])
    took = datetime.fromisoformat(life["ended_at"]) - datetime.fromisoformat(life["started_at"])
    assert timedelta(seconds=0.5) <= took < timedelta(seconds=15)


def test_event_over_several_update_domains_is_split(start_server: ServerMaker) -> None:
    server = start_server()

    events = server.command(
        *("event", "create", "--type", "Reboot", "--not-before", "20m"),
        *("--resource", "web-0", "--resource", "web-1", "--resource", "solo-0"),
    )["events"]

    places = [(e["scope_id"], e["update_domain"], e["resources"]) for e in events]
    assert places == [
        ("availability-set/web", 0, ["web-0"]),
        ("availability-set/web", 1, ["web-1"]),
        ("virtual-machine/solo-0", 0, ["solo-0"]),
    ]
    ids = [event["event_id"] for event in events]
    assert {e["EventId"] for e in server.poll("web-2").events} == set(ids[:2])
    assert [e["EventId"] for e in server.poll("solo-0").events] == ids[2:]
    assert server.poll("web-2").incarnation == 1


def test_vm_that_is_moved_to_another_scope_reads_a_higher_incarnation(
    start_server: ServerMaker,
) -> None:
    server = start_server()
    (event,) = server.create("Reboot", "solo-0")
    assert server.operate("POST", f"events/{event['event_id']}/cancel").status == 200
    alone = server.poll("solo-0")
    moved = {"name": "solo-0", "availability_set": "web"}

    applied = server.operate("POST", "fleet", {"fleet": {"virtual_machine": [moved]}})

    assert applied.status == 200, applied
    together = server.poll("solo-0")
    assert alone.incarnation == 2
    assert together.incarnation > alone.incarnation
    assert server.poll("web-0").body == together.body


def test_server_starts_without_a_new_machine_that_its_file_has_on_a_closed_host(
    start_server: ServerMaker,
) -> None:
    server = start_server()
    spare = '[[host]]\nname = "kvm-1"\n'
    late = '[[virtual_machine]]\nname = "late"\nhost = "kvm-1"\n'
    server.fleet.write_text(server.fleet.read_text() + spare)
    server.restart()
    server.command("host", "close", "kvm-1", "--reason", "new kernel")
    server.fleet.write_text(server.fleet.read_text() + late)

    server.restart()

    shown = server.command("host", "show", "kvm-1")
    assert shown["virtual_machines"] == []
    assert "fleet_file_skipped" in server.said()
    assert (shown["closed_by"], shown["closed_reason"]) == ("admin", "new kernel")
