"""Commands wait for a server that is starting in their state directory, and for no other."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.ports import free_port
from typer.testing import Result

from forewarn.cli.server_start import await_start, is_starting, marked_as_starting

Run = Callable[..., Result]
DETACHED = """
import os, signal, sys, time
from pathlib import Path
from forewarn.cli.server_start import detach

def run(tell):
    os.write(int(sys.argv[2]), b"!")
    time.sleep(60)

close = os.close

def interrupt(file):  # the first thing that is done beside the new process
    signal.raise_signal(signal.SIGINT)
    close(file)

if sys.argv[3] == "at once":
    os.close = interrupt
detach(Path(sys.argv[1]), run)
"""


def test_command_waits_while_a_server_is_starting_beside_it(
    run: Run, server: str, tmp_path: Path
) -> None:
    (tmp_path / "forewarn.toml").write_text(f'control = "127.0.0.1:{free_port()}"\n')
    with marked_as_starting(tmp_path) as remove, (tmp_path / "url").open("w") as left:

        def be_ready() -> None:
            left.write(f"http://{server}\n")
            left.flush()
            fcntl.flock(left, fcntl.LOCK_EX)
            (tmp_path / "url").rename(tmp_path / "control.url")
            remove()

        timer = threading.Timer(0.3, be_ready)
        timer.start()
        listed = run("vm", "list", FOREWARN_SERVER=None)
        timer.join()

    assert listed.exit_code == 0, listed.stderr


def test_command_does_not_wait_for_a_server_that_it_was_given(run: Run, tmp_path: Path) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    with marked_as_starting(tmp_path):
        by_flag = run("vm", "list", "--server", dead, FOREWARN_SERVER=None)
        by_variable = run("vm", "list", FOREWARN_SERVER=dead)

        assert (by_flag.exit_code, by_variable.exit_code) == (6, 6)
        assert is_starting(tmp_path)


def test_mark_of_a_killed_server_counts_for_nothing(tmp_path: Path) -> None:
    with marked_as_starting(tmp_path) as remove:
        assert is_starting(tmp_path)
        remove()
        assert not is_starting(tmp_path)
    (tmp_path / "control.starting").touch()

    assert not is_starting(tmp_path)
    await_start(tmp_path, seconds=60)


def test_waiting_ends(tmp_path: Path) -> None:
    with marked_as_starting(tmp_path):
        await_start(tmp_path, seconds=0.01)

        assert is_starting(tmp_path)


def test_second_server_leaves_the_mark_of_the_first(tmp_path: Path) -> None:
    with marked_as_starting(tmp_path):
        with marked_as_starting(tmp_path):
            pass

        assert is_starting(tmp_path)


@pytest.mark.parametrize("name", ["gone", "file/in"])
def test_directory_that_cannot_be_marked_is_no_problem(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()

    with marked_as_starting(tmp_path / name):
        assert not is_starting(tmp_path / name)


@pytest.mark.parametrize("interrupted", ["at once", "later"])
def test_server_that_nobody_waits_for_any_more_is_not_left_behind(
    tmp_path: Path, interrupted: str
) -> None:
    hearing, telling = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", DETACHED, tmp_path, str(telling), interrupted],
        pass_fds=[telling],
        stderr=subprocess.DEVNULL,
    ) as waiting:
        os.close(telling)
        os.read(hearing, 1)
        waiting.send_signal(signal.SIGINT)
        waiting.wait(60)

    os.set_blocking(hearing, False)
    while os.read(hearing, 1):  # which is an error as long as the other end is open somewhere
        pass
    os.close(hearing)
