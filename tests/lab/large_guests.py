"""Guests under libvirt that run Debian with systemd, on the network that libvirt has by default.

They get their addresses by DHCP, and reach 169.254.169.254 through their default gateway.
"""

import re
import shutil
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.e2e.conftest import wait_until
from tests.lab.data_centres import AgentInside
from tests.lab.guests import TREE, WORDS_FOR_THE_KERNEL
from tests.lab.hypervisors import KvmHost

BOOT_SECONDS: Final = 600.0
"""One takes half a minute, but two may boot at once on a machine that has other things to do."""
COMMAND_SECONDS: Final = 600.0
"""How long a command may take in a guest, such as pip without KVM."""
PING: Final = '{"execute": "guest-ping"}'
PING_SECONDS: Final = "10"
DONE: Final = re.compile(r"\x1e(\d+)\x1e")
"""What a shell is told to print after a command, with its status."""
PRINT_STATUS: Final = "printf '\\036%s\\036' $?"
# A guest may reboot before anybody asks its agent what a command has printed.
ALOUD: Final = "exec > /dev/ttyS1 2>&1\n{command}\n{print_status}"
NETWORK: Final = "192.168.122"
# As libvirt's own default, but for the rules of NAT: the host of the lab leads nowhere.
DEFAULT_NETWORK: Final = """
<network>
  <name>default</name>
  <forward mode="open"/>
  <bridge name="virbr0"/>
  <ip address="{network}.1" netmask="255.255.255.0">
    <dhcp>{reserved}</dhcp>
  </ip>
</network>
"""
RESERVED: Final = '<host mac="{mac}" ip="{address}"/>'
DOMAIN: Final = """
<domain type="qemu">
  <name>{name}</name>
  <uuid>{vm_id}</uuid>
  <memory unit="MiB">512</memory>
  <vcpu>2</vcpu>
  <os>
    <type arch="x86_64" machine="pc">hvm</type>
    <kernel>{tree}/vmlinuz</kernel>
    <initrd>{tree}/initrd.img</initrd>
    <cmdline>{words}</cmdline>
  </os>
  <features><acpi/></features>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type="usb" model="none"/>
    <disk type="file">
      <driver name="qemu" type="raw" cache="unsafe"/>
      <source file="{disk}"/>
      <target dev="vda" bus="virtio"/>
    </disk>
    <interface type="network">
      <mac address="{mac}"/>
      <source network="default"/>
      <model type="virtio"/>
      <rom enabled="no"/>
    </interface>
    <serial type="file"><source path="{disk}.console" append="on"/></serial>
    <serial type="file"><source path="{disk}.said" append="on"/></serial>
    <channel type="unix"><target type="virtio" name="org.qemu.guest_agent.0"/></channel>
    <memballoon model="none"/>
  </devices>
</domain>
"""
# All of them have the same machine-id, so it cannot tell them apart.
USE_DHCP: Final = """
cat > /etc/systemd/network/lan.network <<END
[Match]
Type=ether
[Network]
DHCP=ipv4
[DHCPv4]
ClientIdentifier=mac
UseHostname=no
END
networkctl reload
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeGuest:
    """A virtual machine that boots from a copy of the lab's disk."""

    name: str
    number: int
    """The last part of its address."""

    @property
    def address(self) -> str:
        return f"{NETWORK}.{self.number}"

    @property
    def mac(self) -> str:
        return f"52:54:00:78:01:{self.number:02x}"

    @property
    def vm_id(self) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_DNS, self.name))

    def describe(self, disk: Path) -> str:
        """Return the domain that libvirt is to define."""
        return DOMAIN.format(
            name=self.name,
            vm_id=self.vm_id,
            mac=self.mac,
            disk=disk,
            tree=TREE.resolve(),
            words=WORDS_FOR_THE_KERNEL,
        )


def run_guests(hypervisor: KvmHost, disk: Path, guests: Collection[LargeGuest]) -> None:
    """Start *guests* with a copy of *disk* each; return when they have their addresses."""
    reserved = "".join(RESERVED.format(mac=each.mac, address=each.address) for each in guests)
    network = hypervisor.folder / "network.xml"
    described = DEFAULT_NETWORK.format(network=NETWORK, reserved=reserved)
    network.write_text(described, encoding="utf-8")
    hypervisor.virsh("net-define", str(network))
    hypervisor.virsh("net-start", "default")
    for guest in guests:
        own = hypervisor.folder / guest.name
        shutil.copy(disk, own)
        file = own.with_suffix(".xml")
        file.write_text(guest.describe(own), encoding="utf-8")
        hypervisor.virsh("define", str(file))
        hypervisor.virsh("start", guest.name)
    for guest in guests:
        run_inside(hypervisor, guest.name, USE_DHCP)
        wait_until(
            lambda g=guest: g.mac in hypervisor.virsh("net-dhcp-leases", "default"),  # type: ignore[misc]
            f"{guest.name} has no address",
            BOOT_SECONDS,
            pause=0.2,
        )


def wait_until_booted(hypervisor: KvmHost, vm: str) -> None:
    """Return when QEMU's agent answers in *vm*."""
    ping = ("qemu-agent-command", "--timeout", PING_SECONDS, vm, PING)
    wait_until(
        lambda: hypervisor.try_virsh(*ping).returncode == 0,
        f"no word from inside {vm}",
        BOOT_SECONDS,
        pause=0.5,
    )


def run_inside(
    hypervisor: KvmHost, vm: str, command: str, seconds: float = COMMAND_SECONDS
) -> tuple[int, str]:
    """Run a command of the shell in *vm*, once that is up; return its status and what it prints."""
    wait_until_booted(hypervisor, vm)
    said = hypervisor.folder / f"{vm}.said"
    before = len(_read(said))
    aloud = ALOUD.format(command=command, print_status=PRINT_STATUS)
    AgentInside(hypervisor, vm).ask("guest-exec", path="/bin/sh", arg=["-c", aloud])
    wait_until(
        lambda: DONE.search(_read(said), before) is not None,
        f"not done in {vm}: {command}",
        seconds,
        pause=0.1,
    )
    done = DONE.search(_read(said), before)
    assert done is not None
    return int(done[1]), _read(said)[before : done.start()]


def _read(said: Path) -> str:
    return said.read_text(encoding="utf-8", errors="replace").replace("\r", "")
