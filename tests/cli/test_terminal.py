"""On a terminal: tables are drawn for its width, and questions are asked."""

import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.ports import free_port
from typer.testing import Result

Run = Callable[..., Result]
FOREWARN = Path(sys.executable).with_name("forewarn")
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9]")
TIMEOUT = 45


def on_terminal(
    environment: dict[str, str], *arguments: str, typed: str = "", **more: str
) -> tuple[int, str]:
    """Run a command on a terminal where somebody types; return its exit code and what is seen."""
    here, there = pty.openpty()
    process = subprocess.Popen(
        [FOREWARN, *arguments],
        stdin=there,
        stdout=there,
        stderr=there,
        env={"PATH": os.defpath, "TERM": "xterm-256color", **environment, **more},
    )
    os.close(there)
    os.write(here, typed.encode())
    seen = b""
    try:
        while chunk := os.read(here, 4096):
            seen += chunk
    except OSError:
        pass  # how Linux says that the other side has closed
    os.close(here)
    return process.wait(TIMEOUT), seen.decode()


def test_table_folds_to_the_width_of_the_terminal(run: Run, environment: dict[str, str]) -> None:
    assert run("event", "create", "--type", "Reboot", "--resource", "web-0").exit_code == 0

    code, seen = on_terminal(environment, "event", "list", NO_COLOR="1")

    assert code == 0
    assert "Reboot" in seen
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in seen.splitlines()) <= 80
    assert not COLOUR.search(seen)


def test_doctor_says_what_it_found_although_there_is_no_server(tmp_path: Path) -> None:
    names = ("FOREWARN_METADATA", "FOREWARN_CONTROL", "FOREWARN_SERVER")
    environment = {name: f"127.0.0.1:{free_port()}" for name in names} | {"HOME": str(tmp_path)}

    code, seen = on_terminal(environment, "doctor")

    assert code == 1
    assert "configuration" in seen
    assert "Cannot connect to" in seen


def test_what_was_done_is_told_although_the_clock_cannot_be_asked(
    environment: dict[str, str],
) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path.endswith("/gates")
            body = b'{"gates": [{"name": "change-freeze", "kind": "http"}]}' if found else b"{}"
            self.send_response(200 if found else 503)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            where = f"http://127.0.0.1:{server.server_port}"
            code, seen = on_terminal(environment, "gate", "list", FOREWARN_SERVER=where)
        finally:
            server.shutdown()

    assert code == 0
    assert "change-freeze" in seen


@pytest.mark.parametrize(("typed", "code"), [("n\n", 1), ("y\n", 0)])
def test_starting_without_notice_is_asked_for(
    run: Run, environment: dict[str, str], typed: str, code: int
) -> None:
    order = ("event", "create", "--type", "Reboot", "--resource", "web-0", "--started")

    ended, seen = on_terminal(environment, *order, typed=typed)

    assert ended == code
    assert "Start Reboot of web-0 without notice? [y/N]" in seen
    assert ("Started" in run("event", "list").stdout) == (code == 0)


@pytest.mark.parametrize(("typed", "code"), [("n\n", 1), ("y\n", 0)])
@pytest.mark.parametrize(
    ("order", "question"),
    [
        ("vm remove solo", "Remove solo from the fleet? [y/N]"),
        (
            "fleet apply less.toml --prune --allow-removals 3",
            "Remove every virtual machine, host, set and service that is not in less.toml?",
        ),
    ],
    ids=["vm-remove", "fleet-apply"],
)
def test_removing_is_asked_for(
    run: Run, environment: dict[str, str], order: str, question: str, typed: str, code: int
) -> None:
    assert run("vm", "list").exit_code == 0
    Path("less.toml").write_text('[[virtual_machine]]\nname = "other"\n')

    ended, seen = on_terminal(environment, *order.split(), typed=typed)

    assert ended == code
    assert question in seen
    assert ("solo" in run("vm", "list").stdout) == (code != 0)


@pytest.mark.parametrize("flag", ["--yes", "--dry-run"])
def test_removing_is_not_asked_for_with(run: Run, environment: dict[str, str], flag: str) -> None:
    assert run("vm", "list").exit_code == 0

    ended, seen = on_terminal(environment, "vm", "remove", "solo", flag)

    assert (ended, "[y/N]" in seen) == (0, False)
    assert ("solo" in run("vm", "list").stdout) == (flag == "--dry-run")


def test_times_are_told_from_the_servers_clock(run: Run, environment: dict[str, str]) -> None:
    run("event", "create", "--type", "Reboot", "--resource", "web-0")
    run("clock", "advance", "1m")
    first = "00000000-0000-4000-8000-000000000003"

    _, listed = on_terminal(environment, "event", "list", NO_COLOR="1")
    _, one = on_terminal(environment, "event", "show", first)
    _, absolute = on_terminal(environment, "event", "show", first, "--utc")

    assert "in 14 min" in " ".join(listed.split())
    assert "not before:     2026-01-05 08:15:00Z (in 14 min)" in one
    assert "created:        2026-01-05 08:00:00Z (60 s ago)" in one
    assert "min" not in absolute


def test_sixty_hosts_are_sixty_lines(
    empty_run: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    labels = '{ cluster = "frankfurt-1", rack = "r17", generation = "g9" }'
    (tmp_path / "sixty.toml").write_text(
        "".join(
            f'[[host]]\nname = "kvm-{number}"\nlabels = {labels}\n'
            f'[[virtual_machine]]\nname = "vm-{number}"\nhost = "kvm-{number}"\n'
            for number in range(60)
        )
    )
    assert empty_run("fleet", "apply", "sixty.toml").exit_code == 0
    for number in range(60):
        assert empty_run("host", "close", f"kvm-{number}").exit_code == 0
    started = empty_run("maintenance", "start", "--type", "Freeze", "--host", "kvm-7")
    assert started.exit_code == 0

    code, seen = on_terminal(environment, "host", "list")

    assert (code, len(seen.splitlines())) == (0, 61)
    assert "kvm-59" in seen
