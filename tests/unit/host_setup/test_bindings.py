"""Which virtual machine is behind which port: what is taken, and what is refused."""

from ipaddress import IPv4Address, IPv6Address

import pytest

from forewarn.host_setup.bindings import (
    Binding,
    HostSetupError,
    check_bindings,
    check_interface,
    find_served,
    make_binding,
    parse_binding,
)


def test_binding_is_a_port_a_mac_and_addresses() -> None:
    binding = parse_binding("vnet0=52-54-00-AB-CD-11, 10.0.0.11,fd00::11,10.0.0.11")

    assert binding == Binding(
        port="vnet0",
        mac="52:54:00:ab:cd:11",
        addresses=(IPv4Address("10.0.0.11"), IPv6Address("fd00::11")),
    )
    assert binding.addresses_v4 == (IPv4Address("10.0.0.11"),)
    assert binding.addresses_v6 == (IPv6Address("fd00::11"),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vnet0", "'vnet0' is not a valid binding."),
        ("vnet0=52:54:00:00:00:11", "is not a valid binding."),
        ("=52:54:00:00:00:11,10.0.0.11", "'' is not a valid interface name."),
        ("vnet0=10.0.0.11,52:54:00:00:00:11", "'10.0.0.11' is not a valid MAC address"),
        ("vnet0=ff:ff:ff:ff:ff:ff,10.0.0.11", "is not a valid MAC address"),
        ("vnet0=01:00:5e:00:00:01,10.0.0.11", "is not a valid MAC address"),
        ("vnet0=00:00:00:00:00:00,10.0.0.11", "is not a valid MAC address"),
        ("vnet0=52:54:00:00:00:11,10.0.0", "'10.0.0' is not a valid IP address."),
        ("vnet0=52:54:00:00:00:11,10.0.0.0/24", "is not a valid IP address."),
        ("vnet0=52:54:00:00:00:11,", "'' is not a valid IP address."),
        ("vnet0=52:54:00:00:00:11,169.254.169.254", "cannot be the address of a guest."),
        ("vnet0=52:54:00:00:00:11,0.0.0.0", "cannot be the address of a guest."),
        ("vnet0=52:54:00:00:00:11,127.0.0.1", "cannot be the address of a guest."),
        ("vnet0=52:54:00:00:00:11,224.0.0.1", "cannot be the address of a guest."),
        ("vnet0=52:54:00:00:00:11,255.255.255.255", "cannot be the address of a guest."),
        ("vnet0=52:54:00:00:00:11,fe80::1%eth0", "cannot be the address of a guest."),
    ],
)
def test_bad_binding_is_refused_with_its_value(text: str, said: str) -> None:
    with pytest.raises(HostSetupError) as refused:
        parse_binding(text)

    assert said in str(refused.value)
    assert refused.value.hint


@pytest.mark.parametrize("name", ["br0", "vnet0", "eth0.100", "virbr-1", "tap_a", "a" * 15])
def test_names_of_interfaces_are_taken(name: str) -> None:
    assert check_interface(name) == name


@pytest.mark.parametrize(
    "name", ["", "a" * 16, "br*", 'br"0', "br 0", "br0;", "-br0", "..", ".", "br/0", "br0\n", "bré"]
)
def test_names_that_mean_something_to_others_are_refused(name: str) -> None:
    """Such as a wildcard, an option, or the end of a string to nft."""
    with pytest.raises(HostSetupError, match="not a valid interface name"):
        check_interface(name)


def bind(port: str, last: int, *addresses: str, vm: str = "") -> Binding:
    return make_binding(port, f"52:54:00:00:00:{last:02x}", addresses or (f"10.0.0.{last}",), vm=vm)


@pytest.mark.parametrize(
    ("bindings", "said"),
    [
        ((bind("a", 1, vm="x"), bind("b", 2, "10.0.0.1")), "10.0.0.1 is bound to a (x) and to b."),
        ((bind("a", 1), bind("b", 1, "10.0.0.2")), "52:54:00:00:00:01 is bound to a and to b."),
        ((bind("a", 1), bind("a", 1, "10.0.0.2")), "52:54:00:00:00:01 is bound to a twice."),
        ((bind("a", 1, "fd00::1"), bind("b", 2, "fd00:0::1")), "fd00::1 is bound to a and to b."),
    ],
)  # fmt: skip
def test_one_address_has_one_owner(bindings: tuple[Binding, ...], said: str) -> None:
    with pytest.raises(HostSetupError) as refused:
        check_bindings(bindings)

    assert str(refused.value) == said


def test_two_guests_behind_one_port_are_told_apart_by_their_macs() -> None:
    check_bindings((bind("a", 1), bind("a", 2)))


def test_guest_without_an_ipv4_address_gets_no_rules() -> None:
    served, unserved = bind("a", 1), bind("b", 2, "fd00::2")

    assert find_served((served, unserved)) == (served,)
