"""What `fleet import --apply` makes of the fleet that a server has."""

from forewarn.cli.importing import Content, with_known_addresses

KNOWN: Content = {
    "virtual_machine": [
        {"name": "web-0", "vm_id": "1", "addresses": ["10.0.0.1"]},
        {"name": "web-1", "vm_id": "2", "addresses": ["10.0.0.2"]},
        {"name": "web-2", "vm_id": "3"},
    ]
}


def test_guest_that_is_off_keeps_the_addresses_it_has_in_the_fleet() -> None:
    found = {
        "host": [{"name": "kvm-1"}],
        "virtual_machine": [
            {"name": "WEB-0"},
            {"name": "renamed", "vm_id": "2"},
            {"name": "web-2", "vm_id": "3"},
            {"name": "new", "vm_id": "4"},
        ],
    }

    kept = with_known_addresses(found, KNOWN)

    assert kept["host"] == found["host"]
    assert [each.get("addresses") for each in kept["virtual_machine"]] == [
        ["10.0.0.1"],
        ["10.0.0.2"],
        None,
        None,
    ]


def test_addresses_that_are_reported_count() -> None:
    found = {"virtual_machine": [{"name": "web-0", "vm_id": "1", "addresses": ["10.0.0.9"]}]}

    assert with_known_addresses(found, KNOWN) == found
