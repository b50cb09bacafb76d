"""What commands that talk to a server take from the environment and from a server beside them."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import IO, Any, Final

from forewarn.environment import (
    ADMIN_TOKEN_FILE,
    CONTROL_ADDRESS,
    CONTROL_URL_FILE,
    SQLITE,
    read_settings_file,
    read_variables,
)
from forewarn.private_files import UnsafeFileError, is_trusted, read_secret
from forewarn.wording.addresses import is_loopback_url

if sys.platform == "win32":

    def is_locked(file: IO[bytes]) -> bool:
        """Tell whether another process has locked *file*; unknown here, so assume it."""
        return not file.closed

    def lock(file: IO[bytes]) -> bool:
        """Lock *file* until it is closed, if no other process has; not here."""
        return file.closed

else:
    import fcntl

    def is_locked(file: IO[bytes]) -> bool:
        """Tell whether another process has locked *file*."""
        return not _lock(file, fcntl.LOCK_SH)

    def lock(file: IO[bytes]) -> bool:
        """Lock *file* until it is closed, if no other process has."""
        return _lock(file, fcntl.LOCK_EX)

    def _lock(file: IO[bytes], kind: int) -> bool:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


_YES: Final = frozenset({"1", "on", "t", "true", "y", "yes"})
_OF_SERVER: Final = (
    "control", "control_certificate", "state_dir", "database", "insecure_control",
)  # fmt: skip
"""The settings of a server that say where it is, and where it leaves what commands need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CliSettings:
    """Where the server is, and who is asking."""

    server: str = f"http://{CONTROL_ADDRESS}"
    token: str | None = field(default=None, repr=False)
    state_dir: Path = Path()
    ca_file: Path | None = None
    insecure_control: bool = False

    @property
    def is_server_given(self) -> bool:
        """Whether the environment names the server."""
        return "server" in read_cli_variables()

    @property
    def token_file(self) -> Path:
        """Where a server on this machine leaves its admin token."""
        return self.state_dir / ADMIN_TOKEN_FILE

    @property
    def control_url_file(self) -> Path:
        """Where a running server on this machine leaves its address."""
        return self.state_dir / CONTROL_URL_FILE

    def find_token(self, server: str, warn: Callable[[str], None] = lambda _: None) -> str | None:
        """Return the token for *server*: the one given, else the one a server here has left.

        That one is for the server that made it, and for loopback.
        """
        if self.token is not None:
            return self.token
        server = url_of(server)
        if not (is_loopback_url(server) or server == find_control_url(self.control_url_file)):
            return None
        try:
            return read_secret(self.token_file)
        except UnsafeFileError as error:
            warn(str(error))
        except OSError:
            pass
        return None


def url_of(server: str) -> str:
    """Return the URL of *server*, which may be just HOST:PORT."""
    return (server if "://" in server else f"http://{server}").rstrip("/")


def load_cli_settings() -> CliSettings:
    """Return what commands need, from where a server that is started here would take it."""
    served = read_settings_file(None) | read_variables(_OF_SERVER)
    found = CliSettings(state_dir=_find_state_dir(served))
    if "control" in served or "control_certificate" in served:
        scheme = "https" if "control_certificate" in served else "http"
        found = replace(found, server=f"{scheme}://{served.get('control', CONTROL_ADDRESS)}")
    if left := find_control_url(found.control_url_file):
        found = replace(found, server=left)
    given = read_cli_variables()
    for name in {"state_dir", "ca_file"} & given.keys():
        given[name] = Path(given[name])
    is_insecure = str(served.get("insecure_control", "")).lower() in _YES
    return replace(found, **{**given, "insecure_control": is_insecure})


def read_cli_variables() -> dict[str, Any]:
    """Return what variables say to commands."""
    return read_variables(each.name for each in fields(CliSettings))


def _find_state_dir(served: dict[str, Any]) -> Path:
    if "state_dir" in served:
        return Path(served["state_dir"])
    database = str(served.get("database", "")).removeprefix(SQLITE)
    # The server on a database of another machine keeps its state where it was started.
    return Path() if "://" in database else Path(database).parent


def find_control_url(path: Path) -> str | None:
    """Return the address that a running server has left at *path*; None if it runs no more."""
    try:
        return (read_left(path) or b"").decode("ascii").strip() or None
    except ValueError:
        return None


def read_left(path: Path) -> bytes | None:
    """Return what a process that still runs, and may be trusted, has left at *path*."""
    # In a directory that nobody has named, anybody may have left it.
    directory = None if path.parent == Path() else path.parent
    try:
        if is_trusted(path, directory=directory):
            with path.open("rb") as file:
                return file.read() if is_locked(file) else None
    except OSError:
        pass
    return None
