"""`forewarn status` and `forewarn doctor` where replicas share a database."""

import json
import shutil
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import psycopg
import pytest
import structlog
from tests.cli.test_golden import serving
from tests.waiting import wait_until
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.settings import Settings, make_settings

GHOST = """
INSERT INTO replicas
SELECT 'ghost', 'kvm-9', 'http://kvm-9:8170', '0.0.9', '{"notice": "when-enabled"}',
  now, now - %(silent)s::BIGINT * 1000000, 0, %(findings)s::JSON
FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT AS now) AS clock
"""

EMBERS = {
    "check": "executors",
    "verdict": "fail",
    "sentence": "This server begins no impact: executors.toml is not valid TOML.",
    "hint": "correct the file",
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def settings(url: str, name: str) -> Settings:
    return make_settings({"database": url, "state_dir": Path(name)})


@contextmanager
def two_replicas(url: str) -> Iterator[tuple[str, str]]:
    """Serve with two replicas; their addresses, that of the leader first."""
    try:
        with serving(settings(url, "one")) as one:
            wait_until(lambda: ask(one, "status")["lease_epoch"], "the first to lead")
            with serving(settings(url, "two")) as two:
                shutil.copy("one/admin.token", "two/admin.token")
                yield one, two
    finally:
        structlog.reset_defaults()


def ask(server: str, *arguments: str) -> Any:
    environment = {"FOREWARN_SERVER": server, "FOREWARN_STATE_DIR": "one"}
    result = CliRunner().invoke(app, [*arguments, "-o", "json"], env=environment)
    assert result.stdout, result.stderr
    return json.loads(result.stdout)


def examine(server: str) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for each in ask(server, "doctor", "--remote")["findings"]:
        found.setdefault(each["check"], []).append((each["verdict"], each["sentence"]))
    return found


def haunt(url: str, silent: int, findings: object = ()) -> None:
    values = {"silent": silent, "findings": json.dumps(findings)}
    with psycopg.connect(url) as connection:
        connection.execute(GHOST.encode(), values)


def test_each_replica_shows_both_and_who_leads(postgres_url: str) -> None:
    with two_replicas(postgres_url) as (one, two):
        shown = {server: ask(server, "status") for server in (one, two)}
        found = examine(two)
        held = examine(one)["scheduler lease"]
    for server, status in shown.items():
        replicas = {each["address"].removeprefix("http://"): each for each in status["replicas"]}
        assert replicas.keys() == {one, two}
        assert [each["is_leader"] for each in (replicas[one], replicas[two])] == [True, False]
        assert [name for name, each in replicas.items() if each["is_answering"]] == [server]
        assert {each["changes_behind"] for each in replicas.values()} == {0}
        assert all(each["is_present"] for each in replicas.values())
        assert status["database"] == postgres_url.replace("forewarn@", "")
        assert status["lease_epoch"] == 1

    ((verdict, sentence),) = found["scheduler lease"]
    assert (verdict, f"at http://{one} holds the lease, epoch 1." in sentence) == ("ok", True)
    assert held == found["scheduler lease"]
    ((verdict, sentence),) = found["replicas"]
    assert (verdict, sentence) == ("ok", "All replicas are present, up to date and alike.")


def test_doctor_warns_of_replicas_that_are_gone_or_differ(postgres_url: str) -> None:
    with two_replicas(postgres_url) as (one, _):
        ask(one, "pause")  # a change
        haunt(postgres_url, silent=60)
        gone = examine(one)["replicas"]
        with psycopg.connect(postgres_url) as connection:
            connection.execute("DELETE FROM replicas WHERE replica_id = 'ghost'")
        haunt(postgres_url, silent=0)
        with psycopg.connect(postgres_url) as connection:
            connection.execute("UPDATE changes SET changed_at = changed_at - 60000000")
        differing = examine(one)["replicas"]

    assert gone == [("warn", "Replica kvm-9 at http://kvm-9:8170 was last seen 1m ago.")]
    assert {verdict for verdict, _ in differing} == {"warn"}
    *lags, version, notice = (sentence for _, sentence in differing)
    assert version.startswith("The replicas differ in version: 0.0.9, ")
    assert notice == "The replicas differ in notice: always, when-enabled."
    assert any(lag.startswith("Replica kvm-9 at http://kvm-9:8170 lags behind") for lag in lags)


def test_doctor_fails_when_no_replica_leads(postgres_url: str) -> None:
    with two_replicas(postgres_url) as (_, two):
        with psycopg.connect(postgres_url) as connection:
            connection.execute(
                "UPDATE leases SET epoch = 2, holder = 'ghost', expires_at = expires_at + 60000000"
            )
        found = examine(two)["scheduler lease"]

    consequence = "no event is announced, started or completed automatically."
    assert found == [("fail", f"No replica holds the lease, so {consequence}")]


@contextmanager
def balanced(*servers: str) -> Iterator[str]:
    """Give the address of a load balancer: each connection goes to the next of *servers*."""
    turns = cycle(servers)

    class Connection(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            host, port = next(turns).split(":")
            with socket.create_connection((host, int(port))) as server:
                answering = threading.Thread(target=pour, args=(server, self.request))
                answering.start()
                pour(self.request, server)
                answering.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connection) as balancer:
        balancer.daemon_threads = True
        threading.Thread(target=balancer.serve_forever).start()
        yield f"127.0.0.1:{balancer.server_address[1]}"
        balancer.shutdown()


def pour(source: socket.socket, target: socket.socket) -> None:
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)


def test_doctor_finds_the_same_behind_a_load_balancer_as_before_it(postgres_url: str) -> None:
    """Whichever replica answers which request."""
    with two_replicas(postgres_url) as (one, two), balanced(one, two, two) as address:
        found = [ask(address, "doctor", "--remote") for _ in range(7)]

    assert [each["is_well"] for each in found] == [True] * 7, found
    assert len({json.dumps(each["findings"]) for each in found}) == 1


def test_any_replica_tells_what_is_wrong_with_another(postgres_url: str) -> None:
    with two_replicas(postgres_url) as (one, two):
        haunt(postgres_url, silent=0, findings=[EMBERS])
        found = [examine(each)["executors"] for each in (one, two)]
        status = ask(one, "status")["findings"]

    sentence = f"Replica kvm-9 at http://kvm-9:8170: {EMBERS['sentence']}"
    assert found == [[("fail", sentence)]] * 2
    assert {**EMBERS, "sentence": sentence} in status


def test_what_a_silent_replica_has_reported_is_not_told(postgres_url: str) -> None:
    with two_replicas(postgres_url) as (one, _):
        haunt(postgres_url, silent=60, findings=[EMBERS])

        assert examine(one)["executors"] == [("ok", "The executors can be used.")]
