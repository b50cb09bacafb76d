"""Guests on a host that `forewarn host setup` has set up cannot pass for their neighbours."""

import subprocess
from dataclasses import replace
from typing import Final

import pytest
from tests.e2e.conftest import FOREWARN, START_SECONDS, wait_until
from tests.e2e.relays import METADATA
from tests.lab.conftest import DataCentreMaker
from tests.lab.data_centres import DataCentre
from tests.lab.hypervisors import BRIDGE
from tests.lab.small_guests import SmallGuest

ANSWER_SECONDS: Final = 60.0
GUEST: Final = SmallGuest(name="solo-1", number=11)
NEIGHBOUR: Final = SmallGuest(name="solo-2", number=12)
TAKE_ADDRESS: Final = f"""
ip address flush dev eth0
ip address add {NEIGHBOUR.address}/24 dev eth0
ip route add {METADATA}/32 dev eth0
"""
TAKE_MAC: Final = f"""
ip link set eth0 down
ip link set eth0 address {NEIGHBOUR.mac}
ip link set eth0 up
ip route add {METADATA}/32 dev eth0
"""


def set_up(data_centre: DataCentre, host: str, *more: str) -> None:
    """Set *host* up for the guests that libvirt runs there, or undo that."""
    hypervisor, folder = data_centre.hypervisors[host], data_centre.centre.folder
    words = ("host", "setup", "--bridge", BRIDGE, "--libvirt", hypervisor.uri)
    files = ("--fleet", str(folder / "fleet.toml"), "--state-dir", str(folder / "setup"))
    subprocess.run(
        ["/sbin/ip", "netns", "exec", hypervisor.place.name, FOREWARN, *words, *files, *more],
        env=dict(hypervisor.environment),
        check=True,
        capture_output=True,
        timeout=START_SECONDS,
    )


@pytest.mark.parametrize(
    ("forge", "unprotected"),
    [
        pytest.param(TAKE_ADDRESS, "200", id="address"),
        pytest.param(TAKE_MAC, "400", id="mac"),
    ],
)
def test_guest_with_a_forged_address_or_mac_gets_nothing(
    make_data_centre: DataCentreMaker, forge: str, unprotected: str
) -> None:
    data_centre = make_data_centre(GUEST, NEIGHBOUR)
    data_centre.begin()
    set_up(data_centre, "kvm-1", "--apply")
    event_id = data_centre.centre.create("solo-2")

    data_centre.guests["solo-1"].wait_until_answered()
    data_centre.guests["solo-2"].wait_for_status(event_id, "Scheduled")
    data_centre.run_inside("solo-1", forge)
    answer = data_centre.run_inside("solo-1", f"request-start {event_id}")

    assert answer == ""
    assert data_centre.event(event_id)["approvals"] == []
    assert not any(event_id in tick.statuses for tick in data_centre.guests["solo-1"].ticks())

    set_up(data_centre, "kvm-1", "--undo")
    wait_until(
        lambda: data_centre.run_inside("solo-1", f"request-start {event_id}") == unprotected,
        "the guest gets nothing for another reason",
        ANSWER_SECONDS,
    )


def test_guest_gets_its_address_and_the_way_to_the_service_by_dhcp(
    make_data_centre: DataCentreMaker,
) -> None:
    data_centre = make_data_centre(replace(GUEST, uses_dhcp=True))
    (guest,) = data_centre.guests.values()
    directory = data_centre.centre.folder / "dnsmasq.d"
    directory.mkdir()
    data_centre.launch()
    set_up(data_centre, "kvm-1", "--dnsmasq", str(directory), "--router", "none", "--apply")
    event_id = data_centre.centre.create("solo-1")

    with data_centre.hypervisors["kvm-1"].lease_addresses(directory, guest):
        guest.wait_for_status(event_id, "Scheduled")
