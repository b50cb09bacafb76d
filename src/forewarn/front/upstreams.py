"""The server of a process on a host, asked with its token and trusted by its CA file."""

import ssl
from pathlib import Path

from forewarn.feed.upstream import Upstream
from forewarn.front.token_file import TokenFile
from forewarn.protocol.errors import ForewarnError


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
