"""Domains as stewards see them: where they are, how they are, and their marks."""

from contextlib import suppress
from typing import Final
from xml.etree import ElementTree as ET

import libvirt

from forewarn.executors.libvirt.api import Domain, HostConnection, LibvirtError, is_missing
from forewarn.executors.libvirt.decisions import Power
from forewarn.executors.libvirt.marks import NAMESPACE, PREFIX, DomainMark, read_mark

_POWERS: Final = {
    libvirt.VIR_DOMAIN_PAUSED: Power.PAUSED,
    libvirt.VIR_DOMAIN_PMSUSPENDED: Power.PAUSED,
    libvirt.VIR_DOMAIN_SHUTOFF: Power.OFF,
    libvirt.VIR_DOMAIN_CRASHED: Power.OFF,
}
_AGENT: Final = "channel/target[@name='org.qemu.guest_agent.0'][@state='connected']"


def find_domain(connection: HostConnection, vm: str, vm_id: str) -> Domain | None:
    """Return the domain whose UUID is *vm_id*, or else that is called *vm*."""
    with suppress(LibvirtError):  # an id need not be a UUID
        if vm_id:
            return connection.lookupByUUIDString(vm_id)
    try:
        return connection.lookupByName(vm)
    except LibvirtError as error:
        if is_missing(error):
            return None
        raise


def power_of(domain: Domain) -> tuple[Power, bool]:
    """Return how the domain is, and whether it runs because it was resumed."""
    state, reason, *_ = domain.state()
    was_paused = (state, reason) == (
        libvirt.VIR_DOMAIN_RUNNING,
        libvirt.VIR_DOMAIN_RUNNING_UNPAUSED,
    )
    return _POWERS.get(state, Power.RUNNING), was_paused


def mark_of(domain: Domain) -> DomainMark | None:
    """Return the mark of the domain, if it has one."""
    try:
        kind = libvirt.VIR_DOMAIN_METADATA_ELEMENT
        return read_mark(domain.metadata(kind, NAMESPACE, libvirt.VIR_DOMAIN_AFFECT_CURRENT))
    except LibvirtError as error:
        if is_missing(error):
            return None
        raise


def put_mark(domain: Domain, mark: DomainMark) -> None:
    """Have the domain carry *mark*, also when it is started again or is moved."""
    live = libvirt.VIR_DOMAIN_AFFECT_LIVE if domain.isActive() else 0
    config = libvirt.VIR_DOMAIN_AFFECT_CONFIG if domain.isPersistent() else 0
    kind = libvirt.VIR_DOMAIN_METADATA_ELEMENT
    domain.setMetadata(kind, mark.encode(), PREFIX, NAMESPACE, live | config)


def is_migrating(domain: Domain) -> bool:
    """Tell whether something is being done with the domain that takes time."""
    with suppress(LibvirtError):  # not every driver knows of jobs
        kind, *_ = domain.jobInfo()
        return bool(kind != libvirt.VIR_DOMAIN_JOB_NONE)
    return False


def has_autostart(domain: Domain) -> bool:
    """Tell whether the domain is started with its host."""
    with suppress(LibvirtError):  # not every driver can
        return bool(domain.autostart())
    return False


def has_agent(domain: Domain) -> bool:
    """Tell whether there is a guest agent that listens."""
    devices = ET.fromstring(domain.XMLDesc(0)).find("devices")  # noqa: S314 - libvirt's
    return devices is not None and devices.find(_AGENT) is not None


def free_memory(connection: HostConnection) -> int:
    """Return how many KiB a host has left, caches included where it says so."""
    try:
        stats = connection.getMemoryStats(libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS)
        return sum(stats.get(each, 0) for each in ("free", "buffers", "cached"))
    except LibvirtError:
        return connection.getFreeMemory() // 1024
