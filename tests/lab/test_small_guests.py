"""Guests under libvirt that read their events at 169.254.169.254, from the relay on their host."""

from typing import Any, Final

from tests.lab.conftest import DataCentreMaker
from tests.lab.executing import scripts
from tests.lab.small_guests import SmallGuest, longest_gap

FREEZE_SECONDS: Final = 10
SOLO_1: Final = SmallGuest(name="solo-1", number=11, approves=("Reboot", "Freeze"))
SOLO_2: Final = SmallGuest(name="solo-2", number=12)


def approvers(event: dict[str, Any]) -> list[str]:
    return [approval["name"] for approval in event["approvals"]]


def test_guest_approves_its_own_reboot_and_freeze_which_scripts_carry_out(
    make_data_centre: DataCentreMaker,
) -> None:
    data_centre = make_data_centre(SOLO_1, SOLO_2)
    data_centre.begin(scripts(data_centre))
    guest, neighbour = data_centre.guests.values()

    reboot = data_centre.centre.create("solo-1")
    data_centre.wait_for(reboot, "Completed")
    guest.wait_for_boot(2)
    guest.wait_until_answered()
    freeze = data_centre.centre.create(
        "solo-1", event_type="Freeze", duration_in_seconds=FREEZE_SECONDS
    )
    data_centre.wait_for(freeze, "Completed")
    guest.wait_until_answered(2)

    events = [data_centre.event(event_id) for event_id in (reboot, freeze)]
    assert [event["outcome"] for event in events] == ["succeeded", "succeeded"]
    assert [approvers(event) for event in events] == [["solo-1"], ["solo-1"]]
    assert guest.approvals() == [(reboot, 200), (freeze, 200)]
    first, second = guest.boot_ids()
    assert first != second
    paused = [tick for tick in guest.answered() if tick.boot_id == second]
    assert longest_gap(paused) >= FREEZE_SECONDS - 1

    assert len(neighbour.boot_ids()) == 1
    assert longest_gap(neighbour.answered()) < FREEZE_SECONDS - 1
    assert not any(tick.statuses for tick in neighbour.answered())


def test_guest_cannot_approve_an_event_of_another_scope(make_data_centre: DataCentreMaker) -> None:
    data_centre = make_data_centre(SOLO_2, SmallGuest(name="solo-3", number=13))
    data_centre.begin()
    event_id = data_centre.centre.create("solo-3")
    data_centre.guests["solo-3"].wait_for_status(event_id, "Scheduled")

    refused = data_centre.run_inside("solo-2", f"request-start {event_id}")
    untouched = data_centre.event(event_id)
    taken = data_centre.run_inside("solo-3", f"request-start {event_id}")
    data_centre.wait_for(event_id, "Started")

    assert (refused, taken) == ("400", "200")
    assert (untouched["event_status"], untouched["approvals"]) == ("Scheduled", [])
    assert approvers(data_centre.event(event_id)) == ["solo-3"]


def test_migrated_guest_keeps_polling_and_is_answered_by_its_new_host(
    make_data_centre: DataCentreMaker,
) -> None:
    data_centre = make_data_centre(SOLO_2)
    data_centre.begin()
    (guest,) = data_centre.guests.values()
    source, target = data_centre.hypervisors.values()

    source.virsh("migrate", "--live", "--persistent", "--undefinesource", "solo-2", target.uri)
    source.place.stop()
    data_centre.centre.operate("PATCH", "virtual-machines/solo-2", {"host": "kvm-2"})
    guest.wait_until_answered(2)

    assert (source.defined(), target.running()) == (set(), {"solo-2"})
    assert len(guest.boot_ids()) == 1
    assert {tick.boot_id for tick in guest.ticks()} == set(guest.boot_ids())
