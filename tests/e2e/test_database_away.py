"""Replicas whose PostgreSQL database goes away and comes back: what they answer meanwhile."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest
import structlog
from tests.cli.test_golden import serving
from tests.ports import free_port
from tests.postgres import Cluster, run_cluster
from tests.waiting import wait_until

from forewarn.settings import make_settings

pytestmark = pytest.mark.timeout(300)

FLEET = """
[[virtual_machine]]
name = "solo"
addresses = ["127.0.0.1"]
"""
TIMEOUT = 45


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with run_cluster() as running:
        yield running


@contextmanager
def replicas(url: str, number: int) -> Iterator[list[tuple[str, str]]]:
    """Serve with so many replicas; where virtual machines and operators are answered by each."""
    Path("fleet.toml").write_text(FLEET, encoding="utf-8")
    found: list[tuple[str, str]] = []
    try:
        with ExitStack() as stack:
            for name in map(str, range(number)):
                values = {"database": url, "state_dir": Path(name), "fleet": Path("fleet.toml")}
                port = free_port()
                control = stack.enter_context(serving(make_settings(values), port))
                found.append((f"127.0.0.1:{port}", control))
            yield found
    finally:
        structlog.reset_defaults()


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def status_of(where: str, path: str, body: object = None) -> int:
    headers = {"Metadata": "true"}
    if not path.startswith("/metadata"):
        headers["Authorization"] = f"Bearer {token()}"
    data = None if body is None else json.dumps(body).encode()
    if data is not None:
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(f"http://{where}{path}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def token() -> str:
    return Path("0/admin.token").read_text(encoding="utf-8").strip()


POLL = "/metadata/scheduledevents?api-version=2020-07-01"


def test_polls_are_answered_and_writes_recover_by_themselves(cluster: Cluster) -> None:
    with replicas(cluster.new_database(), 2) as ((polled, leader), (_, follower)):
        both = (leader, follower)

        def writable() -> list[int]:
            return [status_of(each, "/readyz/write") for each in both]

        assert writable() == [200, 200]

        cluster.stop("immediate")
        try:
            wait_until(lambda: writable() == [503, 503], "writes to stop")
            away = [status_of(each, "/readyz") for each in both], status_of(polled, POLL)
        finally:
            cluster.start()
        wait_until(lambda: writable() == [200, 200], "writes to recover")
        wait_until(lambda: status_of(leader, "/api/v1/server") == 200, "operators to be answered")

    assert away == ([200, 200], 200)


def test_follower_streams_what_happens_once_across_a_restart_of_the_database(
    cluster: Cluster,
) -> None:
    order = {"event_type": "Freeze", "resources": ["solo"]}
    with (
        replicas(cluster.new_database(), 2) as ((_, leader), (_, follower)),
        watched(follower) as got,
    ):
        assert status_of(leader, "/api/v1/events", order) == 201
        wait_until(lambda: len(got) == 1, "the first event")

        cluster.stop("fast")
        cluster.start()
        wait_until(lambda: status_of(leader, "/readyz/write") == 200, "writes to recover")
        wait_until(lambda: status_of(leader, "/api/v1/events", order) == 201, "the second event")
        wait_until(lambda: len(got) == 2, "the second line")

    assert got == [1, 2]


@contextmanager
def watched(control: str) -> Iterator[list[int]]:
    """Collect the numbers of the lines that a replica streams; a lost stream is resumed."""
    got: list[int] = []
    stopping = threading.Event()
    host, port = control.split(":")

    def note(line: bytes) -> None:
        if line.startswith(b"data:"):
            got.append(json.loads(line[5:])["sequence"])

    def watch() -> None:
        while not stopping.is_set():
            connection = HTTPConnection(host, int(port), timeout=1)
            place = str(got[-1] if got else 0)
            headers = {"Authorization": f"Bearer {token()}", "Last-Event-ID": place}
            with closing(connection), suppress(OSError):
                connection.request("GET", "/api/v1/events/watch", headers=headers)
                for line in connection.getresponse():
                    note(line)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield got
    finally:
        stopping.set()
        thread.join(TIMEOUT)
