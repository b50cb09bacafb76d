"""Hosts of libvirt's test driver: their domains, and what becomes of those that two hosts know."""

import threading
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pytest
from tests.discovery.conftest import ENVIRONMENT, NodeWriter, domain, place
from tests.needs import need_libvirt

from forewarn.discovery.domains import (
    FoundDomain,
    claimed_addresses,
    read_domain,
    usable_addresses,
)
from forewarn.discovery.libvirt import HostAnswer, LibvirtSource, make_listing
from forewarn.discovery.mapping import NO_PLACEMENT, read_placement
from forewarn.discovery.sources import SourceError
from forewarn.discovery.vocabulary import AddressPlace

NEIGHBOURS = ("ip", "-j", "neigh", "show")


def source(*uris: str, host: str = "") -> LibvirtSource:
    return LibvirtSource(
        uris=uris, timeout=timedelta(seconds=30), environment=ENVIRONMENT, host=host
    )


def test_domains_of_a_host_are_machines_with_their_metadata(node: NodeWriter) -> None:
    metadata = place(
        'availability_set="web" update_domain="1"', '<label name="tier" value="front"/>'
    )
    uri = node(domain(1, metadata=metadata), domain(2))

    census = source(uri, host="kvm-1").count(threading.Event())

    first, second = sorted(census.fleet.virtual_machines, key=lambda each: each.vm.name)
    assert first.vm.vm_id == "4a6b1f0e-0000-4000-8000-000000000001"
    assert (first.vm.scope_id, first.update_domain) == ("availability-set/web", 1)
    assert (first.vm.host, first.vm.labels) == ("kvm-1", {"tier": "front"})
    assert first.vm.profile.mac_address == "52:54:00:00:00:01"
    assert [len(each.vm.addresses) for each in (first, second)] == [1, 1], "one lease each"
    assert (second.vm.scope_id, second.update_domain) == ("virtual-machine/web-2", None)
    assert [host.name for host in census.fleet.hosts] == ["kvm-1"]
    assert not census.stopped


@pytest.mark.parametrize("places", [(AddressPlace.AGENT,), (AddressPlace.ARP,), ()])
def test_addresses_are_looked_for_where_operators_say(
    node: NodeWriter, places: tuple[AddressPlace, ...]
) -> None:
    asking = replace(source(node(domain(1)), host="kvm-1"), addresses=places)

    census = asking.count(threading.Event())

    (found,) = census.fleet.virtual_machines
    assert census.claims == ({"web-1"} if AddressPlace.AGENT in places else frozenset())
    # The agent of the test driver invents an address; no neighbour here has the MAC.
    assert len(found.vm.addresses) == (1 if AddressPlace.AGENT in places else 0)


def test_host_without_a_name_is_called_as_it_calls_itself(node: NodeWriter) -> None:
    (host,) = source(node()).count(threading.Event()).fleet.hosts

    assert host.name


def test_host_that_does_not_answer_makes_the_census_partial(
    node: NodeWriter, tmp_path: Path
) -> None:
    gone = f"test:///{tmp_path}/gone.xml"

    census = source(node(domain(1)), gone).count(threading.Event())

    assert census.trouble.startswith(f"{gone}: ")
    assert [each.vm.name for each in census.fleet.virtual_machines] == ["web-1"]


def test_no_host_that_answers_is_a_failure(node: NodeWriter, tmp_path: Path) -> None:
    node()

    with pytest.raises(SourceError, match=r"gone\.xml"):
        source(f"test:///{tmp_path}/gone.xml").count(threading.Event())


def hypervisor(host: str, *domains: FoundDomain) -> HostAnswer:
    return HostAnswer(uri=f"qemu://{host}/system", host=host, domains=domains)


def test_domain_that_two_hosts_know_is_where_it_runs() -> None:
    moving = FoundDomain(name="web-0", uuid="1")

    for ranks, host in (((0, 2), "kvm-2"), ((2, 1), "kvm-1"), ((0, 0), "kvm-1")):
        first, second = (replace(moving, rank=rank) for rank in ranks)
        listing = make_listing(
            [hypervisor("kvm-1", first), hypervisor("kvm-2", second)], NO_PLACEMENT
        )
        (entry,) = listing.content["virtual_machine"]
        assert entry["host"] == host
        assert bool(listing.stopped) == (max(ranks) == 0)


def test_domains_of_a_host_are_listed_by_name() -> None:
    names = ("web-1", "Web-0", "db")
    domains = (FoundDomain(name=name, uuid=name) for name in names)

    listing = make_listing([hypervisor("kvm-1", *domains)], NO_PLACEMENT)

    assert [each["name"] for each in listing.content["virtual_machine"]] == ["db", "Web-0", "web-1"]


def test_two_hosts_of_one_name_are_refused() -> None:
    with pytest.raises(SourceError, match="have the same host name, 'KVM-1'"):
        make_listing([hypervisor("kvm-1"), hypervisor("KVM-1")], NO_PLACEMENT)


def test_host_whose_name_no_host_can_have_is_refused() -> None:
    with pytest.raises(SourceError, match="has the host name 'kvm 1', which is not valid"):
        make_listing([hypervisor("kvm 1")], NO_PLACEMENT)


def test_domains_that_cannot_be_machines_are_left_out_with_a_remark() -> None:
    odd = FoundDomain(name="my desktop", uuid="1")
    wrong = FoundDomain(
        name="web-1", uuid="2", keys={"update_domain": "x", "availability_set": "web"}
    )
    ignored = FoundDomain(name="template", uuid="3", is_ignored=True)

    listing = make_listing([hypervisor("kvm-1", odd, wrong, ignored)], NO_PLACEMENT)

    assert not listing.content["virtual_machine"]
    assert listing.left_out == {"my desktop", "1", "web-1", "2"}
    assert len(listing.remarks) == 2
    assert "'my desktop' on kvm-1" in listing.remarks[0]
    assert "web-1" in listing.remarks[1]


def test_mapping_says_what_metadata_does_not(tmp_path: Path) -> None:
    path = tmp_path / "mapping.toml"
    path.write_text(
        """
        [[availability_set]]
        name = "web"
        update_domains = 3
        [[virtual_machine]]
        names = ["WEB-*"]
        hosts = ["kvm-*"]
        availability_set = "web"
        labels = { tier = "front", team = "shop" }
        [[virtual_machine]]
        names = ["template-*"]
        ignore = true
        """,
        encoding="utf-8",
    )
    domains = (
        FoundDomain(name="web-0", uuid="1"),
        FoundDomain(
            name="web-1", uuid="2", keys={"scale_set": "batch", "labels": {"tier": "back"}}
        ),
        FoundDomain(name="template-1", uuid="3"),
        FoundDomain(name="db", uuid="4"),
    )

    listing = make_listing([hypervisor("kvm-1", *domains)], read_placement(path))

    unmapped, first, second = listing.content["virtual_machine"]
    assert first["availability_set"] == "web"
    assert "availability_set" not in second
    assert second["labels"] == {"tier": "back", "team": "shop"}
    assert unmapped["name"] == "db"
    assert listing.content["availability_set"] == [{"name": "web", "update_domains": 3}]


def test_metadata_may_tell_a_domain_to_be_ignored() -> None:
    found = read_domain(domain(1, metadata=place('ignore="yes"')))

    assert found.is_ignored
    assert not found.keys


def test_metadata_has_the_keys_of_the_fleet_file() -> None:
    inner = '<tag name="team" value="shop"/><other/>'
    metadata = place('addresses="10.0.0.1 10.0.0.2" fault_domain="0" zone="1"', inner)

    found = read_domain(domain(1, metadata=metadata))

    assert found.keys == {
        "addresses": ["10.0.0.1", "10.0.0.2"],
        "fault_domain": 0,
        "zone": "1",
        "tags": {"team": "shop"},
    }


@pytest.mark.parametrize(
    "attributes",
    ['labels="tier=front"', 'tags="x"', f'update_domain="{"9" * 5000}"', 'profile="x"'],
)
def test_metadata_that_makes_no_sense_is_a_remark_about_its_domain(
    attributes: str, tmp_path: Path
) -> None:
    mapping = tmp_path / "mapping.toml"
    mapping.write_text('[[virtual_machine]]\nlabels = { team = "shop" }\n', encoding="utf-8")
    inner = '<label name="a" value="b"/><tag name="a" value="b"/>'
    wrong = read_domain(domain(1, metadata=place(f'availability_set="web" {attributes}', inner)))
    right = FoundDomain(name="db", uuid="2")

    listing = make_listing([hypervisor("kvm-1", wrong, right)], read_placement(mapping))

    assert [each["name"] for each in listing.content["virtual_machine"]] == ["db"]
    (remark,) = listing.remarks
    assert "web-1" in remark


def test_addresses_that_say_nothing_outside_are_not_used() -> None:
    given = ["fe80::1", "10.0.0.9", "127.0.0.1", "10.0.0.10", "fd00::1", "255.255.255.255"]

    assert usable_addresses(given) == ("10.0.0.9", "10.0.0.10", "fd00::1")


def test_addresses_inside_ipv6_are_those_of_ipv4() -> None:
    given = ["::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.9", "10.0.0.9"]

    assert usable_addresses(given) == ("10.0.0.9",)


def test_guest_cannot_claim_a_whole_network() -> None:
    assert len(claimed_addresses(f"10.0.0.{number}" for number in range(200))) == 16


def test_addresses_that_an_operator_has_written_are_no_claim() -> None:
    claiming = FoundDomain(name="web-0", uuid="1", addresses=("10.0.0.1",), has_claimed=True)
    written = replace(claiming, name="web-1", uuid="2", keys={"addresses": ["10.0.0.2"]})

    listing = make_listing([hypervisor("kvm-1", claiming, written)], NO_PLACEMENT)

    assert listing.claims == {"web-0"}


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("qemu:///system", NEIGHBOURS),
        (
            "qemu+ssh://root@kvm-1:2222/system",
            ("ssh", "-o", "BatchMode=yes", "-p", "2222", "--", "root@kvm-1", *NEIGHBOURS),
        ),
        ("qemu+ssh://kvm-1/system", ("ssh", "-o", "BatchMode=yes", "--", "kvm-1", *NEIGHBOURS)),
        ("qemu+tls://kvm-1/system", None),
    ],
)
def test_neighbours_are_those_of_the_host(uri: str, words: tuple[str, ...] | None) -> None:
    need_libvirt()
    probe = import_module("forewarn.discovery.libvirt_probe")

    assert probe.neighbour_command(uri) == words
