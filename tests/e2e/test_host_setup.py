"""`forewarn host setup`: guests reach 169.254.169.254 as themselves, and nobody else does."""

import json
import socket
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT, Block, change
from tests.e2e.guest_networks import (
    HOST,
    ORDER,
    SILENCE_SECONDS,
    STRANGER,
    UPLINK,
    GuestNetwork,
    address_of,
    answering,
    arp_frame,
    ask,
    binding_of,
    build_network,
    listening,
    mac_of,
    send_frames,
    syn_frame,
)
from tests.e2e.relays import METADATA, NFT
from tests.e2e.test_replica_cut_off import ip

UNITS = ROOT / "contrib/systemd"
PACKED = bytes((169, 254, 169, 254))
VLAN_0 = bytes.fromhex("81000000")
STACKED_0 = VLAN_0 * 2
PROVIDER_0 = bytes.fromhex("88a80000")


@pytest.fixture
def network(tmp_path: Path, environment: Mapping[str, str]) -> Generator[GuestNetwork]:
    with build_network(tmp_path, environment) as built, answering(built.host):
        yield built


def test_guests_are_answered_as_themselves_and_nobody_else_is(network: GuestNetwork) -> None:
    network.set_up(*ORDER, "--apply")

    assert network.whoami(1) == address_of(1)
    assert network.whoami(2) == address_of(2)
    assert network.whoami(STRANGER) is None
    assert network.whoami(UPLINK) is None


def test_whoever_knows_the_mac_of_the_bridge_is_not_answered_either(network: GuestNetwork) -> None:
    network.set_up(*ORDER, "--apply")

    for number in (STRANGER, UPLINK):
        network.know_the_host(number)

    assert network.whoami(STRANGER) is None
    assert network.whoami(UPLINK) is None


def test_without_rules_a_guest_passes_for_its_neighbour(network: GuestNetwork) -> None:
    """What the other tests find prevented does work."""
    ip("-netns", network.host.name, "address", "add", f"{METADATA}/32", "dev", "br0")
    network.configure(1, "address", "add", f"{address_of(2)}/32", "dev", "eth0")

    assert network.whoami(1, address_of(2)) == address_of(2)


def test_guest_with_the_address_of_its_neighbour_gets_nothing(network: GuestNetwork) -> None:
    network.set_up(*ORDER, "--apply")
    network.configure(1, "address", "add", f"{address_of(2)}/32", "dev", "eth0")

    assert network.whoami(1, address_of(2)) is None
    assert network.whoami(1) == address_of(1)
    assert network.whoami(2) == address_of(2)


def test_guest_may_use_an_address_that_nobody_has_for_anything_else(network: GuestNetwork) -> None:
    """Such as one that moves from guest to guest."""
    network.set_up(*ORDER, "--apply")
    network.configure(1, "address", "add", "10.77.0.100/32", "dev", "eth0")

    assert network.machines[1].run(lambda: ask("10.77.0.100", HOST)) == "10.77.0.100"
    assert network.whoami(1, "10.77.0.100") is None


def test_guest_cannot_pass_for_its_neighbour_elsewhere_either(network: GuestNetwork) -> None:
    network.set_up(*ORDER, "--apply")
    network.configure(1, "address", "add", f"{address_of(2)}/32", "dev", "eth0")

    assert network.machines[1].run(lambda: ask(address_of(2), HOST)) is None


@pytest.mark.parametrize("number", [1, STRANGER, UPLINK], ids=["bound", "unbound", "uplink"])
def test_machine_with_the_address_and_mac_of_a_guest_gets_nothing(
    network: GuestNetwork, number: int
) -> None:
    network.set_up(*ORDER, "--apply")
    network.pretend(number, address=address_of(2), mac=mac_of(2))

    assert network.whoami(number) is None
    network.configure(number, "link", "set", "eth0", "down")
    network.configure(2, "neighbour", "flush", "all")
    assert network.whoami(2) == address_of(2)


def test_new_guest_behind_a_reused_port_does_not_pass_for_the_old_one(
    network: GuestNetwork,
) -> None:
    """Whatever MAC and IP address it takes: only a new setup says who is behind the port."""
    # Or else the bridge takes another MAC address when a port goes.
    ip("-netns", network.host.name, "link", "set", "br0", "address", network.bridge_mac)
    network.set_up(*ORDER, "--apply")
    assert network.whoami(1) == address_of(1)

    ip("-netns", network.host.name, "link", "delete", "v1")
    network.plug_in(1)

    assert network.whoami(1) is None
    network.know_the_host(1)
    assert network.whoami(1) is None
    assert network.whoami(2) == address_of(2)
    assert "Load nftables rules for 2 ports." in network.set_up(*ORDER, "--apply")
    assert network.whoami(1) == address_of(1)


def test_guest_with_a_forged_mac_gets_nothing(network: GuestNetwork) -> None:
    network.set_up(*ORDER, "--apply")
    network.pretend(1, address=address_of(1), mac="52:54:00:99:99:99")

    assert network.whoami(1) is None


TAGS = (b"", VLAN_0, STACKED_0, PROVIDER_0)
"""The kernel takes tags of VLAN 0 off, after the rules of a bridge did not see below them."""


def seen_after(network: GuestNetwork, number: int, *frames: bytes) -> list[bytes]:
    """Return what guest 2 gets to see of the service when another machine sends *frames*."""
    with listening(network.machines[2]) as received:
        network.machines[number].run(lambda: send_frames(*frames))
        return [frame for frame in received() if PACKED in frame]


def test_without_rules_a_forged_packet_is_answered(network: GuestNetwork) -> None:
    ip("-netns", network.host.name, "address", "add", f"{METADATA}/32", "dev", "br0")

    for tags in TAGS:
        to = network.bridge_mac
        forged = syn_frame(to=to, mac=mac_of(1), source=address_of(2), tags=tags)
        assert seen_after(network, 1, forged), "the answer goes to the neighbour"


def test_forged_packet_is_not_answered(network: GuestNetwork) -> None:
    network.set_up(*ORDER, "--apply")
    assert network.whoami(2) == address_of(2)

    forged = [
        syn_frame(to=network.bridge_mac, mac=mac_of(own), source=address_of(2), tags=tags)
        for own in (1, 2)
        for tags in TAGS
    ]

    for number in (1, STRANGER, UPLINK):
        assert not seen_after(network, number, *forged)


def test_source_route_leads_nobody_to_the_service(network: GuestNetwork) -> None:
    accept = (
        "for each in all br0; do echo 1 > /proc/sys/net/ipv4/conf/$each/accept_source_route; done"
    )
    network.host_shell(accept)
    forged = [
        syn_frame(to=network.bridge_mac, mac=mac_of(number), source=address_of(2), first=HOST)
        for number in (STRANGER, UPLINK)
    ]
    ip("-netns", network.host.name, "address", "add", f"{METADATA}/32", "dev", "br0")
    assert seen_after(network, STRANGER, forged[0]), "without rules it does"

    network.set_up(*ORDER, "--apply")

    assert not seen_after(network, STRANGER, forged[0])
    assert not seen_after(network, UPLINK, forged[1])
    assert network.whoami(2) == address_of(2)


@pytest.mark.parametrize("number", [1, STRANGER, UPLINK], ids=["bound", "unbound", "uplink"])
def test_forged_arp_keeps_no_guest_from_its_answers(network: GuestNetwork, number: int) -> None:
    network.set_up(*ORDER, "--apply")
    assert network.whoami(2) == address_of(2)

    own, victim = mac_of(number), address_of(2)
    claims = [arp_frame(2, mac=own, sender=victim, target="10.77.0.1", tags=tags) for tags in TAGS]
    network.machines[number].run(lambda: send_frames(*claims))

    known = network.show("neighbour", "show", address_of(2), "dev", "br0")
    assert f"lladdr {mac_of(2)}" in known
    assert network.whoami(2) == address_of(2)


def test_nothing_about_the_address_is_seen_on_the_uplink(network: GuestNetwork) -> None:
    network.set_up(*ORDER, "--apply")
    asking = arp_frame(1, mac=mac_of(1), sender=address_of(1), target=METADATA)
    plain = arp_frame(1, mac=mac_of(1), sender=address_of(1), target=address_of(UPLINK))

    with listening(network.machines[UPLINK]) as frames:
        ip("-netns", network.host.name, "neighbour", "flush", "all")
        network.machines[1].run(lambda: send_frames(asking, plain))
        assert network.whoami(1) == address_of(1)
        assert network.whoami(2) == address_of(2)
        seen = frames()

    assert any(frame == plain for frame in seen), "what is no business of ours passes"
    assert not [frame.hex() for frame in seen if PACKED in frame]


def test_nobody_else_can_claim_the_address(network: GuestNetwork) -> None:
    network.set_up(*ORDER, "--apply")

    for number in (STRANGER, UPLINK):
        claim = arp_frame(2, mac=mac_of(number), sender=METADATA, target=address_of(1))
        with listening(network.machines[1]) as frames:
            network.machines[number].run(lambda sent=claim: send_frames(sent))  # type: ignore[misc]
            seen = frames()
        assert not [frame.hex() for frame in seen if PACKED in frame]

    assert network.whoami(1) == address_of(1)


def test_guest_that_was_migrated_here_is_answered_in_spite_of_its_arp_cache(
    network: GuestNetwork,
) -> None:
    network.set_up(*ORDER, "--apply")
    network.know_the_host(1, "02:de:ad:be:ef:01")

    assert network.whoami(1) == address_of(1)


def test_guest_reaches_nothing_else_of_the_host_there(network: GuestNetwork) -> None:
    network.set_up(*ORDER, "--apply")

    def connect() -> None:
        with socket.create_connection((METADATA, 81), SILENCE_SECONDS):
            pass

    with pytest.raises(TimeoutError):
        network.machines[1].run(connect)


def test_guest_needs_no_more_than_a_default_route(network: GuestNetwork) -> None:
    """Packets to its gateway, which is behind the uplink, are delivered on the way."""
    network.set_up(*ORDER, "--apply")
    network.configure(1, "route", "delete", f"{METADATA}/32")
    network.configure(1, "route", "add", "default", "via", address_of(UPLINK))

    assert network.whoami(1) == address_of(1)


def test_second_bridge_is_left_alone(network: GuestNetwork) -> None:
    """A guest on it that has its own service at the address goes on to reach that."""
    host = network.host.name
    ip("-netns", host, "link", "add", "br1", "type", "bridge")
    ip("-netns", host, "link", "set", "br1", "up")
    for port in ("v3", "uplink"):
        ip("-netns", host, "link", "set", port, "master", "br1")
    network.configure(UPLINK, "address", "add", f"{METADATA}/32", "dev", "eth0")
    network.set_up(*ORDER, "--apply")

    with answering(network.machines[UPLINK]):
        assert network.whoami(STRANGER) == address_of(STRANGER)
    assert network.whoami(1) == address_of(1)


def test_guests_are_answered_where_bridged_packets_go_through_iptables(
    network: GuestNetwork,
) -> None:
    setting = "/proc/sys/net/bridge/bridge-nf-call-iptables"
    network.host_shell(f"test ! -e {setting} || echo 1 > {setting}")
    network.set_up(*ORDER, "--apply")

    assert network.whoami(1) == address_of(1)
    assert network.whoami(STRANGER) is None


def test_second_apply_changes_nothing(network: GuestNetwork) -> None:
    first = network.set_up(*ORDER, "--apply")
    applied = network.snapshot()

    second = network.set_up(*ORDER, "--apply")

    assert "Add 169.254.169.254 to br0." in first
    assert second.startswith("There is nothing to do.\n")
    assert network.snapshot() == applied


def test_way_through_the_page_works_and_leaves_no_trace(
    network: GuestNetwork, blocks: list[Block]
) -> None:
    file, directory = network.folder / "host.toml", network.folder / "dnsmasq.d"
    here = {
        "/etc/forewarn/host.toml": str(file),
        "/etc/dnsmasq.d": str(directory),
        "vnet0": "v1",
        "10.0.0.11": address_of(1),
    }
    description, dry_run, apply, unit, dnsmasq, of_libvirt, undo = blocks
    directory.mkdir()
    file.write_text(change(description.text, here), encoding="utf-8")
    network.nft("add", "table", "inet", "of_an_operator")
    before = network.snapshot()

    printed = follow(network, dry_run, here)
    assert printed.startswith("# Nothing was changed. These commands would run:\nnft -f - <<'END'")
    assert network.snapshot() == before
    follow(network, apply, here)
    assert network.whoami(1) == address_of(1)
    assert network.whoami(2) is None
    assert follow(network, unit, here) == ""
    follow(network, dnsmasq, here)
    assert [*directory.iterdir()]
    assert "<dnsmasq:option value='dhcp-option=121," in follow(network, of_libvirt, here)
    follow(network, undo, here)

    assert network.snapshot() == before
    assert network.set_up("--undo") == "There is nothing to do.\n"


def follow(network: GuestNetwork, block: Block, here: Mapping[str, str]) -> str:
    """Do what a reader does with *block*, and return what `host setup` prints."""
    printed = ""
    for words in block.commands:
        if words[0] == "systemctl":
            assert (UNITS / f"{words[-1]}.service").is_file()
        else:
            assert words[:3] == ["forewarn", "host", "setup"]
            printed += network.set_up(*(change(word, here) for word in words[3:]))
    return printed


def test_dry_run_wins_over_apply(network: GuestNetwork) -> None:
    before = network.snapshot()

    assert network.set_up(*ORDER, "--apply", "--dry-run") == network.set_up(*ORDER)

    assert network.snapshot() == before


def test_commands_of_the_dry_run_do_what_apply_does(network: GuestNetwork) -> None:
    printed = network.set_up(*ORDER)
    command = ("/sbin/ip", "netns", "exec", network.host.name, "sh", "-eu")

    subprocess.run(command, input=printed, text=True, check=True, timeout=30)
    typed = network.snapshot()
    network.nft("flush", "ruleset")
    ip("-netns", network.host.name, "address", "delete", f"{METADATA}/32", "dev", "br0")
    network.set_up(*ORDER, "--apply")

    ours = "\n".join(line for line in network.snapshot().splitlines() if "/state" not in line)
    assert ours == typed
    assert network.whoami(1) == address_of(1)


CRASHES = {
    "nft -f -": 'case "$*" in "-f -") kill -9 $PPID; sleep 5;; esac',
    "ip address add": 'case "$*" in *"address add"*) kill -9 $PPID; sleep 5;; esac',
    "ip rule add": 'case "$*" in *"rule add"*) kill -9 $PPID; sleep 5;; esac',
}
APPLY = """
import sys
from pathlib import Path
from forewarn.host_setup.bindings import parse_binding
from forewarn.host_setup.planning import HostSetup
from forewarn.host_setup.programs import SEARCH_PATH, Programs
from forewarn.host_setup.this_host import ThisHost
programs = Programs(search_path=f"{sys.argv[1]}:{SEARCH_PATH}")
setup = HostSetup(bridges=("br0",), bindings=(parse_binding(sys.argv[3]),))
ThisHost(directory=Path(sys.argv[2]), programs=programs).apply(setup)
"""


@pytest.mark.parametrize("crash", CRASHES)
def test_undo_leaves_no_trace_of_an_apply_that_was_killed(
    network: GuestNetwork, tmp_path_factory: pytest.TempPathFactory, crash: str
) -> None:
    ip("-netns", network.host.name, "address", "flush", "dev", "br0")
    before = network.snapshot()
    programs = tmp_path_factory.mktemp("programs")
    name = crash.split(maxsplit=1)[0]
    (programs / name).write_text(f'#!/bin/sh\n{CRASHES[crash]}\nexec /usr/sbin/{name} "$@"\n')
    (programs / name).chmod(0o755)
    words = (sys.executable, "-c", APPLY, str(programs), str(network.state), binding_of(1)[1])
    command = ("/sbin/ip", "netns", "exec", network.host.name, *words)

    killed = subprocess.run(command, capture_output=True, timeout=60, check=False)

    assert killed.returncode == -9, killed.stderr
    assert network.snapshot() != before
    network.set_up("--undo")
    assert network.snapshot() == before


def test_apply_after_a_crash_completes_it(network: GuestNetwork) -> None:
    network.set_up(*ORDER, "--apply")
    ip("-netns", network.host.name, "address", "delete", f"{METADATA}/32", "dev", "br0")
    network.nft("delete", "table", "bridge", "forewarn")

    network.set_up(*ORDER, "--apply")

    assert network.whoami(1) == address_of(1)


def test_undo_does_without_the_bridge(network: GuestNetwork) -> None:
    network.set_up(*ORDER, "--apply")
    ip("-netns", network.host.name, "link", "delete", "br0")

    network.set_up("--undo")

    assert network.nft("list", "ruleset") == ""
    assert not network.state.exists()


def test_rule_that_somebody_has_removed_is_put_back(network: GuestNetwork) -> None:
    network.set_up(*ORDER, "--apply")
    applied = network.nft("list", "ruleset")
    network.nft("flush", "chain", "bridge", "forewarn", "guest")

    printed = network.set_up(*ORDER, "--apply")

    assert "Load nftables rules for 2 ports." in printed
    assert network.nft("list", "ruleset") == applied


def test_address_of_an_operator_survives(network: GuestNetwork) -> None:
    ip("-netns", network.host.name, "address", "add", f"{METADATA}/32", "dev", "br0")
    before = network.snapshot()

    network.set_up(*ORDER, "--apply")
    assert network.whoami(1) == address_of(1)
    network.set_up("--undo")

    assert network.snapshot() == before


def test_guests_are_answered_over_a_bridge_without_an_address(network: GuestNetwork) -> None:
    ip("-netns", network.host.name, "address", "flush", "dev", "br0")
    # With its last address an interface loses its routes; these are an operator's.
    ip("-netns", network.host.name, "route", "add", "10.99.0.0/24", "dev", "br0", "metric", "7")
    hops = [("nexthop", "via", f"10.99.0.{number}", "dev", "br0") for number in (1, 2)]
    ip("-netns", network.host.name, "route", "add", "10.5.0.0/16", *hops[0], *hops[1])
    before = network.snapshot()

    network.set_up(*ORDER, "--apply")

    assert network.whoami(1) == address_of(1)
    assert network.whoami(2) == address_of(2)
    assert network.set_up(*ORDER, "--apply").startswith("There is nothing to do.\n")
    network.set_up("--undo")
    assert network.snapshot() == before


def test_guests_without_a_bridge_are_kept_to_their_addresses(network: GuestNetwork) -> None:
    host = network.host.name
    for number in (1, 2, STRANGER):
        ip("-netns", host, "link", "set", f"v{number}", "nomaster")
        ip("-netns", host, "route", "add", f"{address_of(number)}/32", "dev", f"v{number}")
    before = network.snapshot()
    order = ("--interface", "lo", *binding_of(1), *binding_of(2))

    network.set_up(*order, "--apply")

    assert network.whoami(1) == address_of(1)
    assert network.whoami(STRANGER) is None
    network.configure(1, "address", "add", f"{address_of(2)}/32", "dev", "eth0")
    assert network.whoami(1, address_of(2)) is None
    assert network.set_up(*order, "--apply") == "There is nothing to do.\n"
    network.set_up("--undo")
    assert network.snapshot() == before


def test_impossible_setup_is_refused_and_changes_nothing(network: GuestNetwork) -> None:
    before = network.snapshot()

    for words, code, said in (
        (("--bridge", "br9"), 1, "There is no interface called 'br9'."),
        ((*ORDER, "--binding", f"v3={mac_of(3)},{address_of(1)}"), 2, "is bound to v1 and to v3."),
        ((*ORDER, "--dnsmasq", "/nonexistent", "--router", "none"), 1, "There is no directory"),
    ):
        done = network.try_set_up(*words, "--apply")
        assert said in done.stderr
        assert done.exit_code == code

    assert network.snapshot() == before


def test_rules_that_the_kernel_refuses_change_nothing(network: GuestNetwork) -> None:
    """Such as where a family of nftables is missing: nft is asked before anything is changed."""
    before = network.snapshot()
    programs = network.folder / "programs"
    programs.mkdir()
    refusing = (
        '#!/bin/sh\ncase "$*" in *--check*) echo "Operation not supported" >&2; exit 1;; esac\n'
    )
    (programs / "nft").write_text(f'{refusing}exec {NFT} "$@"\n')
    (programs / "nft").chmod(0o755)
    words = (sys.executable, "-c", APPLY, str(programs), str(network.state), binding_of(1)[1])
    command = ("/sbin/ip", "netns", "exec", network.host.name, *words)

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert "Operation not supported" in done.stderr
    (programs / "nft").unlink()
    programs.rmdir()
    assert network.snapshot() == before


def test_answer_for_programs_names_each_command(network: GuestNetwork) -> None:
    words = ("--state-dir", str(network.state), *ORDER, "--apply", "--output", "json")

    printed = json.loads(network.forewarn("host", "setup", *words).stdout)

    assert printed["is_applied"] is True
    assert [step["sentence"] for step in printed["steps"]] == [
        "Load nftables rules for 2 ports.",
        "Add 169.254.169.254 to br0.",
    ]
    assert printed["notes"] == [
        "Ports without a binding, which cannot reach 169.254.169.254: uplink, v3."
    ]
