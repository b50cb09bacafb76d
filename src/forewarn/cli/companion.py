"""The program that a server is started for: what it is told, how it is run and how it ends."""

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from forewarn.cli.errors import CommandError, ExitCode
from forewarn.cli.output import print_line
from forewarn.cli.signals import KILLED, StopSignals
from forewarn.environment import environment_with
from forewarn.private_files import create_private, draft_of

_CANNOT_RUN: Final = 127
_PLAIN: Final = re.compile(r"[\w@%+=:,./?-]*", re.ASCII)
"""What shells take as it is after NAME=, and so do files of variables that know no quotes."""


@contextmanager
def ready_file(path: Path | None) -> Iterator[Callable[[Mapping[str, str]], None]]:
    """Give a function that writes variables to *path*, all at once; it is gone afterwards."""
    if path is None:
        yield lambda _: None
        return
    if path.exists() and not path.is_file():
        message = f"--ready-file: {path} is not a regular file."
        raise CommandError(message, code=ExitCode.USAGE)
    draft = draft_of(path)
    try:
        path.unlink(missing_ok=True)  # one that was left behind would tell of another server
        # Not for others: there is a token in it.
        file = create_private(draft)
    except OSError as error:
        raise _unwritable(path, error) from error

    def write(variables: Mapping[str, str]) -> None:
        try:
            file.write("".join(f"{line}\n" for line in _assignments(variables)).encode())
            file.flush()
            draft.replace(path)
        except OSError as error:
            raise _unwritable(path, error) from error

    try:
        yield write
    finally:
        draft.unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            # As long as ours is open, the file of another server cannot look like it.
            if os.path.samestat(path.lstat(), os.fstat(file.fileno())):
                path.unlink()
        with suppress(OSError):  # what could not be written before cannot be written now
            file.close()


def _unwritable(path: Path, error: OSError) -> CommandError:
    message = f"--ready-file: {path} cannot be written: {error.strerror}."
    return CommandError(message, code=ExitCode.FAILED)


def _assignments(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield each of *variables* as a shell assigns it."""
    for name, value in variables.items():
        yield f"{name}={value if _PLAIN.fullmatch(value) else shlex.quote(value)}"


async def run_to_the_end(
    command: Sequence[str], variables: Mapping[str, str], signals: StopSignals
) -> int:
    """Run *command* with *variables*, hand it all signals, and return what it ends with."""
    import asyncio  # noqa: PLC0415 - slow to load

    early: list[int] = []
    signals.hand_to(early.append)
    try:
        # Not asyncio's: with uvloop, the program would get copies of our input and output as well.
        process = subprocess.Popen(command, env=environment_with(variables))  # noqa: S603, ASYNC220
    except OSError as error:
        print_line(f"forewarn: {command[0]} cannot be run: {error.strerror}.", err=True)
        return _CANNOT_RUN
    signals.hand_to(lambda number: _send(process, number))
    for number in early:
        _send(process, number)
    try:
        code = await asyncio.to_thread(process.wait)
    finally:
        if process.poll() is None:  # the server has failed
            _send(process, signal.SIGTERM)
    return code if code >= 0 else KILLED - code


async def until_stopped(signals: StopSignals) -> None:
    """Return at Ctrl-C, and at any signal that means the same."""
    import asyncio  # noqa: PLC0415 - slow to load

    stopping = asyncio.Event()
    signals.hand_to(lambda _: stopping.set())
    await stopping.wait()


def _send(process: "subprocess.Popen[bytes]", number: int) -> None:
    # A terminal sends Ctrl-C to all that run in it, and whoever gets it twice may give up.
    if number == signal.SIGINT and _has_terminal():
        return
    with suppress(ProcessLookupError):  # it has ended
        process.send_signal(number)


def _has_terminal() -> bool:
    """Tell whether Ctrl-C of a terminal reaches this process, and so every child of it."""
    try:
        with Path("/dev/tty").open("rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False
