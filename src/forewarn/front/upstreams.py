"""The server of a process on a host, asked with its token and trusted by its CA file."""

import ssl
from pathlib import Path

import structlog

from forewarn.feed.upstream import Upstream
from forewarn.private_files import UnsafeFileError, read_secret
from forewarn.protocol.errors import ForewarnError

_log = structlog.get_logger(__name__)


class TokenFileError(ForewarnError):
    """A file without a token that can be used."""


class TokenFile:
    """Reads the token each time it is needed, so that a new one counts at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._problem = ""
        self._last = self._read()

    def __call__(self) -> str:
        """Return the token; the last one that could be read, if there is none at the moment."""
        try:
            self._last, self._problem = self._read(), ""
        except TokenFileError as error:
            if str(error) != self._problem:
                _log.warning("token_not_read", error=str(error))
            self._problem = str(error)
        return self._last

    def _read(self) -> str:
        remedy = "create one with forewarn token create --relay HOST"
        try:
            return read_secret(self._path, remedy=remedy)
        except OSError as error:
            problem = f"The token file {self._path} cannot be read: {error.strerror}."
            raise TokenFileError(problem) from error
        except UnsafeFileError as error:
            raise TokenFileError(str(error)) from error


class CaFileError(ForewarnError):
    """A file of certificates that cannot be used."""


def open_upstream(server: str, token_file: Path, ca_file: Path | None) -> Upstream:
    """Return the *server* as it is asked with the token in a file."""
    token = TokenFile(token_file)
    trust = _trusted(ca_file) if server.startswith("https:") else None
    return Upstream(url=server, token=token, trust=trust)


def _trusted(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # that of ssl is one, too
        raise CaFileError(
            f"The CA file {ca_file} cannot be read: {error.strerror or error}."
        ) from error
