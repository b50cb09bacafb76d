"""What an operator orders by flags and in a file, made into a setup."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from forewarn.domain.topology import VirtualMachine
from forewarn.files.fleet import read_fleet_file
from forewarn.files.tables import Table, WrongKeyError, read_tables
from forewarn.host_setup.bindings import (
    Binding,
    HostSetupError,
    SetupOrderError,
    check_interface,
    make_binding,
)
from forewarn.host_setup.dhcp_options import network_xml
from forewarn.host_setup.libvirt_guests import bind_ports, read_ports
from forewarn.host_setup.planning import HostSetup
from forewarn.host_setup.programs import Programs

NO_ROUTER: Final = "none"
"""What is written for the router of a network without one."""


class GuestTable(Table):
    """A port and who may use it, as a file declares it."""

    port: str
    mac: str
    addresses: tuple[str, ...]


class SetupTable(Table):
    """All keys of a setup file."""

    bridge: tuple[str, ...] = ()
    interface: str = ""
    libvirt: str = ""
    fleet: Path | None = None
    dnsmasq: Path | None = None
    network: str = ""
    router: str = ""
    guest: tuple[GuestTable, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupOrder:
    """What was ordered. Paths are meant from the working directory."""

    bridge: tuple[str, ...] = ()
    interface: str = ""
    bindings: tuple[Binding, ...] = ()
    libvirt: str = ""
    fleet: Path | None = None
    dnsmasq: Path | None = None
    network: str = ""
    router: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """The setup that follows, and what an operator has to know of or do besides."""

    setup: HostSetup
    notes: tuple[str, ...] = ()


def read_order(path: Path) -> SetupOrder:
    """Return what the file at *path* orders, or refuse all mistakes in it."""
    file = read_tables(path, SetupTable)
    content, folder = file.content, file.folder
    return SetupOrder(
        bridge=content.bridge,
        interface=content.interface,
        bindings=file.build("guest", content.guest, _bind),
        libvirt=content.libvirt,
        fleet=None if content.fleet is None else folder / content.fleet,
        dnsmasq=None if content.dnsmasq is None else folder / content.dnsmasq,
        network=content.network,
        router=content.router,
    )


def _bind(guest: GuestTable) -> Binding:
    try:
        return make_binding(guest.port, guest.mac, guest.addresses)
    except SetupOrderError as error:
        raise WrongKeyError(error.key, str(error)) from None


def override(order: SetupOrder, flags: SetupOrder) -> SetupOrder:
    """Return *order* with what *flags* say; their bindings come in addition."""
    given = {each.name: getattr(flags, each.name) for each in fields(flags)}
    said = {name: value for name, value in given.items() if value}
    return replace(order, **said | {"bindings": (*order.bindings, *flags.bindings)})


def follow(order: SetupOrder, programs: Programs) -> Ordered:
    """Return the setup that *order* is for, with the guests that run here now."""
    if bool(order.bridge) == bool(order.interface):
        raise SetupOrderError(
            "The setup needs either bridges or an interface for the address.",
            "add --bridge NAME for each bridge of guests",
        )
    bound, problems = find_guests(order, programs)
    ports = {each.port for each in order.bindings}
    setup = HostSetup(
        bridges=tuple(map(check_interface, dict.fromkeys(order.bridge))),
        interface=check_interface(order.interface) if order.interface else "",
        bindings=(*order.bindings, *(each for each in bound if each.port not in ports)),
        dnsmasq=None if order.dnsmasq is None else order.dnsmasq.absolute(),
        router=_read_router(order),
        libvirt=order.libvirt,
        fleet=None if order.fleet is None else order.fleet.absolute(),
    )
    return Ordered(setup=setup, notes=(*problems, *_notes(order, setup)))


def find_guests(
    order: SetupOrder, programs: Programs
) -> tuple[tuple[Binding, ...], tuple[str, ...]]:
    """Return the guests that libvirt runs here now, and which of them cannot be bound."""
    if not order.libvirt:
        if order.fleet is not None:
            raise SetupOrderError(
                "A fleet file has the addresses of guests, but not their ports.",
                "add --libvirt URI, or instead a --binding for each port",
            )
        return (), ()
    if order.fleet is None:
        raise SetupOrderError(
            "libvirt knows the ports of guests, but not their addresses.",
            "add --fleet FILE; forewarn fleet export prints one",
        )
    return bind_ports(read_ports(programs, order.libvirt), _read_fleet(order.fleet), order.bridge)


def _read_fleet(path: Path) -> tuple[VirtualMachine, ...]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise HostSetupError(f"The fleet file cannot be read: {error}.") from error
    return tuple(each.vm for each in read_fleet_file(text).virtual_machines)


def _read_router(order: SetupOrder) -> IPv4Address | None:
    if order.router == NO_ROUTER or not (order.dnsmasq or order.network):
        return None
    if not order.router:
        raise SetupOrderError(
            "DHCP option 121 replaces the default route, so the router is needed.",
            f"add --router ADDRESS, or --router {NO_ROUTER} on a network without one",
        )
    try:
        return IPv4Address(order.router)
    except ValueError:
        raise SetupOrderError(
            f"{order.router!r} is not a valid IPv4 address for a router.",
            f"write it like 10.0.0.1, or {NO_ROUTER}",
        ) from None


def _notes(order: SetupOrder, setup: HostSetup) -> Iterator[str]:
    if order.dnsmasq is not None:
        yield "dnsmasq reads its files when it starts: restart it after a change."
    if order.network:
        yield (
            f"For the libvirt network {order.network}, run virsh net-edit {order.network} and put "
            f"this before </network>; it is used from the next start of the network:\n"
            f"{network_xml(setup.router)}"
        )
