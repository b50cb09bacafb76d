"""A hook of contrib, run by the agent: HAProxy is drained before the event is approved."""

from collections.abc import Callable, Generator, Mapping
from pathlib import Path

import pytest
from tests.e2e.conftest import Server, ServerMaker, wait_until
from tests.e2e.machines import Machine
from tests.hooks.balancing import Balancer, haproxy
from tests.hooks.conftest import Installed, need

MachineStarter = Callable[[Server], Machine]


@pytest.fixture
def balancer(tmp_path_factory: pytest.TempPathFactory) -> Generator[Balancer]:
    need("haproxy", "socat")
    with haproxy(tmp_path_factory.mktemp("haproxy")) as running:
        yield running


@pytest.fixture
def hook(balancer: Balancer, tmp_path: Path) -> Installed:
    settings = {"SERVERS": "web/web-0", "SOCKETS": f"{balancer.folder}/admin.sock"}
    return Installed(name="haproxy", folder=tmp_path, settings=settings)


@pytest.fixture
def start_machine(
    hook: Installed, tmp_path: Path, environment: Mapping[str, str]
) -> Generator[MachineStarter]:
    machines: list[Machine] = []

    def start(server: Server) -> Machine:
        folder = tmp_path / "solo-0"
        folder.mkdir()
        machine = Machine(
            name="solo-0",
            folder=folder,
            endpoint=f"http://127.0.0.1:{server.metadata_port}/vm/solo-0",
            environment={**environment, **hook.variables},
        )
        for phase in ("scheduled", "recovered", "canceled"):
            hook.install(phase, folder / "hooks.d")
        machines.append(machine)
        machine.start()
        return machine

    yield start
    for machine in machines:
        machine.cut_power()


def test_haproxy_is_drained_before_approval_and_serves_again_after_recovery(
    start_server: ServerMaker, start_machine: MachineStarter, balancer: Balancer
) -> None:
    server = start_server()
    machine = start_machine(server)
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
    assert server.operate("POST", f"events/{event_id}/complete").status == 200
    machine.wait_until_closed()
    balancer.wait_for("web-0", "web-1")
