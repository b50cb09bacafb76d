"""How soon three replicas on one PostgreSQL show a commit, and how soon one replaces a leader.

A poll waits at each replica while one of them, in turn, commits a change of the document; the time
counts from when the request for it is sent until the last poll is answered. The peer has the same
way without a server: psycopg takes the lock row, adds a change, notifies and commits, and three
connections of its own listen and read that change.

A leader is killed with kill -9, and a virtual machine approves at another replica. The time counts
until that replica shows the event as started, which only a new leader can do.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import quantiles
from typing import Any, Final, TypeAlias

import psycopg
from clusters import durable_cluster
from servers import Server, replicas_in, running, scheduled_events, wait_until
from smoke import new_parser, run, sized

Connection: TypeAlias = psycopg.Connection[Any]

REPLICAS: Final = 3
COMMITS: Final = sized(300, smoke=4)
KILLS: Final = sized(5, smoke=1)
P99_TARGET: Final = 100.0
TAKEOVER_TARGET: Final = 5.0
SECONDS: Final = 60.0
PARKING_SECONDS: Final = 0.01
"""How long polls and listeners have to arrive before the commit that they wait for."""
VM: Final = "vm-0"
FLEET: Final = {"virtual_machine": [{"name": VM}]}
LEADER: Final = """
SELECT address FROM leases JOIN replicas ON replica_id = holder
WHERE expires_at > extract(epoch FROM clock_timestamp()) * 1000000
"""


def main() -> None:
    """Print the figures beside their targets."""
    parser = new_parser(__doc__)
    parser.add_argument("--commits", type=int, default=COMMITS)
    parser.add_argument("--kills", type=int, default=KILLS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, durable_cluster() as cluster:
        if cluster is None:
            return
        url = cluster.new_database()
        trio = replicas_in(Path(name), url, REPLICAS)
        with running(trio[0]):
            # The first makes the admin token of all.
            wait_until(trio[0].is_ready, "it does not start", SECONDS, pause=0.05)
            trio[0].operate("POST", "fleet", {"fleet": FLEET})
            with running(*trio[1:]):
                for server in trio:
                    server.wait_for(scheduled_events(VM))
                _compare_commits(trio, cluster.new_database(), options.commits)
                _kill_leaders(trio, url, options.kills)


def _compare_commits(trio: Sequence[Server], peer_url: str, commits: int) -> None:
    ours: list[float] = []
    theirs: list[float] = []
    with ThreadPoolExecutor(REPLICAS) as threads, ExitStack() as stack:
        peer = Peer(
            *(
                stack.enter_context(psycopg.connect(peer_url, autocommit=True))
                for _ in range(REPLICAS + 1)
            )
        )
        changing = _change_in_turn(trio)
        for number in range(1, commits + 1):
            ours.append(_show(trio, changing, threads))
            theirs.append(peer.tell(number, threads))
    print(f"{'commit to all of three':<24}{'p50':>9}{'p99':>9}{'worst':>9}")
    for what, times in (("replicas", ours), ("psycopg", theirs)):
        cuts = quantiles(times, n=100)
        row = "".join(f"{figure * 1000:>7.1f}ms" for figure in (cuts[49], cuts[98], max(times)))
        target = f"  (target p99 {P99_TARGET:.0f} ms)" if times is ours else ""
        print(f"{what:<24}{row}{target}", flush=True)


def _show(trio: Sequence[Server], changing: Iterator[None], threads: ThreadPoolExecutor) -> float:
    """Return how long one change takes until all replicas show it."""
    etag = trio[0].etag(VM)
    waiting = [threads.submit(_time_of_news, server, etag) for server in trio]
    time.sleep(PARKING_SECONDS)
    began = time.perf_counter()
    next(changing)
    return max(each.result(SECONDS) for each in waiting) - began


def _time_of_news(server: Server, etag: str) -> float:
    server.wait_for_change(VM, etag)
    return time.perf_counter()


def _change_in_turn(trio: Sequence[Server]) -> Iterator[None]:
    """Change the document with each step, at one replica after the other."""
    servers = cycle(trio)
    while True:
        event_id = next(servers).create("Reboot", VM)
        yield
        next(servers).operate("POST", f"events/{event_id}/cancel")
        yield


class Peer:
    """One connection that writes, and those that listen."""

    def __init__(self, writer: Connection, *listeners: Connection) -> None:
        self._writer = writer
        self._listeners = listeners
        for each in listeners:
            each.execute("LISTEN news")

    def tell(self, number: int, threads: ThreadPoolExecutor) -> float:
        """Return how long one change takes until all listeners have read it."""
        waiting = [threads.submit(_hear, each, number) for each in self._listeners]
        time.sleep(PARKING_SECONDS)
        began = time.perf_counter()
        self._writer.execute("BEGIN")
        self._writer.execute("SELECT FROM write_lock WHERE name = 'writer' FOR UPDATE")
        self._writer.execute(
            "INSERT INTO changes (number, hint, changed_at) VALUES (%s, '{}', 0)", [number]
        )
        self._writer.execute("SELECT pg_notify('news', '')")
        self._writer.execute("COMMIT")
        return max(each.result(SECONDS) for each in waiting) - began


def _hear(listener: Connection, number: int) -> float:
    for _ in listener.notifies(timeout=SECONDS, stop_after=1):
        pass
    row = listener.execute("SELECT hint FROM changes WHERE number = %s", [number]).fetchone()
    if row is None:
        raise SystemExit(f"there is no change {number}")
    return time.perf_counter()


def _kill_leaders(trio: Sequence[Server], url: str, kills: int) -> None:
    taken: list[float] = []
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(kills):
            leader = _find_leader(trio, connection)
            other = next(server for server in trio if server is not leader)
            other.hang_up()
            event_id = other.create("Reboot", VM)
            began = time.perf_counter()
            leader.kill()
            other.approve(VM, event_id)
            wait_until(partial(_is_started, other), "nobody took over", SECONDS, pause=0.005)
            taken.append(time.perf_counter() - began)
            other.operate("POST", f"events/{event_id}/complete")
            leader.start()
            leader.wait_for(scheduled_events(VM))
    figures = ", ".join(f"{each:.1f}" for each in taken)
    print(
        f"kill -9 of the leader until another starts an event: {figures} s; "
        f"at most {max(taken):.1f} s (target {TAKEOVER_TARGET:.0f} s)",
        flush=True,
    )


def _find_leader(trio: Sequence[Server], connection: Connection) -> Server:
    found: list[Server] = []

    def is_there() -> bool:
        row = connection.execute(LEADER).fetchone()
        port = row[0].rpartition(":")[2] if row else ""
        found.extend(server for server in trio if str(server.control_port) == port)
        return bool(found)

    wait_until(is_there, "nobody leads", SECONDS, pause=0.05)
    return found[0]


def _is_started(server: Server) -> bool:
    return any(event["EventStatus"] == "Started" for event in server.poll(VM)["Events"])


if __name__ == "__main__":
    run(main)
