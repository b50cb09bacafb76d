"""Agents, servers and machines that are killed at each step of an event."""

import time

import pytest
from tests.e2e.agent.conftest import MachineMaker
from tests.e2e.agent.machines import HOOK, WHOLE_LIFE
from tests.e2e.agent.relay import Stuck, relay
from tests.e2e.conftest import ServerMaker


def test_server_that_is_killed_in_the_middle_is_waited_for(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server()
    machine = make_machine(server)
    machine.hold("scheduled")
    machine.start()

    (event,) = server.create("Reboot", "solo-0")
    machine.wait_for_phase("begin scheduled")
    server.kill()
    machine.release("scheduled")
    machine.wait_for_phase("end scheduled")
    server.start()
    server.wait_for(event["event_id"], "Started", 60)
    machine.wait_for_phase("end started")
    server.complete(event["event_id"])
    machine.wait_until_closed()

    assert machine.phases == WHOLE_LIFE


@pytest.mark.parametrize("phase", ["scheduled", "started", "recovered"])
def test_agent_that_is_killed_during_a_hook_runs_it_again_only_to_put_things_back(
    start_server: ServerMaker, make_machine: MachineMaker, phase: str
) -> None:
    server = start_server()
    machine = make_machine(server)
    machine.hold(phase)
    machine.start()

    (event,) = server.create("Reboot", "solo-0")
    event_id = event["event_id"]
    if phase == "recovered":
        machine.wait_for_phase("end started")
        server.complete(event_id)
    machine.wait_for_phase(f"begin {phase}")
    machine.kill()
    machine.start()
    machine.release(phase)
    if phase == "scheduled":
        assert server.operate("POST", f"events/{event_id}/start").status == 200
        machine.wait_for_phase("end started")
    if phase != "recovered":
        server.complete(event_id)
    machine.wait_until_closed()

    begun = [line for line in machine.phases if line.startswith("begin")]
    again = ["begin recovered"] if phase == "recovered" else []
    assert begun == ["begin scheduled", "begin started", "begin recovered", *again]
    assert "hook_interrupted" in machine.said()


@pytest.mark.parametrize("moment", ["ready", "started", "gone"])
def test_agent_that_is_killed_between_hooks_goes_on_where_it_was(
    start_server: ServerMaker, make_machine: MachineMaker, moment: str
) -> None:
    server = start_server()
    machine = make_machine(server, approval="never" if moment == "ready" else "when-ready")
    machine.start()

    (event,) = server.create("Reboot", "solo-0")
    event_id = event["event_id"]
    machine.wait_for_state("scheduled" if moment == "ready" else "started")
    machine.kill()
    if moment == "gone":
        server.complete(event_id)
    machine.configure(approval="when-ready")
    machine.start()
    server.wait_for(event_id, "Completed" if moment == "gone" else "Started")
    if moment != "gone":
        machine.wait_for_phase("end started")
        server.complete(event_id)
    machine.wait_until_closed()

    assert machine.phases == WHOLE_LIFE


@pytest.mark.parametrize("stuck", Stuck)
def test_agent_that_is_killed_while_it_approves_goes_on_where_it_was(
    start_server: ServerMaker, make_machine: MachineMaker, stuck: Stuck
) -> None:
    server = start_server()
    with relay(server.metadata_port, stuck) as between:
        machine = make_machine(server, port=between.server_port)
        machine.start()
        (event,) = server.create("Reboot", "solo-0")
        between.wait_until_stuck()
        machine.kill()
        between.free()
        machine.start()
        server.wait_for(event["event_id"], "Started")
        machine.wait_for_phase("end started")
        server.complete(event["event_id"])
        machine.wait_until_closed()

    assert machine.phases == WHOLE_LIFE


def test_machine_that_is_rebooted_by_the_event_itself_recovers(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server()
    machine = make_machine(server)
    machine.hold("started")
    machine.start()

    (event,) = server.create("Reboot", "solo-0")
    machine.wait_for_phase("begin started")
    machine.cut_power()
    server.kill()
    server.start()
    server.complete(event["event_id"])
    machine.start()
    machine.wait_until_closed()

    assert machine.phases == [*WHOLE_LIFE[:3], *WHOLE_LIFE[4:]]


def test_machine_that_comes_back_when_all_is_over_prepares_for_nothing(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server()
    machine = make_machine(server)
    machine.write_hook("scheduled", "20-more", HOOK.format(folder=machine.folder))
    machine.hold("scheduled")
    machine.start()

    (event,) = server.create("Reboot", "solo-0")
    machine.wait_for_phase("begin scheduled")
    machine.cut_power()
    assert server.operate("POST", f"events/{event['event_id']}/start").status == 200
    server.complete(event["event_id"])
    machine.start()
    machine.wait_until_closed()

    assert machine.phases == ["begin scheduled", *WHOLE_LIFE[4:]]


def test_machine_that_comes_back_before_the_event_ends_waits_for_it(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server()
    machine = make_machine(server)
    machine.start()

    (event,) = server.create("Reboot", "solo-0")
    machine.wait_for_phase("end started")
    machine.cut_power()
    machine.start()
    time.sleep(1.5)
    assert "begin recovered" not in machine.phases
    server.complete(event["event_id"])
    machine.wait_until_closed()

    assert machine.phases == WHOLE_LIFE
