"""Where operators reach a running server: left for commands beside it, and told to replicas."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog

from forewarn.environment import CONTROL_URL_FILE
from forewarn.private_files import create_private, draft_of
from forewarn.settings import Settings
from forewarn.storage.lock import lock_file
from forewarn.wording.addresses import TcpAddress, parse_address

log = structlog.get_logger()


@contextmanager
def leave_address(settings: Settings, listener: socket.socket) -> Iterator[None]:
    """Leave the address of *listener* in the state directory, locked while the server runs.

    A file that nobody has locked was left by a server that was killed.
    """
    path = settings.state_directory / CONTROL_URL_FILE
    draft = draft_of(path)
    try:
        left = create_private(draft)
    except OSError as error:
        # Commands can be told where the server is; that is no reason not to serve.
        log.warning("control_url_not_left", path=str(path), error=error.strerror)
        yield
        return
    with left as file:
        if os.name == "posix":
            lock_file(file)
        file.write(f"{_url(settings, listener)}\n".encode())
        file.flush()
        _put(draft, path)
        try:
            yield
        finally:
            _remove(path, os.fstat(file.fileno()))


def public_url(settings: Settings, listener: socket.socket) -> str:
    """Return where other machines reach *listener*, if its address is not only for this one."""
    return _url(settings, listener, anywhere=socket.gethostname())


def _url(settings: Settings, listener: socket.socket, *, anywhere: str = "") -> str:
    where = parse_address(settings.control)
    host = where.host if isinstance(where, TcpAddress) else ""
    wildcards = {"0.0.0.0": anywhere or "127.0.0.1", "::": anywhere or "::1"}  # noqa: S104
    host = wildcards.get(host, host)
    scheme = "http" if settings.control_certificate is None else "https"
    port = listener.getsockname()[1]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _put(draft: Path, path: Path) -> None:
    try:
        draft.replace(path)
    except OSError as error:  # on Windows a file that is open cannot be moved
        draft.unlink(missing_ok=True)
        log.warning("control_url_not_left", path=str(path), error=error.strerror)


def _remove(path: Path, ours: os.stat_result) -> None:
    # Another server may have the same state directory. On a disk that is read-only by now, the file
    # stays; without its lock, commands ignore it.
    with suppress(OSError):
        if os.path.samestat(path.stat(), ours):
            path.unlink()
