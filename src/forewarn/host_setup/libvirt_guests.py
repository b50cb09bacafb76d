"""Which guest is behind which port, as libvirt knows it; their addresses come from the fleet."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from forewarn.domain.names import name_key
from forewarn.domain.topology import VirtualMachine
from forewarn.host_setup.bindings import (
    Binding,
    HostSetupError,
    SetupOrderError,
    make_binding,
)
from forewarn.host_setup.programs import Programs


@dataclass(frozen=True, slots=True, kw_only=True)
class LibvirtPort:
    """An interface of a running guest."""

    vm: str
    vm_id: str
    port: str
    index: int
    mac: str
    bridge: str


def read_ports(programs: Programs, uri: str) -> tuple[LibvirtPort, ...]:
    """Return the ports of all guests that run at *uri*."""
    # Before libvirt says whose they are: a port that is made meanwhile has another index.
    interfaces = programs.ask("ip", "-json", "link", "show")
    indexes = {each["ifname"]: each["ifindex"] for each in interfaces if "ifname" in each}
    described = (_describe(programs, uri, vm_id) for vm_id in _list(programs, uri))
    return tuple(port for xml in described if xml for port in decode_domain(xml, indexes))


def _list(programs: Programs, uri: str) -> list[str]:
    return programs.run("virsh", "--connect", uri, "list", "--uuid").split()


def _describe(programs: Programs, uri: str, vm_id: str) -> str:
    """Return the XML of a guest; nothing if it has ended since it was listed."""
    try:
        return programs.run("virsh", "--connect", uri, "dumpxml", vm_id)
    except HostSetupError:
        if vm_id in _list(programs, uri):
            raise
        return ""


def decode_domain(xml: str, indexes: Mapping[str, int]) -> Iterator[LibvirtPort]:
    """Yield the ports in the XML of a domain that are there: they have names once it has started.

    *indexes* has all interfaces.
    """
    try:
        domain = ET.fromstring(xml)  # noqa: S314 - from the libvirt of this host
    except ET.ParseError as error:
        raise HostSetupError(f"virsh printed invalid XML: {error}.") from error
    for interface in domain.iterfind("./devices/interface"):
        port = _attribute(interface, "target", "dev")
        mac = _attribute(interface, "mac", "address")
        if port in indexes and mac:
            yield LibvirtPort(
                vm=domain.findtext("name", ""),
                vm_id=domain.findtext("uuid", ""),
                port=port,
                index=indexes[port],
                mac=mac,
                bridge=_attribute(interface, "source", "bridge"),
            )


def _attribute(interface: ET.Element, child: str, name: str) -> str:
    found = interface.find(child)
    return "" if found is None else found.get(name, "")


def bind_ports(
    ports: Iterable[LibvirtPort], vms: Iterable[VirtualMachine], bridges: Collection[str]
) -> tuple[tuple[Binding, ...], tuple[str, ...]]:
    """Return the bindings of *ports* on *bridges*, with the addresses that the fleet has for them.

    A guest is found by its id, or by its name. Beside the bindings it says which guests get none:
    they do not reach the service, and keep nobody else from it.
    """
    found: dict[str, list[LibvirtPort]] = {}
    for each in ports:
        if not each.bridge or each.bridge in bridges or not bridges:
            found.setdefault(each.vm_id.lower(), []).append(each)
    known = tuple(vms)
    by_id = {vm.vm_id.lower(): vm for vm in known if vm.vm_id}
    # The name of a guest whose id another one has is nothing to go by.
    by_name = {name_key(vm.name): vm for vm in known if vm.vm_id.lower() not in found}
    macs = Counter(each.mac.lower() for own in found.values() for each in own)
    bindings, problems = [], []
    for vm_id, (first, *others) in found.items():
        vm = by_id.get(vm_id) or by_name.get(name_key(first.vm))
        try:
            bindings.append(_bind(first, others, vm, macs))
        except SetupOrderError as error:
            problems.append(str(error))
    return tuple(bindings), tuple(problems)


def _bind(
    first: LibvirtPort,
    others: Sequence[LibvirtPort],
    vm: VirtualMachine | None,
    macs: Mapping[str, int],
) -> Binding:
    """Return the binding of a guest, or refuse what keeps only this guest from one."""
    who = f"{first.vm} ({first.port})"
    if vm is None:
        raise SetupOrderError(f"{who} is not in the fleet.")
    if not vm.addresses:
        raise SetupOrderError(f"{who} has no addresses in the fleet.")
    if others:
        raise SetupOrderError(
            f"{first.vm} has several ports ({first.port}, {others[0].port}), and the fleet "
            "does not say which address is on which; bind them one by one."
        )
    if macs[first.mac.lower()] > 1:
        raise SetupOrderError(f"{who} has the same MAC address as another guest: {first.mac}.")
    try:
        return make_binding(first.port, first.mac, vm.addresses, index=first.index, vm=vm.name)
    except SetupOrderError as error:
        raise SetupOrderError(f"{who} cannot be bound. {error}") from None
