"""Impacts that the executor of libvirt carries out on real guests."""

import os
import signal
import subprocess
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from tests.e2e.conftest import wait_until
from tests.lab.conftest import DataCentreMaker
from tests.lab.data_centres import DataCentre
from tests.lab.executing import GRACE_SECONDS, libvirt
from tests.lab.hypervisors import KvmHost
from tests.lab.small_guests import SmallGuest, longest_gap

FREEZE_SECONDS: Final = 10
PAUSE_SECONDS: Final = 60.0
SLOW: Final = "4"
"""MiB in a second, so that a migration takes about ten."""
EVERY_TYPE: Final = ("Freeze", "Reboot", "Redeploy", "Terminate")
GUEST: Final = SmallGuest(name="solo-1", number=11, approves=EVERY_TYPE)
WITHOUT_AGENT: Final = replace(GUEST, name="solo-2", number=12, has_agent=False)
DEAF: Final = replace(WITHOUT_AGENT, name="solo-3", number=13, ignores_button=True)


def wait_until_paused(data_centre: DataCentre, vm: str) -> None:
    hypervisor = data_centre.host_of(vm)
    wait_until(
        lambda: hypervisor.virsh("domstate", vm) == "paused", f"{vm} is not paused", PAUSE_SECONDS
    )


def kill_steward(data_centre: DataCentre) -> None:
    """Kill the one process that attends to an impact."""
    orders = data_centre.centre.folder / "data" / "impacts"
    find = ["/usr/bin/pgrep", "--full", rf"libvirt\.steward {orders}/"]
    (pid,) = subprocess.run(find, capture_output=True, check=True).stdout.split()
    os.kill(int(pid), signal.SIGKILL)


def is_migrating(hypervisor: KvmHost, vm: str) -> bool:
    # There is no such domain once it has moved.
    return vm in hypervisor.running() and "Unbounded" in hypervisor.virsh("domjobinfo", vm)


def carry_out(
    data_centre: DataCentre, event_type: str, *vms: str, **more: object
) -> list[dict[str, Any]]:
    """Announce an event for each of *vms*; return the events when all of them have succeeded."""
    created = [data_centre.centre.create(vm, event_type=event_type, **more) for vm in vms]
    for event_id in created:
        data_centre.wait_for(event_id, "Completed")
    events = [data_centre.event(event_id) for event_id in created]
    assert {event["outcome"] for event in events} == {"succeeded"}, events
    return events


def seconds_of(event: dict[str, Any]) -> float:
    """Return how long the impact took."""
    started, ended = (datetime.fromisoformat(event[key]) for key in ("started_at", "ended_at"))
    return (ended - started).total_seconds()


def test_guest_is_rebooted_by_its_agent_or_its_button_or_reset_if_it_ignores_both(
    make_data_centre: DataCentreMaker,
) -> None:
    data_centre = make_data_centre(GUEST, WITHOUT_AGENT, DEAF)
    data_centre.begin(libvirt(data_centre))

    *_, deaf = carry_out(data_centre, "Reboot", *data_centre.guests)

    assert seconds_of(deaf) >= GRACE_SECONDS
    for guest in data_centre.guests.values():
        guest.wait_for_boot(2)
        assert len(set(guest.boot_ids())) == 2


def test_terminate_stops_the_guest_and_keeps_its_definition(
    make_data_centre: DataCentreMaker,
) -> None:
    data_centre = make_data_centre(GUEST, DEAF)
    data_centre.begin(libvirt(data_centre))

    carry_out(data_centre, "Terminate", *data_centre.guests)

    hypervisor = data_centre.hypervisors["kvm-1"]
    assert (hypervisor.running(), hypervisor.defined()) == (set(), {"solo-1", "solo-3"})


def test_server_killed_during_a_freeze_leaves_no_guest_paused(
    make_data_centre: DataCentreMaker,
) -> None:
    data_centre = make_data_centre(GUEST, replace(WITHOUT_AGENT, approves=()))
    data_centre.begin(libvirt(data_centre))
    guest, neighbour = data_centre.guests.values()

    event_id = data_centre.centre.create(
        "solo-1", event_type="Freeze", duration_in_seconds=FREEZE_SECONDS
    )
    wait_until_paused(data_centre, "solo-1")
    data_centre.centre.kill()
    guest.wait_until_answered(2)
    data_centre.serve_again()
    data_centre.wait_for(event_id, "Completed")

    assert data_centre.event(event_id)["outcome"] == "succeeded"
    assert FREEZE_SECONDS - 1 <= longest_gap(guest.answered()) < FREEZE_SECONDS + 10
    assert longest_gap(neighbour.answered()) < FREEZE_SECONDS - 1
    assert len(guest.boot_ids()) == 1


def test_guest_whose_steward_is_killed_during_a_freeze_is_resumed_in_time_all_the_same(
    make_data_centre: DataCentreMaker,
) -> None:
    data_centre = make_data_centre(GUEST)
    data_centre.begin(libvirt(data_centre))
    (guest,) = data_centre.guests.values()

    event_id = data_centre.centre.create(
        "solo-1", event_type="Freeze", duration_in_seconds=FREEZE_SECONDS
    )
    wait_until_paused(data_centre, "solo-1")
    kill_steward(data_centre)
    data_centre.wait_for(event_id, "Completed")
    guest.wait_until_answered(2)

    assert data_centre.event(event_id)["outcome"] == "succeeded"
    assert FREEZE_SECONDS - 1 <= longest_gap(guest.answered()) < FREEZE_SECONDS + 10
    assert len(guest.boot_ids()) == 1


def test_freeze_migrates_a_running_guest_which_then_talks_to_its_new_host(
    make_data_centre: DataCentreMaker,
) -> None:
    data_centre = make_data_centre(GUEST)
    data_centre.begin(libvirt(data_centre, migrate="true"))
    (guest,) = data_centre.guests.values()
    source, target = data_centre.hypervisors.values()

    carry_out(data_centre, "Freeze", "solo-1")
    source.place.stop()
    guest.wait_until_answered(2)

    assert (source.defined(), target.running()) == (set(), {"solo-1"})
    assert data_centre.vms_on("kvm-2") == {"solo-1"}
    assert len(guest.boot_ids()) == 1


def test_event_of_a_server_killed_during_a_migration_ends_as_libvirt_says(
    make_data_centre: DataCentreMaker,
) -> None:
    data_centre = make_data_centre(GUEST)
    data_centre.begin(libvirt(data_centre, migrate="true"))
    (guest,) = data_centre.guests.values()
    source, target = data_centre.hypervisors.values()
    source.virsh("migrate-setspeed", "solo-1", SLOW)

    event_id = data_centre.centre.create("solo-1", event_type="Freeze")
    wait_until(lambda: is_migrating(source, "solo-1"), "nothing migrates", PAUSE_SECONDS)
    data_centre.centre.kill()
    assert is_migrating(source, "solo-1"), "the migration was over before the server was killed"
    data_centre.serve_again()
    data_centre.wait_for(event_id, "Completed")
    guest.wait_until_answered()

    assert data_centre.event(event_id)["outcome"] == "succeeded"
    assert (source.defined(), target.running()) == (set(), {"solo-1"})
    assert data_centre.vms_on("kvm-2") == {"solo-1"}
    assert len(guest.boot_ids()) == 1


def test_redeploy_boots_the_guest_on_another_host_with_an_empty_ephemeral_disk(
    make_data_centre: DataCentreMaker,
) -> None:
    data_centre = make_data_centre(replace(GUEST, has_disk=True))
    data_centre.begin(libvirt(data_centre, ephemeral='["vda"]'))
    (guest,) = data_centre.guests.values()
    source, target = data_centre.hypervisors.values()
    data_centre.run_inside("solo-1", "echo before > /dev/vda")

    carry_out(data_centre, "Redeploy", "solo-1")
    guest.wait_for_boot(2)
    guest.wait_until_answered()

    assert (source.defined(), target.running()) == (set(), {"solo-1"})
    assert data_centre.vms_on("kvm-2") == {"solo-1"}
    assert len(set(guest.boot_ids())) == 2
    assert data_centre.run_inside("solo-1", "head -c 6 /dev/vda | tr -d '\\0'") == ""
