"""The hook for HAProxy against HAProxy."""

import socket
from collections.abc import Generator
from pathlib import Path

import pytest
from tests.e2e.conftest import wait_until
from tests.hooks.balancing import Balancer, haproxy
from tests.hooks.conftest import FAILED, NOT_YET, READY, InstalledMaker, need


@pytest.fixture
def balancer(tmp_path_factory: pytest.TempPathFactory) -> Generator[Balancer]:
    need("haproxy", "socat")
    with haproxy(tmp_path_factory.mktemp("haproxy")) as running:
        yield running


def ask(balancer: Balancer, command: str) -> str:
    with socket.create_connection(("127.0.0.1", balancer.admin_port), timeout=20) as connection:
        connection.sendall(f"{command}\n".encode("ascii"))
        with connection.makefile(encoding="ascii") as answer:
            return answer.read()


def test_server_is_drained_and_put_back(balancer: Balancer, install: InstalledMaker) -> None:
    hook = install("haproxy", SERVERS="web/web-0", SOCKETS=f"{balancer.folder}/admin.sock")
    answers = balancer.hold_a_request()

    ended = hook.run("scheduled")
    assert (ended.status, "1 sessions" in ended.said) == (NOT_YET, True), ended
    assert balancer.who_answers() == {"web-1"}
    assert hook.run("scheduled").status == NOT_YET
    balancer.first.released.set()
    assert {answer.result() for answer in answers} == {"web-0", "web-1"}
    assert hook.run("scheduled").status == READY
    assert balancer.who_answers() == {"web-1"}

    assert hook.run("recovered").status == READY
    balancer.wait_for("web-0", "web-1")


def test_server_is_put_back_even_if_it_is_down(balancer: Balancer, install: InstalledMaker) -> None:
    """Then HAProxy shows no more that it was drained, but has not forgotten."""
    hook = install("haproxy", SERVERS="web/web-0", SOCKETS=f"127.0.0.1:{balancer.admin_port}")

    assert hook.run("scheduled").status == READY
    balancer.first.stop()
    wait_until(lambda: ",DOWN," in ask(balancer, "show stat"), "HAProxy did not notice", 20)
    assert hook.run("recovered").status == READY
    balancer.first.start()

    balancer.wait_for("web-0", "web-1")


def test_unknown_server_is_a_failure(balancer: Balancer, install: InstalledMaker) -> None:
    hook = install("haproxy", SERVERS="web/web-9", SOCKETS=f"{balancer.folder}/admin.sock")

    ended = hook.run("scheduled")

    assert ended.status == FAILED
    assert "HAProxy has no web/web-9" in ended.said


def test_haproxy_that_is_away_is_a_failure(tmp_path: Path, install: InstalledMaker) -> None:
    need("socat")
    hook = install("haproxy", SERVERS="web/web-0", SOCKETS=f"{tmp_path}/nobody")

    ended = hook.run("scheduled")

    assert ended.status == FAILED
    assert "cannot tell whether web/web-0" in ended.said
