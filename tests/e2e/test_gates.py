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
        f"forewarn: {path}:4: run of gate 1: there is no program './gone' that can be run.\n"
    )
    assert not (tmp_path / "data" / "forewarn.db").exists()
