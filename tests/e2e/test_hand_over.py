"""`forewarn replica hand-over`, on real replicas in the middle of a script."""

from pathlib import Path

import pytest
from tests.e2e.conftest import ANSWER_SECONDS, ServerMaker, wait_until
from tests.e2e.replicas import Trio, make_replicas

SCRIPT = """#!/bin/sh
echo "$EVENT_ID" >> {folder}/runs
while [ -e {folder}/wait ]; do sleep 0.02; done
"""


@pytest.fixture
def trio(make_server: ServerMaker, postgres_url: str, tmp_path: Path) -> Trio:
    script = tmp_path / "maintain"
    script.write_text(SCRIPT.format(folder=tmp_path), encoding="utf-8")
    script.chmod(0o755)
    executors = tmp_path / "executors.toml"
    executors.write_text('[[command]]\nrun = ["./maintain"]\n', encoding="utf-8")
    made = make_replicas(make_server, postgres_url, tmp_path, "--executor-file", str(executors))
    for server in made.servers:
        server.start()
    return made


def test_leader_hands_over_and_still_reports_what_it_has_begun(trio: Trio, tmp_path: Path) -> None:
    leader, epoch = trio.leader(), trio.epoch()
    follower, _ = trio.followers()
    (tmp_path / "wait").touch()
    (event,) = follower.create("Reboot", "web-0", started=True)
    wait_until((tmp_path / "runs").exists, "the script did not begin", ANSWER_SECONDS)

    refused = follower.try_command("replica", "hand-over")
    done = leader.try_command("replica", "hand-over")
    trio.wait_for_takeover(epoch)
    (task,) = follower.command("task", "list")["tasks"]
    (tmp_path / "wait").unlink()
    follower.wait_for(event["event_id"], "Completed")

    assert (refused.returncode, "leads; send the request there" in refused.stderr) == (4, True)
    assert (done.returncode, "has handed over" in done.stdout) == (0, True), done.stderr
    assert trio.leader() is not leader
    assert "lease_handed_over" in leader.said()
    assert (task["state"], task["owner_away_since"]) == ("begun", None)
    assert (tmp_path / "runs").read_text().split() == [event["event_id"]]


def test_restart_of_the_leader_strands_nothing(trio: Trio, tmp_path: Path) -> None:
    leader = trio.leader()
    (tmp_path / "wait").touch()
    (event,) = leader.create("Reboot", "web-0", started=True)
    wait_until((tmp_path / "runs").exists, "the script did not begin", ANSWER_SECONDS)

    leader.restart()
    (tmp_path / "wait").unlink()
    leader.wait_for(event["event_id"], "Completed")

    assert leader.event(event["event_id"])["outcome"] == "succeeded"
    assert (tmp_path / "runs").read_text().split() == [event["event_id"]]
