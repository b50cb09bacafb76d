"""A hook that runs: a process of its own, whose output goes to the log line by line."""

import contextlib
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from typing import IO, Final

from forewarn.agent.decisions import RunHook
from forewarn.protocol.vocabulary import EventId

GRACE_SECONDS: Final = 5.0
"""How long a hook that was asked to end has until it is killed."""

LARGEST_OUTPUT: Final = 2**20
"""In bytes. What a hook writes beyond them is not logged: it could fill the disk that the state of
the agent is on."""

_LONGEST_LINE: Final = 4096
_LONGEST_PIECE: Final = 2**16
_OUTPUT_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.05
_NO_SIGNAL: Final = 0
_KILL: Final = getattr(signal, "SIGKILL", signal.SIGTERM)

_log = logging.getLogger("forewarn.agent.hook")


class HookProcess:
    """One run of a hook, begun at once; *on_exit* is called with its status in another thread.

    What it leaves behind in the background is let alone, and read as long as it writes: it would
    not survive a pipe that nobody reads.
    """

    def __init__(
        self,
        action: RunHook,
        *,
        event_id: EventId,
        variables: Mapping[str, str],
        standard_input: bytes,
        on_exit: Callable[[int], None],
    ) -> None:
        self._action = action
        self._event_id = event_id
        self._on_exit = on_exit
        self._deadline: float | None = None
        self._process = subprocess.Popen(  # noqa: S603 - what the owner of the machine put there
            action.hook.command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(variables),
            start_new_session=True,  # so that its children can be ended with it
        )
        if self._process.stdin is None or self._process.stdout is None:
            raise AssertionError  # they never are: the type cannot say so
        self._reader = _make_thread(self._read_output, self._process.stdout)
        try:
            self._reader.start()
            _make_thread(_write_input, self._process.stdin, standard_input).start()
            _make_thread(self._wait).start()
        except RuntimeError:  # the system has no room for another thread
            with self._process:
                self._signal(_KILL)
            raise

    def terminate(self) -> bool:
        """Ask it to end, and its children, which are killed if they outlive it for long.

        Return whether it had not ended before.
        """
        if self._process.returncode is not None:
            return False
        self._deadline = time.monotonic() + GRACE_SECONDS
        return self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        if self._process.returncode is None:  # or its number may be that of another process
            self._signal(_KILL)

    def _signal(self, number: int) -> bool:
        """Tell whether there was anybody to send it to."""
        try:
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, number)
            else:
                self._process.terminate()
        except OSError:  # it has just ended
            return False
        return True

    def _wait(self) -> None:
        status = self._process.wait()
        if self._deadline is not None and hasattr(os, "killpg"):
            self._end_children(self._deadline)
        # What it left in the background may hold the pipe for ever.
        self._reader.join(_OUTPUT_SECONDS)
        self._on_exit(status)

    def _end_children(self, deadline: float) -> None:
        while self._signal(_NO_SIGNAL):
            if time.monotonic() >= deadline:
                self._signal(_KILL)
                return
            time.sleep(_LOOK_SECONDS)

    def _read_output(self, output: IO[bytes]) -> None:
        begun, left = b"", LARGEST_OUTPUT
        with output:
            while left > 0 and (piece := output.read(_LONGEST_LINE)):
                left -= len(piece)
                *lines, begun = (begun + piece).split(b"\n")
                if len(begun) >= _LONGEST_LINE:
                    lines, begun = [*lines, begun], b""
                for line in lines:
                    self._log_line(line)
            if begun:
                self._log_line(begun)
            if left <= 0:
                self._log("hook_output_cut", f"bytes={LARGEST_OUTPUT}")
                while output.read(_LONGEST_PIECE):
                    pass

    def _log_line(self, line: bytes) -> None:
        self._log("hook_output", line.decode("utf-8", "replace").rstrip())

    def _log(self, name: str, text: str) -> None:
        hook = self._action.hook.name
        _log.info(
            "%s event=%s phase=%s hook=%r %s", name, self._event_id, self._action.phase, hook, text
        )


def _make_thread(work: Callable[..., None], *arguments: object) -> threading.Thread:
    return threading.Thread(target=work, args=arguments, daemon=True)


def _write_input(given: IO[bytes], content: bytes) -> None:
    # In a thread of its own: a hook need not read, and a pipe does not hold everything.
    with contextlib.suppress(OSError), given:
        while content:
            content = content[given.write(content) :]
