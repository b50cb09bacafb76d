"""What has to be done on a host, from what is wanted, there and ours."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path

import pytest

from forewarn.host_setup.bindings import HostSetupError, parse_binding
from forewarn.host_setup.dhcp_options import dnsmasq_file
from forewarn.host_setup.planning import (
    DNSMASQ_FILE,
    HostSetup,
    HostState,
    Link,
    SetupRecord,
    find_unbound,
    plan_apply,
    plan_undo,
    protect,
    settle,
)
from forewarn.host_setup.steps import RemoveStep, RunStep, SetupStep, WriteStep, as_command

GUEST = parse_binding("vnet0=52:54:00:00:00:11,10.0.0.11")
OTHER = parse_binding("vnet1=52:54:00:00:00:12,10.0.0.12")
SETUP = HostSetup(bridges=("br0",), bindings=(GUEST, OTHER))
BRIDGE = Link(kind="bridge", mac="02:00:00:00:00:01", addresses=(IPv4Interface("10.0.0.1/24"),))
METADATA = IPv4Interface("169.254.169.254/32")
FRESH = HostState(links={"br0": BRIDGE, "vnet0": Link(bridge="br0"), "vnet1": Link(bridge="br0")})
NOTHING = SetupRecord()
FILE = Path("/etc/dnsmasq.d", DNSMASQ_FILE)


def with_address(state: HostState, *names: str) -> HostState:
    links = {
        name: replace(link, addresses=(*link.addresses, METADATA)) if name in names else link
        for name, link in state.links.items()
    }
    return replace(state, links=links)


def commands(steps: tuple[SetupStep, ...]) -> list[str]:
    """The first line of each, without what nft is given."""
    return [as_command(step).splitlines()[0].removesuffix(" <<'END'") for step in steps]


def applied(setup: HostSetup = SETUP) -> tuple[HostState, SetupRecord]:
    """What is there and ours once *setup* was applied to a fresh host."""
    loaded = replace(FRESH, families=frozenset({"arp", "bridge", "ip"}), rules="as loaded")
    state = with_address(loaded, *setup.places)
    return state, settle(setup, plan_apply(setup, FRESH, NOTHING).record, state)


def test_rules_come_before_the_address() -> None:
    plan = plan_apply(SETUP, FRESH, NOTHING)

    assert commands(plan.steps) == [
        "nft -f -",
        "ip address add 169.254.169.254/32 dev br0 scope host",
    ]


def test_what_is_ours_is_in_the_record_before_it_is_made() -> None:
    plan = plan_apply(replace(SETUP, dnsmasq=FILE.parent), FRESH, NOTHING)

    assert (plan.record.places, plan.record.files) == (("br0",), (FILE,))
    assert plan.record.setup is None, "not everything is done yet"


def test_second_apply_does_nothing() -> None:
    state, record = applied()

    plan = plan_apply(SETUP, state, record)

    assert plan.steps == ()
    assert plan.record == record


def test_undo_is_everything_in_reverse() -> None:
    state, record = applied()

    plan = plan_undo(state, record)

    assert commands(plan.steps) == [
        "ip address delete 169.254.169.254/32 dev br0",
        "nft -f -",
    ]
    assert plan.steps[-1] == RunStep(
        sentence="Remove the nftables rules.",
        words=("nft", "-f", "-"),
        text="delete table arp forewarn\ndelete table bridge forewarn\ndelete table ip forewarn\n",
    )


def test_undo_on_a_fresh_host_does_nothing() -> None:
    assert plan_undo(FRESH, NOTHING).steps == ()


def test_address_of_an_operator_stays_an_operators() -> None:
    state = with_address(FRESH, "br0")

    plan = plan_apply(SETUP, state, NOTHING)

    assert commands(plan.steps) == ["nft -f -"]
    assert plan.record.places == ()
    assert plan_undo(state, plan.record).steps == ()


def test_address_that_an_operator_has_put_in_place_of_ours_stays() -> None:
    state, record = applied()
    edited = replace(BRIDGE, addresses=(*BRIDGE.addresses, IPv4Interface("169.254.169.254/16")))
    state = replace(state, links={**state.links, "br0": edited})

    assert commands(plan_apply(SETUP, state, record).steps) == []
    assert commands(plan_undo(state, record).steps) == ["nft -f -"]


def test_undo_removes_what_a_crash_left() -> None:
    """The record was written, the rules were loaded, and the address was not added any more."""
    record = plan_apply(SETUP, FRESH, NOTHING).record
    state = replace(FRESH, families=frozenset({"bridge"}), rules="half")

    assert commands(plan_undo(state, record).steps) == ["nft -f -"]


def test_undo_does_without_the_bridge() -> None:
    _, record = applied()

    assert plan_undo(HostState(), record).steps == ()


def test_rules_without_a_record_are_removed_by_the_name_of_their_table() -> None:
    state = replace(FRESH, families=frozenset({"ip"}))

    assert commands(plan_undo(state, NOTHING).steps) == ["nft -f -"]


@pytest.mark.parametrize(
    "change",
    [
        {"rules": "somebody has removed one"},
        {"links": {**FRESH.links, "br0": replace(BRIDGE, mac="02:00:00:00:00:02")}},
    ],
    ids=["rule is gone", "bridge has another MAC"],
)
def test_rules_are_replaced_when_they_are_not_what_they_should_be(
    change: dict[str, object],
) -> None:
    state, record = applied()
    changed = with_address(replace(state, **change), "br0")  # type: ignore[arg-type]

    plan = plan_apply(SETUP, changed, record)

    (step,) = plan.steps
    assert isinstance(step, RunStep)
    assert step.text.startswith("delete table arp forewarn\n"), "in the same transaction"


def test_another_guest_changes_only_the_rules() -> None:
    state, record = applied(replace(SETUP, bindings=(GUEST,)))

    assert commands(plan_apply(SETUP, state, record).steps) == ["nft -f -"]


def test_another_bridge_takes_over_the_address() -> None:
    state, record = applied()
    moved = replace(state, links={**state.links, "br1": BRIDGE})

    plan = plan_apply(replace(SETUP, bridges=("br1",)), moved, record)

    assert commands(plan.steps)[-2:] == [
        "ip address delete 169.254.169.254/32 dev br0",
        "ip address add 169.254.169.254/32 dev br1 scope host",
    ]
    assert plan.record.places == ("br0", "br1"), "until all of it is done"


def test_answers_are_routed_where_the_bridge_has_no_address() -> None:
    bare = replace(FRESH, links={**FRESH.links, "br0": replace(BRIDGE, addresses=())})

    plan = plan_apply(replace(SETUP, bindings=(GUEST,)), bare, NOTHING)

    assert commands(plan.steps) == [
        "nft -f -",
        "ip route add 10.0.0.11/32 dev br0 table 16925",
        "ip rule add from 169.254.169.254 lookup 16925 priority 16925",
        "ip address add 169.254.169.254/32 dev br0 scope host",
    ]


def test_routes_of_an_operator_survive_the_last_address() -> None:
    routes = ("default via 10.9.0.1 dev br0", "10.9.0.0/24 dev br0 scope link")
    link = replace(BRIDGE, addresses=(METADATA,), routes=routes)
    record = SetupRecord(places=("br0",))

    assert commands(plan_undo(HostState(links={"br0": link}), record).steps) == [
        "ip address delete 169.254.169.254/32 dev br0",
        "ip route replace 10.9.0.0/24 dev br0 scope link",
        "ip route replace default via 10.9.0.1 dev br0",
    ]


def test_routes_go_with_their_guests() -> None:
    routes = frozenset({(IPv4Address("10.9.0.11"), "br0")})
    state = replace(FRESH, has_routing_rule=True, routes=routes)

    assert commands(plan_undo(state, NOTHING).steps) == [
        "ip route delete 10.9.0.11/32 dev br0 table 16925",
        "ip rule delete from 169.254.169.254 lookup 16925 priority 16925",
    ]


def test_dhcp_options_are_a_file_of_their_own() -> None:
    router = IPv4Address("10.0.0.1")
    setup = replace(SETUP, dnsmasq=FILE.parent, router=router)

    plan = plan_apply(setup, FRESH, NOTHING)

    assert plan.steps[-1] == WriteStep(
        sentence=f"Write {FILE}.", path=FILE, text=dnsmasq_file(router)
    )


def test_file_of_somebody_else_is_not_touched() -> None:
    state = replace(FRESH, files={FILE: "dhcp-range=10.0.0.10,10.0.0.20\n"})

    with pytest.raises(HostSetupError, match="was not written by forewarn host setup"):
        plan_apply(replace(SETUP, dnsmasq=FILE.parent), state, NOTHING)


def test_file_of_ours_is_corrected_and_removed() -> None:
    record = SetupRecord(files=(FILE,))
    state = replace(FRESH, files={FILE: "old"})

    corrected = plan_apply(replace(SETUP, dnsmasq=FILE.parent), state, record).steps[-1]
    removed = plan_apply(SETUP, state, record).steps[0]

    assert isinstance(corrected, WriteStep)
    assert removed == RemoveStep(sentence=f"Remove {FILE}.", path=FILE)


@pytest.mark.parametrize(
    ("setup", "said"),
    [
        (
            replace(SETUP, bindings=(parse_binding("vnet0=52:54:00:00:00:11,10.0.0.1"),)),
            r"10.0.0.1 is bound to vnet0, but it is an address of this host \(br0\)",
        ),
        (HostSetup(bridges=("br9",)), "There is no interface called 'br9'."),
        (HostSetup(bridges=("vnet0",)), "'vnet0' is not a bridge."),
        (HostSetup(interface="down0"), "'down0' is down."),
        (HostSetup(bridges=("br0",), bindings=(GUEST, replace(GUEST, port="x"))), "is bound to"),
    ],
)
def test_impossible_setup_is_refused(setup: HostSetup, said: str) -> None:
    state = replace(FRESH, links={**FRESH.links, "down0": Link(is_up=False)})

    with pytest.raises(HostSetupError, match=said):
        plan_apply(setup, state, NOTHING)


def test_port_is_on_the_bridge_where_the_kernel_has_it() -> None:
    setup = HostSetup(bridges=("br0", "br1"), bindings=(replace(GUEST, bridge="br0"),))
    state = HostState(
        links={"br0": BRIDGE, "br1": BRIDGE, "vnet0": Link(bridge="br1")},
    )

    assert protect(setup, state).bindings == (replace(GUEST, bridge="br1"),)


def test_port_of_another_bridge_gets_no_rules() -> None:
    state = replace(FRESH, links={**FRESH.links, "vnet0": Link(bridge="virbr0")})

    assert [each.port for each in protect(SETUP, state).bindings] == ["vnet1"]


def test_port_that_is_not_there_gets_no_rules() -> None:
    """The name says nothing about the guest that will be behind it."""
    state = replace(FRESH, links={"br0": BRIDGE, "vnet1": Link(bridge="br0", index=7)})

    assert protect(SETUP, state).bindings == (replace(OTHER, bridge="br0", index=7),)


def test_port_that_was_made_after_libvirt_was_asked_gets_no_rules() -> None:
    state = replace(FRESH, links={**FRESH.links, "vnet0": Link(bridge="br0", index=7)})

    for index, bound in ((0, True), (7, True), (6, False)):
        setup = replace(SETUP, bindings=(replace(GUEST, index=index),))
        assert bool(protect(setup, state).bindings) == bound


def test_ports_without_a_binding_are_named() -> None:
    links = {**FRESH.links, "eth1": Link(bridge="br0"), "vnet7": Link(bridge="virbr0")}

    assert find_unbound(SETUP, replace(FRESH, links=links)) == ("eth1",)
    assert find_unbound(HostSetup(interface="lo"), FRESH) == ()


def test_interface_needs_no_routes() -> None:
    setup = HostSetup(interface="lo", bindings=(GUEST,))
    state = HostState(links={"lo": Link()})

    assert commands(plan_apply(setup, state, NOTHING).steps) == [
        "nft -f -",
        "ip address add 169.254.169.254/32 dev lo scope host",
    ]


def test_steps_are_commands_that_can_be_typed() -> None:
    write = WriteStep(sentence="", path=Path("/a b"), text="c\n")

    assert as_command(write) == "cat > '/a b' <<'END'\nc\nEND"
    assert as_command(RemoveStep(sentence="", path=Path("/a b"))) == "rm '/a b'"
    assert as_command(RunStep(sentence="", words=("nft", "-f", "-"), text="x\n")) == (
        "nft -f - <<'END'\nx\nEND"
    )
