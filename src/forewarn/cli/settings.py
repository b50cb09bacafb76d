"""What commands that talk to a server take from the environment and from a server beside them."""

import sys
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from pydantic import Field
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from forewarn.private_files import UnsafeFileError, is_trusted, read_secret
from forewarn.settings import (
    ADMIN_TOKEN_FILE,
    CONTROL_ADDRESS,
    CONTROL_URL_FILE,
    SQLITE,
    Origin,
    Settings,
    find_origins,
    read_settings_file,
)

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
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False

    def lock(file: IO[bytes]) -> bool:
        """Lock *file* until it is closed, if no other process has."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class CliSettings(BaseSettings):
    """Where the server is, and who is asking."""

    model_config = SettingsConfigDict(env_prefix="FOREWARN_", frozen=True, env_ignore_empty=True)

    server: str = f"http://{CONTROL_ADDRESS}"
    token: str | None = Field(default=None, repr=False)
    state_dir: Path = Path()
    ca_file: Path | None = None
    insecure_control: bool = False

    @property
    def is_server_given(self) -> bool:
        """Whether the environment names the server."""
        return "server" in EnvSettingsSource(type(self))()

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
        if not (is_loopback(server) or server == find_control_url(self.control_url_file)):
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


def is_loopback(server: str) -> bool:
    """Tell whether requests to the URL *server* stay on this machine."""
    try:
        host = urlsplit(server).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def load_cli_settings() -> CliSettings:
    """Return what commands need, from where a server that is started here would take it."""
    served = {**read_settings_file(None), **EnvSettingsSource(Settings)()}
    found: dict[str, Any] = {}
    if "control" in served or "control_certificate" in served:
        scheme = "https" if "control_certificate" in served else "http"
        found["server"] = f"{scheme}://{served.get('control', CONTROL_ADDRESS)}"
    if "state_dir" in served:
        found["state_dir"] = Path(served["state_dir"])
    elif "database" in served:
        found["state_dir"] = Path(str(served["database"]).removeprefix(SQLITE)).parent
    if "insecure_control" in served:
        found["insecure_control"] = served["insecure_control"]
    settings = CliSettings(**found)
    if left := find_control_url(settings.control_url_file):
        found["server"] = left
    return CliSettings(**{**found, **EnvSettingsSource(CliSettings)()})


def find_control_url(path: Path) -> str | None:
    """Return the address that a running server has left at *path*; None if it runs no more."""
    # In a directory that nobody has named, anybody may have left it.
    directory = None if path.parent == Path() else path.parent
    try:
        if not is_trusted(path, directory=directory):
            return None
        with path.open("rb") as file:
            url = file.read().decode("ascii").strip()
            return url if url and is_locked(file) else None
    except (OSError, ValueError):
        return None


def find_cli_origins() -> dict[str, tuple[Origin, str]]:
    """Return where `load_cli_settings` has what only commands need from, and by which name."""
    settings = load_cli_settings()
    has_token_file = settings.find_token(settings.server) is not None
    is_left = find_control_url(settings.control_url_file) is not None
    found = {
        "server": (Origin.FILE if is_left else find_origins({})["control"], "control"),
        "token": (Origin.FILE if has_token_file else Origin.DEFAULT, "token"),
        "ca_file": (Origin.DEFAULT, "ca_file"),
    }
    given = EnvSettingsSource(CliSettings)()
    return found | {name: (Origin.ENVIRONMENT, name) for name in found if name in given}
