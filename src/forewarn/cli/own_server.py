"""The server that a command starts for itself: where it listens, and its settings."""

import shlex
import shutil
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from forewarn.cli.signals import held_back
from forewarn.settings_table import ExecutorKind, LogLevel

if TYPE_CHECKING:
    from forewarn.settings import Settings

LOCALHOST: Final = "127.0.0.1"
METADATA_PORT: Final = 8169
CONTROL_PORT: Final = 8170
DATABASE: Final = "forewarn.db"


def listen_locally(port: int) -> socket.socket:
    """Listen on *port* of this machine, or on any that is free if that one is taken."""
    from forewarn.metadata.http import open_listener  # noqa: PLC0415 - needs the server install

    try:
        return open_listener(LOCALHOST, port)
    except OSError:
        return open_listener(LOCALHOST, 0)


def make_folder(prefix: str, closing: ExitStack) -> Path:
    """Return a folder for its files that is gone when *closing* is closed."""
    with held_back():
        return Path(closing.enter_context(TemporaryDirectory(prefix=prefix)))


def own_command() -> str:
    """Return how this very program is called from here."""
    return "forewarn" if shutil.which("forewarn") else shlex.quote(sys.argv[0])


def own_settings(folder: Path, fleet: Path, speed: float, **more: Any) -> "Settings":
    """Return settings that keep everything in *folder*, and simulate what is done to *fleet*."""
    from forewarn.settings import make_settings  # noqa: PLC0415 - slow to load

    return make_settings(
        {
            "database": f"sqlite:///{folder / DATABASE}",
            "fleet": fleet,
            "speed": speed,
            "executor": ExecutorKind.SIMULATED,
            "trust_path": True,
            "journal": True,
            "log_level": LogLevel.WARNING,
            **more,
        }
    )
