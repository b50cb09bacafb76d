"""What an operator orders by flags and in a file."""

from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from forewarn.files.tables import TablesError
from forewarn.host_setup.bindings import HostSetupError, parse_binding
from forewarn.host_setup.orders import SetupOrder, follow, override, read_order
from forewarn.host_setup.programs import Programs

FILE = """
bridge = ["br0"]
dnsmasq = "dnsmasq.d"
router = "10.0.0.1"

[[guest]]
port = "vnet0"
mac = "52:54:00:00:00:11"
addresses = ["10.0.0.11"]
"""
BOUND = parse_binding("vnet0=52:54:00:00:00:11,10.0.0.11")
NONE = Programs(search_path="/nonexistent")


def write(folder: Path, text: str) -> Path:
    path = folder / "host.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_file_orders_what_flags_can(tmp_path: Path) -> None:
    order = read_order(write(tmp_path, FILE))

    assert order == SetupOrder(
        bridge=("br0",), bindings=(BOUND,), dnsmasq=tmp_path / "dnsmasq.d", router="10.0.0.1"
    )


def test_flags_win_and_add_bindings(tmp_path: Path) -> None:
    order = read_order(write(tmp_path, FILE))
    more = parse_binding("vnet1=52:54:00:00:00:12,10.0.0.12")

    merged = override(order, SetupOrder(bridge=("br1",), bindings=(more,)))

    assert merged == replace(order, bridge=("br1",), bindings=(BOUND, more))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('bridges = ["br0"]', ":1: bridges: unknown key"),
        (FILE.replace("10.0.0.11", "10.0.0"), ":9: addresses of guest 1: '10.0.0' is not"),
        (FILE.replace("mac", "mack"), "mac of guest 1:"),
        ("bridge = [", "Not valid TOML"),
    ],
)
def test_mistake_in_the_file_has_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(TablesError) as refused:
        read_order(write(tmp_path, text))

    assert said in str(refused.value)


def test_order_becomes_a_setup(tmp_path: Path) -> None:
    ordered = follow(read_order(write(tmp_path, FILE)), NONE)

    assert ordered.setup.bridges == ("br0",)
    assert ordered.setup.bindings == (BOUND,)
    assert ordered.setup.router == IPv4Address("10.0.0.1")
    assert [note.partition(":")[0] for note in ordered.notes] == [
        "dnsmasq reads its files when it starts"
    ]


def test_network_of_libvirt_is_a_note() -> None:
    (note,) = follow(SetupOrder(bridge=("br0",), network="default", router="none"), NONE).notes

    assert "virsh net-edit default" in note
    assert "<dnsmasq:option value='dhcp-option=121,20:a9:fe:a9:fe:00:00:00:00'/>" in note


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (SetupOrder(bridge=("br0",), dnsmasq=Path()), "so the router is needed"),
        (SetupOrder(bridge=("br0",), dnsmasq=Path(), router="gw"), "'gw' is not a valid IPv4"),
        (SetupOrder(bridge=("br0",), fleet=Path("f")), "but not their ports"),
        (SetupOrder(), "either bridges or an interface"),
        (SetupOrder(bridge=("br0",), interface="lo"), "either bridges or an interface"),
        (SetupOrder(bridge=("br 0",)), "'br 0' is not a valid interface name."),
        (SetupOrder(interface='"'), "is not a valid interface name."),
        (SetupOrder(bridge=("br0",), libvirt="qemu:///system"), "but not their addresses"),
        (
            SetupOrder(bridge=("br0",), libvirt="qemu:///system", fleet=Path("/nonexistent")),
            "ip is not installed",
        ),
    ],
)
def test_order_that_cannot_be_followed_is_refused(order: SetupOrder, said: str) -> None:
    with pytest.raises(HostSetupError, match=said):
        follow(order, NONE)
