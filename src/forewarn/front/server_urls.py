"""The URL of a server in the settings of a process on a host. It is quick to load."""

from urllib.parse import urlsplit

from forewarn.environment import SettingsError
from forewarn.wording.addresses import is_loopback_url


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


def _is_server(url: str) -> bool:
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    is_bare = not (parts.path.strip("/") or parts.query or "@" in parts.netloc)
    return parts.scheme in {"http", "https"} and has_host and is_bare
