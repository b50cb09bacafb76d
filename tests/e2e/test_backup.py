"""Backups of a real server, put back with and without what its executor remembers."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
from tests.e2e.conftest import ANSWER_SECONDS, Server, ServerMaker, wait_until


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Write the file of executors: a script that notes that it runs."""
    script = tmp_path / "maintain"
    script.write_text(
        f'#!/bin/sh\necho "$EVENT_ID" >> {tmp_path}/runs\n'
        f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done\n",
        encoding="utf-8",
    )
    script.chmod(0o755)
    path = tmp_path / "executors.toml"
    path.write_text('[[command]]\nrun = ["./maintain"]\n', encoding="utf-8")
    return path


def runs(folder: Path) -> Counter[str]:
    try:
        return Counter((folder / "runs").read_text(encoding="utf-8").splitlines())
    except FileNotFoundError:
        return Counter()


def db(server: Server, verb: str, file: Path) -> None:
    done = server.try_command("db", verb, str(file), "--database", f"sqlite:///{server.database}")
    assert done.returncode == 0, done.stderr


def explain(server: Server, event_id: str) -> str:
    answer = server.operate("GET", f"events/{event_id}/explain")
    return " ".join(reason["sentence"] for reason in answer.json()["reasons"])


def begin(server: Server, folder: Path, moment: str) -> str:
    """Have the script run to its end, with a backup before or after it begins."""
    (event,) = server.create("Reboot", "solo-0")
    event_id: str = event["event_id"]
    if moment == "before":
        db(server, "backup", folder / "backup.db")
    server.approve("solo-0", event_id)
    wait_until(lambda: bool(runs(folder)), "the script does not run", ANSWER_SECONDS)
    if moment == "after":
        db(server, "backup", folder / "backup.db")
    (folder / "go").touch()
    server.wait_for(event_id, "Completed")
    return event_id


@pytest.mark.parametrize("moment", ["before", "after"])
def test_script_does_not_run_twice_when_a_backup_is_restored_without_the_records(
    start_server: ServerMaker, file: Path, tmp_path: Path, moment: str
) -> None:
    server = start_server("--executor-file", str(file))
    event_id = begin(server, tmp_path, moment)
    seen, epoch = server.poll("solo-0").incarnation, epoch_of(server)

    assert server.stop() == 0
    shutil.rmtree(server.database.parent / "tasks")
    db(server, "restore", tmp_path / "backup.db")
    server.start()
    assert "is a backup from" in server.operate("GET", "server").json()["pause_reason"]
    server.command("resume")
    server.approve("solo-0", event_id)
    server.wait_for(event_id, "Started")

    for _ in range(2):
        wait_until(
            lambda: "the database was restored" in explain(server, event_id),
            "explain does not say so",
            ANSWER_SECONDS,
        )
        server.restart()
    assert runs(tmp_path) == {event_id: 1}
    assert server.poll("solo-0").incarnation > seen
    assert epoch_of(server) > epoch
    server.complete(event_id)
    (again,) = server.create("Reboot", "solo-0", started=True)
    server.wait_for(again["event_id"], "Completed")
    assert runs(tmp_path) == {event_id: 1, again["event_id"]: 1}


def test_backup_that_is_restored_with_the_records_goes_on_where_they_are(
    start_server: ServerMaker, file: Path, tmp_path: Path
) -> None:
    server = start_server("--executor-file", str(file))
    backup = tmp_path / "backup.db"
    (tmp_path / "go").touch()
    (event,) = server.create("Reboot", "solo-0")
    (other,) = server.create("Reboot", "solo-1")
    db(server, "backup", backup)
    server.approve("solo-0", event["event_id"])
    server.wait_for(event["event_id"], "Completed")

    assert server.stop() == 0
    db(server, "restore", backup)
    server.start()
    server.command("resume")
    for vm, known in (("solo-0", event), ("solo-1", other)):
        server.approve(vm, known["event_id"])
        server.wait_for(known["event_id"], "Completed")

    assert runs(tmp_path) == {event["event_id"]: 1, other["event_id"]: 1}


def test_records_that_are_lost_leave_it_in_doubt_how_far_the_script_is(
    start_server: ServerMaker, file: Path, tmp_path: Path
) -> None:
    server = start_server("--executor-file", str(file))
    (event,) = server.create("Reboot", "solo-0", started=True)
    (later,) = server.create("Reboot", "solo-1")
    wait_until(lambda: bool(runs(tmp_path)), "the script does not run", ANSWER_SECONDS)
    assert server.stop() == 0
    shutil.rmtree(server.database.parent / "tasks")

    server.start()
    assert "task_records_incomplete" in server.said()
    (tmp_path / "go").touch()
    server.approve("solo-1", later["event_id"])
    server.wait_for(later["event_id"], "Completed")

    assert "the records of the server were lost" in explain(server, event["event_id"])
    server.complete(event["event_id"])
    assert runs(tmp_path) == {event["event_id"]: 1, later["event_id"]: 1}


def epoch_of(server: Server) -> int:
    with_metrics = server.operator_client()
    try:
        text = with_metrics.ask("GET", "/metrics").body.decode()
    finally:
        with_metrics.close()
    (line,) = (each for each in text.splitlines() if each.startswith("forewarn_lease_epoch "))
    return int(float(line.split()[1]))
