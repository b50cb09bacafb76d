"""A replica that stands still while it writes, or is cut off from the database, harms no other."""

import ctypes
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest
from sqlalchemy import make_url
from tests.e2e.conftest import ANSWER_SECONDS, Server, ServerMaker, wait_until
from tests.e2e.replicas import StopOrder, Trio, make_replica
from tests.needs import find_program, need_root
from tests.postgres import run_cluster

from forewarn.storage.postgres_session import PostgresAddress

pytestmark = pytest.mark.timeout(300)

OUTSIDE, INSIDE = "10.213.77.1", "10.213.77.2"
SECONDS = 45

T = TypeVar("T")


def find(server: Server, event_id: str) -> bool:
    return server.operate("GET", f"events/{event_id}").status == 200


def test_replica_that_stands_still_in_a_transaction_holds_others_up_for_seconds(
    make_server: ServerMaker, postgres_url: str, tmp_path: Path
) -> None:
    stop = StopOrder(tmp_path / "stop")
    other = make_replica(make_server, postgres_url, tmp_path, 0)
    frozen = make_replica(
        make_server, postgres_url, tmp_path, 1, prefix=stop.prefix, is_replaced=True
    )
    other.start()
    frozen.start()

    stop.give(frozen, "write", signal.SIGSTOP)
    order = {"event_type": "Freeze", "resources": ["solo-0"]}
    with ThreadPoolExecutor(1) as pool:
        refused = pool.submit(frozen.operate, "POST", "events", order)
        wait_until(lambda: not stop.is_pending, "it did not stop", ANSWER_SECONDS)
        began = time.monotonic()
        (event,) = other.create("Freeze", "solo-1")
        seconds = time.monotonic() - began
        assert frozen.process is not None
        frozen.process.send_signal(signal.SIGCONT)
        answer = refused.result(ANSWER_SECONDS)

    assert answer.status == 503, answer
    assert answer.headers["retry-after"]
    assert not other.operate("GET", "events").json()["events"][1:], "something is half done"
    # 4 s by the database; the rest is for a machine that has much to do.
    assert 2 < seconds < 50
    wait_until(lambda: frozen.health("/readyz/write") == 200, "it takes no writes", ANSWER_SECONDS)
    (second,) = frozen.create("Freeze", "solo-0")
    for each in (event, second):
        wait_until(partial(find, frozen, each["event_id"]), "an event is lost", ANSWER_SECONDS)
    assert not frozen.operate("GET", "server").json()["is_paused"]


@dataclass(frozen=True, slots=True)
class Cable:
    """A network namespace, and a link to it that can be cut without anybody being told."""

    name: str

    def cut(self) -> None:
        self._inside("link", "set", "inside", "down")

    def mend(self) -> None:
        self._inside("link", "set", "inside", "up")

    def lay(self) -> None:
        ip("netns", "add", self.name)
        ip("link", "add", self.name, "type", "veth", "peer", "inside", "netns", self.name)
        ip("address", "add", f"{OUTSIDE}/30", "dev", self.name)
        ip("link", "set", self.name, "up")
        self._inside("address", "add", f"{INSIDE}/30", "dev", "inside")
        self._inside("link", "set", "lo", "up")
        self.mend()

    def remove(self) -> None:
        ip("netns", "delete", self.name)

    def run(self, call: Callable[[], T]) -> T:
        """Return what *call* does on a thread that is inside; a process that it starts stays so."""
        with ThreadPoolExecutor(1, initializer=self._enter) as pool:
            return pool.submit(call).result(SECONDS)

    def _enter(self) -> None:
        # os.setns came with Python 3.12.
        libc = ctypes.CDLL(None, use_errno=True)
        with opened(Path("/run/netns", self.name)) as descriptor:
            assert libc.setns(descriptor, 0) == 0, os.strerror(ctypes.get_errno())

    def _inside(self, *words: str) -> None:
        ip("-netns", self.name, *words)


@contextmanager
def opened(path: Path) -> Generator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def ip(*words: str) -> None:
    command = [find_program("ip"), *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode and words[:2] == ("netns", "add"):
        need_root("make a network namespace")
        pytest.skip(f"this machine does not permit network namespaces: {done.stderr}")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def cable() -> Generator[Cable]:
    laid = Cable(f"fw-{os.getpid()}")
    laid.lay()
    yield laid
    laid.remove()


@pytest.fixture
def cut_off_trio(make_server: ServerMaker, tmp_path: Path, cable: Cable) -> Generator[Trio]:
    """Three replicas, of which the first leads, behind the cable."""
    with run_cluster(listen_addresses=f"127.0.0.1,{OUTSIDE}") as cluster:
        with (cluster.folder / "data" / "pg_hba.conf").open("a", encoding="ascii") as file:
            file.write(f"host all all {INSIDE}/32 trust\n")
        cluster.run_sql("SELECT pg_reload_conf()")
        url = cluster.new_database()
        far = make_url(url).set(host=OUTSIDE).render_as_string()
        flags = ("--executor", "simulated", "--speed", "600")
        servers = [
            make_replica(make_server, where, tmp_path, number, *flags)
            for number, where in enumerate((far, url, url))
        ]
        trio = Trio(url, servers)
        leader, *others = trio.servers
        leader.forks = None  # which is outside
        cable.run(leader.start)
        for server in others:
            server.start()
        assert trio.leader() is leader
        yield trio


def poll_until(is_over: threading.Event, server: Server) -> int:
    """Return how many polls were answered, which is all."""
    polls = 0
    with closing(server.vm_client()) as client:
        while not is_over.wait(0.02):
            assert client.poll("solo-0").status == 200
            polls += 1
    return polls


def read_slowly(url: str) -> psycopg.Connection[Any]:
    """Have the database send rows that nobody takes."""
    connection = PostgresAddress(url).connect()
    connection.pgconn.send_query(b"SELECT repeat('x', 1000000) FROM generate_series(1, 1000)")
    return connection


def sessions_of(url: str, address: str) -> Counter[str]:
    """Return how many connections of *address* the database has, by what they do."""
    look = "SELECT state FROM pg_stat_activity WHERE client_addr = %s::INET"
    with psycopg.connect(url) as connection:
        return Counter(state for (state,) in connection.execute(look, [address]))


def test_leader_that_is_cut_off_is_replaced_and_answers_polls_until_it_is_back(
    cut_off_trio: Trio, cable: Cable
) -> None:
    leader, epoch = cut_off_trio.servers[0], cut_off_trio.epoch()
    can_write = partial(leader.health, "/readyz/write")
    is_over = threading.Event()
    far = make_url(cut_off_trio.url).set(host=OUTSIDE).render_as_string()

    with ThreadPoolExecutor(1) as pool, closing(cable.run(partial(read_slowly, far))):
        polling = pool.submit(cable.run, partial(poll_until, is_over, leader))
        try:
            cable.cut()
            cut_off_trio.wait_for_takeover(epoch)
            other = cut_off_trio.leader()
            (event,) = other.create("Freeze", "solo-0")
            other.approve("solo-0", event["event_id"])
            other.wait_for(event["event_id"], "Completed")
            wait_until(lambda: cable.run(can_write) == 503, "it notices nothing", ANSWER_SECONDS)
            wait_until(
                lambda: not sessions_of(cut_off_trio.url, INSIDE),
                "the database keeps connections of a machine that is lost",
                ANSWER_SECONDS,
            )
            cable.mend()
            wait_until(lambda: cable.run(can_write) == 200, "it is not back", ANSWER_SECONDS)
            assert cable.run(partial(find, leader, event["event_id"]))
            cable.run(partial(leader.create, "Freeze", "solo-1"))
        finally:
            is_over.set()
        assert polling.result(ANSWER_SECONDS)

    # It may learn that it can write again before it learns that it does not lead any more.
    wait_until(lambda: "lease_lost" in leader.said(), "it does not step down", ANSWER_SECONDS)
    assert cut_off_trio.leader() is other
