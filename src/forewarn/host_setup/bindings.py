"""Which virtual machine is behind which port: the list that every rule on a host is made from."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import combinations
from typing import Final

from forewarn.protocol.errors import ForewarnError

METADATA_ADDRESS: Final = IPv4Address("169.254.169.254")
_INTERFACE: Final = re.compile(r"(?![.-]\.?$)[A-Za-z0-9_.][A-Za-z0-9_.-]{0,14}")
_MAC: Final = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_GROUP_BIT: Final = 0x01


class HostSetupError(ForewarnError):
    """A setup of this host that cannot be made, and what to do about it."""

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.hint = hint


class SetupOrderError(HostSetupError):
    """An order that makes no sense on any host. *key* is that of a [[guest]], if one is wrong."""

    def __init__(self, problem: str, hint: str = "", *, key: str = "") -> None:
        super().__init__(problem, hint)
        self.key = key


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A port of this host, and the MAC and IP addresses that the guest behind it may use.

    *index* is the port's among all interfaces, and *bridge* the bridge that it is on, where that is
    known; *vm* is only for people.
    """

    port: str
    mac: str
    addresses: tuple[IPv4Address | IPv6Address, ...]
    index: int = 0
    bridge: str = ""
    vm: str = ""

    @property
    def addresses_v4(self) -> tuple[IPv4Address, ...]:
        """Those that 169.254.169.254 can be reached from."""
        return tuple(each for each in self.addresses if isinstance(each, IPv4Address))

    @property
    def addresses_v6(self) -> tuple[IPv6Address, ...]:
        """Those that only other networks are reached from."""
        return tuple(each for each in self.addresses if isinstance(each, IPv6Address))


def parse_binding(text: str) -> Binding:
    """Return the binding that *text*, PORT=MAC,ADDRESS…, describes."""
    port, equals, rest = text.partition("=")
    mac, *addresses = (part.strip() for part in rest.split(","))
    if not equals or not addresses:
        raise SetupOrderError(
            f"{text!r} is not a valid binding.", "write PORT=MAC,ADDRESS[,ADDRESS...]"
        )
    return make_binding(port.strip(), mac, addresses)


def make_binding(
    port: str,
    mac: str,
    addresses: Iterable[str],
    *,
    index: int = 0,
    bridge: str = "",
    vm: str = "",
) -> Binding:
    """Return a binding of checked parts; refuse what cannot be one."""
    return Binding(
        port=check_interface(port),
        mac=_check_mac(mac),
        addresses=tuple(dict.fromkeys(map(_check_address, addresses))),
        index=index,
        bridge=check_interface(bridge) if bridge else "",
        vm=vm,
    )


def check_interface(name: str) -> str:
    """Return *name*, which an interface can have and which means nothing else to nft, or refuse."""
    if _INTERFACE.fullmatch(name) is None:
        raise SetupOrderError(
            f"{name!r} is not a valid interface name.",
            "write 1 to 15 letters, digits, dots, dashes and underscores",
            key="port",
        )
    return name


def _check_mac(text: str) -> str:
    mac = text.lower().replace("-", ":")
    if _MAC.fullmatch(mac) is None or int(mac[:2], 16) & _GROUP_BIT or mac == "00:00:00:00:00:00":
        raise SetupOrderError(
            f"{text!r} is not a valid MAC address for a guest.",
            "write it like 52:54:00:12:34:56",
            key="mac",
        )
    return mac


def _check_address(text: str) -> IPv4Address | IPv6Address:
    try:
        address = ip_address(text)
    except ValueError:
        raise SetupOrderError(
            f"{text!r} is not a valid IP address.", "write it like 10.0.0.11", key="addresses"
        ) from None
    has_zone = isinstance(address, IPv6Address) and address.scope_id is not None
    is_nobodys = address.is_multicast or address.is_unspecified or address.is_loopback
    if is_nobodys or has_zone or address in {METADATA_ADDRESS, IPv4Address("255.255.255.255")}:
        raise SetupOrderError(
            f"{text!r} cannot be the address of a guest.",
            "write the one that the guest uses",
            key="addresses",
        )
    return address


def check_bindings(bindings: Iterable[Binding]) -> None:
    """Refuse *bindings* in which two ports have a MAC or IP address in common."""
    for one, other in combinations(bindings, 2):
        shared = [str(each) for each in one.addresses if each in other.addresses]
        if one.mac == other.mac:
            shared.insert(0, one.mac)
        if shared:
            is_twice = one.port == other.port
            ports = f"{_say(one)} twice" if is_twice else f"{_say(one)} and to {_say(other)}"
            raise SetupOrderError(
                f"{shared[0]} is bound to {ports}.", "remove one of the two bindings"
            )


def _say(binding: Binding) -> str:
    return f"{binding.port} ({binding.vm})" if binding.vm else binding.port


def find_served(bindings: Iterable[Binding]) -> tuple[Binding, ...]:
    """Return which of *bindings* can be told apart: those with an IPv4 address.

    The others get no rules. Rules would cut them off from everything, and without any they do not
    reach 169.254.169.254 either.
    """
    return tuple(binding for binding in bindings if binding.addresses_v4)
