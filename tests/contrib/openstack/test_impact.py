"""Each type of event, carried out by the program for OpenStack, and what can go wrong."""

import os
import signal
import subprocess
import time

import pytest
from tests.contrib.conftest import Ended, Program
from tests.contrib.openstack.api import Cloud, NovaServer, refuse
from tests.contrib.openstack.conftest import ProgramMaker, identify
from tests.contrib.stand_in import Reply
from tests.e2e.conftest import wait_until

SECONDS = 45.0


@pytest.fixture
def impact(program: ProgramMaker) -> Program:
    return program("nova_impact.py")


def carry_out(
    impact: Program, event_type: str, vm: str, *flags: str, host: str = "compute-1"
) -> Ended:
    return impact.run(*flags, EVENT_TYPE=event_type, EVENT_VM=vm, EVENT_HOST=host)


def actions(cloud: Cloud) -> list[str]:
    """Return what was ordered: actions by name, or the method."""
    return [
        next(iter(each.fields)) if each.path.endswith("/action") else each.method
        for each in cloud.api.asked
        if each.method != "GET" and "/auth/" not in each.path
    ]


def test_freeze_pauses_for_the_announced_time_and_unpauses(cloud: Cloud, impact: Program) -> None:
    begun = time.monotonic()

    ended = impact.run(EVENT_TYPE="Freeze", EVENT_VM="web-0", EVENT_DURATION="1")

    assert time.monotonic() - begun > 1
    assert (ended.status, ended.last_line) == (0, "web-0 was paused for 1 s and runs again")
    assert actions(cloud) == ["pause", "unpause"]
    assert cloud.server("web-0").status == "ACTIVE"


def start_freeze(impact: Program) -> "subprocess.Popen[str]":
    return impact.start(EVENT_TYPE="Freeze", EVENT_VM="web-0", EVENT_DURATION="600")


def wait_for(cloud: Cloud, status: str) -> None:
    wait_until(lambda: cloud.server("web-0").status == status, f"it is not {status}", SECONDS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_guard_unpauses_when_the_script_and_its_group_are_killed(
    cloud: Cloud, impact: Program, number: signal.Signals
) -> None:
    with start_freeze(impact) as script:
        wait_for(cloud, "PAUSED")
        os.killpg(script.pid, number)

    wait_for(cloud, "ACTIVE")


def test_guard_unpauses_when_the_order_to_pause_is_carried_out_after_the_end(
    cloud: Cloud, impact: Program
) -> None:
    cloud.task_seconds = 0.3
    with start_freeze(impact) as script:
        wait_until(lambda: actions(cloud) == ["pause"], "nothing was ordered", SECONDS)
        script.kill()

    wait_until(lambda: actions(cloud) == ["pause", "unpause"], "it stays paused", SECONDS)
    wait_for(cloud, "ACTIVE")


def test_guard_tries_again_until_nova_is_back(cloud: Cloud, impact: Program) -> None:
    with start_freeze(impact) as script:
        wait_for(cloud, "PAUSED")
        cloud.api.fail("POST .*/action", refuse(500, "computeFault", "Unexpected API Error."), 2)
        script.kill()

    wait_for(cloud, "ACTIVE")
    assert actions(cloud) == ["pause", "unpause", "unpause", "unpause"]


def test_second_freeze_of_a_paused_server_only_unpauses_it(cloud: Cloud, impact: Program) -> None:
    cloud.server("web-0").status = "PAUSED"

    ended = carry_out(impact, "Freeze", "web-0")

    assert ended.last_line == "web-0 was paused already and runs again"
    assert actions(cloud) == ["unpause"]


def test_freeze_can_be_a_live_migration(cloud: Cloud, impact: Program) -> None:
    ended = carry_out(impact, "Freeze", "web-0", "--migrate")

    assert (ended.status, ended.last_line) == (0, "web-0 is ACTIVE on compute-3")
    assert ended.host == "compute-3"
    (order,) = (each for each in cloud.api.asked if each.path.endswith("/action"))
    assert order.fields == {"os-migrateLive": {"host": None, "block_migration": "auto"}}


def test_migration_goes_to_the_named_host(impact: Program) -> None:
    ended = carry_out(impact, "Freeze", "web-0", "--migrate", "--target", "compute-2")

    assert ended.last_line == "web-0 is ACTIVE on compute-2"


@pytest.mark.parametrize(("event_type", "flags"), [("Freeze", ["--migrate"]), ("Redeploy", [])])
def test_server_that_nova_could_not_move_is_a_failure(
    cloud: Cloud, impact: Program, event_type: str, flags: list[str]
) -> None:
    cloud.has_room = False

    ended = carry_out(impact, event_type, "web-0", *flags)

    assert ended.status == 1
    assert ended.last_line == '"web-0" is still on "compute-1": Nova could not move it'


@pytest.mark.parametrize(("event_type", "flags"), [("Freeze", ["--migrate"]), ("Redeploy", [])])
def test_server_that_has_left_its_host_is_not_moved_again(
    cloud: Cloud, impact: Program, event_type: str, flags: list[str]
) -> None:
    ended = carry_out(impact, event_type, "web-1", *flags, host="compute-1")

    assert (ended.status, ended.last_line) == (0, "web-1 is ACTIVE on compute-2")
    assert actions(cloud) == []


def test_reboot_is_soft(cloud: Cloud, impact: Program) -> None:
    ended = carry_out(impact, "Reboot", "web-0")

    assert (ended.status, ended.last_line, ended.host) == (0, "web-0 was rebooted", "")
    assert cloud.api.asked[2].fields == {"reboot": {"type": "SOFT"}}


def test_server_that_ignores_the_reboot_is_rebooted_hard(cloud: Cloud, impact: Program) -> None:
    cloud.server("web-0").ignores_buttons = True

    ended = carry_out(impact, "Reboot", "web-0", "--grace", "0.4")

    assert ended.last_line == "web-0 did not reboot within 0.4 s: rebooted hard"
    assert actions(cloud) == ["reboot", "reboot"]
    assert cloud.server("web-0").status == "ACTIVE"


@pytest.mark.parametrize(
    ("event_type", "expected"),
    [("Reboot", ["unpause", "reboot"]), ("Preempt", ["unpause", "os-stop"])],
)
def test_paused_server_is_unpaused_before(
    cloud: Cloud, impact: Program, event_type: str, expected: list[str]
) -> None:
    cloud.server("web-0").status = "PAUSED"

    assert carry_out(impact, event_type, "web-0").status == 0
    assert actions(cloud) == expected


@pytest.mark.parametrize("event_type", ["Freeze", "Reboot", "Preempt", "Terminate"])
def test_server_that_is_off_stays_off(cloud: Cloud, impact: Program, event_type: str) -> None:
    cloud.server("web-0").status = "SHUTOFF"

    assert carry_out(impact, event_type, "web-0").status == 0
    assert actions(cloud) == []


def test_redeploy_is_a_cold_migration_that_is_confirmed(cloud: Cloud, impact: Program) -> None:
    ended = carry_out(impact, "Redeploy", "web-0")

    assert (ended.status, ended.last_line) == (0, "web-0 is ACTIVE on compute-3")
    assert ended.host == "compute-3"
    assert actions(cloud) == ["migrate", "confirmResize"]


def test_second_redeploy_only_confirms_what_the_first_has_moved(
    cloud: Cloud, impact: Program
) -> None:
    cloud.server("web-0").status, cloud.server("web-0").host = "VERIFY_RESIZE", "compute-3"

    ended = carry_out(impact, "Redeploy", "web-0")

    assert ended.last_line == "web-0 is ACTIVE on compute-3"
    assert actions(cloud) == ["confirmResize"]


@pytest.mark.parametrize(("state", "action"), [("down", "evacuate"), ("up", "migrate")])
def test_server_is_rebuilt_elsewhere_only_if_its_host_is_down_and_the_operator_said_so(
    cloud: Cloud, impact: Program, state: str, action: str
) -> None:
    cloud.services["compute-1"]["state"] = state

    ended = carry_out(impact, "Redeploy", "web-0", "--evacuate")

    assert ended.last_line == "web-0 is ACTIVE on compute-3"
    assert actions(cloud)[0] == action


def test_terminate_stops_and_deletes_only_on_request(cloud: Cloud, impact: Program) -> None:
    kept = carry_out(impact, "Terminate", "web-0")
    assert (kept.status, kept.last_line) == (0, "web-0 is stopped")
    assert actions(cloud) == ["os-stop"]

    gone = carry_out(impact, "Terminate", "web-0", "--delete")

    assert (gone.status, gone.last_line) == (0, "web-0 is deleted")
    assert actions(cloud) == ["os-stop", "DELETE"]
    assert "web-0" not in [server.name for server in cloud.servers]


def test_server_that_ends_in_error_is_the_reason(cloud: Cloud, impact: Program) -> None:
    cloud.task_seconds = 600
    server = cloud.server("web-0")

    with impact.start(EVENT_TYPE="Redeploy", EVENT_VM="web-0") as script:
        wait_until(lambda: server.status == "RESIZE", "it is not moved", SECONDS)
        server.fault = "No valid host was found."
        server.status, server.task, server.due = "ERROR", None, None
        _, said = script.communicate(timeout=SECONDS)

    assert (script.returncode, said) == (1, '"web-0" is in ERROR: No valid host was found.\n')


@pytest.mark.parametrize(
    ("line", "reply", "reason"),
    [
        (
            "POST .*/action",
            refuse(403, "forbidden", "Policy doesn't allow os-pause-server:pause."),
            (
                "OpenStack answers 403: Policy doesn't allow os-pause-server:pause.; "
                "check the roles of the user"
            ),
        ),
        (
            "POST .*/action",
            refuse(409, "conflictingRequest", "Instance 5e0d is locked"),
            "OpenStack answers 409: Instance 5e0d is locked",
        ),
        (
            "POST .*/action",
            refuse(500, "computeFault", "Unexpected API Error."),
            "OpenStack answers 500: Unexpected API Error.",
        ),
        (
            "POST .*/action",
            Reply(503, "<html>no server"),
            "OpenStack answers 503: Service Unavailable; check whether it was carried out",
        ),
        ("GET .*/detail", Reply(200, {"servers": [{}]}), "OpenStack sent an unexpected answer"),
        ("GET .*/detail", Reply(200, "<html>"), "OpenStack answers 200 without JSON"),
        ("POST .*/tokens", Reply(302, None, {"Location": "/"}), "OpenStack answers 302: Found"),
    ],
)
def test_refusal_is_the_reason_and_is_not_repeated(
    cloud: Cloud, impact: Program, line: str, reply: Reply, reason: str
) -> None:
    cloud.api.fail(line, reply)

    ended = carry_out(impact, "Preempt", "web-0")

    assert ended.status == 1
    assert ended.last_line.startswith(reason)
    assert len(actions(cloud)) <= 1


def test_looks_are_repeated_while_nova_is_away(cloud: Cloud, impact: Program) -> None:
    cloud.api.fail("GET .*/servers/", Reply(503, "<html>no server"), times=3)

    assert carry_out(impact, "Preempt", "web-0").last_line == "web-0 is stopped"


def test_order_without_an_answer_is_not_sent_again(cloud: Cloud, impact: Program) -> None:
    cloud.api.fail("POST .*/action", None)

    ended = carry_out(impact, "Preempt", "web-0", "--request-timeout", "0.3")

    assert ended.status == 1
    assert ended.last_line.endswith("timed out; check whether it was carried out")
    assert actions(cloud) == ["os-stop"]


def test_server_that_does_not_stop_is_given_up(cloud: Cloud, impact: Program) -> None:
    cloud.task_seconds = 600

    ended = carry_out(impact, "Preempt", "web-0", "--wait", "0.3")

    assert ended.status == 1
    assert ended.last_line == 'timed out after 0.3 s waiting for "web-0" to become SHUTOFF'


def test_token_that_expires_is_renewed(cloud: Cloud, impact: Program) -> None:
    with impact.start(EVENT_TYPE="Freeze", EVENT_VM="web-0", EVENT_DURATION="1") as script:
        wait_for(cloud, "PAUSED")
        cloud.tokens.clear()
        cloud.tokens.add("another")
        printed, said = script.communicate(timeout=SECONDS)

    assert printed.splitlines()[-1] == "web-0 was paused for 1 s and runs again", said


def test_unknown_and_ambiguous_names_change_nothing(cloud: Cloud, impact: Program) -> None:
    cloud.servers.append(NovaServer(id=identify(9), name="WEB-0"))

    unknown = carry_out(impact, "Terminate", "web-9")
    ambiguous = carry_out(impact, "Terminate", "web-0")
    by_id = carry_out(impact, "Terminate", identify(9).upper())

    assert (unknown.status, unknown.last_line) == (1, 'no server is named "web-9"')
    assert (ambiguous.status, ambiguous.last_line) == (
        1,
        f'several servers are named "web-0": {identify(0)}, {identify(9)}; rename all but one',
    )
    assert by_id.last_line == "WEB-0 is stopped"


def test_unknown_id_is_a_refusal_of_nova(impact: Program) -> None:
    ended = carry_out(impact, "Terminate", identify(77))

    assert ended.status == 1
    assert ended.last_line == (
        f"OpenStack answers 404: Instance {identify(77)} could not be found."
    )


@pytest.mark.parametrize("line", ["POST .*/auth/tokens", "GET .*/detail"])
def test_api_that_hangs_is_given_up(cloud: Cloud, impact: Program, line: str) -> None:
    cloud.api.fail(line, None)

    ended = carry_out(impact, "Terminate", "web-0", "--request-timeout", "0.2")

    assert ended.status == 1
    assert ended.last_line.startswith('no answer from "http://127.0.0.1:')
    assert actions(cloud) == []


def test_server_of_another_project_is_found_only_on_request(cloud: Cloud, impact: Program) -> None:
    assert carry_out(impact, "Preempt", "idle").status == 1
    assert carry_out(impact, "Preempt", "idle", "--all-projects").status == 0
    assert cloud.server("idle").status == "SHUTOFF"


def test_event_of_an_unknown_type_changes_nothing(cloud: Cloud, impact: Program) -> None:
    ended = carry_out(impact, "Explode", "web-0")

    assert ended.status == 1
    assert ended.last_line.endswith('not "Explode"')
    assert cloud.api.asked == []
