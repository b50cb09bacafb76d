"""A hook that runs: a process of its own, whose output goes to the log line by line."""

import contextlib
import logging
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from typing import Final

from forewarn.agent.hooks import Hook

GRACE_SECONDS: Final = 5.0
"""How long a hook that was asked to end has until it is killed."""

_LONGEST_LINE: Final = 4096
_OUTPUT_SECONDS: Final = 1.0

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
        """Ask it to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self._signal(getattr(signal, "SIGKILL", signal.SIGTERM))

    def _signal(self, number: int) -> None:
        with contextlib.suppress(OSError):  # it has just ended
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, number)
            else:
                self._process.terminate()

    def _wait(self) -> None:
        status = self._process.wait()
        # What it left in the background may hold the pipe for ever.
        self._reader.join(_OUTPUT_SECONDS)
        self._on_exit(status)

    def _read_output(self) -> None:
        if self._process.stdout is None:
            return  # it never is: the type cannot say so
        with self._process.stdout as output:
            while line := output.readline(_LONGEST_LINE):
                text = line.decode("utf-8", "replace").rstrip()
                _log.info("hook_output hook=%r %s", self._name, text)
