"""What the environment and forewarn.toml say, before anything has checked it.

It costs little to import: commands that only ask a server need no more than this.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from forewarn.private_files import is_trusted
from forewarn.protocol.errors import ForewarnError

CONFIG_FILE: Final = Path("forewarn.toml")
CONTROL_URL_FILE: Final = "control.url"
ADMIN_TOKEN_FILE: Final = "admin.token"  # noqa: S105 - the name of the file, not what is in it

CONTROL_ADDRESS: Final = "127.0.0.1:8170"
SQLITE: Final = "sqlite:///"
POSTGRESQL: Final = "postgresql://"
"""How the URL of a database begins."""
PREFIX: Final = "FOREWARN_"
"""How every variable of ours begins, in any case."""


class SettingsError(ForewarnError):
    """A setting that cannot be as it was given. *setting* names it, if it is about one."""

    def __init__(self, problem: str, setting: str | None = None) -> None:
        super().__init__(problem)
        self.setting = setting


def read_variables(names: Iterable[str]) -> dict[str, str]:
    """Return those of the settings *names* that variables FOREWARN_… give, empty ones left out."""
    given = {name.upper(): value for name, value in os.environ.items() if value}
    variables = {name: given.get(f"{PREFIX}{name.upper()}") for name in names}
    return {name: value for name, value in variables.items() if value is not None}


def environment_with(more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a process that is started here, with *more* in it.

    What it says of other servers stays outside.
    """
    kept = {name: value for name, value in os.environ.items() if not _is_about_us(name)}
    return {**kept, **more}


def notify_socket() -> str | None:
    """Return where systemd wants to be told how a service is, if it started this one."""
    return os.environ.get("NOTIFY_SOCKET")


def has_display() -> bool:
    """Tell whether a browser that is started here has a screen."""
    displays = (os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    return sys.platform in {"darwin", "win32"} or any(displays)


def _is_about_us(name: str) -> bool:
    # Settings are found in any case; the other one the client has from Microsoft's sample.
    return name.upper().startswith(PREFIX) or name in {"SCHEDULEDEVENTSIP", "NOTIFY_SOCKET"}


def read_settings_file(config: Path | None) -> dict[str, Any]:
    """Return what forewarn.toml says, or *config*; refuse what is not TOML."""
    path = config or CONFIG_FILE
    if config is None and (not _has_settings_file() or has_foreign_settings_file()):
        return {}
    import tomllib  # noqa: PLC0415 - slow to load, and few commands find such a file

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not valid TOML: {error}.") from error


def has_foreign_settings_file() -> bool:
    """Tell whether there is a forewarn.toml here that another user has put there."""
    return _has_settings_file() and not is_trusted(CONFIG_FILE)


def _has_settings_file() -> bool:
    # With sudo one may be in a directory that one cannot enter, where Path.exists raises.
    return os.path.exists(CONFIG_FILE)  # noqa: PTH110
