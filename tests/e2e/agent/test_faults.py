"""An agent, a server, and a scenario that has the server misbehave."""

import pytest
from tests.e2e.agent.conftest import MachineMaker
from tests.e2e.agent.machines import WHOLE_LIFE
from tests.e2e.conftest import ServerMaker

pytestmark = pytest.mark.timeout(300)

STORM = """
name = "storm"

[[step]]
at = "0s"
fault = "reset"
times = 1

[[step]]
at = "0s"
fault = "html"
times = 1

[[step]]
at = "0s"
fault = "truncated"
times = 1

[[step]]
at = "0s"
fault = "wrong-weekday"

[[step]]
at = "0s"
announce = "Reboot"

[[step]]
at = "1h"
clear = true
"""


def test_agent_comes_through_a_storm(start_server: ServerMaker, make_machine: MachineMaker) -> None:
    server = start_server()
    machine = make_machine(server)
    machine.start()

    begun = server.operate(
        "POST", "scenario-runs", {"toml": STORM, "virtual_machines": ["solo-0"]}
    ).json()
    machine.wait_for_phase("end started")
    (event,) = server.operate("GET", f"scenario-runs/{begun['run_id']}").json()["events"]
    left = server.command("fault", "list")["faults"]
    server.complete(event["event_id"])
    machine.wait_until_closed()

    assert machine.phases == WHOLE_LIFE
    assert [approval["name"] for approval in event["approvals"]] == ["solo-0"]
    assert [fault["kind"] for fault in left] == ["wrong-weekday"]
    assert machine.said().count("metadata_unavailable") >= 1
    assert machine.stop() == 0
