"""Guests that boot in seconds: a kernel, busybox and QEMU's agent, all in memory (small/init).

A guest polls for its events every second, approves what it is told to, and says on its console what
it reads. The console is a file that outlives reboots and moves to another host.
"""

import json
import re
import subprocess
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from tests.e2e.conftest import wait_until
from tests.lab.guests import TREE

MAKE_INITRAMFS: Final = Path(__file__).with_name("make_initramfs.sh")
BOOT_SECONDS: Final = 120.0
"""One takes 4 s, but several may boot at once on a machine that has other things to do."""
NETWORK: Final = "10.77.0"
POOL: Final = "/var/lib/libvirt/ephemeral"
"""Where a host keeps the disks of its guests; no two hosts see the same there."""
TICK: Final = re.compile(
    r"tick\|([\d.]+)\|([0-9a-f-]{36})\|(\d*)\|([^|\r\n]*)\|(\{[^|\x00-\x1f]*\]\})?\r?$",
    re.MULTILINE,
)
BOOT: Final = re.compile(r"boot\|([0-9a-f-]{36})\r?$", re.MULTILINE)
APPROVED: Final = re.compile(r"approved\|([0-9A-F-]{36})\|(\d*)\r?$", re.MULTILINE)
DOMAIN: Final = """
<domain type="qemu">
  <name>{name}</name>
  <uuid>{vm_id}</uuid>
  <memory unit="MiB">128</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch="x86_64" machine="pc">hvm</type>
    <kernel>{kernel}</kernel>
    <initrd>{initramfs}</initrd>
    <cmdline>{words}</cmdline>
  </os>
  <features><acpi/></features>
  <clock offset="utc"/>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type="usb" model="none"/>
    <interface type="bridge">
      <mac address="{mac}"/>
      <source bridge="br0"/>
      <model type="virtio"/>
      <rom enabled="no"/>
    </interface>
    <serial type="file"><source path="{console}" append="on"/></serial>
    {agent}
    {disk}
    <memballoon model="none"/>
  </devices>
</domain>
"""
AGENT: Final = """
    <channel type="unix"><target type="virtio" name="org.qemu.guest_agent.0"/></channel>
"""
DISK: Final = """
    <disk type="file">
      <driver name="qemu" type="raw"/>
      <source file="{path}"/>
      <target dev="vda" bus="virtio"/>
    </disk>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootFiles:
    """What every small guest boots from."""

    kernel: Path
    initramfs: Path
    cache: Path
    """What libvirt has found out about QEMU, which takes it seconds."""


def make_boot_files(folder: Path) -> BootFiles:
    """Make the initramfs of small guests of .lab/tree."""
    initramfs = folder / "initramfs"
    subprocess.run(["/bin/sh", MAKE_INITRAMFS, TREE, initramfs], check=True)
    cache = folder / "cache"
    cache.mkdir()
    return BootFiles(kernel=(TREE / "vmlinuz").resolve(), initramfs=initramfs, cache=cache)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """One poll of a guest, and what came of it."""

    uptime: float
    boot_id: str
    status: int
    """0 if there was no answer."""
    at: float
    """When it was answered, by the clock of the relay; that of a paused guest stands still."""
    document: Mapping[str, Any]

    @property
    def statuses(self) -> dict[str, str]:
        """The status of each event it reads."""
        events = self.document.get("Events", ())
        return {event["EventId"]: event["EventStatus"] for event in events}


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallGuest:
    """A virtual machine of the fleet, on *host* at first."""

    name: str
    number: int
    """The last part of its address."""
    folder: Path = Path()
    """Where its console is."""
    host: str = "kvm-1"
    availability_set: str = ""
    update_domain: int = 0
    approves: tuple[str, ...] = ()
    uses_dhcp: bool = False
    has_agent: bool = True
    ignores_button: bool = False
    has_disk: bool = False
    """Whether it has an empty disk of its host, vda."""

    @property
    def address(self) -> str:
        return f"{NETWORK}.{self.number}"

    @property
    def mac(self) -> str:
        return f"52:54:00:77:01:{self.number:02x}"

    @property
    def vm_id(self) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_DNS, self.name))

    @property
    def console(self) -> Path:
        return self.folder / f"{self.name}.console"

    def describe(self, boot_files: BootFiles) -> str:
        """Return the domain that libvirt is to define."""
        address = "dhcp" if self.uses_dhcp else f"{self.address}/24"
        words = ["console=ttyS0", "quiet", "panic=-1", f"address={address}"]
        words += [f"approve={','.join(self.approves)}"] if self.approves else []
        words += ["button=ignored"] if self.ignores_button else []
        return DOMAIN.format(
            name=self.name,
            vm_id=self.vm_id,
            kernel=boot_files.kernel,
            initramfs=boot_files.initramfs,
            words=" ".join(words),
            mac=self.mac,
            console=self.console,
            agent=AGENT if self.has_agent else "",
            disk=DISK.format(path=f"{POOL}/{self.name}") if self.has_disk else "",
        )

    def said(self) -> str:
        """Return all that it has said, as far as lines are complete."""
        try:
            text = self.console.read_text(encoding="ascii", errors="replace")
        except FileNotFoundError:
            return ""
        return text[: text.rfind("\n") + 1]

    def ticks(self) -> list[Tick]:
        return read_ticks(self.said())

    def answered(self) -> list[Tick]:
        """Return the polls that got a document."""
        return [tick for tick in self.ticks() if tick.status == 200]

    def boot_ids(self) -> list[str]:
        """Return an id for each time it has booted."""
        return BOOT.findall(self.said())

    def approvals(self) -> list[tuple[str, int]]:
        """Return the events it has approved, and the status of each answer."""
        return [(found[1], int(found[2] or 0)) for found in APPROVED.finditer(self.said())]

    def wait_until_answered(self, times: int = 1) -> None:
        """Wait until it has got a document, so many times from now on."""
        before = len(self.answered())
        self._wait(lambda: len(self.answered()) >= before + times, "has not got its document")

    def wait_for_status(self, event_id: str, event_status: str) -> None:
        """Wait until it reads that the event has *event_status*."""
        self._wait(
            lambda: any(tick.statuses.get(event_id) == event_status for tick in self.answered()),
            f"has not read that {event_id} is {event_status}",
        )

    def wait_for_boot(self, times: int) -> None:
        """Wait until it has booted so many times in all."""
        self._wait(lambda: len(self.boot_ids()) >= times, f"has not booted {times} times")

    def _wait(self, is_so: Callable[[], bool], complaint: str) -> None:
        wait_until(is_so, f"{self.name} {complaint}; see {self.console}", BOOT_SECONDS, pause=0.1)


def read_ticks(console: str) -> list[Tick]:
    """Return the polls that a console tells of."""
    return [
        Tick(
            uptime=float(uptime),
            boot_id=boot_id,
            status=int(status or 0),
            at=parsedate_to_datetime(date).timestamp() if date else 0.0,
            document=json.loads(document or "{}"),
        )
        for uptime, boot_id, status, date, document in TICK.findall(console)
    ]


def longest_gap(ticks: Iterable[Tick]) -> float:
    """Return the most seconds between two polls that were answered one after the other."""
    moments = [tick.at for tick in ticks if tick.at]
    return max((later - earlier for earlier, later in pairwise(moments)), default=0.0)
