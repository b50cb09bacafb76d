"""Stays with one script of an operator until it ends, and writes down how. A process of its own.

It is started by its path and outlives the server, so it imports nothing of forewarn. Beside the
file of the task, which says what to run, it leaves what the script prints and how it ended. It is
handed that file open and locked: the lock is held as long as anybody can still tell the end.
"""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

CLAIM: Final = ".begun"
OUTPUT: Final = ".output"
ENDING: Final = ".ended"
BY_SIGNAL: Final = "ended by signal"
"""How the reason begins if somebody else has ended the script."""

_GRACE_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 1.0
_TAIL_BYTES: Final = 4096
_LONGEST_LINE: Final = 200
_HOST: Final = re.compile(r"host=(\S*)")
_ESCAPES: Final = re.compile(r"\x1b(?:[]PX^_].*?(?:\x07|\x1b\\)|\[[0-?]*[ -/]*[@-~]|[!-/]*[0-~])")


def claim(path: Path, content: Mapping[str, object]) -> int | None:
    """Write *content* to a new file that lasts, and return it open and locked, or None.

    The file is whole and locked from the first moment anybody can see it. None: there is one.
    """
    descriptor, draft = tempfile.mkstemp(prefix=path.name, suffix=".draft", dir=path.parent)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with open(descriptor, "wb", closefd=False) as file:
            file.write(json.dumps(content).encode())
        os.fsync(descriptor)
        os.link(draft, path)
        sync_directory(path.parent)
    except FileExistsError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    finally:
        os.unlink(draft)  # noqa: PTH108 - mkstemp returns a name
    return descriptor


def sync_directory(path: Path) -> None:
    """Have the names in a directory survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def elapsed_seconds() -> float:
    """Return seconds that nobody sets; if possible, with the time for which the machine slept."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def last_words(path: Path) -> tuple[str, str | None]:
    """Return what was printed last to the file at *path*, fit to be shown, and the host it names.

    A host is named by a last line of its own; what was printed before it is shown then.
    """
    lines = _last_lines(path)
    named = _HOST.fullmatch(lines[-1]) if lines else None
    said = next((line for line in reversed(lines) if not _HOST.fullmatch(line)), "")
    return said[:_LONGEST_LINE], named and named[1][:_LONGEST_LINE]


def _last_lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            tail = _ESCAPES.sub("", file.read().decode(errors="replace"))
    except FileNotFoundError:
        return []
    lines = ("".join(filter(str.isprintable, line)).strip() for line in tail.splitlines())
    return [line for line in lines if line]


def main(claim_path: Path) -> None:
    """Carry out the task and write down how it ended."""
    task = json.loads(claim_path.read_bytes())
    output = claim_path.with_suffix(OUTPUT)
    problem = _run(task, output)
    said, host = last_words(output)
    reason = f"{problem}: {said}" if problem and said else problem
    ending = {"status": "failed" if problem else "done", "reason": reason, "host": host}
    write_ending(claim_path.with_suffix(ENDING), ending)


def write_ending(path: Path, ending: Mapping[str, object]) -> None:
    """Write down how a task ended; on a full disk, as soon as there is room."""
    while not _write_down(path, ending):
        time.sleep(_PAUSE_SECONDS)


def _run(task: Mapping[str, Any], output: Path) -> str:
    """Run the script, and return why it failed if it did."""
    try:
        script = _start(task["command"], output)
    except OSError as error:
        return f"it could not be started: {error.strerror}"
    try:
        script.communicate(json.dumps(task["input"]).encode(), task["timeout_seconds"])
    except subprocess.TimeoutExpired:
        _stop(script)
        return f"it did not end within {task['timeout']} and was stopped"
    return _problem(script.returncode)


def _start(command: Sequence[str], output: Path) -> "subprocess.Popen[bytes]":
    output.touch(mode=0o600)
    with output.open("wb") as printed:
        return subprocess.Popen(  # noqa: S603 - the operator's own
            command,
            stdin=subprocess.PIPE,
            stdout=printed,
            stderr=printed,
            start_new_session=True,
        )


def _problem(code: int) -> str:
    if code < 0:
        return f"{BY_SIGNAL} {-code}"
    return f"exit code {code}" if code else ""


def _stop(script: "subprocess.Popen[bytes]") -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(script.pid, number)
        with suppress(subprocess.TimeoutExpired):
            script.wait(_GRACE_SECONDS)


def _write_down(path: Path, ending: Mapping[str, object]) -> bool:
    """Return whether it is written, or nobody wants it any more."""
    try:
        descriptor = claim(path, ending)
    except OSError:
        return not path.parent.exists()
    if descriptor is not None:
        os.close(descriptor)
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]))
