"""The hook for nginx against nginx, as every distribution has it."""

from collections.abc import Generator
from pathlib import Path

import pytest
from tests.e2e.conftest import wait_until
from tests.hooks.balancing import Balancer, nginx, nginx_command
from tests.hooks.conftest import FAILED, NOT_YET, PATH, READY, STAND_INS, Installed, need


@pytest.fixture
def balancer(tmp_path_factory: pytest.TempPathFactory) -> Generator[Balancer]:
    need("nginx", "ps")
    with nginx(tmp_path_factory.mktemp("nginx")) as running:
        yield running


@pytest.fixture(params=["local", "root@lb-0"])
def hook(balancer: Balancer, tmp_path: Path, request: pytest.FixtureRequest) -> Installed:
    """On this machine, and as if over ssh."""
    settings = {
        "FILES": f"{balancer.folder}/web-0",
        "BALANCERS": request.param,
        "NGINX": " ".join(nginx_command(balancer.folder)),
        "PID_FILE": f"{balancer.folder}/nginx.pid",
    }
    return Installed(name="nginx", folder=tmp_path, settings=settings, path=f"{STAND_INS}:{PATH}")


def test_server_is_marked_down_and_put_back(balancer: Balancer, hook: Installed) -> None:
    file = balancer.folder / "web-0"
    before = file.read_text(encoding="ascii")
    answers = balancer.hold_a_request()

    ended = hook.run("scheduled")
    assert (ended.status, "1 workers from before" in ended.said) == (NOT_YET, True), ended
    balancer.wait_for("web-1")
    assert " max_fails=2 down; # the first" in file.read_text(encoding="ascii")
    assert hook.run("scheduled").status == NOT_YET
    balancer.first.released.set()
    assert {answer.result() for answer in answers} == {"web-0", "web-1"}
    wait_until(lambda: hook.run("scheduled").status == READY, "its old worker stays", 20)

    assert hook.run("recovered").status == READY
    balancer.wait_for("web-0", "web-1")
    assert file.read_text(encoding="ascii") == before


def test_server_that_was_down_stays_down(balancer: Balancer, hook: Installed) -> None:
    file = balancer.folder / "web-0"
    file.write_text("server 127.0.0.1:1 down;\nserver 127.0.0.1:2 backup down;\n", encoding="ascii")

    assert hook.run("scheduled").status == READY
    assert hook.run("recovered").status == READY

    assert file.read_text(encoding="ascii").count("down") == 2


def test_nothing_changes_if_nginx_would_not_start_again(
    balancer: Balancer, hook: Installed
) -> None:
    file = balancer.folder / "web-0"
    before = file.read_text(encoding="ascii")
    with (balancer.folder / "nginx.conf").open("a", encoding="ascii") as configuration:
        configuration.write("nonsense;\n")

    ended = hook.run("scheduled")

    assert ended.status == FAILED
    assert 'unknown directive "nonsense"' in ended.said
    assert file.read_text(encoding="ascii") == before


def test_server_is_not_back_before_nginx_was_reloaded(balancer: Balancer, hook: Installed) -> None:
    file, pid_file = balancer.folder / "web-0", balancer.folder / "nginx.pid"
    wait_until(lambda: hook.run("scheduled").status == READY, "its old worker stays", 20)
    pid = pid_file.read_text(encoding="ascii")

    pid_file.write_text("none", encoding="ascii")
    ended = hook.run("recovered")
    assert ended.status == NOT_YET, ended
    assert " down;" in file.read_text(encoding="ascii")
    assert hook.run("recovered").status == NOT_YET
    pid_file.write_text(pid, encoding="ascii")

    assert hook.run("recovered").status == READY
    balancer.wait_for("web-0", "web-1")


def test_file_without_servers_is_a_failure(balancer: Balancer, hook: Installed) -> None:
    (balancer.folder / "web-0").write_text("", encoding="ascii")

    ended = hook.run("scheduled")

    assert ended.status == FAILED
    assert "web-0 has no line with server" in ended.said
