"""A real server has hosts worked on by real scripts, and is killed while they are at it."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import ANSWER_SECONDS, Server, ServerMaker, wait_until

pytestmark = pytest.mark.timeout(300)

FLEET = """
[[host]]
name = "kvm-0"
labels = { cluster = "a" }

[[host]]
name = "kvm-1"
labels = { cluster = "a" }

[[virtual_machine]]
name = "solo-0"
host = "kvm-0"

[[virtual_machine]]
name = "solo-1"
host = "kvm-0"
"""
HOST_WORK = """
[[host_work]]
labels = { cluster = "a" }
run = ["./patch"]
verify = ["./is-back"]
verify_within = "1m"
verify_every = "1s"
return = ["./give-back"]
"""
SCRIPTS = {
    "patch": "while [ ! -e go.$OPERATION_HOST.$(grep -c . runs.$OPERATION_HOST) ]; do sleep 0.02; "
    "done; [ ! -e bad.$OPERATION_HOST ] || { echo 'no disk'; exit 3; }",
    "is-back": "[ $OPERATION_ATTEMPT -gt 1 ] || { echo booting; exit 1; }",
    "give-back": "true",
}


@pytest.fixture
def server(make_server: ServerMaker, tmp_path: Path) -> Server:
    """Return a server whose guests are maintained by hand, and its hosts by scripts."""
    note = "$OPERATION_ID $OPERATION_HOST $OPERATION_TASK $OPERATION_ATTEMPT $OPERATION_VM"
    for name, text in SCRIPTS.items():
        path = tmp_path / name
        lines = ("#!/bin/sh", f"cd {tmp_path}", f'echo "{note}" >> runs')
        own = 'echo x >> "runs.$OPERATION_HOST"' if name == "patch" else ""
        path.write_text("\n".join((*lines, own, text, "")), encoding="utf-8")
        path.chmod(0o755)
    file = tmp_path / "executors.toml"
    file.write_text(HOST_WORK, encoding="utf-8")
    made = make_server("--executor-file", str(file), "--speed", "10000")
    (tmp_path / "fleet.toml").write_text(FLEET, encoding="utf-8")
    made.start()
    return made


def go(folder: Path, host: str, number: int = 1) -> None:
    """Let the work on *host* be over, the time of that *number*."""
    (folder / f"go.{host}.{number}").touch()


def runs(folder: Path) -> list[list[str]]:
    try:
        text = (folder / "runs").read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [line.split() for line in text.splitlines()]


def start(server: Server) -> str:
    order = {"event_type": "Reboot", "host_labels": {"cluster": "a"}}
    begun = server.operate("POST", "maintenances", order)
    assert begun.status == 201, begun
    return f"maintenances/{begun.json()['maintenance_id']}"


def look(server: Server, path: str) -> dict[str, Any]:
    answer = server.operate("GET", path)
    assert answer.status == 200, answer
    seen: dict[str, Any] = answer.json()
    return seen


def wait_for_runs(folder: Path, number: int) -> None:
    wait_until(
        lambda: len([run for run in runs(folder) if run[2] == "work"]) == number,
        f"there is no work number {number}",
        ANSWER_SECONDS,
    )


def wait_for_outcome(server: Server, path: str) -> dict[str, Any]:
    # Not for the status: it may be ahead of the outcome by one turn of the scheduler.
    wait_until(lambda: bool(look(server, path)["outcome"]), "it does not end", ANSWER_SECONDS)
    return look(server, path)


def test_hosts_are_worked_on_one_after_the_other_once_each_whoever_is_killed(
    server: Server, tmp_path: Path
) -> None:
    path = start(server)
    wait_for_runs(tmp_path, 1)
    server.kill()
    server.start()
    server.kill()
    go(tmp_path, "kvm-0")
    server.start()
    wait_for_runs(tmp_path, 2)
    server.kill()
    server.start()
    go(tmp_path, "kvm-1")

    ended = wait_for_outcome(server, path)

    assert ended["outcome"] == "succeeded"
    assert [event["outcome"] for event in ended["events"]] == ["succeeded", "succeeded"]
    told = [(host, task, *more) for _, host, task, *more in runs(tmp_path)]
    assert set(Counter(told).values()) == {1}
    assert [told[0], *told[1:3], *sorted(told[3:5]), *told[5:]] == [
        ("kvm-0", "work", "1"),
        ("kvm-0", "verify", "1"),
        ("kvm-0", "verify", "2"),
        ("kvm-0", "return", "1", "solo-0"),
        ("kvm-0", "return", "1", "solo-1"),
        ("kvm-1", "work", "1"),
        ("kvm-1", "verify", "1"),
        ("kvm-1", "verify", "2"),
    ]


def test_host_whose_work_fails_holds_the_maintenance_until_it_is_tried_again(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "bad.kvm-0").touch()
    go(tmp_path, "kvm-0")
    path = start(server)

    wait_until(lambda: look(server, path)["status"] == "held", "it is not held", ANSWER_SECONDS)
    held = look(server, path)
    (tmp_path / "bad.kvm-0").unlink()
    go(tmp_path, "kvm-0", 2)
    go(tmp_path, "kvm-1")
    assert server.operate("POST", f"{path}/retry", {"places": ["kvm-0"]}).status == 200
    ended = wait_for_outcome(server, path)

    assert "exit code 3: no disk" in str(held["failures"])
    assert ended["outcome"] == "succeeded"
    works = [run for run in runs(tmp_path) if run[2] == "work"]
    assert [host for _, host, *_ in works] == ["kvm-0", "kvm-0", "kvm-1"]
    assert len({operation for operation, *_ in works}) == 3, "a retry is another operation"


def test_work_without_a_record_is_in_doubt_until_its_host_is_skipped_and_others_are_not(
    server: Server, tmp_path: Path
) -> None:
    path = start(server)
    wait_for_runs(tmp_path, 1)
    server.kill()
    shutil.rmtree(server.database.parent / "tasks")
    go(tmp_path, "kvm-0")
    go(tmp_path, "kvm-1")

    server.start()
    wait_until(
        lambda: (
            "records of the server were lost"
            in str(server.operate("GET", f"{path}/explain").json())
        ),
        "nothing is said of the doubt",
        ANSWER_SECONDS,
    )
    assert server.operate("POST", f"{path}/skip", {"places": ["kvm-0"]}).status == 200
    ended = wait_for_outcome(server, path)

    works = [host for _, host, task, *_ in runs(tmp_path) if task == "work"]
    assert works == ["kvm-0", "kvm-1"]
    assert ended["outcome"] == "incomplete"
