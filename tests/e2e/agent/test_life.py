"""An agent and a server through every life of an event, on real sockets."""

from collections.abc import Mapping
from datetime import timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from tests.e2e.agent.conftest import MachineMaker
from tests.e2e.agent.machines import WHOLE_LIFE, Machine, ask
from tests.e2e.conftest import ServerMaker, wait_until
from tests.e2e.plain_azure import EVENT, plain_azure
from tests.ports import free_port

from forewarn.clocks import SystemClock

pytestmark = pytest.mark.timeout(300)


def test_event_is_approved_when_the_hooks_are_ready(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server()
    machine = make_machine(server)
    machine.hold("scheduled")
    machine.start()

    (event,) = server.create("Reboot", "solo-0")
    machine.wait_for_phase("begin scheduled")
    assert server.event(event["event_id"])["event_status"] == "Scheduled"
    machine.release("scheduled")
    server.wait_for(event["event_id"], "Started")
    machine.wait_for_phase("end started")
    server.complete(event["event_id"])
    machine.wait_until_closed()

    assert machine.phases == WHOLE_LIFE
    assert machine.stop() == 0


def test_hook_that_is_never_ready_lets_the_event_start_at_its_time(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server("--speed", "300")
    machine = make_machine(server)
    machine.hold("scheduled")
    machine.start()

    (event,) = server.create("Reboot", "solo-0")
    server.wait_for(event["event_id"], "Started")
    machine.wait_for_phase("end started")

    assert server.event(event["event_id"])["approvals"] == []
    assert machine.phases == ["begin scheduled", "begin started", "end started"]
    # NotBefore passes and the event starts at the same moment, and either ends the hook.
    assert {"outcome=timed-out", "outcome=stopped"} & set(machine.said().split())


def test_failed_hook_approves_nothing(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server("--speed", "300")
    machine = make_machine(server)
    machine.answer("scheduled", 1)
    machine.start()

    (event,) = server.create("Reboot", "solo-0")
    server.wait_for(event["event_id"], "Started")

    assert server.event(event["event_id"])["approvals"] == []


def test_hooks_that_vanished_approve_nothing(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server("--speed", "300")
    machine = make_machine(server)
    machine.start()
    (machine.folder / "hooks.d").rename(machine.folder / "aside")

    (event,) = server.create("Reboot", "solo-0")
    machine.wait_for_log("hook_unstartable")
    server.wait_for(event["event_id"], "Started")

    assert server.event(event["event_id"])["approvals"] == []


def test_canceled_event_is_undone(start_server: ServerMaker, make_machine: MachineMaker) -> None:
    server = start_server()
    machine = make_machine(server, approval="never")
    machine.start()

    (event,) = server.create("Reboot", "solo-0")
    machine.wait_for_phase("end scheduled")
    server.cancel(event["event_id"])
    machine.wait_until_closed()

    assert machine.phases[2:] == ["begin canceled", "end canceled"]


def test_event_straight_to_started_is_recovered_from(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server()
    machine = make_machine(server)
    machine.start()

    (event,) = server.create("Reboot", "solo-0", started=True)
    machine.wait_for_phase("end started")
    server.complete(event["event_id"])
    machine.wait_until_closed()

    assert machine.phases == WHOLE_LIFE[2:]


def test_two_events_are_handled_at_once(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server()
    machine = make_machine(server)
    machine.hold("scheduled")
    machine.start()

    (reboot,) = server.create("Reboot", "solo-0")
    (freeze,) = server.create("Freeze", "solo-0", duration_in_seconds=60)
    machine.wait_for_phase("begin scheduled", times=2)
    machine.release("scheduled")

    # A machine has one impact at a time, so the second starts when the first is over.
    left = {reboot["event_id"], freeze["event_id"]}
    for times in (1, 2):
        machine.wait_for_phase("end started", times=times)
        (started,) = (each for each in left if server.event(each)["event_status"] == "Started")
        server.complete(started)
        left.remove(started)
    machine.wait_for_phase("end recovered", times=2)
    begun = [line for line in machine.journal if line.startswith("begin")]
    assert len(begun) == len(set(begun)) == 6
    assert [line.split()[1] for line in begun[-3:]] == ["started", "recovered", "recovered"]


def test_machine_stays_out_until_it_could_be_put_back(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server()
    port = free_port()
    machine = make_machine(server, listen=f"127.0.0.1:{port}")
    machine.answer("recovered", 1)
    machine.start()

    (event,) = server.create("Reboot", "solo-0", started=True)
    machine.wait_for_phase("end started")
    server.complete(event["event_id"])
    machine.wait_for_phase("end recovered", times=2)
    assert ask(port, "/drainz") == (503, "draining\n")
    machine.answer("recovered", 0)
    machine.wait_until_closed()

    wait_until(lambda: ask(port, "/drainz") == (200, "ok\n"), "it is still out", 20)
    assert machine.phases[:2] == WHOLE_LIFE[2:4]
    assert set(machine.phases[2:]) == set(WHOLE_LIFE[4:])


def test_short_freeze_is_only_logged(start_server: ServerMaker, make_machine: MachineMaker) -> None:
    server = start_server()
    machine = make_machine(server)
    machine.start()

    server.create("Freeze", "solo-0", duration_in_seconds=5)
    machine.wait_for_log("verdict=ignore")

    assert machine.journal == []


def test_event_of_a_neighbour_changes_nothing(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server()
    port = free_port()
    machine = make_machine(server, "web-0", listen=f"127.0.0.1:{port}")
    machine.start()

    (event,) = server.create("Reboot", "web-1")
    wait_until(lambda: 'resource="web-1"' in ask(port, "/metrics")[1], "it was not seen", 20)

    assert ask(port, "/drainz")[0] == 200
    assert server.event(event["event_id"])["approvals"] == []
    assert machine.journal == []


def test_hook_that_says_not_yet_is_asked_again_and_moves_the_event(
    make_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = make_server()
    server.fleet.write_text('[[virtual_machine]]\nname = "solo-0"\npostpone_until = "2h"\n')
    server.start()
    machine = make_machine(server, postpone="1h")
    machine.answer("scheduled", 75)
    machine.start()

    (event,) = server.create("Reboot", "solo-0")
    machine.wait_for_phase("end scheduled", times=2)
    moved = server.event(event["event_id"])
    assert moved["not_before"] > event["not_before"]
    assert moved["event_status"] == "Scheduled"
    machine.answer("scheduled", 0)
    server.wait_for(event["event_id"], "Started")

    assert machine.said().count("request_granted request=postpone") == 1


def test_scope_that_does_not_postpone_is_asked_once(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server()
    machine = make_machine(server, postpone="1h")
    machine.answer("scheduled", 75)
    machine.start()

    (event,) = server.create("Reboot", "solo-0")
    machine.wait_for_phase("end scheduled", times=3)
    machine.answer("scheduled", 0)
    server.wait_for(event["event_id"], "Started")

    assert machine.said().count("request_failed request=postpone") == 1


def test_event_that_another_one_replaces_puts_nothing_back_in_between(
    tmp_path: Path, environment: Mapping[str, str]
) -> None:
    with plain_azure() as azure:
        machine = Machine(
            name="WestNO_0", folder=tmp_path, endpoint=azure.endpoint, environment=environment
        )
        machine.start()
        try:
            first = {**EVENT, "EventType": "Reboot", "NotBefore": ""}
            second = {**first, "EventId": "D7061BAC-AFDC-4513-B24B-AA5F13A16123"}
            azure.show(first)
            machine.wait_for_phase("end scheduled")
            azure.show(second)
            machine.wait_for_log(f"event_moved event={first['EventId']} phase=recovered")
            wait_until(lambda: len(azure.approved) == 2, "it was not approved", 20)
            assert machine.phases == WHOLE_LIFE[:2] * 2
            azure.show()
            machine.wait_for_log("event_closed", times=2)
        finally:
            machine.cut_power()

    assert sorted(machine.phases[4:]) == sorted(WHOLE_LIFE[4:] * 2)


def test_life_of_an_event_on_plain_azure(tmp_path: Path, environment: Mapping[str, str]) -> None:
    with plain_azure() as azure:
        machine = Machine(
            name="WestNO_0", folder=tmp_path, endpoint=azure.endpoint, environment=environment
        )
        machine.configure(postpone="1h")
        machine.answer("scheduled", 75)
        machine.start()
        try:
            soon = format_datetime(SystemClock().now() + timedelta(minutes=15), usegmt=True)
            azure.show({**EVENT, "EventType": "Reboot", "NotBefore": soon})
            machine.wait_for_phase("end scheduled", times=2)
            machine.answer("scheduled", 0)
            wait_until(lambda: bool(azure.approved), "it was not approved", 20)
            azure.show({**EVENT, "EventType": "Reboot", "EventStatus": "Started", "NotBefore": ""})
            machine.wait_for_phase("end started")
            azure.show()
            machine.wait_until_closed()
        finally:
            machine.cut_power()

    assert azure.approved == [EVENT["EventId"]]
    assert machine.phases[-4:] == WHOLE_LIFE[2:]
    assert machine.said().count("request_failed request=postpone") == 1
