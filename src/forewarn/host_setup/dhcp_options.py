"""The DHCP options that lead a guest to 169.254.169.254: as bytes, for dnsmasq and for libvirt.

| option | says | who asks for it |
|---|---|---|
| 121 | classless static routes (RFC 3442) | most clients |
| 249 | the same | Windows |
| 245 | the address of the metadata server | Azure's guests, and our SDK |

A client that gets option 121 ignores option 3, so the default route has to be among its routes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from forewarn.host_setup.bindings import METADATA_ADDRESS

CLASSLESS_ROUTES: Final = 121
CLASSLESS_ROUTES_OF_WINDOWS: Final = 249
METADATA_SERVER: Final = 245
ON_LINK: Final = IPv4Address(0)
"""The gateway of what is reached directly (RFC 3442)."""

_DEFAULT: Final = IPv4Network("0.0.0.0/0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClasslessRoute:
    """A route that DHCP hands out."""

    network: IPv4Network
    gateway: IPv4Address = ON_LINK


def routes_with(router: IPv4Address | None) -> tuple[ClasslessRoute, ...]:
    """Return the routes of a guest whose default route is *router*, if it has one."""
    ours = ClasslessRoute(network=IPv4Network(METADATA_ADDRESS))
    if router is None:
        return (ours,)
    return (ClasslessRoute(network=_DEFAULT, gateway=router), ours)


def encode_routes(routes: Iterable[ClasslessRoute]) -> bytes:
    """Return the value of option 121 or 249: per route, a width, so many bits and a gateway."""
    return b"".join(map(_encode_route, routes))


def _encode_route(route: ClasslessRoute) -> bytes:
    width = route.network.prefixlen
    significant = route.network.network_address.packed[: (width + 7) // 8]
    return bytes((width,)) + significant + route.gateway.packed


def make_options(router: IPv4Address | None) -> Mapping[int, bytes]:
    """Return the value of each option by its number."""
    routes = encode_routes(routes_with(router))
    return {
        CLASSLESS_ROUTES: routes,
        CLASSLESS_ROUTES_OF_WINDOWS: routes,
        METADATA_SERVER: METADATA_ADDRESS.packed,
    }


def dnsmasq_lines(router: IPv4Address | None) -> tuple[str, ...]:
    """Return the options as lines of a file of dnsmasq, to the byte."""
    # With text, dnsmasq decides by the number of an option what to make of it.
    options = make_options(router).items()
    return tuple(f"dhcp-option={number},{value.hex(':')}" for number, value in options)


def dnsmasq_file(router: IPv4Address | None) -> str:
    """Return a whole file for a conf-dir of dnsmasq."""
    routes = (
        f"{route.network} {'directly' if route.gateway == ON_LINK else f'via {route.gateway}'}"
        for route in routes_with(router)
    )
    return "\n".join(
        (
            "# Written by forewarn host setup; forewarn host setup --undo removes it.",
            f"# Options 121 and 249: {', '.join(routes)}. Option 245: {METADATA_ADDRESS}.",
            *dnsmasq_lines(router),
            "",
        )
    )


def network_xml(router: IPv4Address | None) -> str:
    """Return what goes below <network> in the XML of a libvirt network."""
    options = "".join(f"  <dnsmasq:option value='{line}'/>\n" for line in dnsmasq_lines(router))
    name = "xmlns:dnsmasq='http://libvirt.org/schemas/network/dnsmasq/1.0'"
    return f"<dnsmasq:options {name}>\n{options}</dnsmasq:options>\n"
