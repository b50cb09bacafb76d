"""What is done to domains. Each is done once, after its mark, by the steward."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree as ET

import libvirt

from forewarn.executors.libvirt.api import Domain, HostConnection, LibvirtError, UnreachableError
from forewarn.executors.libvirt.decisions import Power
from forewarn.executors.libvirt.domains import free_memory, has_agent, power_of
from forewarn.executors.libvirt.marks import MarkPhase
from forewarn.executors.libvirt.plans import HostPlace, ImpactPlan

_AGENT_SECONDS: Final = 10
_KEEPING: Final = (
    libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
    | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM
)
_MIGRATION: Final = (
    libvirt.VIR_MIGRATE_LIVE
    | libvirt.VIR_MIGRATE_PERSIST_DEST
    | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
)


class DeedError(Exception):
    """A deed that could not be done; the message is the reason. The guest is where it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The host that a guest goes to."""

    place: HostPlace
    connection: HostConnection


def reboot(domain: Domain) -> None:
    """Ask the guest to restart: by its agent, or by its power button. It may not listen."""
    _ask(
        domain,
        domain.reboot,
        libvirt.VIR_DOMAIN_REBOOT_GUEST_AGENT,
        libvirt.VIR_DOMAIN_REBOOT_ACPI_POWER_BTN,
    )


def shut_down(domain: Domain) -> None:
    """Ask the guest to shut down: by its agent, or by its power button. It may not listen."""
    _ask(
        domain,
        domain.shutdownFlags,
        libvirt.VIR_DOMAIN_SHUTDOWN_GUEST_AGENT,
        libvirt.VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN,
    )


def destroy(domain: Domain) -> None:
    """Stop the guest at once."""
    with suppress(LibvirtError):  # it may have stopped by itself
        domain.destroy()
    if power_of(domain)[0] is not Power.OFF:
        domain.destroy()


def suspend(domain: Domain) -> None:
    """Have the guest stand still."""
    try:
        domain.suspend()
    except LibvirtError:
        if power_of(domain)[0] is not Power.PAUSED:
            raise


def resume(domain: Domain) -> None:
    """Let the guest run on."""
    try:
        domain.resume()
    except LibvirtError:
        if power_of(domain)[0] is Power.PAUSED:
            raise


def start(domain: Domain) -> None:
    """Start the guest, unless somebody else has."""
    try:
        domain.create()
    except LibvirtError:
        if power_of(domain)[0] is Power.OFF:
            raise


SIMPLE: Final[Mapping[MarkPhase, Callable[[Domain], object]]] = {
    MarkPhase.SUSPEND: suspend,
    MarkPhase.REBOOT: reboot,
    MarkPhase.RESET: lambda domain: domain.reset(),
    MarkPhase.SHUTDOWN: shut_down,
    MarkPhase.DESTROY: destroy,
}
"""The deeds that need nothing but the domain."""


def _ask(domain: Domain, ask: Callable[[int], int], agent: int, button: int) -> None:
    """Ask in every way there is until one is taken. The domain shows whether the guest listens."""
    ways = (agent, button, 0) if has_agent(domain) else (button, 0)
    with suppress(LibvirtError):
        domain.agentSetResponseTimeout(_AGENT_SECONDS)
    for way in ways:
        with suppress(LibvirtError):
            ask(way)
            return


def choose_destination(
    plan: ImpactPlan, domain: Domain, connect: Callable[[HostPlace], HostConnection]
) -> Destination:
    """Return the host with the most memory left, or refuse if the guest fits on none."""
    needed = domain.maxMemory()
    found, reasons = list[tuple[int, Destination]](), dict(plan.barred)
    for place in plan.others:
        try:
            connection = connect(place)
            left = free_memory(connection)
        except (UnreachableError, LibvirtError) as error:
            reasons[place.host] = str(error)
            continue
        if left >= needed:
            found.append((left, Destination(place=place, connection=connection)))
        else:
            room, need = f"{left // 1024} MiB free", f"{needed // 1024} MiB"
            reasons[place.host] = f"it has {room}, the guest needs {need}"
    if not found:
        said = "; ".join(f"{host}: {reason}" for host, reason in reasons.items())
        raise DeedError(f"no other host can take the guest{f' ({said})' if said else ''}")
    return max(found, key=lambda each: each[0])[1]


def migrate(plan: ImpactPlan, domain: Domain, destination: Destination) -> None:
    """Move the running guest. It is on one of the two hosts afterwards, never on both."""
    unsafe = libvirt.VIR_MIGRATE_UNSAFE if plan.unsafe_migration else 0
    uri = destination.place.migrate_uri
    params = {} if uri is None else {libvirt.VIR_MIGRATE_PARAM_URI: uri}
    domain.migrate3(destination.connection, params, _MIGRATION | unsafe)


def move(plan: ImpactPlan, domain: Domain, here: HostConnection, destination: Destination) -> None:
    """Move a guest that is shut off, and start it there; or start it again where it was.

    It is started here only if it is known not to run there: two guests on one disk destroy it.
    """
    there = destination.connection
    xml = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE)
    autostart = domain.autostart()
    domain.setAutostart(0)  # from here on its old host must not start it by itself
    moved: Domain | None = None
    try:
        moved = there.defineXML(xml)
        remake_disks(plan, xml, here, there)
        start(moved)
    except (LibvirtError, DeedError) as error:
        # If the other host cannot be asked, this raises, and the guest stays off until it can.
        if moved is None or power_of(moved)[0] is Power.OFF:
            _start_again(domain, moved, autostart)
            host = destination.place.host
            said = f"host {host} cannot run the guest, so it was started where it was: {error}"
            raise DeedError(said) from None
    moved.setAutostart(autostart)
    leave(domain)


def _start_again(domain: Domain, moved: Domain | None, autostart: int) -> None:
    if moved is not None:
        leave(moved)
    domain.setAutostart(autostart)
    start(domain)


def leave(domain: Domain) -> None:
    """Remove the definition of a guest from a host where it is shut off. Its disks are kept."""
    if power_of(domain)[0] is not Power.OFF:
        return  # a definition without a guest is gone, a guest without a definition is lost
    try:
        domain.undefineFlags(_KEEPING)
    except LibvirtError:  # not every driver has all of these flags
        with suppress(LibvirtError):
            domain.undefine()


def remake_disks(plan: ImpactPlan, xml: str, here: HostConnection, there: HostConnection) -> None:
    """Make the ephemeral disks of a guest anew, empty, of the size and format that they had."""
    for source in _sources(xml, plan.ephemeral):
        old = (
            here.storagePoolLookupByName(source["pool"]).storageVolLookupByName(source["volume"])
            if "pool" in source
            else here.storageVolLookupByPath(source["file"])
        )
        description = ET.fromstring(old.XMLDesc())  # noqa: S314 - libvirt's
        name = description.findtext("name", "")
        for given in ("key", "allocation", "physical", "timestamps", "target/path"):
            _remove(description, given)
        pool = there.storagePoolLookupByName(old.storagePoolLookupByVolume().name())
        pool.refresh()
        with suppress(LibvirtError):  # on a host that has not seen the guest there is none
            pool.storageVolLookupByName(name).delete()
        pool.createXML(ET.tostring(description, encoding="unicode"))


def _sources(xml: str, targets: Sequence[str]) -> Iterable[Mapping[str, str]]:
    disks = {
        target.get("dev"): disk.find("source")
        for disk in ET.fromstring(xml).iterfind("devices/disk")  # noqa: S314 - libvirt's
        if (target := disk.find("target")) is not None
    }
    for name in targets:
        source = disks.get(name)
        if source is not None and ("pool" in source.attrib or "file" in source.attrib):
            yield source.attrib
        elif name in disks:
            raise DeedError(f"the ephemeral disk {name!r} is neither a file nor a volume")


def _remove(element: ET.Element, path: str) -> None:
    parent, _, tag = path.rpartition("/")
    holder = element.find(parent) if parent else element
    found = None if holder is None else holder.find(tag)
    if holder is not None and found is not None:
        holder.remove(found)
