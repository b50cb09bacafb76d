"""A schedule on a real server, over months of virtual time: each date is met exactly once."""

import contextlib
import random
import threading
from datetime import datetime, timedelta
from http.client import HTTPException
from typing import Any
from zoneinfo import ZoneInfo

from tests.e2e.conftest import Server, ServerMaker

KILLS = 4
BERLIN = ZoneInfo("Europe/Berlin")
MONTHLY = {
    "name": "patches",
    "every": "first Tue",
    "event_type": "Freeze",
    "scopes": ["web"],
    "windows": ["Tue 22:00-04:00 Europe/Berlin"],
}


def ask(server: Server, method: str, path: str, body: object = None) -> Any:
    answer = server.operate(method, path, body)
    assert answer.status < 300, answer
    return answer.json()


def advance_to(server: Server, moment: datetime) -> None:
    now = datetime.fromisoformat(ask(server, "GET", "clock")["now"])
    seconds = (moment - now) // timedelta(seconds=1)
    ask(server, "POST", "clock/advance", {"duration": f"{seconds}s"})


def schedule(server: Server) -> Any:
    return ask(server, "GET", "schedules/patches")


def kill_while_passing(server: Server, moment: datetime, seconds: float) -> None:
    """Let time pass over *moment*, kill -9 meanwhile, and start again."""
    advance_to(server, moment - timedelta(seconds=1))

    def pass_on() -> None:
        with contextlib.suppress(OSError, HTTPException):
            server.operate("POST", "clock/advance", {"duration": "2s"})

    passing = threading.Thread(target=pass_on)
    passing.start()
    passing.join(seconds)
    server.kill()
    passing.join()
    server.start()


def test_every_date_of_several_months_is_met_exactly_once(start_server: ServerMaker) -> None:
    server = start_server("--clock", "virtual", "--executor", "simulated")
    rehearsed = ask(server, "POST", "schedules?dry_run=true", MONTHLY)
    blackout = rehearsed["upcoming"][1]["day"]
    made = ask(server, "POST", "schedules", {**MONTHLY, "blackouts": [f"{blackout} UTC Fair"]})
    dates = [datetime.fromisoformat(each["opens_at"]) for each in made["upcoming"]]

    advance_to(server, dates[2])
    started, dark, held = schedule(server)["occurrences"]
    events = ask(server, "GET", f"maintenances/{held['maintenance_id']}")["events"]
    server.cancel(events[0]["event_id"])
    advance_to(server, dates[3])
    walked = ask(server, "GET", f"maintenances/{started['maintenance_id']}")
    assert (walked["schedule"], walked["status"]) == ("patches", "completed")
    assert dark["reason"] == f"it falls into the blackout {blackout} UTC Fair"
    assert ask(server, "GET", f"maintenances/{held['maintenance_id']}")["status"] == "held"
    assert schedule(server)["last"]["reason"] == (
        f"the last maintenance {held['maintenance_id']} has not finished"
    )

    ask(server, "POST", f"maintenances/{held['maintenance_id']}/abort")
    chance = random.Random(13)  # noqa: S311 - dice
    for moment in dates[4 : 4 + KILLS]:
        kill_while_passing(server, moment, chance.uniform(0, 0.05))
        advance_to(server, moment + timedelta(hours=5))

    met = schedule(server)["occurrences"]
    assert [each["outcome"] for each in met] == [
        "started", "skipped", "started", "skipped", *["started"] * KILLS,
    ]  # fmt: skip
    assert [datetime.fromisoformat(each["opens_at"]) for each in met] == dates[: len(met)]
    assert {each.astimezone(BERLIN).hour for each in dates} == {22}
    begun = ask(server, "GET", "maintenances")["maintenances"]
    assert [each["maintenance_id"] for each in begun] == [
        each["maintenance_id"] for each in met if each["outcome"] == "started"
    ]
    for maintenance in begun[-KILLS:]:
        walked = ask(server, "GET", f"maintenances/{maintenance['maintenance_id']}")
        vms = [vm for event in walked["events"] for vm in event["resources"]]
        assert sorted(vms) == sorted(maintenance["resources"])
        assert walked["status"] == "completed"
    assert server.said().count("schedule_skipped") == 2


def test_commands_speak_of_the_same_schedule(start_server: ServerMaker) -> None:
    server = start_server("--clock", "virtual", "--executor", "simulated")
    window = ("--window", "daily 22:00-04:00 UTC")
    server.command(
        "schedule",
        "create",
        "nights",
        "--every",
        "day",
        "--type",
        "Freeze",
        "--scope",
        "web",
        *window,
    )
    server.command("clock", "advance", "2d")

    (listed,) = server.command("schedule", "list")["schedules"]
    (coming,) = server.command("schedule", "next", "nights", "--count", "1")
    removed = server.try_command("schedule", "remove", "nights", "--yes")

    assert listed["last"]["outcome"] == "started"
    assert listed["next"] == coming
    assert removed.stdout == "removed nights\n"
    assert server.command("schedule", "list")["schedules"] == []
