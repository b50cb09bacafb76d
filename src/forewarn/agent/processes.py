"""A hook that runs: a process of its own, whose output goes to the log line by line."""

import logging
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from forewarn.agent.hooks import Hook

GRACE_SECONDS: Final = 5.0
"""How long a hook that was asked to end has until it is killed."""

_LONGEST_LINE: Final = 4096
_OUTPUT_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.05
_NO_SIGNAL: Final = 0

_log = logging.getLogger("forewarn.agent.hook")


class Running:
    """One run of *hook*, begun at once; *on_exit* is called with its status in another thread."""

    def __init__(
        self,
        hook: Hook,
        *,
        variables: Mapping[str, str],
        standard_input: bytes,
        on_exit: Callable[[int], None],
    ) -> None:
        self._name = hook.name
        self._on_exit = on_exit
        self._deadline: float | None = None
        with tempfile.TemporaryFile() as given:
            given.write(standard_input)
            given.seek(0)
            self._process = subprocess.Popen(  # noqa: S603 - what the owner of the machine put there
                hook.command,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=dict(variables),
                start_new_session=True,  # so that its children can be ended with it
            )
        self._reader = threading.Thread(target=self._read_output, daemon=True)
        self._reader.start()
        threading.Thread(target=self._wait, daemon=True).start()

    def terminate(self) -> None:
        """Ask it to end, and its children, which are killed if they outlive it for long."""
        self._deadline = time.monotonic() + GRACE_SECONDS
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self._signal(getattr(signal, "SIGKILL", signal.SIGTERM))

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
                self.kill()
                return
            time.sleep(_LOOK_SECONDS)

    def _read_output(self) -> None:
        if self._process.stdout is None:
            return  # it never is: the type cannot say so
        with self._process.stdout as output:
            while line := output.readline(_LONGEST_LINE):
                text = line.decode("utf-8", "replace").rstrip()
                _log.info("hook_output hook=%r %s", self._name, text)
