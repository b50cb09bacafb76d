"""Gates of a real server: what a program is given, and that none keeps the server from ending."""

import threading
import time
from pathlib import Path

from tests.e2e.conftest import ANSWER_SECONDS, ServerMaker, wait_until

PROGRAM = """[[gate]]
name = "smoke"
kind = "command"
run = ["./check"]
timeout = "2m"
"""


def write_gate(folder: Path, script: str) -> str:
    (folder / "gates.toml").write_text(PROGRAM, encoding="utf-8")
    (folder / "check").write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (folder / "check").chmod(0o755)
    return str(folder / "gates.toml")


def test_program_gets_the_environment_but_none_of_our_secrets(
    make_server: ServerMaker, tmp_path: Path
) -> None:
    server = make_server("--gates", write_gate(tmp_path, "env"))
    server.environment = {
        **server.environment,
        "COLOUR": "blue",
        "FOREWARN_PROXY_SECRET": "hush",
    }
    server.start()

    answer = server.command("gate", "test", "smoke")

    assert answer["status"] == "open"
    told = answer["output"].splitlines()
    assert {"GATE=smoke", "MAINTENANCE_ID=test", "SCOPE_IDS=", "STEPS_DONE=0"} <= set(told)
    assert "COLOUR=blue" in told
    assert not any(line.startswith("FOREWARN_") for line in told)
    assert server.stop() == 0


def test_server_ends_soon_and_takes_a_gate_that_hangs_with_it(
    make_server: ServerMaker, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    script = f"echo $$ > {begun}.new; mv {begun}.new {begun}; exec sleep 600"
    server = make_server("--gates", write_gate(tmp_path, script))
    server.start()
    asking = threading.Thread(target=lambda: server.try_command("gate", "test", "smoke"))
    asking.start()
    wait_until(begun.exists, "the program has not begun", ANSWER_SECONDS)
    program = Path("/proc") / begun.read_text(encoding="utf-8").strip()
    assert program.exists()
    stopped = time.monotonic()

    status = server.stop()
    asking.join(ANSWER_SECONDS)

    assert status == 0, server.said()
    assert time.monotonic() - stopped < ANSWER_SECONDS
    wait_until(lambda: not program.exists(), "the program goes on", ANSWER_SECONDS)


def test_file_that_is_wrong_is_refused_at_start(make_server: ServerMaker, tmp_path: Path) -> None:
    path = Path(write_gate(tmp_path, "true"))
    path.write_text(PROGRAM.replace("./check", "./gone"), encoding="utf-8")

    ended = make_server("--gates", str(path)).run_to_the_end()

    assert ended.returncode == 1
    assert ended.stderr == (
        f"forewarn: {path}:4: run of gate 1: program not found or not executable: './gone'.\n"
    )
    assert not (tmp_path / "data" / "forewarn.db").exists()


def test_killed_server_says_at_once_what_it_said_before(
    make_server: ServerMaker, tmp_path: Path
) -> None:
    """Whoever asks right after the start reads what is in the store: here the gate hangs."""
    gates = write_gate(
        tmp_path,
        f"[ -e {tmp_path}/asked ] && exec sleep 600; touch {tmp_path}/asked; echo not yet; exit 1",
    )
    script = tmp_path / "impact"
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
    script.write_text(f"#!/bin/sh\necho on it\n[ $EVENT_VM = web-0 ] || {wait}\n")
    script.chmod(0o755)
    (tmp_path / "executors.toml").write_text('[[command]]\nrun = ["./impact"]\n')
    executors = ("--executor-file", str(tmp_path / "executors.toml"))
    server = make_server("--gates", gates, *executors)
    server.start()
    order = {"event_type": "Freeze", "scopes": ["web"], "gates": ["smoke"]}
    maintenance_id = server.operate("POST", "maintenances", order).json()["maintenance_id"]
    (step,) = server.command("maintenance", "status", maintenance_id)["events"]
    assert server.approve("web-0", step["event_id"]).status == 200
    (event,) = server.create("Reboot", "solo-0", started=True)

    def said() -> tuple[object, object]:
        status = server.command("maintenance", "status", maintenance_id)
        reasons = server.command("event", "explain", event["event_id"])["reasons"]
        return (
            [(each["gate"], each["detail"]) for each in status["remaining"][0]["brakes"]],
            [(each["kind"], each["about"], each["since"]) for each in reasons],
        )

    wait_until(lambda: "not yet" in str(said()), "the gate was not asked", ANSWER_SECONDS)
    wait_until(lambda: "on it" in str(said()), "the script does not run", ANSWER_SECONDS)
    before = said()
    server.kill()
    server.start()

    assert said() == before
    (tmp_path / "go").touch()
    server.wait_for(event["event_id"], "Completed")
    assert server.stop() == 0
