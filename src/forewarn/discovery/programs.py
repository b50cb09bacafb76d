"""Programs that a source runs: in sessions of their own, for a limited time."""

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from forewarn.discovery.sources import SourceError

_MEBIBYTE: Final = 1024 * 1024
MOST_BYTES: Final = 256 * _MEBIBYTE
"""How much a program may print: a fleet of a million virtual machines has half of it."""
MOST_COMPLAINTS: Final = 16 * _MEBIBYTE
"""How much it may print on standard error, of which one line is shown."""
_LOOK_SECONDS: Final = 0.02
_SAID: Final = 500


def run_program(
    words: Sequence[str],
    *,
    environment: Mapping[str, str],
    timeout: float,
    stopping: threading.Event,
    folder: Path | None = None,
) -> str:
    """Return what a program prints, or raise a `SourceError` unless it ends well and in time.

    Whatever it has started is ended with it.
    """
    # Files, because somebody has to read a pipe before it is full, and what is left may hold it.
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as complained:
        try:
            process = subprocess.Popen(  # noqa: S603 - what the operator wrote into the file
                words,
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=complained,
                start_new_session=True,
            )
        except OSError as error:
            raise SourceError(f"{words[0]} cannot be started: {error.strerror}.") from None
        try:
            _await_end(process, (printed, complained), timeout, stopping)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        _refuse_flood(printed, complained)
        if code := process.returncode:
            ended = f"exited with code {code}" if code > 0 else f"was killed by signal {-code}"
            raise SourceError(f"It {ended}.", _read_complaint(complained))
        return _read(printed)


def _await_end(
    process: subprocess.Popen[bytes],
    files: tuple[IO[bytes], IO[bytes]],
    timeout: float,
    stopping: threading.Event,
) -> None:
    deadline = time.monotonic() + timeout
    while process.poll() is None:
        if stopping.is_set():
            raise SourceError("The server has stopped asking.")
        if time.monotonic() > deadline:
            raise SourceError(f"It did not answer within {timeout:g} seconds.")
        _refuse_flood(*files)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_SECONDS)


def _refuse_flood(printed: IO[bytes], complained: IO[bytes]) -> None:
    if _size(printed) > MOST_BYTES:
        raise SourceError(f"It printed more than {MOST_BYTES // _MEBIBYTE} MiB.")
    if _size(complained) > MOST_COMPLAINTS:
        most = f"{MOST_COMPLAINTS // _MEBIBYTE} MiB"
        raise SourceError(f"It printed more than {most} on standard error.")


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def _read_complaint(complained: IO[bytes]) -> str:
    """Return the last line of what the program has complained about, as a sentence."""
    complained.seek(max(0, _size(complained) - 4 * _SAID))
    lines = complained.read().decode(errors="replace").split("\n")
    said = [" ".join(line.split()) for line in lines if line.strip()]
    return f"{said[-1][-_SAID:].rstrip('.')}." if said else ""


def _read(printed: IO[bytes]) -> str:
    printed.seek(0)
    try:
        return printed.read(MOST_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SourceError("Its output is not UTF-8 text.") from None
