"""What we use of libvirt-python, with types, and connections that give up in time."""

import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol, TypeAlias

import libvirt

KEEP_ALIVE: Final = (5, 3)
"""After how many seconds a silent peer is asked, and how many times, before it counts as lost."""

LibvirtError: TypeAlias = libvirt.libvirtError
"""What libvirt raises, whatever is wrong."""


class Domain(Protocol):
    """A guest, running or not."""

    def name(self) -> str: ...
    def state(self) -> list[int]: ...
    def isActive(self) -> int: ...  # noqa: N802 - libvirt's
    def isPersistent(self) -> int: ...  # noqa: N802
    def maxMemory(self) -> int: ...  # noqa: N802
    def suspend(self) -> int: ...
    def resume(self) -> int: ...
    def create(self) -> int: ...
    def destroy(self) -> int: ...
    def reset(self) -> int: ...
    def reboot(self, flags: int) -> int: ...
    def shutdownFlags(self, flags: int) -> int: ...  # noqa: N802
    def undefine(self) -> int: ...
    def undefineFlags(self, flags: int) -> int: ...  # noqa: N802
    def autostart(self) -> int: ...
    def setAutostart(self, autostart: int) -> int: ...  # noqa: N802
    def jobInfo(self) -> list[int]: ...  # noqa: N802
    def agentSetResponseTimeout(self, timeout: int) -> int: ...  # noqa: N802
    def XMLDesc(self, flags: int) -> str: ...  # noqa: N802
    def metadata(self, type: int, uri: str, flags: int) -> str: ...  # noqa: A002
    def setMetadata(  # noqa: N802
        self,
        type: int,  # noqa: A002
        metadata: str,
        key: str,
        uri: str,
        flags: int,
    ) -> int: ...
    def migrate3(
        self, dconn: "HostConnection", params: Mapping[str, str], flags: int
    ) -> "Domain": ...


class Volume(Protocol):
    """The storage of a disk."""

    def delete(self) -> int: ...
    def XMLDesc(self) -> str: ...  # noqa: N802
    def storagePoolLookupByVolume(self) -> "Pool": ...  # noqa: N802


class Pool(Protocol):
    """Where volumes are."""

    def name(self) -> str: ...
    def refresh(self) -> int: ...
    def createXML(self, xml: str) -> Volume: ...  # noqa: N802
    def storageVolLookupByName(self, name: str) -> Volume: ...  # noqa: N802


class HostConnection(Protocol):
    """A libvirt that was connected to."""

    def isAlive(self) -> int: ...  # noqa: N802
    def setKeepAlive(self, interval: int, count: int) -> int: ...  # noqa: N802
    def lookupByUUIDString(self, uuidstr: str) -> Domain: ...  # noqa: N802
    def lookupByName(self, name: str) -> Domain: ...  # noqa: N802
    def defineXML(self, xml: str) -> Domain: ...  # noqa: N802
    def getMemoryStats(self, cellNum: int) -> Mapping[str, int]: ...  # noqa: N802, N803
    def getFreeMemory(self) -> int: ...  # noqa: N802
    def storagePoolLookupByName(self, name: str) -> Pool: ...  # noqa: N802
    def storageVolLookupByPath(self, path: str) -> Volume: ...  # noqa: N802
    def domainEventRegisterAny(  # noqa: N802
        self,
        dom: Domain | None,
        eventID: int,  # noqa: N803
        cb: Callable[..., None],
        opaque: None,
    ) -> int: ...


class UnreachableError(Exception):
    """There is no connection to a libvirt; the message names it and says why."""


def run_events() -> None:
    """Have libvirt tell what happens to domains; before the first connection, once per process."""
    libvirt.registerErrorHandler(lambda *_: None, None)  # they are raised, too
    libvirt.virEventRegisterDefaultImpl()
    # Without a timeout that comes again, the loop sleeps through what is registered later.
    libvirt.virEventAddTimeout(250, lambda *_: None, None)

    def run() -> None:
        while True:
            libvirt.virEventRunDefaultImpl()

    threading.Thread(target=run, name="libvirt-events", daemon=True).start()


def connect(uri: str, seconds: float) -> HostConnection:
    """Return a connection, or refuse with an `UnreachableError` after so many *seconds*."""
    opened: queue.Queue[HostConnection | Exception] = queue.Queue()

    def open_it() -> None:
        try:
            opened.put(libvirt.open(uri))
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            opened.put(error)

    # A daemon, which is left alone if libvirt accepts a connection and never answers.
    threading.Thread(target=open_it, daemon=True).start()
    try:
        connection = opened.get(timeout=seconds)
    except queue.Empty:
        raise UnreachableError(f"{uri} did not answer within {seconds:g} s") from None
    if isinstance(connection, Exception):
        raise UnreachableError(f"cannot connect to {uri}: {connection}")
    with suppress(LibvirtError):  # within one process there is nothing to keep alive
        connection.setKeepAlive(*KEEP_ALIVE)
    return connection


def is_missing(error: LibvirtError) -> bool:
    """Tell whether libvirt says that there is no such domain, or no such element."""
    return error.get_error_code() in {
        libvirt.VIR_ERR_NO_DOMAIN,
        libvirt.VIR_ERR_NO_DOMAIN_METADATA,
    }
