"""What operators say of real scripts that hang: two update domains are never out of service."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import Server, ServerMaker
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

FLEET = """
[[availability_set]]
name = "web"
update_domains = 2

[[host]]
name = "kvm-1"
labels = { cluster = "a" }

[[host]]
name = "kvm-2"
labels = { cluster = "a" }

[[virtual_machine]]
name = "web-0"
availability_set = "web"
update_domain = 0
host = "kvm-1"

[[virtual_machine]]
name = "web-1"
availability_set = "web"
update_domain = 1
host = "kvm-2"
"""
EXECUTORS = """
[[command]]
run = ["./run", "impact"]
timeout = "1h"

[[host_work]]
labels = { cluster = "a" }
run = ["./run", "work"]
timeout = "1h"
"""
SCRIPT = """#!/bin/sh
cd {folder}
what="$1 ${{EVENT_VM:-$OPERATION_HOST}}"
echo "begin $what" >> witness
while [ ! -e "go.$what" ]; do sleep 0.02; done
echo "end $what" >> witness
"""


@pytest.fixture
def server(make_server: ServerMaker, tmp_path: Path) -> Server:
    """Return a server whose impacts and work on hosts are done by scripts that wait for a word."""
    script = tmp_path / "run"
    script.write_text(SCRIPT.format(folder=tmp_path), encoding="utf-8")
    script.chmod(0o755)
    file = tmp_path / "executors.toml"
    file.write_text(EXECUTORS, encoding="utf-8")
    made = make_server("--executor-file", str(file), "--speed", "10000")
    (tmp_path / "fleet.toml").write_text(FLEET, encoding="utf-8")
    made.start()
    return made


def start(server: Server) -> str:
    """Start the Maintenance of both hosts, and return its id."""
    order = {
        "event_type": "Reboot",
        "hosts": ["kvm-1", "kvm-2"],
        "at_once": 2,
        "min_available": 50,
    }
    begun = server.operate("POST", "maintenances", order)
    assert begun.status == 201, begun
    return str(begun.json()["maintenance_id"])


def go(folder: Path, *scripts: str) -> None:
    """Let the scripts end."""
    for what in scripts:
        (folder / f"go.{what}").touch()


def witness(folder: Path) -> list[str]:
    """Return what the scripts have written, in order."""
    try:
        return (folder / "witness").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []


def wait_for(folder: Path, line: str) -> None:
    wait_until(lambda: line in witness(folder), f"the script to write: {line}")


def look(server: Server, maintenance_id: str) -> dict[str, Any]:
    answer = server.operate("GET", f"maintenances/{maintenance_id}")
    assert answer.status == 200, answer
    seen: dict[str, Any] = answer.json()
    return seen


def wait_for_outcome(server: Server, maintenance_id: str) -> dict[str, Any]:
    wait_until(lambda: look(server, maintenance_id)["outcome"], "the end of the maintenance")
    return look(server, maintenance_id)


def check_that_web_0_is_told_and_kvm_2_is_left_alone(server: Server, folder: Path) -> str:
    """Return the event in the document of web-0."""
    # The machines of a set share one document.
    (event,) = server.poll("web-1").events
    assert (event["Resources"], event["EventStatus"]) == (["web-0"], "Started")
    assert not [line for line in witness(folder) if "kvm-2" in line or "web-1" in line]
    return str(event["EventId"])


def test_completed_event_stays_in_the_document_until_its_host_is_done(
    server: Server, tmp_path: Path
) -> None:
    maintenance_id = start(server)
    wait_for(tmp_path, "begin impact web-0")
    event_id = check_that_web_0_is_told_and_kvm_2_is_left_alone(server, tmp_path)

    said = server.try_command("event", "complete", event_id, "--output", "json")

    assert said.returncode == 0, said.stderr
    assert "done by hand" in json.dumps(json.loads(said.stdout))
    assert "web-0 is done; its event ends with kvm-1" in said.stderr
    check_that_web_0_is_told_and_kvm_2_is_left_alone(server, tmp_path)
    go(tmp_path, "impact web-0")
    wait_for(tmp_path, "begin work kvm-1")
    check_that_web_0_is_told_and_kvm_2_is_left_alone(server, tmp_path)
    go(tmp_path, "work kvm-1", "impact web-1", "work kvm-2")
    ended = wait_for_outcome(server, maintenance_id)
    assert ended["outcome"] == "succeeded"
    scripts = ("impact web-0", "work kvm-1", "impact web-1", "work kvm-2")
    assert witness(tmp_path) == [
        f"{which} {what}" for what in scripts for which in ("begin", "end")
    ]
    first, second = ended["events"]
    assert (first["event_id"], first["outcome"]) == (event_id, "succeeded")
    assert first["ended_at"] <= second["created_at"]


def test_host_that_is_given_up_keeps_its_event_until_its_script_has_ended(
    server: Server, tmp_path: Path
) -> None:
    maintenance_id = start(server)
    go(tmp_path, "impact web-0")
    wait_for(tmp_path, "begin work kvm-1")

    said = server.try_command("maintenance", "fail", maintenance_id, "kvm-1", "--yes")

    assert said.returncode == 0, said.stderr
    assert "work is still running" in said.stderr
    event_id = check_that_web_0_is_told_and_kvm_2_is_left_alone(server, tmp_path)
    again = ("maintenance", "retry", maintenance_id, "kvm-1")
    refused = server.try_command(*again)
    assert refused.returncode != 0
    assert "kvm-1 cannot be retried while the work on kvm-1 is not over" in refused.stderr
    check_that_web_0_is_told_and_kvm_2_is_left_alone(server, tmp_path)

    go(tmp_path, "work kvm-1", "impact web-1", "work kvm-2")
    server.wait_for(event_id, "Completed")
    assert server.event(event_id)["outcome"] == "failed"
    accepted = server.try_command(*again)
    assert accepted.returncode == 0, accepted.stderr
    ended = wait_for_outcome(server, maintenance_id)

    assert ended["outcome"] == "succeeded"
    assert [event["resources"] for event in ended["events"]] == [["web-0"], ["web-0"], ["web-1"]]
    assert event_id == ended["events"][0]["event_id"]
    assert [line for line in witness(tmp_path) if line.startswith("begin")] == [
        "begin impact web-0",
        "begin work kvm-1",
        "begin impact web-0",
        "begin work kvm-1",
        "begin impact web-1",
        "begin work kvm-2",
    ]
