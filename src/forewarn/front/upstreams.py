"""The server of a process on a host, from its settings: where it is, and what it is shown."""

import ssl
from pathlib import Path
from urllib.parse import urlsplit

from forewarn.environment import SettingsError
from forewarn.feed.upstream import Upstream
from forewarn.front.token_file import TokenFile
from forewarn.protocol.errors import ForewarnError
from forewarn.wording.addresses import is_loopback_url


class CaFileError(ForewarnError):
    """A file of certificates that cannot be used."""


def check_server(server: str, *, insecure_control: bool) -> None:
    """Refuse a *server* that is none, or would be sent the token so that others can read it."""
    if not _is_server(server):
        raise SettingsError(
            "Invalid setting server: use a URL such as https://HOST:8170.", "server"
        )
    is_clear = server.startswith("http:") and not is_loopback_url(server)
    if is_clear and not insecure_control:
        raise SettingsError(
            f"Refused to send the token to {server} over plain HTTP, which others can read; use "
            "https://, or set insecure_control if the network is encrypted.",
            "server",
        )


def open_upstream(server: str, token_file: Path, ca_file: Path | None) -> Upstream:
    """Return the *server* as it is asked with the token in a file."""
    token = TokenFile(token_file)
    trust = _trusted(ca_file) if server.startswith("https:") else None
    return Upstream(url=server, token=token, trust=trust)


def _is_server(url: str) -> bool:
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    is_bare = not (parts.path.strip("/") or parts.query or "@" in parts.netloc)
    return parts.scheme in {"http", "https"} and has_host and is_bare


def _trusted(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # that of ssl is one, too
        raise CaFileError(
            f"The CA file {ca_file} cannot be read: {error.strerror or error}."
        ) from error
