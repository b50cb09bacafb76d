"""A real server drives a real script, and a real target, and is killed while they are at it."""

import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.e2e.conftest import ANSWER_SECONDS, Server, ServerMaker, wait_until
from tests.executors.target import OrderTarget

pytestmark = pytest.mark.timeout(300)

SECRET = "open-sesame"  # noqa: S105
SCRIPT = """#!/bin/sh
echo "$EVENT_ID $EVENT_VM" >> {folder}/runs
env > {folder}/env.$EVENT_VM
echo "at work on $EVENT_VM"
while [ ! -e {folder}/$EVENT_VM.go ]; do sleep 0.02; done
if [ "$EVENT_VM" = solo-1 ]; then echo "the disk is gone" >&2; exit 3; fi
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Write the file of executors, and the script that it names."""
    path = tmp_path / "maintain"
    path.write_text(SCRIPT.format(folder=tmp_path), encoding="utf-8")
    path.chmod(0o755)
    file = tmp_path / "executors.toml"
    file.write_text('[[command]]\nrun = ["./maintain"]\ntimeout = "1m"\n', encoding="utf-8")
    return file


def go(folder: Path, *vms: str) -> None:
    for vm in vms:
        (folder / f"{vm}.go").touch()


def runs(folder: Path) -> Counter[str]:
    try:
        return Counter((folder / "runs").read_text(encoding="utf-8").splitlines())
    except FileNotFoundError:
        return Counter()


def explain(server: Server, event_id: str) -> str:
    answer = server.operate("GET", f"events/{event_id}/explain")
    assert answer.status == 200, answer
    return " ".join(reason["sentence"] for reason in answer.json()["reasons"])


def wait_for_word(server: Server, event_id: str, word: str) -> None:
    wait_until(
        lambda: word in explain(server, event_id), f"nothing is said of {word}", ANSWER_SECONDS
    )


def ended(server: Server, event_id: str) -> tuple[str, str]:
    server.wait_for(event_id, "Completed")
    event = server.event(event_id)
    return event["outcome"], event["reason"]


def test_script_carries_an_event_from_scheduled_to_completed(
    start_server: ServerMaker, script: Path, tmp_path: Path
) -> None:
    server = start_server("--executor-file", str(script))
    (good,) = server.create("Reboot", "solo-0", description="Kernel 6.12")
    (bad,) = server.create("Reboot", "solo-1", started=True)
    assert server.event(good["event_id"])["event_status"] == "Scheduled"
    assert runs(tmp_path)[f"{good['event_id']} solo-0"] == 0, "not before it is approved"

    server.approve("solo-0", good["event_id"])
    server.wait_for(good["event_id"], "Started")
    wait_for_word(server, good["event_id"], "at work on solo-0")
    go(tmp_path, "solo-0", "solo-1")

    assert ended(server, good["event_id"]) == ("succeeded", "")
    assert ended(server, bad["event_id"]) == ("failed", "solo-1: exit code 3: the disk is gone")
    assert server.poll("solo-0").events == []
    assert runs(tmp_path) == {f"{good['event_id']} solo-0": 1, f"{bad['event_id']} solo-1": 1}
    told = (tmp_path / "env.solo-0").read_text(encoding="utf-8").splitlines()
    assert "EVENT_DESCRIPTION=Kernel 6.12" in told
    assert not [line for line in told if line.startswith("FOREWARN_")]


def test_script_goes_on_when_the_server_is_killed_and_is_not_started_again(
    start_server: ServerMaker, script: Path, tmp_path: Path
) -> None:
    server = start_server("--executor-file", str(script))
    (event,) = server.create("Reboot", "solo-0", "solo-1", started=True)[:1]
    wait_until(lambda: runs(tmp_path).total() == 2, "the scripts do not run", ANSWER_SECONDS)

    server.kill()
    server.start()
    wait_for_word(server, event["event_id"], "at work on")
    server.kill()
    go(tmp_path, "solo-0", "solo-1")
    server.start()

    assert ended(server, event["event_id"])[0] == "succeeded"
    assert set(runs(tmp_path).values()) == {1}


def test_fleet_follows_a_machine_that_its_script_moved_while_the_server_was_down(
    start_server: ServerMaker, tmp_path: Path
) -> None:
    wait = f"while [ ! -e {tmp_path}/solo-0.go ]; do sleep 0.02; done"
    text = f"echo at work; {wait}; echo migrated; echo host=kvm-9"
    file = tmp_path / "executors.toml"
    file.write_text(f'[[command]]\nrun = ["sh", "-c", "{text}"]\n', encoding="utf-8")
    server = start_server("--executor-file", str(file))
    (event,) = server.create("Redeploy", "solo-0", started=True)
    record = f"tasks/{event['event_id']}/solo-0.ended"
    wait_for_word(server, event["event_id"], "at work")

    server.kill()
    go(tmp_path, "solo-0")
    wait_until(lambda: any(tmp_path.rglob(record)), "the script does not end", ANSWER_SECONDS)
    server.start()

    assert ended(server, event["event_id"]) == ("succeeded", "")
    assert server.operate("GET", "virtual-machines/solo-0").json()["host"] == "kvm-9"
    assert "solo-0 moved" in explain(server, event["event_id"])
    (line,) = [
        each for each in server.event(event["event_id"])["ledger"] if each["what"] == "moved"
    ]
    assert line["detail"].endswith("to kvm-9")


def test_server_that_is_killed_at_any_moment_never_runs_a_script_twice(
    start_server: ServerMaker, script: Path, tmp_path: Path, kills: int
) -> None:
    chance = random.Random(20_261_115)  # noqa: S311 - dice, not secrets
    go(tmp_path, "solo-0")
    server = start_server("--executor-file", str(script))
    event_ids = []

    for _ in range(kills // 2):
        (event,) = server.create("Reboot", "solo-0", started=True)
        event_ids.append(event["event_id"])
        time.sleep(chance.uniform(0, 0.2))
        server.kill()
        server.start()

    for event_id in event_ids:
        key = f"{event_id} solo-0"
        wait_until(lambda: is_settled(server, event_id), f"{event_id} hangs", ANSWER_SECONDS)  # noqa: B023
        if server.event(event_id)["event_status"] == "Completed":
            assert ended(server, event_id) == ("succeeded", "")
            assert runs(tmp_path)[key] == 1
        assert runs(tmp_path)[key] <= 1


def is_settled(server: Server, event_id: str) -> bool:
    """Tell whether it is over, or held because nobody can know how it ended."""
    is_over = server.event(event_id)["event_status"] == "Completed"
    return is_over or "never begun twice, so the server waits" in explain(server, event_id)


def test_target_carries_an_event_out_and_is_told_once_whoever_is_killed(
    make_server: ServerMaker, tmp_path: Path
) -> None:
    target = OrderTarget()
    with target.listening():
        file = tmp_path / "executors.toml"
        text = f'[[webhook]]\nurl = "{target.url}?key=T0KEN"\nsecret = "{SECRET}"\n'
        file.write_text(text, encoding="utf-8")
        server = make_server("--executor-file", str(file))
        server.start()
        target.delay = 0.5
        (event, other) = server.create("Reboot", "solo-0", "solo-1", started=True)
        wait_until(lambda: bool(target.asked), "the target is not told", ANSWER_SECONDS)
        server.kill()
        target.delay = 0.0
        server.start()
        wait_for_word(server, event["event_id"], "working")
        server.kill()
        target.end("solo-0", "done")
        target.end("solo-1", "failed", "the disk is gone")
        server.start()

        assert ended(server, event["event_id"]) == ("succeeded", "")
        assert ended(server, other["event_id"]) == ("failed", "solo-1: the disk is gone")
    assert sorted(target.deeds) == sorted(
        [(event["event_id"], "solo-0"), (other["event_id"], "solo-1")]
    )
    epochs = {asked.headers["forewarn-epoch"] for asked in target.asked if asked.method == "POST"}
    assert epochs <= {"1", "2"}
    for hidden in (SECRET, "T0KEN"):
        assert hidden not in server.said()


def test_wrong_file_stops_executors_and_not_polls_until_it_is_right(
    start_server: ServerMaker, script: Path, tmp_path: Path
) -> None:
    right = script.read_text(encoding="utf-8")
    script.write_text('[[command]]\nrun = ["no-such-program"]\n', encoding="utf-8")
    problem = f"{script}:2: run of command 1: program not found or not executable"
    go(tmp_path, "solo-0")

    server = start_server("--executor-file", str(script))
    (event,) = server.create("Reboot", "solo-0", started=True)

    wait_for_word(server, event["event_id"], problem)
    assert [shown["EventStatus"] for shown in server.poll("solo-0").events] == ["Started"]
    assert problem in str(server.operate("GET", "server").json()["findings"])
    assert problem in server.try_command("doctor", "--remote").stdout
    assert "executor_file_wrong" in server.said()
    hang_up(server)  # the file is still wrong
    wait_until(lambda: server.said().count("executor_file_wrong") == 2, "no reload", ANSWER_SECONDS)
    assert not runs(tmp_path)

    script.write_text(right, encoding="utf-8")
    hang_up(server)

    assert ended(server, event["event_id"]) == ("succeeded", "")
    assert runs(tmp_path) == {f"{event['event_id']} solo-0": 1}
    assert "begins no impact" not in str(server.operate("GET", "server").json()["findings"])
    assert server.stop() == 0


def test_file_that_becomes_wrong_leaves_the_executors_at_work(
    start_server: ServerMaker, script: Path, tmp_path: Path
) -> None:
    server = start_server("--executor-file", str(script))
    go(tmp_path, "solo-0")

    script.write_text("[[command", encoding="utf-8")
    hang_up(server)
    wait_until(lambda: "executor_file_wrong" in server.said(), "no reload", ANSWER_SECONDS)
    (event,) = server.create("Reboot", "solo-0", started=True)

    assert ended(server, event["event_id"]) == ("succeeded", "")


def hang_up(server: Server) -> None:
    assert server.process is not None
    server.process.send_signal(signal.SIGHUP)
