"""A Maintenance over two hosts with six guests."""

from typing import Any, Final

from tests.lab.conftest import DataCentreMaker
from tests.lab.executing import libvirt
from tests.lab.small_guests import SmallGuest

SIX: Final = tuple(
    SmallGuest(
        name=f"{kind}-{number}",
        number=10 * number + last,
        host=f"kvm-{number}",
        availability_set="" if kind == "solo" else kind,
        update_domain=0 if kind == "solo" else number - 1,
        approves=("Reboot",),
    )
    for number in (1, 2)
    for last, kind in enumerate(("web", "db", "solo"), 1)
)
HOST_WORK: Final = """
[[host_work]]
run = ["sh", "-c", "echo $OPERATION_HOST $OPERATION_TASK >> {note}"]
"""


SOLOS: Final = (
    SmallGuest(name="solo-1", number=11, host="kvm-1", approves=("Freeze",)),
    SmallGuest(name="solo-2", number=12, host="kvm-2", approves=("Freeze",)),
)
COUNTING_WORK: Final = """
[[host_work]]
run = ["sh", "-c", '''
echo $OPERATION_HOST $(virsh --quiet --connect "{uri}" list --name | wc -w) >> {note}
''']
"""


def moments(ended: dict[str, Any], host: str, field: str) -> list[str]:
    return [event[field] for event in ended["events"] if event["host"] == host]


def test_maintenance_reboots_the_guests_of_one_host_after_the_other_and_works_on_each_host_once(
    make_data_centre: DataCentreMaker,
) -> None:
    data_centre = make_data_centre(*SIX)
    note = data_centre.centre.folder / "work"
    data_centre.begin(libvirt(data_centre) + HOST_WORK.format(note=note))

    ended = data_centre.maintain("Reboot", "kvm-1", "kvm-2")
    for guest in data_centre.guests.values():
        guest.wait_for_boot(2)

    assert ended["outcome"] == "succeeded"
    assert note.read_text(encoding="utf-8").splitlines() == ["kvm-1 work", "kvm-2 work"]
    assert len(ended["events"]) == len(SIX)
    assert max(moments(ended, "kvm-1", "ended_at")) <= min(moments(ended, "kvm-2", "created_at"))
    assert all(len(set(guest.boot_ids())) == 2 for guest in data_centre.guests.values())
    for hypervisor in data_centre.hypervisors.values():
        assert hypervisor.running() == {
            guest.name for guest in SIX if guest.host == hypervisor.name
        }
        assert data_centre.vms_on(hypervisor.name) == hypervisor.running()


def test_maintenance_migrates_guests_away_from_each_host_before_the_work_on_it(
    make_data_centre: DataCentreMaker,
) -> None:
    data_centre = make_data_centre(*SOLOS)
    note = data_centre.centre.folder / "work"
    uri = data_centre.uri.format(host="$OPERATION_HOST")
    work = COUNTING_WORK.format(uri=uri, note=note)
    data_centre.begin(libvirt(data_centre, migrate="true") + work)

    ended = data_centre.maintain("Freeze", "kvm-1", "kvm-2")
    for guest in data_centre.guests.values():
        guest.wait_until_answered(2)

    assert ended["outcome"] == "succeeded"
    assert note.read_text(encoding="utf-8").splitlines() == ["kvm-1 0", "kvm-2 0"]
    assert data_centre.hypervisors["kvm-1"].running() == {"solo-1", "solo-2"}
    assert data_centre.vms_on("kvm-1") == {"solo-1", "solo-2"}
    assert all(len(guest.boot_ids()) == 1 for guest in data_centre.guests.values())
