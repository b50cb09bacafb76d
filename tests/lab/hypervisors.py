"""Hosts that carry guests: a private libvirtd each, in namespaces for its network, mounts and name.

A client reaches it at `qemu+unix:///system?socket=…`, from any namespace. The bridges of all hosts
are one network for guests, so that a guest keeps its address when it moves to another host.
"""

import os
import signal
import subprocess
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.e2e.conftest import START_SECONDS, STOP_SECONDS, wait_until
from tests.e2e.relays import METADATA, NFT, HostPlace
from tests.e2e.test_replica_cut_off import ip
from tests.lab.small_guests import NETWORK, POOL, BootFiles, SmallGuest

COMMAND_SECONDS: Final = 60.0
RUN_LIBVIRTD: Final = Path(__file__).with_name("libvirtd.sh")
BRIDGE: Final = "br0"
UPLINK: Final = "uplink"

# Debian's libvirtd wants its user to exist, even if guests run as root.
USERS: Final = {
    "passwd": "libvirt-qemu:x:64055:64055::/var/lib/libvirt:/usr/sbin/nologin\n",
    "group": "libvirt-qemu:x:64055:\n",
}
# There is neither systemd nor virtlogd, and no control group to be had in a container.
QEMU_CONF: Final = """
user = "root"
group = "root"
security_driver = "none"
stdio_handler = "file"
dynamic_ownership = 0
remember_owner = 0
namespaces = []
cgroup_controllers = []
"""
LIBVIRTD_CONF: Final = """
unix_sock_dir = "/run/libvirt"
auth_unix_rw = "none"
host_uuid = "{host_uuid}"
log_outputs = "2:file:{folder}/libvirtd.log"
"""


@dataclass(slots=True, kw_only=True)
class KvmHost:
    """A host with a libvirtd. Its relay, if any, is a process of *place*."""

    place: HostPlace
    folder: Path
    environment: Mapping[str, str]
    daemon: "subprocess.Popen[bytes] | None" = None

    @property
    def name(self) -> str:
        return self.place.host

    @property
    def uri(self) -> str:
        return find_uri(self.folder)

    def start_daemon(self) -> None:
        """Start libvirtd, and return when it answers; it adopts guests that are running."""
        spaces = ["/sbin/ip", "netns", "exec", self.place.name, "unshare", "--mount", "--uts"]
        with (self.folder / "libvirtd.out").open("ab") as log:
            self.daemon = subprocess.Popen(
                [*spaces, "/bin/sh", RUN_LIBVIRTD, self.folder, self.name],
                env={"PATH": f"{os.defpath}:/usr/sbin:/sbin"},
                stdout=log,
                stderr=log,
            )
        wait_until(
            lambda: self.try_virsh("uri").returncode == 0,
            f"no libvirtd answers; see {self.folder}",
            START_SECONDS,
        )

    @contextmanager
    def lease_addresses(self, directory: Path, *guests: SmallGuest) -> Generator[None]:
        """Run dnsmasq for *guests*, with the files of *directory*."""
        words = (
            *("--no-daemon", "--conf-file=/dev/null", f"--conf-dir={directory}", "--user=root"),
            *("--pid-file=", "--port=0", f"--interface={BRIDGE}", "--bind-interfaces", "--no-ping"),
            *(f"--dhcp-leasefile={self.folder / 'leases'}", f"--dhcp-range={NETWORK}.0,static"),
            *(f"--dhcp-host={guest.mac},{guest.address}" for guest in guests),
        )
        inside = ["/sbin/ip", "netns", "exec", self.place.name, "/usr/sbin/dnsmasq"]
        with (self.folder / "dnsmasq.log").open("ab") as log:
            process = subprocess.Popen([*inside, *words], stdout=log, stderr=log)
        try:
            yield
        finally:
            process.kill()
            process.wait(STOP_SECONDS)

    def kill_daemon(self) -> None:
        """Kill libvirtd; its guests keep running."""
        assert self.daemon is not None
        self.daemon.kill()
        self.reap()

    def reap(self) -> None:
        """Take notice of the end of libvirtd."""
        if self.daemon is not None:
            self.daemon.wait(STOP_SECONDS)

    def virsh(self, *words: str) -> str:
        """Run a command of virsh that has to succeed; return what it prints."""
        done = self.try_virsh(*words)
        assert done.returncode == 0, f"virsh {' '.join(words)}: {done.stderr}"
        return done.stdout.strip()

    def define(self, guest: SmallGuest, boot_files: BootFiles) -> None:
        """Define a guest, with its disk if it has one."""
        if guest.has_disk:
            self.virsh("vol-create-as", "ephemeral", guest.name, "1M")
        file = self.folder / f"{guest.name}.xml"
        file.write_text(guest.describe(boot_files), encoding="utf-8")
        self.virsh("define", str(file))

    def running(self) -> set[str]:
        """Return the names of the guests that are running or paused here."""
        return set(self.virsh("list", "--name").split())

    def defined(self) -> set[str]:
        """Return the names of all guests that are defined here."""
        return set(self.virsh("list", "--name", "--all").split())

    def try_virsh(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a command of virsh, whatever comes of it."""
        return subprocess.run(
            ["/usr/bin/virsh", "--quiet", "--connect", self.uri, *words],
            env=dict(self.environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS,
        )


def find_uri(folder: Path) -> str:
    """Return how clients reach the libvirtd of *folder*."""
    return f"qemu+unix:///system?socket={folder}/run/libvirt/libvirt-sock"


@contextmanager
def run_hypervisor(
    place: HostPlace, folder: Path, cache: Path, hosts: Mapping[str, str]
) -> Generator[KvmHost]:
    """Run a libvirtd in *place*, which knows *hosts* by name; end it and all its guests.

    What QEMU is capable of takes seconds to find out, and is kept in *cache* for the next one.
    """
    _furnish(folder, cache, hosts)
    hypervisor = KvmHost(place=place, folder=folder, environment=place.environment)
    try:
        hypervisor.start_daemon()
        hypervisor.virsh("pool-define-as", "ephemeral", "dir", "--target", POOL)
        hypervisor.virsh("pool-build", "ephemeral")
        hypervisor.virsh("pool-start", "ephemeral")
        yield hypervisor
    finally:
        kill_all(place.name)
        hypervisor.reap()


def connect_bridge(place: HostPlace, switch: str, switch_bridge: str) -> None:
    """Join the bridge of *place* to that of *switch*, which connects the guests of all hosts."""
    port = f"guests-{place.number}"
    mac = f"52:54:00:77:00:{place.number:02x}"
    peer = ("type", "veth", "peer", UPLINK, "netns", place.name)
    ip("-netns", switch, "link", "add", port, *peer)
    ip("-netns", switch, "link", "set", port, "master", switch_bridge, "up")
    ip("-netns", place.name, "link", "set", UPLINK, "master", BRIDGE, "up")
    ip("-netns", place.name, "link", "set", BRIDGE, "address", mac)
    subprocess.run(
        ["/sbin/ip", "netns", "exec", place.name, NFT, "--file", "-"],
        input=_metadata_rules(mac),
        text=True,
        check=True,
        timeout=COMMAND_SECONDS,
    )


def _metadata_rules(mac: str) -> str:
    # A guest that has moved still sends to the bridge of the host it came from, as long as it
    # remembers that address. So each host takes what its guests send to the metadata service, and
    # does not answer the guests of others.
    return f"""
table bridge metadata {{
  chain prerouting {{
    type filter hook prerouting priority dstnat;
    iifname "{UPLINK}" arp daddr ip {METADATA} drop
    iifname != "{UPLINK}" ip daddr {METADATA} ether daddr set {mac} meta pkttype set host
  }}
}}
"""


def kill_all(namespace: str) -> None:
    """Kill every process of a network namespace, guests too, which are nobody's children."""
    for pid in _pids(namespace):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not _pids(namespace), f"{namespace} still has processes", STOP_SECONDS)


def _pids(namespace: str) -> list[int]:
    command = ["/sbin/ip", "netns", "pids", namespace]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [int(pid) for pid in done.stdout.split()]


def _furnish(folder: Path, cache: Path, hosts: Mapping[str, str]) -> None:
    for name in ("run", "lib", "log", "etc"):
        (folder / name).mkdir(parents=True)
    (folder / "cache").symlink_to(cache)
    for name, line in USERS.items():
        known = Path("/etc", name).read_text(encoding="utf-8")
        added = "" if "libvirt-qemu:" in known else line
        (folder / name).write_text(known + added, encoding="utf-8")
    lines = (f"{address} {name}\n" for name, address in {"localhost": "127.0.0.1", **hosts}.items())
    (folder / "hosts").write_text("".join(lines), encoding="ascii")
    (folder / "etc" / "qemu.conf").write_text(QEMU_CONF, encoding="ascii")
    conf = LIBVIRTD_CONF.format(host_uuid=uuid.uuid4(), folder=folder)
    (folder / "libvirtd.conf").write_text(conf, encoding="ascii")
