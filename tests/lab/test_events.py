"""Events that are really carried out on the machine that the agent runs in."""

import time
from typing import Any

from tests.e2e.conftest import Server
from tests.lab.conftest import LabServerMaker
from tests.lab.guests import Guest
from tests.lab.maintain import FREEZE_SECONDS, cut

BACK_SECONDS = 240.0
WHOLE_LIFE = [
    "begin scheduled app=inactive",
    "end scheduled app=inactive",
    "begin started app=inactive",
    "end started app=inactive",
    "begin recovered app=active",
    "end recovered app=active",
]


def carry_out(server: Server, guest: Guest, event: dict[str, Any]) -> None:
    """Let the executor begin; return when its event is over and the agent has seen to it."""
    (guest.folder / "go").touch()
    server.wait_for(event["event_id"], "Completed", BACK_SECONDS)
    assert server.event(event["event_id"])["outcome"] == "succeeded"
    guest.wait_for_note("end recovered")


def test_machine_that_is_cut_off_by_its_event_comes_back_with_its_units(
    guest: Guest, start_server: LabServerMaker
) -> None:
    server = start_server("cut")
    guest.enable_agent(server.metadata_port)
    boot_id = guest.boot_id

    (event,) = server.create("Reboot", "solo-0")
    guest.wait_for_note("end started")
    carry_out(server, guest, event)

    assert guest.boot_id != boot_id
    assert guest.notes == WHOLE_LIFE
    assert guest.ask_systemd("ActiveState", "app") == "active"
    assert [vote["name"] for vote in server.event(event["event_id"])["approvals"]] == ["solo-0"]


def test_hook_that_was_cut_off_with_the_machine_is_not_run_again(
    guest: Guest, start_server: LabServerMaker
) -> None:
    server = start_server("cut")
    guest.take(600, "started")
    guest.enable_agent(server.metadata_port)

    (event,) = server.create("Reboot", "solo-0")
    guest.wait_for_note("begin started")
    carry_out(server, guest, event)

    assert guest.notes == [note for note in WHOLE_LIFE if not note.startswith("end started")]
    said = guest.run("journalctl --boot --unit forewarn-agent")
    assert f"hook_interrupted event={event['event_id']} phase=started" in said


def test_unit_that_was_stopping_when_the_machine_was_cut_off_is_started_again(
    guest: Guest, start_server: LabServerMaker
) -> None:
    server = start_server()
    guest.take(600, "stopping")
    guest.enable_agent(server.metadata_port)

    (event,) = server.create("Reboot", "solo-0")
    guest.wait_for_note("stopping")
    cut(guest.folder)
    guest.wait_for_note("end scheduled")
    server.cancel(event["event_id"])
    guest.wait_for_note("end canceled")

    assert guest.notes == [
        "stopping",
        "begin scheduled app=inactive",
        "end scheduled app=inactive",
        "begin canceled app=active",
        "end canceled app=active",
    ]
    assert server.event(event["event_id"])["approvals"] == []


def test_machine_that_reboots_itself_waits_for_the_hook_and_comes_back_with_its_units(
    guest: Guest, start_server: LabServerMaker
) -> None:
    server = start_server("reboot")
    guest.take(15, "started")
    guest.enable_agent(server.metadata_port)
    boot_id = guest.boot_id

    (event,) = server.create("Reboot", "solo-0")
    guest.wait_for_note("begin started")
    carry_out(server, guest, event)

    assert guest.boot_id != boot_id
    assert guest.notes == WHOLE_LIFE
    said_before = guest.run("journalctl --boot=-1 --unit forewarn-agent")
    assert "stopping hooks_running=True" in said_before


def test_freeze_that_stops_the_clocks_is_recovered_from(
    guest: Guest, start_server: LabServerMaker
) -> None:
    server = start_server("freeze")
    guest.enable_agent(server.metadata_port)
    boot_id = guest.boot_id

    (event,) = server.create("Freeze", "solo-0", duration_in_seconds=60)
    guest.wait_for_note("end started")
    ahead = time.monotonic() - guest.clock
    carry_out(server, guest, event)

    assert time.monotonic() - guest.clock - ahead > FREEZE_SECONDS - 1
    assert guest.boot_id == boot_id
    assert guest.notes == WHOLE_LIFE
    assert guest.ask_systemd("NRestarts") == "0"
