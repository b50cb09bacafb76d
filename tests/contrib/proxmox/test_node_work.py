"""The work on a node of Proxmox VE, with a program in the place of ssh."""

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.contrib.conftest import Ended, Program
from tests.contrib.proxmox.api import Cluster
from tests.contrib.proxmox.conftest import ProgramMaker
from tests.contrib.ssh import calls, put_ssh

ENABLE = "root@pve-1 ha-manager crm-command node-maintenance enable pve-1"
DISABLE = "root@pve-1 ha-manager crm-command node-maintenance disable pve-1"


@pytest.fixture
def node_work(program: ProgramMaker, tmp_path: Path) -> Program:
    put_ssh(tmp_path)
    (tmp_path / "patch.sh").write_text("apt-get -qy full-upgrade\n", encoding="ascii")
    made = program("pve_node_work.py")
    return replace(made, environment={"PATH": f"{tmp_path}:{os.defpath}"})


@pytest.fixture
def followed(cluster: Cluster, tmp_path: Path) -> Iterator[None]:
    """Let the cluster follow what is ordered by ssh."""
    ending = threading.Event()

    def follow() -> None:
        while not ending.wait(0.02):
            for line in calls(tmp_path):
                if line == ENABLE:
                    cluster.in_maintenance.add("pve-1")
                if line == DISABLE:
                    cluster.in_maintenance.discard("pve-1")

    thread = threading.Thread(target=follow)
    thread.start()
    yield
    ending.set()
    thread.join(60)


def carry_out(
    node_work: Program, task: str, *flags: str, vm: str = "", told: str = "Reboot"
) -> Ended:
    operation = {"OPERATION_TASK": task, "OPERATION_HOST": "pve-1", "OPERATION_VM": vm}
    return node_work.run(*flags, EVENT_TYPE=told, **operation)


@pytest.mark.usefixtures("followed")
def test_node_is_closed_worked_on_rebooted_and_opened(
    node_work: Program, cluster: Cluster, tmp_path: Path
) -> None:
    ended = carry_out(node_work, "work", "--script", str(tmp_path / "patch.sh"), "--reboot")

    assert (ended.status, ended.last_line) == (0, "pve-1 is done"), ended.said
    assert calls(tmp_path) == [
        ENABLE,
        "root@pve-1 sh -s <<< apt-get -qy full-upgrade",
        "root@pve-1 systemctl reboot",
        DISABLE,
    ]
    assert carry_out(node_work, "verify").last_line == "pve-1 is online"
    assert cluster.api.changes() == []


def test_script_waits_until_ha_has_emptied_the_node(
    node_work: Program, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.guest("web-0").is_ha_managed = True

    ended = carry_out(node_work, "work", "--script", str(tmp_path / "patch.sh"), "--wait", "0.3")

    assert ended.last_line == 'timed out after 0.3 s waiting for HA to empty "pve-1"'
    assert calls(tmp_path) == [ENABLE], "the node stays closed, and is not touched"


def test_node_is_not_rebooted_under_machines_that_were_told_of_a_freeze(
    node_work: Program, cluster: Cluster, tmp_path: Path
) -> None:
    script = ("--script", str(tmp_path / "patch.sh"))

    several = carry_out(node_work, "work", *script, "--reboot", told="Freeze")
    cluster.guest("db-0").stop()
    one = carry_out(node_work, "work", *script, "--reboot", told="Freeze")
    without = carry_out(node_work, "work", *script, told="Freeze")

    why = 'would go down with "pve-1", but the event is "Freeze": move them first'
    assert (several.status, several.last_line) == (1, f"web-0 and 1 more {why}")
    assert (one.status, one.last_line) == (1, f"web-0 {why}")
    assert without.status == 0
    assert calls(tmp_path)[:2] == [ENABLE, ENABLE], "nothing else was done"


def test_script_that_fails_leaves_the_node_closed(node_work: Program, tmp_path: Path) -> None:
    (tmp_path / "ssh.broken").touch()

    ended = carry_out(node_work, "work", "--script", str(tmp_path / "patch.sh"))

    assert (ended.status, ended.last_line) == (1, '"sh -s" failed on "pve-1": no space left')
    assert calls(tmp_path)[-1] != DISABLE


def test_node_that_does_not_come_back_is_given_up(node_work: Program, tmp_path: Path) -> None:
    ssh = (tmp_path / "ssh").read_text(encoding="ascii")
    (tmp_path / "ssh").write_text(ssh.replace("echo another", "echo first"), encoding="ascii")

    ended = carry_out(node_work, "work", "--reboot", "--wait", "0.3")

    assert (ended.status, ended.last_line) == (1, '"pve-1" has not rebooted within 0.3 s')


def test_verify_fails_while_the_node_is_away_or_closed(
    node_work: Program, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.in_maintenance.add("pve-1")
    closed = carry_out(node_work, "verify")
    cluster.offline.add("pve-1")
    away = carry_out(node_work, "verify")

    assert (closed.status, closed.last_line) == (1, '"pve-1" is still in maintenance mode')
    assert (away.status, away.last_line) == (1, '"pve-1" is offline, not online')
    assert calls(tmp_path) == []


def test_machine_is_given_back(node_work: Program, cluster: Cluster) -> None:
    cluster.guest("web-0").qmpstatus = "paused"
    cluster.guest("db-0").stop()

    assert carry_out(node_work, "return", vm="web-0").last_line == "web-0 runs on pve-1"
    assert carry_out(node_work, "return", vm="db-0").last_line == "db-0 runs on pve-1"
    moved = carry_out(node_work, "return", vm="web-1")
    again = carry_out(node_work, "return", vm="db-0")

    assert moved.last_line == "web-1 stays on pve-2"
    assert moved.host == "pve-2"
    assert (again.status, again.host) == (0, "")
    assert [path.rpartition("/")[2] for path in cluster.api.changes()] == ["resume", "start"]


@pytest.mark.parametrize("host", ["-oProxyCommand=evil", "pve-1; reboot", "", "pve_1"])
def test_host_that_is_no_name_reaches_no_shell(
    node_work: Program, tmp_path: Path, host: str
) -> None:
    ended = node_work.run(OPERATION_TASK="work", OPERATION_HOST=host)

    assert ended.last_line == f'set OPERATION_HOST to the name of a node, not "{host}"'
    assert calls(tmp_path) == []


def test_unknown_task_and_missing_script_are_named(node_work: Program, tmp_path: Path) -> None:
    unknown = carry_out(node_work, "explode")
    missing = carry_out(node_work, "work", "--script", "none.sh")

    assert unknown.last_line == 'set OPERATION_TASK to one of work, verify, return, not "explode"'
    assert missing.last_line == 'the script "none.sh" does not exist'
    assert calls(tmp_path) == []
