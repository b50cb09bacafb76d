"""`serve --fronts`: processes that answer virtual machines, killed, stopped and left behind."""

import contextlib
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from tests.e2e.conftest import (
    ANSWER_SECONDS,
    FLEET,
    STOP_SECONDS,
    Server,
    ServerMaker,
    VmClient,
    scheduled_events,
    wait_until,
)
from tests.ports import free_port

pytestmark = pytest.mark.timeout(300)

FRONTS: Final = 2
ROUNDS: Final = 6
POLLERS: Final = 8
POLLS_OF_A_CONNECTION: Final = 20
HUNG_SECONDS: Final = 30.0
VM: Final = "web-0"
POLL: Final = f"GET {scheduled_events(VM)} HTTP/1.1\r\nHost: x\r\nMetadata: true\r\n\r\n".encode(
    "ascii"
)


def started(server: Server) -> list[int]:
    """Return the processes of all fronts that have ever answered, in that order."""
    return [int(pid) for pid in re.findall(r"front_started.* pid=(\d+)", server.said())]


def await_fronts(server: Server, number: int) -> list[int]:
    """Return the processes once so many fronts have answered, counting those that have died."""
    wait_until(lambda: len(started(server)) >= number, f"no {number} fronts", ANSWER_SECONDS)
    return started(server)


@pytest.fixture
def fronted(make_server: ServerMaker) -> Generator[Server]:
    """A server whose fronts answer."""
    server = make_server("--fronts", str(FRONTS))
    postponable = FLEET.replace('name = "web"\n', 'name = "web"\npostpone_until = "2h"\n', 1)
    server.fleet.write_text(postponable, encoding="utf-8")
    server.start()
    await_fronts(server, FRONTS)
    yield server
    for pid in started(server):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def is_there(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return False


def owners(port: int) -> dict[int, int]:
    """Return which process answers each connection to *port*, by the port of the client."""
    inodes = {}
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        here, there = (int(each.rpartition(":")[2], 16) for each in fields[1:3])
        if here == port and there:
            inodes[f"socket:[{fields[9]}]"] = there
    return {
        inodes[name]: int(file.parent.parent.name)
        for file in Path("/proc").glob("[0-9]*/fd/*")
        if (name := _target(file)) in inodes
    }


def _target(file: Path) -> str:
    try:
        return str(file.readlink())
    except OSError:
        return ""


@contextlib.contextmanager
def clients_of_each(server: Server) -> Iterator[list[VmClient]]:
    """Give one client of each front; their connections are kept."""
    with contextlib.ExitStack() as stack:
        clients: dict[int, VmClient] = {}
        deadline = time.monotonic() + ANSWER_SECONDS
        while len(clients) < FRONTS:
            assert time.monotonic() < deadline, f"connections reach only {list(clients)}"
            client = stack.enter_context(closing(server.vm_client()))
            client.poll(VM)
            clients.setdefault(owners(server.metadata_port)[client.local_port], client)
        assert set(clients) <= set(started(server))
        yield list(clients.values())


def test_fronts_answer_while_the_server_does_nothing(fronted: Server) -> None:
    assert fronted.process is not None
    fronted.create("Reboot", VM)

    with clients_of_each(fronted) as clients:
        os.kill(fronted.process.pid, signal.SIGSTOP)
        try:
            answers = [client.poll(VM) for client in clients for _ in range(5)]
        finally:
            os.kill(fronted.process.pid, signal.SIGCONT)

    assert [len(answer.events) for answer in answers] == [1] * 5 * FRONTS


class Poller(threading.Thread):
    """Polls, on a new connection after so many polls, and minds every byte."""

    def __init__(self, port: int, body: bytes, polls: int, ended: threading.Event) -> None:
        super().__init__()
        self._port = port
        self._body = body
        self._polls = polls
        self._ended = ended
        self.answered = 0
        self.lost = 0
        self.wrong: list[str] = []

    def run(self) -> None:
        while not self._ended.is_set() and not self.wrong:
            try:
                connection = socket.create_connection(("127.0.0.1", self._port), ANSWER_SECONDS)
            except OSError as error:
                self.wrong.append(f"not connected: {error!r}")
                return
            with connection:
                for _ in range(self._polls):
                    if not self._poll(connection):
                        break

    def _poll(self, connection: socket.socket) -> bool:
        """Poll once; tell whether the connection is still there."""
        answer = b""
        try:
            connection.sendall(POLL)
            while not (answer.endswith(self._body) and answer.count(b"\r\n\r\n") == 1):
                part = connection.recv(65_536)
                if not part or len(answer) > 4096:
                    break
                answer += part
        except TimeoutError:
            self.wrong.append(f"no answer, after {answer!r}")
        except ConnectionError:  # of a front that was killed
            pass
        head, _, body = answer.partition(b"\r\n\r\n")
        is_whole = body == self._body and head.startswith(b"HTTP/1.1 200 OK\r\n")
        if answer and not is_whole:
            self.wrong.append(f"{answer!r}")
        self.answered += is_whole
        self.lost += not is_whole
        return is_whole


def test_nobody_is_refused_while_fronts_are_killed(fronted: Server) -> None:
    fronted.create("Reboot", VM)
    body = fronted.poll(VM).body
    ended = threading.Event()
    pollers = [
        Poller(fronted.metadata_port, body, number % 2 * POLLS_OF_A_CONNECTION + 1, ended)
        for number in range(POLLERS)
    ]

    for poller in pollers:
        poller.start()
    try:
        for number in range(ROUNDS):
            victim = started(fronted)[-FRONTS]
            os.kill(victim, signal.SIGKILL)
            await_fronts(fronted, FRONTS + number + 1)
    finally:
        ended.set()
        for poller in pollers:
            poller.join()

    assert [poller.wrong for poller in pollers] == [[]] * POLLERS
    assert sum(poller.answered for poller in pollers) > 100 * ROUNDS
    # A client loses what it had on the connections of the front, and nothing else.
    assert sum(poller.lost for poller in pollers) <= POLLERS * ROUNDS
    assert fronted.said().count("front_died") == ROUNDS


def test_change_is_shown_by_every_front_at_once(fronted: Server) -> None:
    with clients_of_each(fronted) as clients:
        for number in range(10):
            (event,) = fronted.create("Reboot", VM)
            shown = [[each["EventId"] for each in client.poll(VM).events] for client in clients]
            fronted.cancel(event["event_id"])
            empty = [client.poll(VM).events for client in clients]

            assert shown == [[event["event_id"]]] * FRONTS, number
            assert empty == [[]] * FRONTS, number


def date_in(minutes: int) -> str:
    return (datetime.now(UTC) + timedelta(minutes=minutes)).isoformat()  # noqa: TID251 - real time


def test_what_a_machine_does_through_one_front_it_reads_through_the_other(fronted: Server) -> None:
    path = f"/vm/{VM}/metadata/forewarn/v1/events/"
    with clients_of_each(fronted) as (one, other):
        (event,) = fronted.create("Reboot", VM, not_before="30m")
        dates = [other.poll(VM).events[0]["NotBefore"]]
        for minutes in (40, 50, 60):
            order = {"not_before": date_in(minutes)}
            done = one.ask("POST", f"{path}{event['event_id']}/postpone", order)
            assert done.status == 200, done
            dates.append(other.poll(VM).events[0]["NotBefore"])
        assert one.approve(VM, event["event_id"]).status == 200
        described = other.ask("GET", f"{path}{event['event_id']}").json()

    assert len(set(dates)) == len(dates)
    assert "approved" in str(described)


def test_applied_fleet_reaches_every_front(fronted: Server, tmp_path: Path) -> None:
    fleet = tmp_path / "large.toml"
    names = [f"vm-{number}" for number in range(3_000)]
    machines = "".join(f'[[virtual_machine]]\nname = "{name}"\n' for name in names)
    fleet.write_text(fronted.fleet.read_text(encoding="utf-8") + machines, encoding="utf-8")

    fronted.command("fleet", "apply", str(fleet))

    with clients_of_each(fronted) as clients:
        statuses = {
            client.poll(name).status for client in clients for name in (*names[:5], *names[-5:])
        }
    assert statuses == {200}


def test_polls_through_fronts_are_counted(fronted: Server) -> None:
    for _ in range(20):
        fronted.poll(VM)

    def counted() -> int:
        with closing(fronted.operator_client()) as client:
            text = client.ask("GET", "/metrics").body.decode()
        found = re.search(r'forewarn_polls_total\{[^}]*"2020-07-01"[^}]*\} (\d+)', text)
        return int(found[1]) if found else 0

    wait_until(lambda: counted() == 20, "not all polls are counted", ANSWER_SECONDS)
    wait_until(
        lambda: fronted.operate("GET", f"virtual-machines/{VM}").json()["last_polled_at"],
        "the poll is not recorded",
        ANSWER_SECONDS,
    )


def test_hung_front_is_helped_out_and_replaced(fronted: Server) -> None:
    victim = started(fronted)[0]
    os.kill(victim, signal.SIGSTOP)
    began = time.monotonic()

    answers = [fronted.poll(VM).status for _ in range(20)]

    assert answers == [200] * 20
    assert time.monotonic() - began < ANSWER_SECONDS
    wait_until(lambda: not is_there(victim), "the front lives on", HUNG_SECONDS)
    wait_until(lambda: len(started(fronted)) > FRONTS, "it is not replaced", ANSWER_SECONDS)
    assert "it made no progress for 10 seconds" in fronted.said()


def test_fronts_end_with_a_server_that_is_stopped(fronted: Server) -> None:
    pids = started(fronted)
    parked: list[int] = []
    etag = fronted.poll(VM).headers["etag"]

    def park() -> None:
        answer = fronted.poll(VM, If_None_Match=etag, Prefer="wait=60")
        parked.append(answer.status)

    waiting = [threading.Thread(target=park) for _ in range(4)]
    for thread in waiting:
        thread.start()
    time.sleep(1)
    status = fronted.stop()
    for thread in waiting:
        thread.join(ANSWER_SECONDS)

    assert status == 0, fronted.said()
    assert parked == [304] * 4
    assert not any(map(is_there, pids))


def test_fronts_end_with_a_server_that_is_killed(fronted: Server) -> None:
    pids = started(fronted)

    fronted.kill()

    wait_until(lambda: not any(map(is_there, pids)), "a front lives on", STOP_SECONDS)
    fronted.start()
    assert fronted.poll(VM).status == 200


def test_second_server_is_refused_the_address(fronted: Server, make_server: ServerMaker) -> None:
    second = make_server("--fronts", "1", database=fronted.database.with_name("second.db"))
    second.metadata_port = fronted.metadata_port

    done = second.run_to_the_end()

    assert done.returncode != 0
    assert "Address already in use" in done.stderr


def test_faults_are_refused(fronted: Server) -> None:
    answer = fronted.operate("PUT", f"virtual-machines/{VM}/faults/reset")

    assert answer.status == 409
    assert "this server has fronts" in answer.json()["detail"]


def test_secrets_are_on_no_command_line(make_server: ServerMaker) -> None:
    server = make_server("--fronts", "1")
    server.environment = {**server.environment, "FOREWARN_PROXY_SECRET": "of-the-proxy"}
    server.metadata_port = free_port()
    server.start()
    (pid,) = await_fronts(server, 1)

    said = [Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")]

    assert not any(b"of-the-proxy" in each for each in said)
    assert b"forewarn.front" in said[0]
