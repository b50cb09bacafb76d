"""The agent as a process, with a server that is away or does not do as it is asked."""

import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from tests.agent.conftest import ID, make_case
from tests.e2e.conftest import wait_until
from tests.ports import free_port
from tests.sdk.conftest import Metadata, answer_well, answer_with, event

from forewarn.agent.state import StateFile
from forewarn.agent.vocabulary import HookOutcome, HookPhase

pytestmark = pytest.mark.timeout(300)

SECONDS = 45


@pytest.fixture
def metadata() -> Generator[Metadata]:
    server = Metadata()
    server.events = [event(1)]
    yield server
    server.stop()


def run(verb: str, folder: Path, metadata: Metadata, *lines: str) -> int:
    """Return what *verb* ends with."""
    settings = (f'endpoint = "{metadata.endpoint}"', 'name = "web-0"', *lines)
    command = write_command(verb, folder, *settings)
    return subprocess.run(command, check=False, timeout=3 * SECONDS).returncode


def write_command(verb: str, folder: Path, *lines: str) -> list[str]:
    """Return a command for an agent that is configured with *lines*."""
    file = folder / "agent.toml"
    file.write_text("\n".join(lines), encoding="utf-8")
    return [sys.executable, "-m", "forewarn.agent", verb, "--config", str(file)]


def ask(port: int, path: str) -> int | None:
    """Return what the listener answers, None if there is none yet."""
    connection = HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except ConnectionRefusedError:
        return None
    finally:
        connection.close()


def test_machine_that_was_drained_stays_so_while_the_server_is_away(tmp_path: Path) -> None:
    with StateFile(tmp_path) as state:
        state.save({ID: make_case()})
    port = free_port()
    command = write_command(
        "run",
        tmp_path,
        f'listen = "127.0.0.1:{port}"',
        f'endpoint = "http://127.0.0.1:{free_port()}"',
        f'state_dir = "{tmp_path}"',
    )

    with subprocess.Popen(command) as run:
        try:
            wait_until(lambda: ask(port, "/drainz") is not None, "nobody listens", SECONDS)
            answer = ask(port, "/drainz")
        finally:
            run.kill()

    assert answer == 503


def test_one_look_fails_if_what_it_does_cannot_be_written_down(
    tmp_path: Path, metadata: Metadata
) -> None:
    (tmp_path / "state.new").mkdir()
    lines = (f'state_dir = "{tmp_path}"', "[hooks]", f'scheduled = "touch {tmp_path}/done"')

    assert run("once", tmp_path, metadata, *lines) == 1
    assert not (tmp_path / "done").exists()


def test_one_look_fails_if_the_approval_is_refused(tmp_path: Path, metadata: Metadata) -> None:
    metadata.script = [answer_well, answer_with(b'{"error": "Not allowed"}', 403)]

    status = run("once", tmp_path, metadata, f'state_dir = "{tmp_path}"', 'approval = "when-ready"')

    assert [seen.method for seen in metadata.seen] == ["GET", "POST"]
    assert status == 1


def test_one_look_ends_although_no_later_time_can_be_asked_for(
    tmp_path: Path, metadata: Metadata
) -> None:
    metadata.script = [answer_well] + [answer_with(b"", 503)] * 99
    lines = (f'state_dir = "{tmp_path}"', 'ask_again = "1s"', "[hooks]", 'scheduled = "exit 75"')

    assert run("once", tmp_path, metadata, *lines) == 75


def test_one_look_remembers_which_folders_had_hooks(tmp_path: Path, metadata: Metadata) -> None:
    (tmp_path / "hooks.d" / "scheduled.d").mkdir(parents=True)
    lines = (f'state_dir = "{tmp_path}/state"', 'approval = "when-ready"')
    (told,), metadata.events = metadata.events, []
    quiet = run("once", tmp_path, metadata, *lines)

    (tmp_path / "hooks.d" / "scheduled.d").rmdir()
    metadata.events = [told]
    status = run("once", tmp_path, metadata, *lines)

    assert (quiet, status) == (0, 1)
    assert "POST" not in [seen.method for seen in metadata.seen]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_look_that_is_stopped_lets_its_hook_end_and_begins_no_other(
    tmp_path: Path, metadata: Metadata, number: signal.Signals
) -> None:
    command = write_command(
        "once",
        tmp_path,
        f'endpoint = "{metadata.endpoint}"',
        'name = "web-0"',
        f'state_dir = "{tmp_path}"',
        "[hooks]",
        f"scheduled = ['touch {tmp_path}/begun; sleep 1; touch {tmp_path}/ended', 'exit 75']",
    )

    with subprocess.Popen(command) as once:
        wait_until((tmp_path / "begun").exists, "no hook begins", SECONDS)
        once.send_signal(number)
        status = once.wait(SECONDS)

    assert status == 1
    assert (tmp_path / "ended").exists()
    (case,) = StateFile(tmp_path).load().values()
    assert list(case.outcomes[HookPhase.SCHEDULED].values()) == [HookOutcome.READY]


def test_check_points_out_a_state_dir_that_the_agent_refuses(
    tmp_path: Path, metadata: Metadata, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state").symlink_to(tmp_path / "nowhere")

    assert run("check", tmp_path, metadata, f'state_dir = "{tmp_path}/state"') == 1
    assert "set state_dir to another folder" in capfd.readouterr().out


def test_check_points_out_what_is_never_run_and_what_fails_although_the_server_is_away(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hooks.d" / "schedule.d").mkdir(parents=True)
    (tmp_path / "hooks.d" / "started.d").symlink_to(tmp_path / "nowhere")
    (tmp_path / "state.json").write_bytes(b"{")
    lines = (f'endpoint = "http://127.0.0.1:{free_port()}"', f'state_dir = "{tmp_path}"')
    command = write_command("check", tmp_path, *lines)

    status = subprocess.run(command, check=False, timeout=3 * SECONDS).returncode

    told = capfd.readouterr()
    assert status == 6
    assert "schedule.d never runs, because it is not in the folder of a phase" in told.out
    assert "started.d is not executable" in told.out
    assert "state.json is not a valid state file" in told.out
    assert "moved" not in told.err
    assert (tmp_path / "state.json").read_bytes() == b"{"


def test_check_points_out_a_folder_that_is_gone(
    tmp_path: Path, metadata: Metadata, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hooks.d").mkdir()
    line = f'state_dir = "{tmp_path}/state"'
    run("once", tmp_path, metadata, line)
    (tmp_path / "hooks.d").rmdir()

    assert run("check", tmp_path, metadata, line) == 1
    assert f"{tmp_path}/hooks.d is missing" in capfd.readouterr().out


def test_check_of_a_broken_state_fails_and_shows_the_rest(
    tmp_path: Path, metadata: Metadata, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state.json").write_bytes(b"{")

    assert run("check", tmp_path, metadata, f'state_dir = "{tmp_path}"') == 1

    told = capfd.readouterr()
    assert "the agent sets it aside" in told.out
    assert "this machine    web-0" in told.out
    assert "Traceback" not in told.err


def test_check_shows_what_the_terminal_has_no_characters_for(
    tmp_path: Path, metadata: Metadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")

    assert (
        run(
            "check",
            tmp_path,
            metadata,
            f'state_dir = "{tmp_path}"',
            "[hooks]",
            'started = "\u2013"',
        )
        == 0
    )


def test_dry_run_leaves_the_port_to_the_real_agent(tmp_path: Path, metadata: Metadata) -> None:
    with socket.create_server(("127.0.0.1", 0)) as real:
        command = write_command(
            "run",
            tmp_path,
            f'endpoint = "{metadata.endpoint}"',
            f'state_dir = "{tmp_path}"',
            'name = "web-0"',
            f'listen = "127.0.0.1:{real.getsockname()[1]}"',
        )
        with subprocess.Popen([*command, "--dry-run"], stderr=subprocess.PIPE, text=True) as dry:
            try:
                assert dry.stderr is not None
                assert any("agent_runs" in line for line in dry.stderr)
            finally:
                dry.kill()
