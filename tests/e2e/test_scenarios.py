"""Scenarios on a real server: what a virtual machine reads, and what the command line tells."""

import re
import signal
import subprocess
import threading
from collections.abc import Mapping
from datetime import timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import (
    ANSWER_SECONDS,
    FOREWARN,
    START_SECONDS,
    Server,
    ServerMaker,
    wait_until,
)

from forewarn.clocks import SystemClock
from forewarn.emulator.builtin import built_in_scenarios

VIRTUAL = ("--clock", "virtual", "--executor", "simulated")
FAST = ("--executor", "simulated")
MINUTE = 60
USER = "Virtual machine is going to be {} as requested by authorized user."

# What solo-0 reads and when it changes, in seconds; the medians are those Microsoft publishes.
TIMELINES: Mapping[str, Mapping[int, str | None]] = {
    "live-migration": {0: "Scheduled", 15 * MINUTE: "Started", 20 * MINUTE: None},
    "host-agent-maintenance": {0: "Scheduled", 15 * MINUTE: "Started", 25 * MINUTE: None},
    "user-reboot": {0: "Scheduled", 15 * MINUTE: "Started", 25 * MINUTE: None},
    "redeploy": {0: "Scheduled", 15 * MINUTE: "Started", 25 * MINUTE: None},
    "user-redeploy": {0: "Scheduled", 15 * MINUTE: "Started", 25 * MINUTE: None},
    "canceled-maintenance": {0: "Scheduled", 8 * MINUTE: None},
    "spot-eviction": {0: "Scheduled", 30: "Started", 60: None},
    "scale-set-terminate": {0: "Scheduled", 5 * MINUTE: "Started", 6 * MINUTE: None},
    "hardware-failure": {0: "Started", 10 * MINUTE: None},
}
SHAPES: Mapping[str, tuple[str, str, str, int]] = {
    "live-migration": (
        "Freeze",
        "Platform",
        "Virtual machine is being paused because of a memory-preserving Live Migration operation.",
        5,
    ),
    "host-agent-maintenance": ("Freeze", "Platform", "Host server is undergoing maintenance.", 9),
    "user-reboot": ("Reboot", "User", USER.format("restarted"), -1),
    "redeploy": ("Redeploy", "Platform", "Virtual machine has encountered a failure.", -1),
    "user-redeploy": ("Redeploy", "User", USER.format("redeployed"), -1),
    "canceled-maintenance": ("Freeze", "Platform", "Host server is undergoing maintenance.", 9),
    "spot-eviction": ("Preempt", "Platform", "", -1),
    "scale-set-terminate": ("Terminate", "Platform", "", -1),
    "hardware-failure": ("Reboot", "Platform", "Virtual machine has encountered a failure.", -1),
}


def begin(server: Server, name: str, *vms: str, **more: object) -> dict[str, Any]:
    order = {"name": name, "virtual_machines": vms, **more}
    answer = server.operate("POST", "scenario-runs", order)
    assert answer.status == 201, answer
    begun: dict[str, Any] = answer.json()
    return begun


def advance(server: Server, seconds: int) -> None:
    answer = server.operate("POST", "clock/advance", {"duration": f"{seconds}s"})
    assert answer.status == 200, answer


def read_status(server: Server, vm: str) -> str | None:
    """Return the status of the one event that *vm* reads, if there is one."""
    statuses = [event["EventStatus"] for event in server.poll(vm).events]
    assert len(statuses) <= 1
    return str(statuses[0]) if statuses else None


def follow(server: Server, *arguments: str) -> "subprocess.Popen[str]":
    """Run a command of the CLI that goes on for a while."""
    where = {
        "FOREWARN_SERVER": f"http://127.0.0.1:{server.control_port}",
        "FOREWARN_STATE_DIR": str(server.database.parent),
        "PYTHONUNBUFFERED": "1",
    }
    return subprocess.Popen(
        [FOREWARN, *arguments],
        env={**server.environment, **where},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_every_built_in_scenario_has_a_timeline_here() -> None:
    assert set(built_in_scenarios()) == set(TIMELINES) == set(SHAPES)


@pytest.mark.parametrize("name", TIMELINES)
def test_built_in_scenario_is_what_a_virtual_machine_reads_at_every_moment(
    start_server: ServerMaker, name: str
) -> None:
    server, timeline = start_server(*VIRTUAL), TIMELINES[name]
    run = begin(server, name, "solo-0")
    (event,) = server.poll("solo-0").events
    stride = 10 if name == "spot-eviction" else MINUTE
    expected = None

    for second in range(0, max(timeline) + 2 * stride, stride):
        expected = timeline.get(second, expected)
        assert read_status(server, "solo-0") == expected, f"after {second} s"
        advance(server, stride - 1)
        assert read_status(server, "solo-0") == expected, f"just before {second + stride} s"
        advance(server, 1)

    shape = ("EventType", "EventSource", "Description", "DurationInSeconds")
    assert tuple(event[key] for key in shape) == SHAPES[name]
    report = server.operate("GET", f"scenario-runs/{run['run_id']}").json()
    assert report["status"] == "finished"


def test_approval_of_a_live_migration_starts_it_early_and_it_lasts_as_long(
    start_server: ServerMaker,
) -> None:
    server = start_server(*VIRTUAL)
    begin(server, "live-migration", "solo-0")
    advance(server, 2 * MINUTE)
    (event,) = server.poll("solo-0").events

    server.approve("solo-0", event["EventId"])
    statuses = [read_status(server, "solo-0")]
    for _ in range(6):
        advance(server, MINUTE)
        statuses.append(read_status(server, "solo-0"))

    assert statuses == ["Started"] * 5 + [None] * 2


def test_scenario_of_a_set_has_an_event_for_each_update_domain(start_server: ServerMaker) -> None:
    server = start_server(*VIRTUAL)

    begin(server, "live-migration", "web-0", "web-1")

    resources = [event["Resources"] for event in server.poll("web-2").events]
    assert sorted(resources) == [["web-0"], ["web-1"]]


def test_scenario_goes_on_after_the_server_was_killed(start_server: ServerMaker) -> None:
    server = start_server(*VIRTUAL)
    begin(server, "canceled-maintenance", "solo-0")
    advance(server, 5 * MINUTE)

    server.kill()
    server.start()

    assert read_status(server, "solo-0") == "Scheduled"
    advance(server, 3 * MINUTE)
    assert read_status(server, "solo-0") is None


def test_command_tells_what_happens_until_it_is_over(
    start_server: ServerMaker, tmp_path: Path
) -> None:
    server = start_server(*FAST)
    file = tmp_path / "night.toml"
    file.write_text(
        'name = "night"\n[[step]]\nat = "0s"\nannounce = "Freeze"\nnotice = "10m"\nimpact = "1m"\n'
        '[[step]]\nat = "1m"\napprove = true\n[[step]]\nat = "90s"\ncancel = true\n'
    )

    done = server.try_command("scenario", "run", str(file), "--vm", "solo-0", "--speed", "60")

    begun, *told = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"Started run [0-9a-f-]{36} of night\.", begun)
    happened = [line.split("  ", 1)[1].strip() for line in told]
    assert happened[0].startswith("Freeze of solo-0: scheduled for 20")
    assert happened[1:] == [
        "Freeze of solo-0: approved by scenario night",
        "Freeze of solo-0: started (approved)",
        "Freeze of solo-0: step skipped (step 3 of scenario night was too late)",
        "Freeze of solo-0: completed",
        "finished",
    ]


def test_command_names_the_event_that_a_run_waits_for(start_server: ServerMaker) -> None:
    server = start_server(*FAST)
    order = ("event", "create", "--type", "Reboot", "--resource", "solo-0", "--started", "--yes")
    (other,) = server.command(*order)["events"]

    with follow(
        server, "scenario", "run", "spot-eviction", "--vm", "solo-0", "--speed", "60"
    ) as run:
        assert run.stdout is not None
        deadline = threading.Timer(START_SECONDS, run.kill)
        deadline.start()
        lines = [run.stdout.readline() for _ in range(3)]
        deadline.cancel()
        (event,) = (each for each in server.poll("solo-0").events if each["EventType"] == "Preempt")
        not_before = parsedate_to_datetime(event["NotBefore"])
        late = not_before + timedelta(seconds=1)
        wait_until(lambda: SystemClock().now() > late, "time does not pass", ANSWER_SECONDS)
        server.command("event", "complete", other["event_id"])
        lines += run.communicate(timeout=START_SECONDS)[0].splitlines()

    assert run.returncode == 0
    happened = [re.sub(r"^\+\w+ +", "", line.strip()) for line in lines[2:]]
    assert happened[0] == f"Preempt of solo-0: waits for {other['event_id']} to end"
    assert re.fullmatch(r"Preempt of solo-0: started \(\d+s after NotBefore\)", happened[1])
    assert happened[2:] == ["Preempt of solo-0: completed", "finished"]


def test_command_names_the_virtual_machine_that_approves(start_server: ServerMaker) -> None:
    server = start_server(*FAST)

    with follow(
        server, "scenario", "run", "user-reboot", "--vm", "solo-0", "--speed", "600"
    ) as run:
        assert run.stdout is not None
        lines = [run.stdout.readline(), run.stdout.readline()]
        (event,) = server.poll("solo-0").events
        server.approve("solo-0", event["EventId"])
        lines += run.communicate(timeout=START_SECONDS)[0].splitlines()

    assert run.returncode == 0
    assert "Reboot of solo-0: approved by solo-0" in lines[2]


def test_interrupted_command_leaves_the_run_going(start_server: ServerMaker) -> None:
    server = start_server(*FAST)

    with follow(server, "scenario", "run", "redeploy", "--vm", "solo-0") as run:
        assert run.stdout is not None
        run_id = run.stdout.readline().split()[2]
        assert "scheduled for" in run.stdout.readline()
        run.send_signal(signal.SIGINT)
        said = run.communicate(timeout=ANSWER_SECONDS)[1]

    assert run.returncode == 130
    assert said == (
        "forewarn: Stopped watching; the run is still in progress.\n"
        f"  stop it with: forewarn scenario stop {run_id}\n"
    )
    assert server.command("scenario", "status", run_id)["status"] == "running"
    stopped = server.command("scenario", "stop", run_id)
    assert [event["event_status"] for event in stopped["events"]] == ["Canceled"]
