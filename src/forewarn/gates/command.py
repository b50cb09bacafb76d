"""A gate that a program of the operator decides about: open if it ends with 0."""

import asyncio
import os
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from forewarn.domain.gate import Question
from forewarn.gates.verdict import MOST_OUTPUT, GateVerdict, encode_question, shut, tidy

_LOOK_SECONDS: Final = 0.05
_MOST_BYTES: Final = 4 * MOST_OUTPUT


class CommandGate:
    """Runs *command* in a session of its own, and ends that session with it or at the time-out.

    The program has the question in its environment, and as JSON on its standard input.
    """

    def __init__(
        self, command: tuple[str, ...], *, timeout: timedelta, environment: Mapping[str, str]
    ) -> None:
        self._command = command
        self._timeout = timeout.total_seconds()
        self._environment = environment
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._is_closed = False

    async def ask(self, question: Question, *, now: datetime) -> GateVerdict:  # noqa: ARG002 - it has a clock
        """Run the program, and return how it ended and what it printed last."""
        return await asyncio.to_thread(self._run, question)

    def close(self) -> None:
        """End what runs, and start nothing more."""
        with self._lock:
            self._is_closed = True
            for process in self._running:
                _end(process)

    def _run(self, question: Question) -> GateVerdict:
        with tempfile.TemporaryFile() as asked:
            # A file, because a program that does not read would block a pipe.
            asked.write(encode_question(question))
            asked.seek(0)
            try:
                process = self._start(question, asked.fileno())
            except (OSError, ValueError) as error:
                return shut(f"The command could not be started: {error}.")
        try:
            return self._attend(process)
        finally:
            with self._lock:
                self._running.discard(process)

    def _start(self, question: Question, asked: int) -> subprocess.Popen[bytes]:
        more = {
            "GATE": question.gate,
            "MAINTENANCE_ID": question.maintenance_id,
            "SCOPE_IDS": " ".join(question.scope_ids),
            "STEPS_DONE": str(question.steps_done),
        }
        with self._lock:
            if self._is_closed:
                raise OSError("the server is stopping")
            process = subprocess.Popen(  # noqa: S603 - what the operator wrote into the file
                self._command,
                env={**self._environment, **more},
                stdin=asked,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._running.add(process)
        return process

    def _attend(self, process: subprocess.Popen[bytes]) -> GateVerdict:
        deadline = time.monotonic() + self._timeout
        with process:
            output = _read_until(process, deadline)
            # Before the pipe is closed, which would end it with another reason.
            is_late = process.poll() is None
            _end(process)
        code = process.returncode
        if is_late:
            return shut(f"{output}\nThe command timed out after {self._timeout:g} seconds.")
        if code != 0:
            ended = f"exit code {code}" if code > 0 else f"signal {-code}"
            return shut(f"{output}\nThe command ended with {ended}.")
        return GateVerdict(is_open=True, output=tidy(output))


def _read_until(process: subprocess.Popen[bytes], deadline: float) -> str:
    """Return the last of what *process* prints until it ends or *deadline* comes."""
    last, pipe = b"", process.stdout
    if pipe is None:
        return ""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            # Not until the pipe is closed: what it leaves running may keep that open.
            has_ended, seconds = process.poll() is not None, deadline - time.monotonic()
            is_ready = selector.select(0 if has_ended else max(0, min(seconds, _LOOK_SECONDS)))
            chunk = os.read(pipe.fileno(), 65_536) if is_ready else b""
            last = (last + chunk)[-_MOST_BYTES:]
            if has_ended or seconds <= 0:
                break
            if is_ready and not chunk:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(seconds)
                break
    return last.decode(errors="replace").rstrip()


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
