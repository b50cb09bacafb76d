"""Servers that are starting: the mark that tells commands to wait, and `serve --detach`."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final, NoReturn

import typer

from forewarn.cli.errors import CommandError, ExitCode, reported_errors
from forewarn.cli.output import print_line, print_text
from forewarn.cli.settings import find_control_url, lock, read_left
from forewarn.environment import CONTROL_URL_FILE

LOG_FILE: Final = "server.log"
_STARTING_FILE: Final = "control.starting"
_LOOK_EVERY: Final = 0.05
_READY: Final = b"ready"


@contextmanager
def marked_as_starting(directory: Path) -> Iterator[Callable[[], None]]:
    """Mark *directory* as that of a server that is starting, until told that it has started."""
    mark = _leave_mark(directory / _STARTING_FILE)

    def remove() -> None:
        if mark is not None and not mark.closed:
            (directory / _STARTING_FILE).unlink(missing_ok=True)
            mark.close()

    try:
        yield remove
    finally:
        remove()


def is_starting(directory: Path) -> bool:
    """Tell whether a server is starting in *directory*; one that was killed is not."""
    return read_left(directory / _STARTING_FILE) is not None


def await_start(directory: Path, seconds: float) -> None:
    """Return when no server is starting in *directory* any more, or after *seconds*."""
    deadline = time.monotonic() + seconds
    while is_starting(directory) and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY)


def detach(directory: Path, run: Callable[[Callable[[], None]], None]) -> None:
    """Have *run* run in a process of its own; return when it calls what it is given.

    A server that does not start says why, and this command ends as it does.
    """
    _refuse_second(directory)
    path = directory / LOG_FILE
    with _open_log(path) as log:
        before = log.tell()
        hearing, telling = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        # Until somebody looks after the server: whoever interrupts this would leave it behind.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        if (pid := os.fork()) == 0:
            _become_server(run, log, telling)
        os.close(telling)
    if _hears_ready(hearing, pid):
        print_line(f"forewarn: the server is ready; process {pid}, log {path}", err=True)
        print_line(f"  stop it with: kill {pid}", err=True)
        return
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with path.open("rb") as said:
        said.seek(before)
        print_text(said.read().decode(errors="replace"), err=True)
    raise typer.Exit(code if code > 0 else ExitCode.FAILED)


def _hears_ready(hearing: int, pid: int) -> bool:
    """Wait until the server *pid* is ready, or has ended."""
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        with os.fdopen(hearing, "rb") as pipe:
            return pipe.read() == _READY
    except KeyboardInterrupt:
        # It is in a session of its own, which a Ctrl-C does not reach.
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        raise


def _refuse_second(directory: Path) -> None:
    if not hasattr(os, "fork"):
        message = "--detach does not work on Windows."
        raise CommandError(message, code=ExitCode.USAGE, hint="try: leave out --detach")
    url = find_control_url(directory / CONTROL_URL_FILE)
    if url is None and not is_starting(directory):
        return
    where = "is starting" if url is None else f"is running at {url}"
    raise CommandError(
        f"A server {where} with the state directory {directory.absolute()}.",
        code=ExitCode.REFUSED,
        hint="stop it first, or choose another --state-dir and --database",
    )


def _open_log(path: Path) -> IO[bytes]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        log = os.fdopen(os.open(path, flags, 0o600), "ab")
    except OSError as error:
        message = f"The log file {path} cannot be written: {error.strerror}."
        raise CommandError(message, code=ExitCode.FAILED) from error
    log.seek(0, os.SEEK_END)
    return log


def _become_server(
    run: Callable[[Callable[[], None]], None], log: IO[bytes], telling: int
) -> NoReturn:
    def tell() -> None:
        os.write(telling, _READY)
        os.close(telling)

    code: int = ExitCode.FAILED
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        with reported_errors():
            run(tell)
        code = ExitCode.OK
    except typer.Exit as ending:
        code = ending.exit_code
    except BaseException:  # noqa: BLE001 - this process has nobody above it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _leave_mark(path: Path) -> IO[bytes] | None:
    if os.name != "posix":
        return None
    with suppress(OSError):  # the server says later what is wrong with its directory
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
        mark = os.fdopen(os.open(path, flags, 0o600), "wb")
        if lock(mark):
            return mark
        mark.close()
    return None
