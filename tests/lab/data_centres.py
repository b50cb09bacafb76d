"""A server, and hosts with libvirt, a relay and real guests each.

centre ── switch ── kvm-1 (libvirtd, relay) ── web-1, solo-1 …
               └─── kvm-2 (libvirtd, relay)

Hosts have an address for the server and for migration, 10.90.0.11 and so on. Guests are on a
network of their own, 10.77.0.0/24, which spans all hosts.
"""

import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.e2e.conftest import wait_until
from tests.e2e.relays import (
    CENTRE,
    METADATA,
    Centre,
    HostPlace,
    Site,
    add_bridge,
    add_namespace,
    plug,
)
from tests.e2e.test_tls import CONFIG, make_pair_in
from tests.lab.channels import execute
from tests.lab.hypervisors import (
    BRIDGE,
    COMMAND_SECONDS,
    KvmHost,
    connect_bridge,
    find_uri,
    run_hypervisor,
)
from tests.lab.small_guests import NETWORK, BootFiles, SmallGuest

OVER_SECONDS: Final = 90.0
MAINTENANCE_SECONDS: Final = 180.0
HOSTS: Final = {"kvm-1": "10.90.0.11", "kvm-2": "10.90.0.12"}
HOST: Final = """
[[host]]
name = "{name}"
"""
SET: Final = """
[[availability_set]]
name = "{name}"
"""
VM: Final = """
[[virtual_machine]]
name = "{name}"
vm_id = "{vm_id}"
host = "{host}"
addresses = ["{address}"]
"""
PLACE: Final = """availability_set = "{name}"
update_domain = {update_domain}
"""


@dataclass(frozen=True, slots=True)
class AgentInside:
    """QEMU's agent in a guest, as libvirt reaches it."""

    hypervisor: KvmHost
    vm: str

    def ask(self, command: str, **arguments: object) -> Any:
        """Return the answer to a command."""
        order = json.dumps({"execute": command, "arguments": arguments})
        return json.loads(self.hypervisor.virsh("qemu-agent-command", self.vm, order))["return"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCentre:
    """All of them. Guests are defined where the fleet says, and run once it has begun."""

    site: Site
    hypervisors: Mapping[str, KvmHost]
    guests: Mapping[str, SmallGuest]

    @property
    def centre(self) -> Centre:
        return self.site.centre

    @property
    def uri(self) -> str:
        """The URI of libvirt, with {host} for the name of the host."""
        return find_uri(self.centre.folder / "libvirt" / "{host}")

    def begin(self, executors: str = "") -> None:
        """Start the server with these *executors*, the relays and the guests; wait for guests."""
        self.launch(executors)
        for guest in self.guests.values():
            guest.wait_until_answered()

    def launch(self, executors: str = "") -> None:
        """Start the same, and do not wait for guests."""
        self._executor_file.write_text(executors, encoding="utf-8")
        for guest in self.guests.values():
            self.hypervisors[guest.host].virsh("start", guest.name)
        self.site.begin(*self._flags)

    def serve_again(self) -> None:
        """Start the server anew, after it was killed."""
        self.centre.serve(*self._flags)

    def host_of(self, vm: str) -> KvmHost:
        """Return the one host on which *vm* is running or paused."""
        (found,) = (each for each in self.hypervisors.values() if vm in each.running())
        return found

    def run_inside(self, vm: str, command: str) -> str:
        """Run a command of the shell in a guest; return what it prints."""
        inside = AgentInside(self.host_of(vm), vm)
        _, said = execute(inside, command, COMMAND_SECONDS)
        return said.strip()

    def event(self, event_id: str) -> dict[str, Any]:
        event: dict[str, Any] = self.centre.operate("GET", f"events/{event_id}")
        return event

    def wait_for(self, event_id: str, event_status: str, seconds: float = OVER_SECONDS) -> None:
        """Return when the event has *event_status*."""
        wait_until(
            lambda: self.event(event_id)["event_status"] == event_status,
            f"{event_id} has not become {event_status}",
            seconds,
            pause=0.1,
        )

    def vms_on(self, host: str) -> set[str]:
        """Return the virtual machines that the fleet has on *host*."""
        fleet = self.centre.operate("GET", "virtual-machines")["virtual_machines"]
        return {vm["name"] for vm in fleet if vm["host"] == host}

    def maintain(self, event_type: str, *hosts: str) -> dict[str, Any]:
        """Have *hosts* maintained one after the other; return what has become of it."""
        order = {"event_type": event_type, "hosts": hosts}
        begun = self.centre.operate("POST", "maintenances", order)
        path = f"maintenances/{begun['maintenance_id']}"
        wait_until(
            lambda: bool(self.centre.operate("GET", path)["outcome"]),
            f"{path} is not over",
            MAINTENANCE_SECONDS,
            pause=0.5,
        )
        ended: dict[str, Any] = self.centre.operate("GET", path)
        return ended

    @property
    def _executor_file(self) -> Path:
        return self.centre.folder / "executors.toml"

    @property
    def _flags(self) -> tuple[str, ...]:
        return ("--executor-file", str(self._executor_file))


@contextmanager
def build_data_centre(
    folder: Path,
    environment: Mapping[str, str],
    boot_files: BootFiles,
    guests: Sequence[SmallGuest],
) -> Generator[DataCentre]:
    """Lay the cables, run a libvirtd on each host, and define the guests; nothing else runs yet."""
    (folder / "data").mkdir()
    (folder / "fleet.toml").write_text(describe_fleet(guests), encoding="utf-8")
    make_pair_in(folder, CONFIG.replace("127.0.0.1", CENTRE))
    with ExitStack() as stack:
        site = _lay_cables(stack, folder, environment)
        hypervisors = {
            place.host: stack.enter_context(
                run_hypervisor(place, folder / "libvirt" / place.host, boot_files.cache, HOSTS)
            )
            for place in site.hosts
        }
        named = {guest.name: replace(guest, folder=folder) for guest in guests}
        for guest in named.values():
            hypervisors[guest.host].define(guest, boot_files)
        yield DataCentre(site=site, hypervisors=hypervisors, guests=named)


def describe_fleet(guests: Iterable[SmallGuest]) -> str:
    """Return the fleet file."""
    sets = sorted({guest.availability_set for guest in guests} - {""})
    return "".join(
        (
            *(HOST.format(name=name) for name in HOSTS),
            *(SET.format(name=name) for name in sets),
            *(_describe_vm(guest) for guest in guests),
        )
    )


def _describe_vm(guest: SmallGuest) -> str:
    vm = VM.format(name=guest.name, vm_id=guest.vm_id, host=guest.host, address=guest.address)
    if not guest.availability_set:
        return vm
    return vm + PLACE.format(name=guest.availability_set, update_domain=guest.update_domain)


def _lay_cables(stack: ExitStack, folder: Path, environment: Mapping[str, str]) -> Site:
    common: Any = {"folder": folder, "environment": environment}
    switch = add_namespace(stack, "switch")
    add_bridge(switch, "hosts")
    add_bridge(switch, "guests")
    centre = Centre(name=add_namespace(stack, "centre"), **common)
    plug(switch, "hosts", "to-centre", centre.name, f"{CENTRE}/24")
    stack.callback(centre.stop)
    places = []
    for number, (name, address) in enumerate(HOSTS.items(), 1):
        place = HostPlace(name=add_namespace(stack, name), number=number, **common)
        plug(switch, "hosts", f"to-{name}", place.name, f"{address}/24")
        add_bridge(place.name, BRIDGE, f"{NETWORK}.{number}/24", f"{METADATA}/32")
        connect_bridge(place, switch, "guests")
        stack.callback(place.stop)
        places.append(place)
    return Site(centre=centre, hosts=tuple(places), guests={})
