"""A hook of contrib, run by the agent: HAProxy is drained before the event is approved."""

from collections.abc import Generator
from pathlib import Path

import pytest
from tests.e2e.agent.conftest import MachineMaker
from tests.e2e.conftest import ServerMaker, wait_until
from tests.hooks.balancing import Balancer, haproxy
from tests.hooks.conftest import Installed, need


@pytest.fixture
def balancer(tmp_path_factory: pytest.TempPathFactory) -> Generator[Balancer]:
    need("haproxy", "socat")
    with haproxy(tmp_path_factory.mktemp("haproxy")) as running:
        yield running


@pytest.fixture
def hook(balancer: Balancer, tmp_path: Path) -> Installed:
    settings = {"SERVERS": "web/web-0", "SOCKETS": f"{balancer.folder}/admin.sock"}
    return Installed(name="haproxy", folder=tmp_path, settings=settings)


def test_haproxy_is_drained_before_approval_and_serves_again_after_recovery(
    start_server: ServerMaker, make_machine: MachineMaker, balancer: Balancer, hook: Installed
) -> None:
    server = start_server()
    machine = make_machine(server)
    machine.environment = {**machine.environment, **hook.variables}
    for phase in ("scheduled", "recovered", "canceled"):
        hook.install(phase, machine.folder / "hooks.d")
    machine.start()
    answers = balancer.hold_a_request()

    (event,) = server.create("Reboot", "solo-0")
    event_id = event["event_id"]
    wait_until(lambda: machine.said().count("outcome=not-yet") >= 2, "it was not asked again", 20)
    assert "haproxy: not yet: web/web-0" in machine.said()
    assert server.event(event_id)["approvals"] == []
    balancer.first.released.set()
    assert {answer.result() for answer in answers} == {"web-0", "web-1"}
    server.wait_for(event_id, "Started")

    assert len(server.event(event_id)["approvals"]) == 1
    assert balancer.who_answers() == {"web-1"}
    server.complete(event_id)
    machine.wait_until_closed()
    balancer.wait_for("web-0", "web-1")
