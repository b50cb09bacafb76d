"""How a test waits for what another thread or process does."""

import threading
from collections.abc import Callable
from typing import Final

import pytest

SECONDS: Final = 45.0
_PAUSE: Final = 0.005


def wait_until(condition: Callable[[], object], what: str, seconds: float = SECONDS) -> None:
    """Wait for *condition*, at most *seconds*; *what* says what it is."""
    pause = threading.Event()
    for _ in range(int(seconds / _PAUSE)):
        if condition():
            return
        pause.wait(_PAUSE)
    pytest.fail(f"waited {seconds} s in vain for {what}")
