"""The log of a real server: what it says about a roll-out, and at which level."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from tests.e2e.conftest import Server, ServerMaker

PAGE = Path(__file__).parents[2] / "docs/reference/logs.md"
FLAGS = ("--clock", "virtual", "--executor", "simulated", "--log-format", "json")


def lines_of(server: Server) -> list[dict[str, Any]]:
    """Return what a stopped server has logged."""
    assert server.stop() == 0, server.said()
    return [json.loads(line) for line in server.said().splitlines()]


def documented_keys() -> dict[str, set[str]]:
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", keys)) for name, keys in rows}


def test_a_rollout_can_be_read_from_the_log(start_server: ServerMaker) -> None:
    server = start_server(*FLAGS)
    begun = server.command("maintenance", "start", "--type", "Freeze", "--scope", "web")
    server.command("clock", "advance", "2h")
    for _ in range(50):
        server.poll("web-0")

    lines = lines_of(server)

    names = Counter(line["event"] for line in lines)
    assert names["maintenance_changed"] == 2
    assert names["step_announced"] == 3
    assert names["impact_changed"] == 6
    assert names["event_changed"] == 9
    assert names.total() < 25, "polls are not logged"
    documented = documented_keys()
    for line in lines:
        if line["event"] in documented:
            assert line.keys() - {"event", "level", "timestamp"} == documented[line["event"]]
    changes = [line for line in lines if line["event"] == "event_changed"]
    assert {line["maintenance_id"] for line in changes} == {begun["maintenance_id"]}
    assert [line["what"] for line in changes] == ["scheduled", "started", "completed"] * 3


def test_level_leaves_out_what_is_below(start_server: ServerMaker) -> None:
    server = start_server(*FLAGS, "--log-level", "warning")
    server.create("Freeze", "web-0")

    assert lines_of(server) == []
