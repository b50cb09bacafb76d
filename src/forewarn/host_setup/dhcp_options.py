"""The DHCP options that lead a guest to 169.254.169.254: as bytes, for dnsmasq and for libvirt.

| option | says | who asks for it |
|---|---|---|
| 121 | classless static routes (RFC 3442) | most clients |
| 249 | the same | Windows |
| 245 | the address of the metadata server | Azure's guests, and our SDK |

A client that gets option 121 ignores option 3, so the default route has to be among its routes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from forewarn.host_setup.bindings import METADATA_ADDRESS, HostSetupError

CLASSLESS_ROUTES: Final = 121
CLASSLESS_ROUTES_OF_WINDOWS: Final = 249
METADATA_SERVER: Final = 245
ON_LINK: Final = IPv4Address(0)
"""The gateway of what is reached directly (RFC 3442)."""

_DEFAULT: Final = IPv4Network("0.0.0.0/0")
_LONGEST: Final = 255


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
    value = b"".join(
        bytes((route.network.prefixlen,))
        + route.network.network_address.packed[: _bytes_of(route.network.prefixlen)]
        + route.gateway.packed
        for route in routes
    )
    if len(value) > _LONGEST:
        raise HostSetupError(f"The routes take {len(value)} bytes; DHCP has room for {_LONGEST}.")
    return value


def decode_routes(value: bytes) -> tuple[ClasslessRoute, ...]:
    """Return the routes in the *value* of option 121 or 249, or raise ValueError."""
    return tuple(_decode(value))


def _decode(value: bytes) -> Iterator[ClasslessRoute]:
    rest = value
    while rest:
        width = rest[0]
        end = 1 + _bytes_of(width)
        if width > 32 or len(rest) < end + 4:
            raise ValueError(f"{value.hex(':')} is not a list of classless routes")
        network = IPv4Network((rest[1:end].ljust(4, b"\0"), width))
        yield ClasslessRoute(network=network, gateway=IPv4Address(rest[end : end + 4]))
        rest = rest[end + 4 :]


def _bytes_of(width: int) -> int:
    return (width + 7) // 8


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
    ways = (
        "directly" if route.gateway == ON_LINK else f"via {route.gateway}"
        for route in routes_with(router)
    )
    routes = (
        f"{route.network} {way}" for route, way in zip(routes_with(router), ways, strict=True)
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
