"""Where a metadata server is."""

import re
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final
from urllib.parse import SplitResult, urlsplit

from forewarn.client._errors import EndpointError

_FORMS: Final = "Use http://HOST:PORT/PREFIX, HOST:PORT or HOST, with IPv6 addresses in brackets"
_PRINTABLE: Final = re.compile(r"[!-~]+")
_HOST_NAME: Final = re.compile(
    r"(?=.{1,253}$)\w([\w-]{0,61}\w)?(\.\w([\w-]{0,61}\w)?)*\.?", re.ASCII
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A host, a port, and what comes before `/metadata` in a path."""

    host: str
    port: int = 80
    prefix: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == 80 else f":{self.port}"
        return f"http://{host}{port}{self.prefix}"


def parse_endpoint(text: str) -> Endpoint:
    """Return the endpoint that *text* names, or raise EndpointError."""
    if not _PRINTABLE.fullmatch(text):
        raise EndpointError(
            f"{text!r} is not a valid endpoint: it is empty, or has spaces or non-ASCII "
            f"characters. {_FORMS}."
        )
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        port = parts.port
    except ValueError as error:
        raise EndpointError(f"{text!r} is not a valid endpoint: {error}. {_FORMS}.") from error
    flaw = _find_flaw(parts, port)
    if flaw:
        raise EndpointError(f"{text!r} is not a valid endpoint: {flaw}. {_FORMS}.")
    return Endpoint(
        host=parts.hostname or "",
        port=80 if port is None else port,
        prefix=parts.path.rstrip("/"),
    )


def _find_flaw(parts: SplitResult, port: int | None) -> str | None:
    flaws = {
        "metadata servers use plain http": parts.scheme not in {"", "http"},
        "it has a user name or password": "@" in parts.netloc,
        "it has a query or a fragment": bool(parts.query or parts.fragment),
        "its port is 0": port == 0,
        "its host is neither a name nor an IP address": not _is_host(parts.hostname or ""),
    }
    return next((flaw for flaw, is_so in flaws.items() if is_so), None)


def _is_host(host: str) -> bool:
    if ":" not in host:
        return _HOST_NAME.fullmatch(host) is not None
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True
