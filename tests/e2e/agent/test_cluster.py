"""Three agents whose machines one event means: it starts exactly when it should."""

import time

import pytest
from tests.e2e.agent.conftest import MachineMaker
from tests.e2e.agent.machines import WHOLE_LIFE, Machine
from tests.e2e.agent.relay import Stuck, relay
from tests.e2e.conftest import Server, ServerMaker

CLUSTER = """
[[availability_set]]
name = "db"
approval = "{approval}"
""" + "".join(
    f'\n[[virtual_machine]]\nname = "db-{number}"\navailability_set = "db"\nupdate_domain = 0\n'
    for number in range(3)
)


def start_server_of_cluster(make_server: ServerMaker, policy: str) -> Server:
    server = make_server()
    server.fleet.write_text(CLUSTER.format(approval=policy), encoding="utf-8")
    server.start()
    return server


def start_cluster(
    make_server: ServerMaker, make_machine: MachineMaker, policy: str, approval: str
) -> tuple[Server, list[Machine]]:
    server = start_server_of_cluster(make_server, policy)
    machines = [make_machine(server, f"db-{number}", approval=approval) for number in range(3)]
    for machine in machines:
        machine.hold("scheduled")
        machine.start()
    return server, machines


def test_cluster_under_policy_all_starts_when_the_last_is_ready(
    make_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server, machines = start_cluster(make_server, make_machine, "all", "when-ready")
    (event,) = server.create("Reboot", "db-0", "db-1", "db-2")
    event_id = event["event_id"]

    for number, machine in enumerate(machines):
        machine.wait_for_phase("begin scheduled")
        assert server.event(event_id)["event_status"] == "Scheduled"
        assert len(server.event(event_id)["approvals"]) == number
        machine.release("scheduled")
        machine.wait_for_log("request_granted request=approve")

    server.wait_for(event_id, "Started")
    for machine in machines:
        machine.wait_for_phase("end started")


@pytest.mark.parametrize("policy", ["any", "leader"])
def test_cluster_with_a_leader_starts_when_the_leader_is_ready(
    make_server: ServerMaker, make_machine: MachineMaker, policy: str
) -> None:
    server, machines = start_cluster(make_server, make_machine, policy, "leader")
    (event,) = server.create("Reboot", "db-0", "db-1", "db-2")
    leader, *others = machines

    for machine in others:
        machine.release("scheduled")
        machine.wait_for_phase("end scheduled")
    leader.wait_for_phase("begin scheduled")
    time.sleep(1)
    assert server.event(event["event_id"])["event_status"] == "Scheduled"
    assert server.event(event["event_id"])["approvals"] == []
    leader.release("scheduled")
    server.wait_for(event["event_id"], "Started")

    approvals = server.event(event["event_id"])["approvals"]
    assert [approval["name"] for approval in approvals] == ["db-0"]


def test_agent_that_is_killed_before_it_knows_that_it_has_approved_counts_once(
    make_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server_of_cluster(make_server, "all")
    with relay(server.metadata_port, Stuck.ANSWER) as between:
        machine = make_machine(server, "db-0", port=between.server_port)
        machine.start()
        (event,) = server.create("Reboot", "db-0", "db-1", "db-2")
        between.wait_until_stuck()
        machine.kill()
        between.free()
        machine.start()
        machine.wait_for_log("request_granted request=approve")

        approved = server.event(event["event_id"])
        assert [approval["name"] for approval in approved["approvals"]] == ["db-0"]
        assert approved["event_status"] == "Scheduled"
        assert machine.phases == WHOLE_LIFE[:2]
