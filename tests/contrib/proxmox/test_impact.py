"""Each type of event, carried out by the program for Proxmox VE, and what can go wrong."""

import os
import signal
import subprocess
import time

import pytest
from tests.contrib.conftest import Ended, Program
from tests.contrib.proxmox.api import GIB, Cluster, PveGuest, give, refuse
from tests.contrib.proxmox.conftest import ProgramMaker
from tests.contrib.stand_in import Reply
from tests.e2e.conftest import wait_until

SECONDS = 45.0


@pytest.fixture
def impact(program: ProgramMaker) -> Program:
    return program("pve_impact.py")


def carry_out(impact: Program, event_type: str, vm: str, *flags: str, host: str = "pve-1") -> Ended:
    return impact.run(*flags, EVENT_TYPE=event_type, EVENT_VM=vm, EVENT_HOST=host)


def verbs(cluster: Cluster) -> list[str]:
    """Return what was ordered: the ends of the paths."""
    return [path.rpartition("/")[2] for path in cluster.api.changes()]


def test_freeze_pauses_for_the_announced_time_and_resumes(
    cluster: Cluster, impact: Program
) -> None:
    begun = time.monotonic()

    ended = impact.run(EVENT_TYPE="Freeze", EVENT_VM="WEB-0", EVENT_DURATION="1")

    assert time.monotonic() - begun > 1
    assert (ended.status, ended.last_line) == (0, "web-0 was paused for 1 s and runs again")
    assert verbs(cluster) == ["suspend", "resume"]
    assert cluster.guest("web-0").qmpstatus == "running"


def test_freeze_without_an_announced_time_takes_the_default(
    cluster: Cluster, impact: Program
) -> None:
    ended = impact.run(
        "--freeze", "0.1", EVENT_TYPE="Freeze", EVENT_VM="web-0", EVENT_DURATION="-1"
    )

    assert ended.last_line == "web-0 was paused for 0.1 s and runs again"
    assert verbs(cluster) == ["suspend", "resume"]


def start_freeze(impact: Program, seconds: int = 600) -> "subprocess.Popen[str]":
    return impact.start(EVENT_TYPE="Freeze", EVENT_VM="web-0", EVENT_DURATION=str(seconds))


def wait_for(cluster: Cluster, qmpstatus: str) -> None:
    wait_until(
        lambda: cluster.guest("web-0").qmpstatus == qmpstatus, f"it is not {qmpstatus}", SECONDS
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_guard_resumes_when_the_script_and_its_group_are_killed(
    cluster: Cluster, impact: Program, number: signal.Signals
) -> None:
    with start_freeze(impact) as script:
        wait_for(cluster, "paused")
        os.killpg(script.pid, number)

    wait_for(cluster, "running")


def test_guard_resumes_when_the_order_to_pause_arrives_after_the_end(
    cluster: Cluster, impact: Program
) -> None:
    cluster.task_seconds = 0.3
    with start_freeze(impact) as script:
        wait_until(lambda: verbs(cluster) == ["suspend"], "nothing was ordered", SECONDS)
        script.kill()

    wait_until(lambda: verbs(cluster) == ["suspend", "resume"], "it stays paused", SECONDS)
    wait_for(cluster, "running")


def test_guard_tries_again_until_the_api_is_back(cluster: Cluster, impact: Program) -> None:
    with start_freeze(impact) as script:
        wait_for(cluster, "paused")
        cluster.api.fail("POST .*/resume$", refuse(500, "got no worker upid"), times=2)
        script.kill()

    wait_for(cluster, "running")
    assert verbs(cluster) == ["suspend", "resume", "resume", "resume"]


def test_guard_has_nothing_to_do_after_a_freeze_in_order(cluster: Cluster, impact: Program) -> None:
    impact.run(EVENT_TYPE="Freeze", EVENT_VM="web-0", EVENT_DURATION="0.1")
    asked = len(cluster.api.asked)
    cluster.guest("web-0").qmpstatus = "paused"

    time.sleep(0.5)

    assert len(cluster.api.asked) == asked


def test_second_freeze_of_a_paused_machine_only_resumes_it(
    cluster: Cluster, impact: Program
) -> None:
    cluster.guest("web-0").qmpstatus = "paused"

    ended = carry_out(impact, "Freeze", "web-0")

    assert ended.last_line == "web-0 was paused already and runs again"
    assert verbs(cluster) == ["resume"]


def test_freeze_can_be_a_live_migration_to_the_node_with_most_room(
    cluster: Cluster, impact: Program
) -> None:
    process = cluster.guest("web-0").pid

    ended = carry_out(impact, "Freeze", "web-0", "--migrate")

    assert (ended.status, ended.last_line, ended.host) == (0, "web-0 runs on pve-3", "pve-3")
    assert cluster.guest("web-0").node == "pve-3"
    assert cluster.guest("web-0").pid == process, "it was not stopped"


def test_local_disks_are_migrated_along(cluster: Cluster, impact: Program) -> None:
    cluster.guest("web-0").config["scsi0"] = "local-lvm:vm-100-disk-0,size=1G"

    carry_out(impact, "Freeze", "web-0", "--migrate")

    (order,) = (each for each in cluster.api.asked if each.method == "POST")
    assert order.fields == {"target": "pve-3", "online": "1", "with-local-disks": "1"}


def test_nodes_in_maintenance_offline_or_not_named_are_no_targets(
    cluster: Cluster, impact: Program
) -> None:
    cluster.in_maintenance.add("pve-3")
    assert carry_out(impact, "Freeze", "web-0", "--migrate").last_line == "web-0 runs on pve-2"

    cluster.offline.add("pve-1")
    ended = carry_out(impact, "Freeze", "web-0", "--migrate", "--target", "pve-1", host="pve-2")

    assert ended.status == 1
    assert ended.last_line == 'no other node can take "web-0" (2.0 GiB)'


def test_machine_that_has_left_its_host_is_not_migrated_again(
    cluster: Cluster, impact: Program
) -> None:
    ended = carry_out(impact, "Freeze", "web-1", "--migrate", host="pve-1")

    assert ended.last_line == "web-1 runs on pve-2"
    assert verbs(cluster) == []


def test_reboot_waits_until_the_machine_is_another_process(
    cluster: Cluster, impact: Program
) -> None:
    process = cluster.guest("web-0").pid

    ended = carry_out(impact, "Reboot", "web-0")

    assert (ended.status, ended.last_line, ended.host) == (0, "web-0 was rebooted", "")
    assert cluster.guest("web-0").status == "running"
    assert cluster.guest("web-0").pid != process


def test_machine_that_ignores_the_reboot_is_reset(cluster: Cluster, impact: Program) -> None:
    cluster.guest("web-0").ignores_buttons = True

    ended = carry_out(impact, "Reboot", "web-0", "--grace", "7")

    assert ended.last_line == "web-0 did not shut down within 7 s and was reset"
    assert verbs(cluster) == ["reboot", "reset"]
    assert "failed: VM quit/powerdown failed - got timeout" in ended.printed
    assert cluster.api.asked[2].fields == {"timeout": "7"}


def test_paused_machine_is_resumed_before_its_reboot(cluster: Cluster, impact: Program) -> None:
    cluster.guest("web-0").qmpstatus = "paused"

    assert carry_out(impact, "Reboot", "web-0").last_line == "web-0 was rebooted"
    assert verbs(cluster) == ["resume", "reboot"]


@pytest.mark.parametrize("event_type", ["Freeze", "Reboot"])
def test_stopped_machine_stays_stopped(cluster: Cluster, impact: Program, event_type: str) -> None:
    cluster.guest("web-0").stop()

    ended = carry_out(impact, event_type, "web-0")

    assert ended.last_line == f"web-0 is stopped: nothing to {event_type.lower()}"
    assert verbs(cluster) == []


def test_redeploy_stops_moves_and_starts(cluster: Cluster, impact: Program) -> None:
    ended = carry_out(impact, "Redeploy", "db-0")

    assert (ended.status, ended.last_line, ended.host) == (0, "db-0 runs on pve-3", "pve-3")
    assert verbs(cluster) == ["shutdown", "migrate", "start"]
    assert (cluster.guest("db-0").node, cluster.guest("db-0").status) == ("pve-3", "running")


def test_redeploy_without_room_touches_nothing(cluster: Cluster, impact: Program) -> None:
    cluster.guest("db-0").maxmem = 9 * GIB

    ended = carry_out(impact, "Redeploy", "db-0")

    assert (ended.status, ended.last_line) == (1, 'no other node can take "db-0" (9.0 GiB)')
    assert verbs(cluster) == []


def test_failure_after_the_move_tells_the_host_as_well(cluster: Cluster, impact: Program) -> None:
    cluster.api.fail("POST .*/start", refuse(500, "start failed: no such bridge"))

    ended = carry_out(impact, "Redeploy", "db-0")

    assert (ended.status, ended.host) == (1, "pve-3")
    assert ended.last_line == "Proxmox VE answers 500: start failed: no such bridge"


def test_second_redeploy_only_starts_what_the_first_has_moved(
    cluster: Cluster, impact: Program
) -> None:
    cluster.guest("db-0").node = "pve-3"
    cluster.guest("db-0").stop()

    ended = carry_out(impact, "Redeploy", "db-0")

    assert ended.last_line == "db-0 runs on pve-3"
    assert verbs(cluster) == ["start"]


def test_machine_that_ha_manages_is_waited_for_after_the_task(
    cluster: Cluster, impact: Program
) -> None:
    cluster.guest("web-0").is_ha_managed = True

    ended = carry_out(impact, "Redeploy", "web-0")

    assert ended.last_line == "web-0 runs on pve-3"
    assert [task.kind for task in cluster.tasks.values()] == ["hashutdown", "hamigrate", "hastart"]


@pytest.mark.parametrize("event_type", ["Preempt", "Terminate"])
def test_end_of_a_machine_is_a_shutdown_that_is_forced(
    cluster: Cluster, impact: Program, event_type: str
) -> None:
    cluster.guest("web-0").ignores_buttons = True

    first = carry_out(impact, event_type, "web-0", "--grace", "9")
    second = carry_out(impact, event_type, "web-0")

    assert (first.status, first.last_line) == (0, "web-0 is stopped")
    assert (second.status, second.last_line) == (0, "web-0 is stopped")
    assert verbs(cluster) == ["shutdown"], "the second run sees that nothing is left to do"
    assert cluster.api.asked[2].fields == {"timeout": "9", "forceStop": "1"}


def test_task_that_fails_is_the_reason(cluster: Cluster, impact: Program) -> None:
    cluster.api.fail(
        "GET .*/tasks/", give({"status": "stopped", "exitstatus": "can't lock file - got timeout"})
    )

    ended = carry_out(impact, "Terminate", "web-0")

    assert ended.status == 1
    assert ended.last_line == "task qmshutdown of 100 failed: can't lock file - got timeout"


def test_task_that_warns_has_succeeded(cluster: Cluster, impact: Program) -> None:
    cluster.guest("web-0").stop()
    cluster.guest("web-0").node = "pve-2"
    cluster.api.fail("GET .*/tasks/", give({"status": "stopped", "exitstatus": "WARNINGS: 1"}))

    assert carry_out(impact, "Redeploy", "web-0").last_line == "web-0 runs on pve-2"


def test_task_that_never_ends_is_given_up(cluster: Cluster, impact: Program) -> None:
    cluster.task_seconds = 600

    ended = carry_out(impact, "Terminate", "web-0", "--wait", "0.3")

    assert ended.status == 1
    assert ended.last_line == "timed out after 0.3 s waiting for task qmshutdown of 100 to end"


@pytest.mark.parametrize(
    ("line", "reply", "reason"),
    [
        (
            "GET /cluster/resources",
            refuse(401, "invalid token value!"),
            "Proxmox VE answers 401: invalid token value!; check the token",
        ),
        (
            "POST .*/shutdown",
            refuse(403, "Permission check failed (/vms/100, VM.PowerMgmt)"),
            ("Proxmox VE answers 403: Permission check failed (/vms/100, VM.PowerMgmt); "
            "check the permissions of the token"),
        ),
        (
            "POST .*/shutdown",
            Reply(400, {"data": None, "message": "Parameter verification failed.\n",
                        "errors": {"timeout": "value must have a minimum value of 0"}}),
            ("Proxmox VE answers 400: Parameter verification failed.; "
            "timeout: value must have a minimum value of 0"),
        ),
        ("POST .*/shutdown", Reply(500), "Proxmox VE answers 500: Internal Server Error"),
        ("GET .*/current", Reply(200, "<html>"), "Proxmox VE answers 200: no JSON data"),
        ("GET .*/current", Reply(302, None, {"Location": "/"}), "Proxmox VE answers 302: Found"),
        (
            "GET .*/current",
            give([]),
            ("Proxmox VE sent an unexpected answer: AttributeError: 'list' object has no "
            "attribute 'get'"),
        ),
        ("POST .*/shutdown", give(None), ('Proxmox VE answers "None" to '
         "/nodes/pve-1/qemu/100/status/shutdown instead of a task")),
    ],
)  # fmt: skip
def test_refusal_is_the_reason_and_is_not_repeated(
    cluster: Cluster, impact: Program, line: str, reply: Reply, reason: str
) -> None:
    cluster.api.fail(line, reply)

    ended = carry_out(impact, "Terminate", "web-0")

    assert (ended.status, ended.last_line) == (1, reason)
    assert len(verbs(cluster)) <= 1


def test_looks_are_repeated_while_a_node_is_away(cluster: Cluster, impact: Program) -> None:
    cluster.api.fail("GET .*/current", refuse(595, "No route to host"), times=3)

    assert carry_out(impact, "Terminate", "web-0").last_line == "web-0 is stopped"


def test_order_without_an_answer_is_not_sent_again(cluster: Cluster, impact: Program) -> None:
    cluster.api.fail("POST", None)

    ended = carry_out(impact, "Terminate", "web-0", "--request-timeout", "0.3")

    assert ended.status == 1
    assert "timed out; check whether" in ended.last_line
    assert verbs(cluster) == ["shutdown"]


def test_api_that_hangs_is_given_up(cluster: Cluster, impact: Program) -> None:
    cluster.api.fail("GET", None)

    ended = carry_out(impact, "Terminate", "web-0", "--request-timeout", "0.2")

    assert ended.status == 1
    assert ended.last_line.startswith('no answer from "127.0.0.1:')


def test_unknown_and_ambiguous_names_change_nothing(cluster: Cluster, impact: Program) -> None:
    cluster.guests[200] = PveGuest(vmid=200, name="Web-0")

    unknown = carry_out(impact, "Terminate", "web-9")
    ambiguous = carry_out(impact, "Terminate", "web-0")

    assert (unknown.status, ambiguous.status) == (1, 1)
    assert unknown.last_line == ('no virtual machine is named "web-9", or the token lacks VM.Audit')
    assert ambiguous.last_line == (
        'several virtual machines are named "web-0": 100, 200; rename all but one'
    )
    assert verbs(cluster) == []


def test_event_of_an_unknown_type_changes_nothing(cluster: Cluster, impact: Program) -> None:
    ended = carry_out(impact, "Explode", "web-0")

    assert ended.status == 1
    assert ended.last_line == (
        "set EVENT_VM, and EVENT_TYPE to one of Freeze, Reboot, Redeploy, Preempt, Terminate, "
        'not "Explode"'
    )
    assert cluster.api.asked == []
