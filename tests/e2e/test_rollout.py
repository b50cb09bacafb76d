"""A real server walks through a set, and is killed at every step of the walk, several times."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import ANSWER_SECONDS, Server, ServerMaker, wait_until

pytestmark = pytest.mark.timeout(300)

SCRIPT = """#!/bin/sh
echo "$EVENT_ID $EVENT_VM" >> {folder}/runs
while [ ! -e {folder}/$EVENT_VM.go ]; do sleep 0.02; done
"""
KILLS_AT_REST = 2
"""While a step is announced, how often."""


@pytest.fixture
def server(start_server: ServerMaker, tmp_path: Path) -> Server:
    script = tmp_path / "maintain"
    script.write_text(SCRIPT.format(folder=tmp_path), encoding="utf-8")
    script.chmod(0o755)
    file = tmp_path / "executors.toml"
    file.write_text('[[command]]\nrun = ["./maintain"]\ntimeout = "5m"\n', encoding="utf-8")
    return start_server("--executor-file", str(file))


def test_killed_at_each_step_the_walk_goes_on_and_nothing_runs_twice_or_is_skipped(
    server: Server, tmp_path: Path
) -> None:
    order = {"event_type": "Freeze", "scopes": ["web"], "soak_in_seconds": 1, "min_available": 66}
    begun = server.operate("POST", "maintenances", order)
    assert begun.status == 201, begun
    path = f"maintenances/{begun.json()['maintenance_id']}"

    for number in range(3):
        event = _wait_for_step(server, path, number)
        vm = event["resources"][0]
        for _ in range(KILLS_AT_REST):
            _kill_and_start(server)
            assert _events(server, path)[number] == event, "what was announced stays announced"
        assert server.approve(vm, event["event_id"]).status == 200
        _wait_for_run(tmp_path, vm)
        _kill_and_start(server)
        (tmp_path / f"{vm}.go").touch()
        _kill_and_start(server)

    wait_until(
        lambda: server.operate("GET", path).json()["status"] == "completed",
        "the walk does not end",
        ANSWER_SECONDS,
    )
    assert _runs(tmp_path) == {"web-0": 1, "web-1": 1, "web-2": 1}
    events = _events(server, path)
    assert [event["update_domain"] for event in events] == [0, 1, 2]
    assert [event["outcome"] for event in events] == ["succeeded"] * 3
    assert all(first["ended_at"] < then["created_at"] for first, then in pairwise(events))


def _wait_for_step(server: Server, path: str, number: int) -> dict[str, Any]:
    """Return the one event of the step, when it is announced."""
    wait_until(
        lambda: len(_events(server, path)) > number,
        f"step {number} is not announced",
        ANSWER_SECONDS,
    )
    events = _events(server, path)
    assert len(events) == number + 1, "one step at a time"
    return events[number]


def _wait_for_run(folder: Path, vm: str) -> None:
    wait_until(lambda: _runs(folder)[vm] == 1, f"nothing runs on {vm}", ANSWER_SECONDS)


def _events(server: Server, path: str) -> list[dict[str, Any]]:
    answer = server.operate("GET", path)
    assert answer.status == 200, answer
    events: list[dict[str, Any]] = answer.json()["events"]
    return events


def _kill_and_start(server: Server) -> None:
    server.kill()
    server.start()


def _runs(folder: Path) -> Counter[str]:
    try:
        lines = (folder / "runs").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return Counter()
    return Counter(line.split()[1] for line in lines)
