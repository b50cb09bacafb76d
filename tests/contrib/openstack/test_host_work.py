"""The work on a compute host of OpenStack, with a program in the place of ssh."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.contrib.conftest import Ended, Program
from tests.contrib.openstack.api import Cloud
from tests.contrib.openstack.conftest import ProgramMaker
from tests.contrib.ssh import calls, put_ssh


@pytest.fixture
def host_work(program: ProgramMaker, tmp_path: Path) -> Program:
    put_ssh(tmp_path)
    (tmp_path / "patch.sh").write_text("apt-get -qy full-upgrade\n", encoding="ascii")
    made = program("nova_host_work.py")
    return replace(made, environment={"PATH": f"{tmp_path}:{os.defpath}"})


def carry_out(
    host_work: Program, task: str, *flags: str, vm: str = "", told: str = "Reboot"
) -> Ended:
    operation = {"OPERATION_TASK": task, "OPERATION_HOST": "compute-1", "OPERATION_VM": vm}
    return host_work.run(*flags, MAINTENANCE_ID="M-1", EVENT_TYPE=told, **operation)


def statuses(cloud: Cloud) -> list[tuple[str, str | None]]:
    """Return what the service was set to, one after the other."""
    return [
        (each.fields["status"], each.fields.get("disabled_reason"))
        for each in cloud.api.asked
        if each.method == "PUT"
    ]


def test_host_is_closed_worked_on_rebooted_and_opened(
    host_work: Program, cloud: Cloud, tmp_path: Path
) -> None:
    ended = carry_out(host_work, "work", "--script", str(tmp_path / "patch.sh"), "--reboot")

    assert (ended.status, ended.last_line) == (0, "compute-1 is done"), ended.said
    assert statuses(cloud) == [("disabled", "forewarn M-1"), ("enabled", None)]
    assert calls(tmp_path) == [
        "root@compute-1 sh -s <<< apt-get -qy full-upgrade",
        "root@compute-1 systemctl reboot",
    ]
    assert carry_out(host_work, "verify").last_line == "compute-1 is up"


def test_host_is_not_rebooted_under_servers_that_were_told_of_a_freeze(
    host_work: Program, cloud: Cloud, tmp_path: Path
) -> None:
    script = ("--script", str(tmp_path / "patch.sh"))

    several = carry_out(host_work, "work", *script, "--reboot", told="Freeze")
    cloud.server("db-0").status = cloud.server("idle").status = "SHUTOFF"
    one = carry_out(host_work, "work", *script, "--reboot", told="Freeze")
    before = calls(tmp_path)
    without = carry_out(host_work, "work", *script, told="Freeze")

    why = 'would go down with "compute-1", but the event is "Freeze": move them first'
    assert (several.status, several.last_line) == (1, f"web-0 and 2 more {why}")
    assert (one.status, one.last_line, before) == (1, f"web-0 {why}", [])
    assert without.status == 0


def test_script_that_fails_leaves_the_host_closed_for_the_next_attempt(
    host_work: Program, cloud: Cloud, tmp_path: Path
) -> None:
    (tmp_path / "ssh.broken").touch()
    script = ("--script", str(tmp_path / "patch.sh"))

    failed = carry_out(host_work, "work", *script)
    unverified = carry_out(host_work, "verify")
    (tmp_path / "ssh.broken").unlink()
    done = carry_out(host_work, "work", *script)

    assert (failed.status, failed.last_line) == (
        1,
        '"sh -s" failed on "compute-1": no space left',
    )
    assert unverified.last_line == 'the compute service of "compute-1" is still disabled'
    assert done.last_line == "compute-1 is done"
    assert statuses(cloud) == [("disabled", "forewarn M-1"), ("enabled", None)]


def test_service_that_somebody_else_has_disabled_stays_disabled(
    host_work: Program, cloud: Cloud
) -> None:
    cloud.services["compute-1"] |= {"status": "disabled", "disabled_reason": "broken fan"}

    ended = carry_out(host_work, "work")

    assert ended.last_line == 'compute-1 is done and stays disabled: "broken fan"'
    assert statuses(cloud) == []
    assert carry_out(host_work, "verify").status == 0


def test_service_that_does_not_come_up_is_given_up(host_work: Program, cloud: Cloud) -> None:
    cloud.services["compute-1"]["state"] = "down"

    ended = carry_out(host_work, "work", "--wait", "0.3")
    verified = carry_out(host_work, "verify")

    assert ended.last_line == 'timed out after 0.3 s waiting for "compute-1" to be up'
    assert verified.last_line == 'the compute service of "compute-1" is down'
    assert statuses(cloud)[-1][0] == "disabled"


def test_host_that_does_not_reboot_is_given_up(host_work: Program, tmp_path: Path) -> None:
    (tmp_path / "ssh.away").touch()

    ended = carry_out(host_work, "work", "--reboot")

    assert ended.status == 1
    assert ended.last_line.startswith('"cat /proc/sys/kernel/random/boot_id" failed')


def test_server_is_given_back(host_work: Program, cloud: Cloud) -> None:
    cloud.server("web-0").status = "PAUSED"
    cloud.server("db-0").status = "SHUTOFF"

    assert carry_out(host_work, "return", vm="web-0").last_line == "web-0 runs on compute-1"
    assert carry_out(host_work, "return", vm="db-0").last_line == "db-0 runs on compute-1"
    moved = carry_out(host_work, "return", vm="web-1")
    again = carry_out(host_work, "return", vm="db-0")

    assert moved.last_line == "web-1 stays on compute-2"
    assert moved.host == "compute-2"
    assert (again.status, again.host) == (0, "")
    assert [next(iter(each.fields)) for each in cloud.api.asked if "/action" in each.path] == [
        "unpause",
        "os-start",
    ]


@pytest.mark.parametrize("host", ["-oProxyCommand=evil", "a; reboot", ""])
def test_host_that_is_no_name_reaches_no_shell(
    host_work: Program, tmp_path: Path, host: str
) -> None:
    ended = host_work.run(OPERATION_TASK="work", OPERATION_HOST=host)

    assert ended.last_line == f'set OPERATION_HOST to the name of a host, not "{host}"'
    assert calls(tmp_path) == []


def test_host_that_nova_does_not_know_is_named(host_work: Program, tmp_path: Path) -> None:
    ended = host_work.run(OPERATION_TASK="work", OPERATION_HOST="compute-9")

    assert ended.last_line == 'Nova knows 0 compute services of "compute-9", not 1'
    assert calls(tmp_path) == []


def test_unknown_task_and_missing_script_are_named(host_work: Program) -> None:
    unknown = carry_out(host_work, "explode")
    missing = carry_out(host_work, "work", "--script", "none.sh")

    assert unknown.last_line == 'set OPERATION_TASK to one of work, verify, return, not "explode"'
    assert missing.last_line == 'the script "none.sh" does not exist'
