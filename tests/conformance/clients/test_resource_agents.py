"""Pacemaker's agents azure-events and azure-events-az, unmodified, on a cluster of two machines.

Pacemaker's commands are stand-ins of a few lines each, in programs/pacemaker, that keep attributes
in files: the real ones need a running cluster.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.clients.conftest import (
    INSTALLED,
    NODES,
    PROGRAMS,
    Network,
    need,
    run,
)

pytestmark = pytest.mark.timeout(300)

OCF_ROOT = INSTALLED / "resource-agents" / "usr" / "lib" / "ocf"
CYCLES = 4
# One agent waits for another node to approve, the other approves for itself.
APPROVERS = {"azure-events": NODES[1], "azure-events-az": NODES[0]}


@dataclass(frozen=True)
class Cluster:
    """Two nodes, each with the agent."""

    agent: str
    network: Network
    directory: Path

    def attribute(self, name: str, node: str = NODES[0]) -> str:
        """Return an attribute of *node*, or nothing."""
        path = self.directory / node / name
        return path.read_text(encoding="utf-8").strip() if path.exists() else ""

    @property
    def state(self) -> str:
        """What the agent makes of the first node."""
        return self.attribute(f"{self.agent}_curNodeState")

    @property
    def is_drained(self) -> bool:
        """Whether resources are kept away from the first node."""
        return self.attribute("standby") == "on" or self.attribute("#health-azure") == "-1000000"

    def monitor(self) -> None:
        """Have the agent of each node look once."""
        variables = (
            f"PATH={os.pathsep.join([str(PROGRAMS / 'pacemaker'), *os.get_exec_path()])}",
            f"CLUSTER={self.directory}",
            f"NODES={' '.join(NODES)}",
            f"OCF_ROOT={OCF_ROOT}",
            f"HA_LOGFILE={self.directory / 'agents.log'}",
            "HA_debug=1",
        )
        agent = OCF_ROOT / "resource.d" / "heartbeat" / self.agent
        for machine in self.network.machines.values():
            run(*machine.enter("env", *variables, agent, "monitor"))

    def monitor_until(self, event: Mapping[str, Any], status: str) -> None:
        """Have the agents look until *event* is *status*."""
        for _ in range(CYCLES):
            self.monitor()
            if self.network.server.show(event)["event_status"] == status:
                return
        log = (self.directory / "agents.log").read_text(encoding="utf-8")
        pytest.fail(f"the event is not {status} after {CYCLES} cycles: {log}")


@pytest.fixture(params=APPROVERS)
def cluster(request: pytest.FixtureRequest, network: Network, tmp_path: Path) -> Cluster:
    need(OCF_ROOT / "resource.d" / "heartbeat" / request.param)
    return Cluster(request.param, network, tmp_path)


def test_agents_drain_the_node_approve_its_event_and_bring_it_back(cluster: Cluster) -> None:
    server = cluster.network.server
    cluster.monitor()
    event = server.restart(NODES[0])

    cluster.monitor_until(event, "Started")
    during = (cluster.state, cluster.is_drained)
    server.let_impact_end()
    cluster.monitor()

    assert during == ("IN_EVENT", True)
    assert server.approvers(event) == [APPROVERS[cluster.agent]]
    assert server.show(event)["event_status"] == "Completed"
    assert (cluster.state, cluster.is_drained) == ("AVAILABLE", False)


def test_agents_leave_an_event_alone_that_they_are_not_for(cluster: Cluster) -> None:
    event = cluster.network.server.announce("Freeze", NODES[0])

    for _ in range(CYCLES):
        cluster.monitor()

    assert cluster.network.server.show(event)["event_status"] == "Scheduled"
    assert not cluster.is_drained
