"""A host that is set up, with what runs there: the server, dnsmasq, libvirt's client and doctor."""

import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from tests.docs.blocks import Block
from tests.e2e.conftest import ANSWER_SECONDS, START_SECONDS, STOP_SECONDS, wait_until
from tests.e2e.guest_networks import (
    ORDER,
    STRANGER,
    UPLINK,
    GuestNetwork,
    address_of,
    answering,
    build_network,
    mac_of,
    packed_mac,
)
from tests.e2e.relays import METADATA, Guest, Place, is_served
from tests.e2e.test_replica_cut_off import ip
from tests.needs import PATH, find_program, need

from forewarn.cli.examination.host import examine_host
from forewarn.client._dhcp import Interface, ask_for_address
from forewarn.client._messages import Pause
from forewarn.domain.finding import Finding, FindingVerdict
from forewarn.host_setup.bindings import HostSetupError
from forewarn.host_setup.planning import SetupRecord
from forewarn.host_setup.programs import Programs
from forewarn.host_setup.this_host import ThisHost, encode_record

ROUTER = IPv4Address("10.77.0.1")
LEASED = "10.77.0.51"
FLEET = "".join(
    f'[[virtual_machine]]\nname = "web-{number}"\naddresses = ["{address_of(number)}"]\n'
    for number in (1, 2, STRANGER)
)


@pytest.fixture
def quiet(tmp_path: Path, environment: Mapping[str, str]) -> Generator[GuestNetwork]:
    """A network in which nothing listens yet."""
    with build_network(tmp_path, environment) as built:
        yield built


@pytest.fixture
def network(quiet: GuestNetwork) -> Generator[GuestNetwork]:
    with answering(quiet.host):
        yield quiet


def as_guest(place: Place) -> Guest:
    return Guest(name=place.name, folder=place.folder, environment=place.environment, vm="")


def test_guest_reads_its_own_events_and_nobody_elses(quiet: GuestNetwork) -> None:
    quiet.set_up(*ORDER, "--apply")
    (quiet.folder / "fleet.toml").write_text(FLEET, encoding="utf-8")
    state = ("--state-dir", str(quiet.folder), "--database", f"sqlite:///{quiet.folder}/a.db")
    fleet = ("--fleet", str(quiet.folder / "fleet.toml"))
    quiet.host.start("serve", "--metadata", f"{METADATA}:80", *state, *fleet)
    try:
        one, two = (as_guest(quiet.machines[number]) for number in (1, 2))
        wait_until(lambda: is_served(one), f"not served: {quiet.host.said()}", START_SECONDS)
        token = (quiet.folder / "admin.token").read_text(encoding="ascii").strip()
        order = ("--type", "Reboot", "--resource", "web-1", "-o", "json")
        created = quiet.forewarn("event", "create", *order, FOREWARN_TOKEN=token)
        assert created.returncode == 0, created.stderr

        (event,) = one.document()["Events"]

        assert event["Resources"] == ["web-1"]
        assert two.document()["Events"] == []
        assert one.approve(event["EventId"])[0] == 200
        assert two.approve(event["EventId"])[0] == 400
        assert not is_served(as_guest(quiet.machines[STRANGER]))
        assert not is_served(as_guest(quiet.machines[UPLINK]))
    finally:
        quiet.host.stop()


@contextmanager
def serving_dhcp(network: GuestNetwork, directory: Path) -> Iterator[None]:
    """Run dnsmasq on the host, with the files of *directory*."""
    need("dnsmasq", path=PATH)
    log = network.folder / "dnsmasq.log"
    words = (
        *("dnsmasq", "--no-daemon", "--conf-file=/dev/null", f"--conf-dir={directory}"),
        *("--user=root", "--pid-file=", "--port=0", "--interface=br0", "--bind-interfaces"),
        *("--no-ping", f"--dhcp-leasefile={network.folder / 'leases'}"),
        *("--dhcp-range=10.77.0.50,10.77.0.60,1h", f"--dhcp-host={mac_of(1)},{LEASED}"),
    )
    with log.open("w", encoding="utf-8") as output:
        command = ("/sbin/ip", "netns", "exec", network.host.name, *words)
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        wait_until(
            lambda: "sockets bound" in log.read_text(encoding="utf-8"),
            f"dnsmasq does not start: {log}",
            START_SECONDS,
        )
        yield
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


LEASE = """#!/bin/sh
test "$1" = bound || exit 0
ip address add "$ip/24" dev eth0
echo "$staticroutes" > "$RESULT"
echo "$opt245" >> "$RESULT"
echo "$msstaticroutes" >> "$RESULT"
set -- $staticroutes
while [ $# -ge 2 ]; do
  case $2 in 0.0.0.0) ip route add "$1" dev eth0;; *) ip route add "$1" via "$2";; esac
  shift 2
done
"""


def test_dhcp_leads_a_guest_to_the_service(network: GuestNetwork) -> None:
    need("busybox")
    directory = network.folder / "dnsmasq.d"
    directory.mkdir()
    binding = ("--binding", f"v1={mac_of(1)},{LEASED}")
    dhcp = ("--dnsmasq", str(directory), "--router", str(ROUTER))
    network.set_up("--bridge", "br0", *binding, *dhcp, "--apply")
    network.configure(1, "address", "flush", "dev", "eth0")
    script, result = network.folder / "lease", network.folder / "result"
    script.write_text(LEASE, encoding="ascii")
    script.chmod(0o755)
    client = ("busybox", "udhcpc", "-f", "-n", "-q", "-i", "eth0", "-s", str(script))
    options = ("-O", "staticroutes", "-O", "msstaticroutes", "-O", "245")

    with serving_dhcp(network, directory):
        command = ("/sbin/ip", "netns", "exec", network.machines[1].name, *client, *options)
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "RESULT": str(result)}
        subprocess.run(
            command, env=environment, check=True, capture_output=True, timeout=START_SECONDS
        )

    routes, server, of_windows = result.read_text(encoding="ascii").splitlines()
    assert routes == f"0.0.0.0/0 {ROUTER} {METADATA}/32 0.0.0.0"
    assert of_windows == routes
    assert bytes.fromhex(server) == IPv4Address(METADATA).packed
    assert network.whoami(1) == LEASED


def test_sdk_finds_the_service_in_an_offer(network: GuestNetwork) -> None:
    directory = network.folder / "dnsmasq.d"
    directory.mkdir()
    dhcp = ("--dnsmasq", str(directory), "--router", "none")
    network.set_up(*ORDER, *dhcp, "--apply")

    def find() -> IPv4Address | None:
        interface = Interface(name="eth0", mac=packed_mac(mac_of(1)))
        asking = ask_for_address((interface,), ANSWER_SECONDS)
        try:
            step = next(asking)
            while True:
                assert isinstance(step, Pause)
                time.sleep(step.seconds)
                step = asking.send(None)
        except StopIteration as end:
            found: IPv4Address | None = end.value
            return found

    with serving_dhcp(network, directory):
        found = network.machines[1].run(find)

    assert found == IPv4Address(METADATA)


NODE = """
<node>
  <domain type='test'>
    <name>web-1</name><uuid>0f6a1f5e-0000-4000-8000-000000000001</uuid>
    <memory>1024</memory><os><type>hvm</type></os>
    <devices><interface type='bridge'><mac address='{mac}'/>
      <source bridge='br0'/><target dev='v1'/></interface></devices>
  </domain>
  <domain type='test'>
    <name>unknown</name><uuid>0f6a1f5e-0000-4000-8000-000000000002</uuid>
    <memory>1024</memory><os><type>hvm</type></os>
    <devices><interface type='bridge'><mac address='52:54:00:00:00:13'/>
      <source bridge='br0'/><target dev='v3'/></interface></devices>
  </domain>
</node>
"""


def test_ports_come_from_libvirt_and_addresses_from_the_fleet(
    network: GuestNetwork, blocks: list[Block]
) -> None:
    need("virsh")
    node, fleet = network.folder / "node.xml", network.folder / "fleet.toml"
    node.write_text(NODE.format(mac=mac_of(1)), encoding="utf-8")
    fleet.write_text(FLEET, encoding="utf-8")
    config = network.folder / "host.toml"
    (block,) = blocks
    text = block.text.replace("qemu:///system", f"test://{node}")
    config.write_text(text.replace("/etc/forewarn/fleet.toml", str(fleet)), encoding="utf-8")

    printed = network.set_up("--config", str(config), "--apply")

    assert "# unknown (v3) is not in the fleet.\n" in printed
    assert network.whoami(1) == address_of(1)
    assert network.whoami(2) is None
    assert network.whoami(STRANGER) is None
    assert findings(network)["guests"] == ("warn", "unknown (v3) is not in the fleet.")
    fleet.write_text(FLEET.replace(address_of(1), "10.77.0.77"), encoding="utf-8")
    sentence = "web-1 is not bound to v1 with the addresses of the fleet."
    assert sentence in [each.sentence for each in examine(network)]


def examine(network: GuestNetwork) -> list[Finding]:
    host = ThisHost(directory=network.state)
    return network.host.run(lambda: list(examine_host(host)))


def findings(network: GuestNetwork) -> dict[str, tuple[str, str]]:
    return {each.check: (str(each.verdict), each.sentence) for each in examine(network)}


def test_doctor_is_silent_about_a_host_that_was_never_set_up(network: GuestNetwork) -> None:
    assert findings(network) == {}


def test_doctor_finds_a_host_that_is_set_up_well(network: GuestNetwork) -> None:
    network.set_up(*ORDER, "--apply")

    assert findings(network) == {
        "host setup": ("ok", "169.254.169.254 is on br0; bound ports: 2."),
        "guest ports": ("ok", "Every port of a guest has a binding. Other ports: uplink, v3."),
        "guest listener": ("ok", "A program listens at 169.254.169.254:80."),
    }


def test_doctor_finds_what_is_missing(quiet: GuestNetwork) -> None:
    quiet.set_up(*ORDER, "--apply")
    host = quiet.host.name
    ip("-netns", host, "address", "delete", f"{METADATA}/32", "dev", "br0")
    quiet.nft("flush", "chain", "bridge", "forewarn", "guest")
    ip("-netns", host, "tuntap", "add", "vnet7", "mode", "tap")
    ip("-netns", host, "link", "set", "vnet7", "master", "br0")

    found = examine(quiet)

    assert [(each.verdict, each.sentence) for each in found] == [
        (FindingVerdict.FAIL, "A step needs to be repeated: Load nftables rules for 2 ports."),
        (FindingVerdict.FAIL, "A step needs to be repeated: Add 169.254.169.254 to br0."),
        (FindingVerdict.WARN, "Guests without a binding, which are not served: vnet7."),
        (FindingVerdict.FAIL, "Nothing listens at 169.254.169.254:80."),
    ]
    assert all(each.hint for each in found)


def test_doctor_says_that_the_bridge_is_gone(network: GuestNetwork) -> None:
    network.set_up(*ORDER, "--apply")
    ip("-netns", network.host.name, "link", "delete", "br0")

    assert findings(network)["host setup"] == ("fail", "There is no interface called 'br0'.")


def test_doctor_says_that_a_setup_was_interrupted(network: GuestNetwork) -> None:
    network.state.mkdir()
    record = SetupRecord(places=("br0",))
    (network.state / "host-setup.json").write_text(encode_record(record), encoding="utf-8")

    assert findings(network)["host setup"] == ("fail", "The last host setup was interrupted.")


def test_record_that_others_can_write_is_not_followed(tmp_path: Path) -> None:
    """It names files that root removes."""
    record = tmp_path / "host-setup.json"
    record.write_text(encode_record(SetupRecord(places=("br0",))), encoding="utf-8")
    record.chmod(0o666)

    with pytest.raises(HostSetupError, match="Other users can write"):
        ThisHost(directory=tmp_path).foresee_undo()


def test_missing_program_is_named_with_its_package() -> None:
    with pytest.raises(HostSetupError, match="The program nft is not installed") as refused:
        Programs(search_path="/nonexistent").run("nft", "list", "tables")

    assert refused.value.hint == "try: apt-get install nftables"


def test_only_root_changes_the_host() -> None:
    program = "from forewarn.host_setup.this_host import ThisHost; ThisHost().undo()"
    # There it is nobody, who can still read an interpreter that is root's.
    as_nobody = (find_program("unshare"), "--user") if os.geteuid() == 0 else ()
    command = (*as_nobody, sys.executable, "-c", program)

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert "Only root can change the network of this host." in done.stderr
