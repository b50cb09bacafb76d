"""Several real servers on one real PostgreSQL, and clients that poll and approve all the while."""

import asyncio
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

import psycopg
from tests.e2e.conftest import (
    ANSWER_SECONDS,
    START_SECONDS,
    Server,
    ServerMaker,
    scheduled_events,
    wait_until,
)

LEASE = "SELECT epoch, holder FROM leases"
# Apart from the tables of the server, so that it finds nothing that it does not know.
WATCH_LEASE = """
CREATE SCHEMA witness;
CREATE TABLE witness.lease (at TIMESTAMPTZ, epoch BIGINT, expires_at BIGINT);
CREATE FUNCTION witness.note_lease() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN
    INSERT INTO witness.lease VALUES (clock_timestamp(), NEW.epoch, NEW.expires_at);
    RETURN NULL;
  END';
CREATE TRIGGER note_lease AFTER INSERT OR UPDATE ON leases
  FOR EACH ROW EXECUTE FUNCTION witness.note_lease()
"""
# To resign is not to renew.
TAKEOVERS = """
SELECT extract(epoch FROM first - lag(last) OVER (ORDER BY epoch)) FROM (
  SELECT epoch, min(at) AS first, max(at) FILTER (WHERE expires_at > 0) AS last
  FROM witness.lease GROUP BY epoch
) AS led ORDER BY epoch OFFSET 1
"""
STOPPING = Path(__file__).with_name("stopping_server.py")


@dataclass(slots=True)
class Trio:
    """Three replicas, and the database that they share."""

    url: str
    servers: list[Server]

    def epoch(self) -> int:
        """Return the epoch of the lease."""
        with psycopg.connect(self.url) as connection:
            row = connection.execute(LEASE).fetchone()
        return int(row[0]) if row else 0

    def leader(self) -> Server:
        """Return who has the lease, as it says itself."""
        wait_until(lambda: self._find_leader() is not None, "nobody leads", START_SECONDS)
        found = self._find_leader()
        assert found is not None
        return found

    def followers(self) -> list[Server]:
        leader = self.leader()
        return [server for server in self.servers if server is not leader and server.process]

    def wait_for_takeover(self, epoch: int) -> float:
        """Return after how many seconds there is a lease after *epoch*."""
        began = time.monotonic()
        wait_until(lambda: self.epoch() > epoch, "nobody took over", START_SECONDS)
        return time.monotonic() - began

    def watch_lease(self) -> None:
        """Have the database note each change of the lease, by its own clock."""
        with psycopg.connect(self.url) as connection:
            connection.execute(WATCH_LEASE)

    def takeovers(self) -> list[float]:
        """Return how long each takeover took since `watch_lease`, from the last renewal."""
        with psycopg.connect(self.url) as connection:
            return [float(seconds) for (seconds,) in connection.execute(TAKEOVERS)]

    def _find_leader(self) -> Server | None:
        epoch = self.epoch()
        for server in self.servers:
            if server.process is None:
                continue
            gained = [line for line in server.said().splitlines() if f"epoch={epoch}" in line]
            if any("lease_gained" in line for line in gained) and epoch:
                return server
        return None


@dataclass(slots=True)
class Crowd:
    """Virtual machines that poll every replica, each on its own thread, and approve what they see.

    A replica that is killed may break a connection; one that answers must answer rightly.
    """

    trio: Trio
    vms: tuple[str, ...]
    approvals: set[tuple[str, str]] = field(default_factory=set)
    """What a replica acknowledged: an event, and who approved it."""
    polls: int = 0
    away: Server | None = None
    """Who need not answer."""
    _pages: dict[tuple[str, int], bytes] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def polling(self) -> Generator[None]:
        """Poll while the block runs; fail if anything was wrong."""
        with ThreadPoolExecutor(len(self.trio.servers)) as pool:
            running = [pool.submit(self._poll_on, server) for server in self.trio.servers]
            try:
                yield
            finally:
                self._is_over.set()
            for each in running:
                each.result(ANSWER_SECONDS)
        self._is_over.clear()

    def _poll_on(self, server: Server) -> None:
        newest: dict[tuple[str, str], int] = {}
        client = server.vm_client()
        with contextlib.closing(client):
            while not self._is_over.wait(0.01):
                for vm in self.vms:
                    try:
                        answer = client.poll(vm)
                    except (OSError, HTTPException):
                        assert server is self.away, f"{server.log} does not answer"
                        continue
                    number = answer.incarnation
                    # A balancer says who it was: each replica goes on, none waits for another.
                    page = (answer.headers.get("x-replica", ""), vm)
                    assert number >= newest.get(page, 0), f"{page} went back to {number}"
                    newest[page] = number
                    with self._lock:
                        self.polls += 1
                        known = self._pages.setdefault((vm, number), answer.body)
                    assert known == answer.body, f"{vm} has two documents {number}"
                    for event in answer.events:
                        if event["EventStatus"] == "Scheduled":
                            self._approve(server, vm, event["EventId"])

    def _approve(self, server: Server, vm: str, event_id: str) -> None:
        with contextlib.suppress(OSError, HTTPException):
            if server.approve(vm, event_id).status == 200:
                with self._lock:
                    self.approvals.add((event_id, vm))


@dataclass(frozen=True, slots=True)
class StopOrder:
    """Has one of the servers that are started with *prefix* stop at a point of its work."""

    path: Path

    @property
    def prefix(self) -> tuple[str, ...]:
        return sys.executable, str(STOPPING), str(self.path)

    def give(self, server: Server, point: str, number: signal.Signals) -> None:
        """Have *server* send itself the signal at the next such point of `stopping_server`."""
        assert server.process is not None
        draft = self.path.with_suffix(".draft")
        draft.write_text(f"{point} {number.name} {server.process.pid}", encoding="ascii")
        draft.rename(self.path)

    @property
    def is_pending(self) -> bool:
        """Whether the server has not come to that point yet."""
        return self.path.exists()


def make_replica(
    make_server: ServerMaker, url: str, folder: Path, number: int, *flags: str, **more: Any
) -> Server:
    """Return replica *number*, with a state directory of its own. The first makes the token."""
    state = ("--state-dir", str(folder / f"s{number}"))
    return make_server("--database", url, *state, *flags, database=folder / "s0" / "no.db", **more)


def make_replicas(
    make_server: ServerMaker, url: str, folder: Path, *flags: str, **more: Any
) -> Trio:
    """Return three replicas; nothing is started yet."""
    numbers = range(3)
    return Trio(
        url, [make_replica(make_server, url, folder, each, *flags, **more) for each in numbers]
    )


@contextmanager
def park(
    servers: Sequence[Server], vms: Sequence[str], *, number: int
) -> Generator[list[list[bytes]]]:
    """Have *number* polls wait at each server while the block runs; fill in what they are told.

    They are of *vms*, which are in one scope: a single one may not have so many.
    """
    answers: list[list[bytes]] = []
    parked = threading.Event()

    async def poll_all() -> list[list[bytes]]:
        etag = servers[0].poll(vms[0]).headers["etag"]
        sent = [0]

        async def poll(port: int, place: int) -> bytes:
            # Several addresses, as one may not hold so many.
            source = (f"127.0.0.{2 + place % 40}", 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=source)
            path = scheduled_events(vms[place % len(vms)])
            writer.write(
                f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nMetadata: true\r\n"
                f"If-None-Match: {etag}\r\nPrefer: wait=60\r\nConnection: close\r\n\r\n".encode()
            )
            await writer.drain()
            sent[0] += 1
            if sent[0] == number * len(servers):
                parked.set()
            answer = await reader.read()
            writer.close()
            return answer.partition(b"\r\n\r\n")[2]

        return [
            list(bodies)
            for bodies in await asyncio.gather(
                *(
                    asyncio.gather(*(poll(server.metadata_port, each) for each in range(number)))
                    for server in servers
                )
            )
        ]

    with ThreadPoolExecutor(1) as pool:
        polling = pool.submit(asyncio.run, poll_all())
        assert parked.wait(START_SECONDS)
        wait_until(
            lambda: sum(parked_polls(server) for server in servers) == number * len(servers),
            "polls are not parked",
            START_SECONDS,
        )
        yield answers
        answers += polling.result(START_SECONDS)


def parked_polls(server: Server) -> int:
    """Return how many polls wait, as the server says."""
    with contextlib.closing(server.operator_client()) as client:
        lines = client.ask("GET", "/metrics").body.decode().splitlines()
    return sum(
        int(float(line.split()[-1])) for line in lines if line.startswith("forewarn_parked_polls")
    )


def check_approvals(trio: Trio, crowd: Crowd) -> None:
    """See that no event has lost its approval; those that came after its start do nothing."""
    server = next(server for server in trio.servers if server.process)
    assert crowd.approvals
    for event_id in {event_id for event_id, _ in crowd.approvals}:
        names = {each["name"] for each in server.event(event_id)["approvals"]}
        assert names & {vm for approved, vm in crowd.approvals if approved == event_id}
