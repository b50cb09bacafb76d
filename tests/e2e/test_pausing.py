"""A real server that serves and begins nothing until it is resumed, restarts included."""

from pathlib import Path

from tests.e2e.conftest import ANSWER_SECONDS, ServerMaker, wait_until

FAST = ("--executor", "simulated", "--speed", "600")  # notice is 1.5 s, a Reboot takes 1 s


def test_server_that_is_started_paused_serves_and_begins_nothing_until_resumed(
    start_server: ServerMaker,
) -> None:
    server = start_server(*FAST, "--paused")
    (event,) = server.create("Reboot", "solo-0")
    (forced,) = server.create("Reboot", "solo-1", started=True)
    assert server.approve("solo-0", event["event_id"]).status == 200
    told = server.operate("GET", f"events/{event['event_id']}/explain").json()["reasons"][0]

    server.restart(*FAST)

    assert server.event(event["event_id"])["event_status"] == "Scheduled"
    assert server.event(forced["event_id"])["event_status"] == "Started"
    assert [shown["EventStatus"] for shown in server.poll("solo-0").events] == ["Scheduled"]
    assert "The server has been paused by admin (started with --paused)" in told["sentence"]
    assert "server_paused" in server.said()
    assert server.health("/readyz/write") == 200
    assert server.command("resume")["is_paused"] is False
    server.wait_for(event["event_id"], "Completed")
    server.wait_for(forced["event_id"], "Completed")
    entries = server.command("audit")["audit"]
    told = [entry["action"] for entry in entries if entry["subject"] == "server"]
    assert told == ["pause", "resume"]


def test_scripts_that_wait_for_a_place_do_not_begin_during_a_pause(
    start_server: ServerMaker, tmp_path: Path
) -> None:
    file = tmp_path / "executors.toml"
    file.write_text(f'[[command]]\nrun = ["touch", "{tmp_path}/ran"]\n', encoding="utf-8")
    server = start_server("--executor-file", str(file))
    server.command("pause", "--reason", "storage")

    (event,) = server.create("Reboot", "solo-0", started=True)
    server.restart()

    found = server.operate("GET", f"events/{event['event_id']}/explain").json()["reasons"]
    assert found[0]["kind"] == "server-paused"
    assert not (tmp_path / "ran").exists()
    server.command("resume")
    server.wait_for(event["event_id"], "Completed")
    wait_until((tmp_path / "ran").exists, "the script did not run", ANSWER_SECONDS)
