"""By which names browsers may call this listener.

A page can have its own name point to the address of this machine (DNS rebinding); to the browser
its scripts and this server then have one origin. `Host` and `Origin` still tell.
"""

import re
from collections.abc import Set as AbstractSet
from ipaddress import ip_address
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

from forewarn.domain.topology import normalise_address
from forewarn.protocol.errors import ForewarnError

_AUTHORITY: Final = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[^\[\]:@/?#]+))(?::[0-9]*)?")

_SCHEMES: Final = frozenset({"http", "https"})


class HostRefusedError(ForewarnError):
    """A request to a name that is not one of ours."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"{host[:80]!r} is not a known name of this server; to allow it, use --control-host "
            "NAME."
        )


class OriginRefusedError(ForewarnError):
    """A request by the script of somebody else's page."""

    def __init__(self, origin: str) -> None:
        super().__init__(f"Pages from {origin[:80]!r} may not call this server.")


def check_origin(scope: Scope, names: AbstractSet[str], own_host: str = "") -> None:
    """Refuse a browser that was sent here under somebody else's name.

    Allowed are the names of loopback, the address that was connected to, *own_host*, and *names*,
    which are those of proxies, too. Over TLS the certificate has to be for the name in any case, so
    any `Host` will do.
    """
    headers = Headers(scope=scope)
    hosts = headers.getlist("host")
    for host in () if scope.get("scheme") == "https" else hosts:
        if not _is_ours(_name_of(host), names | {own_host}, scope["server"]):
            raise HostRefusedError(host)
    for origin in headers.getlist("origin"):
        scheme, _, authority = origin.lower().partition("://")
        is_same = authority in (host.lower() for host in hosts)
        if scheme not in _SCHEMES or not (is_same or _name_of(authority) in names):
            raise OriginRefusedError(origin)


def is_loopback(address: str) -> bool:
    """Tell whether *address* is one of the machine itself; no name is."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def _is_ours(name: str, names: AbstractSet[str], server: tuple[str, int | None] | None) -> bool:
    if name in names or name == "localhost" or is_loopback(name):
        return True
    return server is not None and name == normalise_address(server[0])


def _name_of(authority: str) -> str:
    """Return the host of `host:port` in lower case; nothing, if it is something else."""
    match = _AUTHORITY.fullmatch(authority.lower())
    return "" if match is None else match["v6"] or match["name"]
