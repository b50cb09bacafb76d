"""What is asked of the agent: to stop, to do nothing, to look once, to say how it is."""

import socket
from pathlib import Path

from tests.e2e.agent.conftest import MachineMaker
from tests.e2e.agent.machines import WHOLE_LIFE, ask
from tests.e2e.conftest import ServerMaker, wait_until
from tests.ports import free_port


def test_stopping_waits_for_the_hook_that_is_running(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server()
    machine = make_machine(server)
    machine.hold("scheduled")
    machine.start()
    server.create("Reboot", "solo-0")
    machine.wait_for_phase("begin scheduled")

    assert machine.process is not None
    machine.process.terminate()
    machine.wait_for_log("stopping hooks_running=True")
    machine.release("scheduled")

    assert machine.process.wait(60) == 0
    assert "outcome=ready" in machine.said()


def test_dry_run_does_nothing_and_says_what_it_would(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server()
    machine = make_machine(server)
    machine.start("--dry-run")

    (event,) = server.create("Reboot", "solo-0")
    machine.wait_for_log("would_approve")

    assert "would_run" in machine.said()
    assert server.event(event["event_id"])["approvals"] == []
    assert machine.journal == []
    assert not (machine.folder / "state").exists()


def test_once_does_what_is_due_each_time_it_is_run(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server()
    machine = make_machine(server)
    assert machine.run("once").returncode == 0
    (event,) = server.create("Reboot", "solo-0")

    machine.answer("scheduled", 75)
    assert machine.run("once").returncode == 75
    machine.answer("scheduled", 1)
    assert machine.run("once").returncode == 1
    assert machine.run("once").returncode == 0
    assert server.operate("POST", f"events/{event['event_id']}/start").status == 200
    assert machine.run("once").returncode == 0
    server.complete(event["event_id"])
    machine.answer("recovered", 1)
    assert machine.run("once").returncode == 1
    machine.answer("recovered", 0)
    assert machine.run("once").returncode == 0

    assert machine.phases == [*WHOLE_LIFE[:2], *WHOLE_LIFE, *WHOLE_LIFE[4:]]
    assert '"cases": []' in (machine.folder / "state" / "state.json").read_text()


def test_listener_says_who_is_drained(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server()
    port = free_port()
    machine = make_machine(server, listen=f"127.0.0.1:{port}")
    machine.start()
    wait_until(lambda: ask(port, "/readyz") == (200, "ok\n"), "it does not get ready", 20)
    assert ask(port, "/healthz") == (200, "ok\n")
    assert ask(port, "/drainz") == (200, "ok\n")
    assert ask(port, "/elsewhere")[0] == 404

    (event,) = server.create("Reboot", "solo-0")
    server.wait_for(event["event_id"], "Started")
    wait_until(lambda: ask(port, "/drainz") == (503, "draining\n"), "it is not drained", 20)
    machine.wait_for_phase("end started")
    server.complete(event["event_id"])
    wait_until(lambda: ask(port, "/drainz") == (200, "ok\n"), "it is still drained", 20)
    server.kill()
    wait_until(lambda: ask(port, "/readyz")[0] == 503, "it does not notice", 20)

    assert ask(port, "/healthz")[0] == 200
    assert "azure_scheduledevent_request_error 0" not in ask(port, "/metrics")[1]


def test_systemd_is_told_how_it_goes(
    start_server: ServerMaker, make_machine: MachineMaker, tmp_path: Path
) -> None:
    machine = make_machine(start_server())
    address = str(tmp_path / "notify")
    (machine.folder / "log").touch()
    log = (machine.folder / "log").stat()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.settimeout(60)
        machine.environment = {
            **machine.environment,
            "NOTIFY_SOCKET": address,
            "WATCHDOG_USEC": "1000000",
            "JOURNAL_STREAM": f"{log.st_dev}:{log.st_ino}",
        }
        machine.start()

        told = [systemd.recv(100) for _ in range(6)]
        assert machine.stop() == 0
        while told[-1] != b"STOPPING=1":
            told.append(systemd.recv(100))

    assert told[0] == b"READY=1"
    assert set(told[1:-1]) == {b"WATCHDOG=1"}
    assert machine.said().startswith("<6>agent_runs")


def test_check_shows_what_is_known_and_what_is_wrong(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server()
    machine = make_machine(server, approval="never")
    (event,) = server.create("Reboot", "solo-0")
    machine.run("once")
    (machine.folder / "hooks.d" / "started.d" / "notes.txt").touch()
    (machine.folder / "hooks.d" / "20-stop").touch()

    checked = machine.run("check")

    known = f"{event['event_id']} handle scheduled: scheduled '10-note' ready"
    assert f"known event     {known}" in checked.stdout
    assert "notes.txt is not executable" in checked.stdout
    assert "20-stop never runs, because it is not in the folder of a phase" in checked.stdout
    assert checked.returncode == 1
