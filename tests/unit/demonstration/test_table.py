"""The table of the demo says what each virtual machine does, and whom it waits for."""

from dataclasses import replace
from datetime import timedelta

from tests.unit.demonstration.conftest import NOW, announced, approved, started

from forewarn.cli.demonstration.fleet import MEMBERS
from forewarn.cli.demonstration.picture import Activity, DemoTurn, Doing, Picture
from forewarn.cli.demonstration.screen import MachineRow, reasons, rows
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.names import HostName, VmName


def picture(*events: ScheduledEvent, **doings: Doing) -> Picture:
    """Return the picture one second after the announcements, with what each machine does."""
    activities = {
        VmName(name.replace("__", "-")): {
            event.event_id: Activity(doing=doing, until=NOW + timedelta(seconds=5))
            for event in events
            if name.replace("__", "-") in event.resources
        }
        for name, doing in doings.items()
    }
    return Picture(
        now=NOW + timedelta(seconds=1),
        events={event.event_id: event for event in events},
        activities=activities,
    )


def row(picture: Picture, vm: str) -> MachineRow:
    (found,) = (row for row in rows(picture) if row.vm == vm)
    return found


def test_quiet_fleet_is_in_service() -> None:
    shown = rows(Picture(now=NOW))

    assert [row.vm for row in shown] == [member.name for member in MEMBERS]
    assert {(row.event, row.status, row.doing) for row in shown} == {("", "", "in service")}


def test_row_says_where_the_machine_is_and_how_it_answers() -> None:
    shown = row(Picture(now=NOW), "batch_1")

    assert (shown.host, shown.scope, shown.answers) == ("kvm-2", "batch/1", "never")


def test_draining_counts_down() -> None:
    shown = row(picture(announced(1, "web-0", "web-3"), web__3=Doing.DRAINING), "web-3")

    assert (shown.event, shown.status, shown.doing) == ("Freeze", "Scheduled", "drains, 4 s left")


def test_whoever_has_approved_waits_for_the_others_of_the_host() -> None:
    web = approved(announced(1, "web-1", "web-4"), "web-1")
    batch = announced(2, "batch_1", "batch_3")

    held = picture(
        web, batch, web__1=Doing.APPROVED, batch_1=Doing.SILENT, batch_3=Doing.NOT_LEADING
    )

    assert row(held, "web-1").doing == "waits for batch_1"
    assert row(held, "web-4").doing == "has not heard of it yet"
    assert row(held, "batch_1").doing == "says nothing, 14 s left"
    assert row(held, "batch_3").doing == "leaves it to batch_1"
    assert reasons(held) == ("kvm-2 waits for batch_1 until 08:00:15",)


def test_any_of_a_set_will_do() -> None:
    assert reasons(picture(announced(1, "web-0", "web-3"))) == (
        "kvm-1 waits for web-0 or web-3 until 08:00:15",
    )


def test_event_without_a_host_waits_for_its_own_machine_only() -> None:
    alone = announced(1, "web-0", is_rolled_out=False)

    assert reasons(picture(alone, announced(2, "BackEnd_IN_0")))[0] == (
        "Freeze of web-0 waits for web-0 until 08:00:15"
    )


def test_nobody_waits_once_all_is_approved() -> None:
    ready = picture(approved(announced(1, "db"), "db"), db=Doing.APPROVED)

    assert row(ready, "db").doing == "approved"
    assert reasons(ready) == ()


def test_started_event_shows_its_impact() -> None:
    shown = row(picture(started(announced(1, "db"), 1), db=Doing.IN_IMPACT), "db")

    assert (shown.status, shown.doing) == ("Started", "frozen")


def test_started_event_is_shown_before_a_scheduled_one() -> None:
    shown = row(picture(announced(1, "db"), started(announced(2, "db"), 1)), "db")

    assert shown.status == "Started"


def test_trouble_is_shown() -> None:
    shown = row(replace(picture(), troubles={VmName("db"): "no answer"}), "db")

    assert shown.doing == "in trouble: no answer"


def test_host_waits_for_the_scopes_it_shares_also_with_hosts_before_it() -> None:
    web, batch = announced(1, "web-0"), announced(2, "batch_0")
    turns = (
        DemoTurn(host=HostName("kvm-2"), scope_ids=frozenset({batch.scope_id})),
        DemoTurn(host=HostName("kvm-3"), scope_ids=frozenset({batch.scope_id, web.scope_id})),
    )

    assert reasons(replace(picture(approved(web, "web-0")), turns=turns)) == (
        "kvm-3 comes after the other update domains of batch and web",
    )
