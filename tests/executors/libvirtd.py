"""A private libvirtd with libvirt's test driver: guests without a hypervisor, for all processes."""

import os
import re
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.executors.conftest import (
    EVENT,
    HOSTS,
    NOW,
    find_among,
    host_called,
    log_in,
    wait_until,
)
from tests.needs import PATH, need, need_libvirt

from forewarn.clocks import SystemClock
from forewarn.domain.names import VmName
from forewarn.domain.topology import Host, Topology, VirtualMachine
from forewarn.executors.libvirt.hypervisors import (
    Hypervisor,
    KnownFleet,
    hypervisor_among,
    stewards,
)
from forewarn.executors.libvirt.marks import DomainMark, MarkPhase
from forewarn.executors.processes import PLACES_OF_HOST, ProcessRunner

try:
    import libvirt
except ImportError:
    libvirt = None

_DOMAIN = """<domain type='test'><name>{name}</name>{uuid}
<memory unit='KiB'>{memory}</memory><os><type>hvm</type></os>
<on_poweroff>{on_poweroff}</on_poweroff><on_reboot>{on_reboot}</on_reboot>
<devices>{devices}</devices></domain>"""
_CALL = re.compile(r" : (vir(?:Domain|StorageVol)\w+):\d+ : .*?name=([\w.-]+)")
_DEEDS = {
    "virDomainReboot": "reboot",
    "virDomainReset": "reset",
    "virDomainSuspend": "suspend",
    "virDomainResume": "resume",
    "virDomainShutdownFlags": "shutdown",
    "virDomainDestroy": "destroy",
    "virDomainCreate": "create",
}


class Libvirtd:
    """One daemon; its guests are there until it ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.uri = f"test+unix:///default?socket={folder}/libvirt-sock"
        self.connection: Any = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the daemon, as nobody if we are root: it has nothing to do with that of the host."""
        (self._folder / "conf").write_text(
            f'unix_sock_dir = "{self._folder}"\nauth_unix_rw = "none"\n'
            f'log_filters = "1:libvirt 4:*"\nlog_outputs = "1:file:{self._folder}/log"\n',
            encoding="utf-8",
        )
        self._folder.chmod(0o777)  # for the daemon, whoever it runs as
        names = ("HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")
        command = ["libvirtd", "-f", str(self._folder / "conf"), "-p", str(self._folder / "pid")]
        as_nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
        with subprocess.Popen(
            command if os.geteuid() else [*as_nobody, *command],
            env={
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                **dict.fromkeys(names, str(self._folder)),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as daemon:
            try:
                wait_until(self._connect, "libvirtd does not answer")
                yield
            finally:
                if self.connection is not None:
                    self.connection.close()
                daemon.send_signal(signal.SIGKILL)

    def define(self, name: str, **more: str) -> Any:
        """Define and start a guest."""
        words = {"on_poweroff": "destroy", "on_reboot": "restart", "memory": "1024", "devices": ""}
        uuid = f"<uuid>{more['uuid']}</uuid>" if "uuid" in more else ""
        domain = self.connection.defineXML(
            _DOMAIN.format(name=name, **(words | more | {"uuid": uuid}))
        )
        domain.create()
        return domain

    def domain(self, name: str) -> Any:
        return self.connection.lookupByName(name)

    def state(self, name: str) -> int:
        state: int = self.domain(name).state()[0]
        return state

    def deeds(self) -> Counter[tuple[str, str]]:
        """Return what was asked of libvirt for each guest, as its own log has it."""
        log = (self._folder / "log").read_text(encoding="utf-8")
        calls = (found.groups() for found in map(_CALL.search, log.splitlines()) if found)
        return Counter((_DEEDS[call], vm) for call, vm in calls if call in _DEEDS)

    def mark(self, name: str, phase: MarkPhase, **more: Any) -> None:
        """Set the mark that another server's steward would have set."""
        from forewarn.executors.libvirt.domains import put_mark  # noqa: PLC0415 - needs libvirt

        mark = DomainMark(
            event_id=EVENT.event_id,
            event_type=EVENT.event_type,
            epoch=1,
            phase=phase,
            at=NOW,
            **more,
        )
        put_mark(self.domain(name), mark)

    def _connect(self) -> bool:
        try:
            self.connection = libvirt.open(self.uri)
        except libvirt.libvirtError:
            return False
        return True


@contextmanager
def libvirtd() -> Iterator[Libvirtd]:
    """Return a daemon, or skip the test where there is none."""
    need_libvirt()
    need("libvirtd", path=PATH)
    libvirt.registerErrorHandler(lambda *_: None, None)
    # The path of a socket has 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="fw-", dir="/tmp") as folder:
        daemon = Libvirtd(Path(folder))
        with daemon.running():
            yield daemon


def wait_for_stewards(folder: Path) -> None:
    """Return when no steward is left of those that were started for orders in *folder*."""
    for order in folder.glob("tasks/*/*.begun"):
        if '"libvirt"' in order.read_text(encoding="utf-8"):
            ending = order.with_suffix(".ended")
            wait_until(ending.exists, f"the steward of {order.stem} does not end")


def fleet_of(*hosts: Host, vm_ids: Mapping[VmName, str] | None = None) -> Topology:
    """Return a fleet with these hosts, and with what is known of guests."""
    vms = {
        name: VirtualMachine(name=name, scope_id=EVENT.scope_id, host=HOSTS[name], vm_id=vm_id)
        for name, vm_id in (vm_ids or {}).items()
    }
    made: Any = SimpleNamespace(hosts={host.name: host for host in hosts}, virtual_machines=vms)
    fleet: Topology = made
    return fleet


def make_libvirt(
    folder: Path,
    *hypervisors: Hypervisor,
    fleet: Topology | None = None,
    places_of_host: int = PLACES_OF_HOST,
) -> ProcessRunner[Hypervisor]:
    """Return a runner that remembers in *folder*."""
    known = fleet or fleet_of(*map(host_called, {*HOSTS.values()}))
    return ProcessRunner(
        find_among(hypervisors),
        stewards(lambda: KnownFleet(fleet=known), hypervisor_among(hypervisors)),
        log=log_in(folder),
        environment={"PATH": "/usr/bin:/bin"},
        clock=SystemClock(),
        places_of_host=places_of_host,
    )
