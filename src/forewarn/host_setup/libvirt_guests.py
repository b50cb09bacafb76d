"""Which guest is behind which port, as libvirt knows it; their addresses come from the fleet."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from forewarn.domain.names import name_key
from forewarn.domain.topology import VirtualMachine
from forewarn.host_setup.bindings import Binding, HostSetupError, make_binding
from forewarn.host_setup.programs import Programs


@dataclass(frozen=True, slots=True, kw_only=True)
class LibvirtPort:
    """An interface of a running guest."""

    vm: str
    vm_id: str
    port: str
    mac: str
    bridge: str


def read_ports(programs: Programs, uri: str) -> tuple[LibvirtPort, ...]:
    """Return the ports of all guests that run at *uri*."""
    names = programs.run("virsh", "--connect", uri, "list", "--uuid").split()
    described = (programs.run("virsh", "--connect", uri, "dumpxml", name) for name in names)
    return tuple(port for xml in described for port in decode_domain(xml))


def decode_domain(xml: str) -> Iterator[LibvirtPort]:
    """Yield the ports in the XML of a domain: they have names once it has started."""
    try:
        domain = ET.fromstring(xml)  # noqa: S314 - from the libvirt of this host
    except ET.ParseError as error:
        raise HostSetupError(f"virsh printed invalid XML: {error}.") from error
    for interface in domain.iterfind("./devices/interface"):
        port = _attribute(interface, "target", "dev")
        mac = _attribute(interface, "mac", "address")
        if port and mac:
            yield LibvirtPort(
                vm=domain.findtext("name", ""),
                vm_id=domain.findtext("uuid", ""),
                port=port,
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
    known = tuple(vms)
    by_id = {vm.vm_id.lower(): vm for vm in known if vm.vm_id}
    by_name = {name_key(vm.name): vm for vm in known}
    found: dict[str, list[LibvirtPort]] = {}
    for each in ports:
        if not each.bridge or each.bridge in bridges or not bridges:
            found.setdefault(each.vm_id, []).append(each)
    bindings, problems = [], []
    for vm_id, (first, *others) in found.items():
        vm = by_id.get(vm_id.lower()) or by_name.get(name_key(first.vm))
        if vm is None:
            problems.append(f"{first.vm} ({first.port}) is not in the fleet.")
        elif not vm.addresses:
            problems.append(f"{first.vm} ({first.port}) has no addresses in the fleet.")
        elif others:
            problems.append(
                f"{first.vm} has several ports ({first.port}, {others[0].port}), and the fleet "
                "does not say which address is on which; bind them one by one."
            )
        else:
            bindings.append(
                make_binding(first.port, first.mac, vm.addresses, first.bridge, vm.name)
            )
    return tuple(bindings), tuple(problems)
