"""Ports and MAC addresses from libvirt, addresses from the fleet."""

from dataclasses import replace
from pathlib import Path

import pytest

from forewarn.domain.names import VmName
from forewarn.domain.topology import VirtualMachine, standalone
from forewarn.host_setup.bindings import HostSetupError, make_binding
from forewarn.host_setup.libvirt_guests import (
    LibvirtPort,
    bind_ports,
    decode_domain,
    read_ports,
)
from forewarn.host_setup.programs import SEARCH_PATH, Programs

XML = """
<domain type='qemu' id='1'>
  <name>web-0</name>
  <uuid>0f6a1f5e-0000-4000-8000-000000000001</uuid>
  <devices>
    <interface type='bridge'>
      <mac address='52:54:00:00:00:11'/>
      <source bridge='br0'/>
      <target dev='vnet0'/>
    </interface>
    <interface type='network'>
      <mac address='52:54:00:00:00:21'/>
      <source network='default' bridge='virbr0'/>
      <target dev='vnet1'/>
    </interface>
    <interface type='user'><mac address='52:54:00:00:00:31'/></interface>
    <interface type='hostdev'/>
  </devices>
</domain>
"""
ID = "0f6a1f5e-0000-4000-8000-000000000001"
INDEXES = {"lo": 1, "vnet0": 5, "vnet1": 6}
PORT = LibvirtPort(
    vm="web-0", vm_id=ID, port="vnet0", index=5, mac="52:54:00:00:00:11", bridge="br0"
)
ELSEWHERE = LibvirtPort(
    vm="web-0", vm_id=ID, port="vnet1", index=6, mac="52:54:00:00:00:21", bridge="virbr0"
)
"""Of the same guest."""


def vm(name: str, *addresses: str, vm_id: str = "") -> VirtualMachine:
    scope = standalone(VmName(name))
    return VirtualMachine(
        name=VmName(name), scope_id=scope.scope_id, addresses=addresses, vm_id=vm_id
    )


def test_domain_names_the_ports_of_its_guest() -> None:
    assert tuple(decode_domain(XML, INDEXES)) == (PORT, ELSEWHERE)


def test_port_that_was_not_there_is_left_out() -> None:
    """Its name can belong to an interface that is made later."""
    assert tuple(decode_domain(XML, {"vnet1": 6})) == (ELSEWHERE,)


def test_what_is_no_xml_is_refused() -> None:
    with pytest.raises(HostSetupError, match="invalid XML"):
        tuple(decode_domain("error: no domain", INDEXES))


@pytest.mark.parametrize(
    "known",
    [vm("WEB-0", "10.0.0.11"), vm("shop", "10.0.0.11", vm_id=ID.upper())],
    ids=["by name", "by id"],
)
def test_guest_is_found_in_the_fleet(known: VirtualMachine) -> None:
    bindings, problems = bind_ports((PORT, ELSEWHERE), (vm("a", "10.0.0.9"), known), ("br0",))

    assert bindings == (
        make_binding("vnet0", "52:54:00:00:00:11", ("10.0.0.11",), index=5, vm=known.name),
    )
    assert problems == ()


@pytest.mark.parametrize(
    ("fleet", "bridges", "said"),
    [
        ((), ("br0",), "web-0 (vnet0) is not in the fleet."),
        ((vm("web-0"),), ("br0",), "web-0 (vnet0) has no addresses in the fleet."),
        ((vm("web-0", "10.0.0.11"),), ("br0", "virbr0"), "web-0 has several ports (vnet0, vnet1)"),
        (
            (vm("web-0", "127.0.0.1"),),
            ("br0",),
            "web-0 (vnet0) cannot be bound. '127.0.0.1' cannot",
        ),
    ],
)
def test_guest_that_cannot_be_bound_is_named(
    fleet: tuple[VirtualMachine, ...], bridges: tuple[str, ...], said: str
) -> None:
    bindings, (problem,) = bind_ports((PORT, ELSEWHERE), fleet, bridges)

    assert bindings == ()
    assert problem.startswith(said)


def test_guest_of_another_bridge_is_left_alone() -> None:
    assert bind_ports((ELSEWHERE,), (vm("web-0", "10.0.0.11"),), ("br0",)) == ((), ())


OTHER = LibvirtPort(
    vm="db", vm_id="2", port="vnet7", index=7, mac="52:54:00:00:00:17", bridge="br0"
)
FLEET = (vm("web-0", "10.0.0.11", vm_id=ID), vm("db", "10.0.0.17"))


@pytest.mark.parametrize(
    ("port", "said"),
    [
        (replace(PORT, port="vm+1"), "web-0 (vm+1) cannot be bound. 'vm+1' is not a valid"),
        (replace(PORT, mac="01:00:5e:00:00:01"), "web-0 (vnet0) cannot be bound. '01:00:5e"),
        (replace(PORT, vm="x", vm_id="3"), "x (vnet0) is not in the fleet."),
    ],
    ids=["port", "MAC address", "stranger"],
)
def test_guest_that_cannot_be_bound_keeps_nobody_else_from_it(port: LibvirtPort, said: str) -> None:
    (binding,), (problem,) = bind_ports((port, OTHER), FLEET, ("br0",))

    assert binding.vm == "db"
    assert problem.startswith(said)


def test_guests_with_the_same_mac_address_are_not_bound() -> None:
    twin = replace(OTHER, mac=PORT.mac.upper())

    bindings, problems = bind_ports((PORT, twin), FLEET, ("br0",))

    assert bindings == ()
    assert [each.partition(" has the same MAC")[0] for each in problems] == [
        "web-0 (vnet0)",
        "db (vnet7)",
    ]


def test_guest_with_the_name_of_another_is_not_bound_in_its_place() -> None:
    namesake = replace(PORT, vm_id="9", port="vnet9", mac="52:54:00:00:00:19")

    (binding,), problems = bind_ports((namesake, PORT), FLEET, ("br0",))

    assert binding.port == "vnet0"
    assert problems == ("web-0 (vnet9) is not in the fleet.",)


@pytest.mark.parametrize("is_there", [False, True])
def test_guest_that_ends_meanwhile_is_left_out(tmp_path: Path, *, is_there: bool) -> None:
    virsh = tmp_path / "virsh"
    listed = f"test -e {tmp_path}/asked || echo {ID}" if not is_there else f"echo {ID}"
    virsh.write_text(
        f"#!/bin/sh\ncase $3 in list) {listed} ;; *) : > {tmp_path}/asked; exit 1 ;; esac\n",
        encoding="utf-8",
    )
    virsh.chmod(0o755)
    programs = Programs(search_path=f"{tmp_path}:{SEARCH_PATH}")

    if is_there:
        with pytest.raises(HostSetupError, match="dumpxml"):
            read_ports(programs, "test:///default")
    else:
        assert read_ports(programs, "test:///default") == ()
