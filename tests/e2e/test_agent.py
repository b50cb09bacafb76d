"""Agents and a server through every life of an event, on real sockets."""

import socket
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from tests.e2e.conftest import Server, ServerMaker, free_port, wait_until
from tests.e2e.machines import HOOK, Machine
from tests.e2e.plain_azure import EVENT, plain_azure

MachineMaker = Callable[..., Machine]

WHOLE_LIFE = [
    "begin scheduled",
    "end scheduled",
    "begin started",
    "end started",
    "begin recovered",
    "end recovered",
]


@pytest.fixture
def make_machine(tmp_path: Path, environment: Mapping[str, str]) -> Generator[MachineMaker]:
    """Return a function that makes a machine of a server; it is killed after the test."""
    machines: list[Machine] = []

    def make(server: Server, name: str = "solo-0", **settings: str) -> Machine:
        folder = tmp_path / name
        folder.mkdir()
        endpoint = f"http://127.0.0.1:{server.metadata_port}/vm/{name}"
        machine = Machine(name=name, folder=folder, endpoint=endpoint, environment=environment)
        machine.configure(**settings)
        machines.append(machine)
        return machine

    yield make
    for machine in machines:
        machine.cut_power()


def complete(server: Server, event_id: str) -> None:
    assert server.operate("POST", f"events/{event_id}/complete").status == 200


def cancel(server: Server, event_id: str) -> None:
    assert server.operate("POST", f"events/{event_id}/cancel").status == 200


def ask(port: int, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


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
    complete(server, event["event_id"])
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


def test_canceled_event_is_undone(start_server: ServerMaker, make_machine: MachineMaker) -> None:
    server = start_server()
    machine = make_machine(server, approval="never")
    machine.start()

    (event,) = server.create("Reboot", "solo-0")
    machine.wait_for_phase("end scheduled")
    cancel(server, event["event_id"])
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
    complete(server, event["event_id"])
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

    machine.wait_for_phase("end started", times=2)
    for event in (reboot, freeze):
        complete(server, event["event_id"])
    machine.wait_for_phase("end recovered", times=2)
    begun = [line for line in machine.journal if line.startswith("begin")]
    assert len(begun) == len(set(begun)) == 6


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


def test_server_that_is_killed_in_the_middle_is_waited_for(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server()
    machine = make_machine(server)
    machine.hold("scheduled")
    machine.start()

    (event,) = server.create("Reboot", "solo-0")
    machine.wait_for_phase("begin scheduled")
    server.kill()
    machine.release("scheduled")
    machine.wait_for_phase("end scheduled")
    server.start()
    server.wait_for(event["event_id"], "Started", 60)
    machine.wait_for_phase("end started")
    complete(server, event["event_id"])
    machine.wait_until_closed()

    assert machine.phases == WHOLE_LIFE


@pytest.mark.parametrize("phase", ["scheduled", "started", "recovered"])
def test_agent_that_is_killed_during_a_hook_does_not_run_it_again(
    start_server: ServerMaker, make_machine: MachineMaker, phase: str
) -> None:
    server = start_server()
    machine = make_machine(server)
    machine.hold(phase)
    machine.start()

    (event,) = server.create("Reboot", "solo-0")
    event_id = event["event_id"]
    if phase == "recovered":
        machine.wait_for_phase("end started")
        complete(server, event_id)
    machine.wait_for_phase(f"begin {phase}")
    machine.kill()
    machine.start()
    machine.release(phase)
    if phase == "scheduled":
        assert server.operate("POST", f"events/{event_id}/start").status == 200
        machine.wait_for_phase("end started")
    if phase != "recovered":
        complete(server, event_id)
    machine.wait_until_closed()

    begun = [line for line in machine.phases if line.startswith("begin")]
    assert begun == ["begin scheduled", "begin started", "begin recovered"]
    assert "hook_interrupted" in machine.said()


@pytest.mark.parametrize("moment", ["ready", "started", "gone"])
def test_agent_that_is_killed_between_hooks_goes_on_where_it_was(
    start_server: ServerMaker, make_machine: MachineMaker, moment: str
) -> None:
    server = start_server()
    machine = make_machine(server, approval="never" if moment == "ready" else "when-ready")
    machine.start()

    (event,) = server.create("Reboot", "solo-0")
    event_id = event["event_id"]
    machine.wait_for_state("scheduled" if moment == "ready" else "started")
    machine.kill()
    if moment == "gone":
        complete(server, event_id)
    machine.configure(approval="when-ready")
    machine.start()
    server.wait_for(event_id, "Completed" if moment == "gone" else "Started")
    if moment != "gone":
        machine.wait_for_phase("end started")
        complete(server, event_id)
    machine.wait_until_closed()

    assert machine.phases == WHOLE_LIFE


def test_machine_that_is_rebooted_by_the_event_itself_recovers(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server()
    machine = make_machine(server)
    machine.hold("started")
    machine.start()

    (event,) = server.create("Reboot", "solo-0")
    machine.wait_for_phase("begin started")
    machine.cut_power()
    server.kill()
    server.start()
    complete(server, event["event_id"])
    machine.start()
    machine.wait_until_closed()

    assert machine.phases == [*WHOLE_LIFE[:3], *WHOLE_LIFE[4:]]


def test_machine_that_comes_back_when_all_is_over_prepares_for_nothing(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server()
    machine = make_machine(server)
    machine.write_hook("scheduled", "20-more", HOOK.format(folder=machine.folder))
    machine.hold("scheduled")
    machine.start()

    (event,) = server.create("Reboot", "solo-0")
    machine.wait_for_phase("begin scheduled")
    machine.cut_power()
    assert server.operate("POST", f"events/{event['event_id']}/start").status == 200
    complete(server, event["event_id"])
    machine.start()
    machine.wait_until_closed()

    assert machine.phases == ["begin scheduled", *WHOLE_LIFE[4:]]


def test_machine_that_comes_back_before_the_event_ends_waits_for_it(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server()
    machine = make_machine(server)
    machine.start()

    (event,) = server.create("Reboot", "solo-0")
    machine.wait_for_phase("end started")
    machine.cut_power()
    machine.start()
    time.sleep(1.5)
    assert "begin recovered" not in machine.phases
    complete(server, event["event_id"])
    machine.wait_until_closed()

    assert machine.phases == WHOLE_LIFE


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


CLUSTER = """
[[availability_set]]
name = "db"
approval = "{approval}"
""" + "".join(
    f'\n[[virtual_machine]]\nname = "db-{number}"\navailability_set = "db"\nupdate_domain = 0\n'
    for number in range(3)
)


def start_cluster(
    make_server: ServerMaker, make_machine: MachineMaker, policy: str, approval: str
) -> tuple[Server, list[Machine]]:
    server = make_server()
    server.fleet.write_text(CLUSTER.format(approval=policy), encoding="utf-8")
    server.start()
    machines = [make_machine(server, f"db-{number}", approval=approval) for number in range(3)]
    for machine in machines:
        machine.hold("scheduled")
        machine.start()
    return server, machines


def test_cluster_under_policy_all_starts_when_the_last_is_ready(
    make_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server, machines = start_cluster(make_server, make_machine, "all", "when-ready")
    (event,) = server.create("Reboot", "db-0", "db-1", "db-2")
    event_id = event["event_id"]

    for number, machine in enumerate(machines):
        machine.wait_for_phase("begin scheduled")
        assert server.event(event_id)["event_status"] == "Scheduled"
        assert len(server.event(event_id)["approvals"]) == number
        machine.release("scheduled")
        machine.wait_for_log("request_granted request=approve")

    server.wait_for(event_id, "Started")
    for machine in machines:
        machine.wait_for_phase("end started")


@pytest.mark.parametrize("policy", ["any", "leader"])
def test_cluster_with_a_leader_starts_when_the_leader_is_ready(
    make_server: ServerMaker, make_machine: MachineMaker, policy: str
) -> None:
    server, machines = start_cluster(make_server, make_machine, policy, "leader")
    (event,) = server.create("Reboot", "db-0", "db-1", "db-2")
    leader, *others = machines

    for machine in others:
        machine.release("scheduled")
        machine.wait_for_phase("end scheduled")
    leader.wait_for_phase("begin scheduled")
    time.sleep(1)
    assert server.event(event["event_id"])["event_status"] == "Scheduled"
    assert server.event(event["event_id"])["approvals"] == []
    leader.release("scheduled")
    server.wait_for(event["event_id"], "Started")

    approvals = server.event(event["event_id"])["approvals"]
    assert [approval["name"] for approval in approvals] == ["db-0"]


def test_stopping_waits_for_the_hook_that_is_running(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server()
    machine = make_machine(server)
    machine.hold("scheduled")
    machine.start()
    server.create("Reboot", "solo-0")
    machine.wait_for_phase("begin scheduled")

    assert machine.process is not None
    machine.process.terminate()
    machine.wait_for_log("stopping hooks_running=True")
    machine.release("scheduled")

    assert machine.process.wait(10) == 0
    assert "outcome=ready" in machine.said()


def test_dry_run_does_nothing_and_says_what_it_would(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server()
    machine = make_machine(server)
    machine.start("--dry-run")

    (event,) = server.create("Reboot", "solo-0")
    machine.wait_for_log("would_approve")

    assert "would_run" in machine.said()
    assert server.event(event["event_id"])["approvals"] == []
    assert machine.journal == []
    assert not (machine.folder / "state").exists()


def test_once_does_what_is_due_each_time_it_is_run(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server()
    machine = make_machine(server)
    assert machine.run("once").returncode == 0
    (event,) = server.create("Reboot", "solo-0")

    machine.answer("scheduled", 75)
    assert machine.run("once").returncode == 75
    machine.answer("scheduled", 1)
    assert machine.run("once").returncode == 1
    assert machine.run("once").returncode == 0
    assert server.operate("POST", f"events/{event['event_id']}/start").status == 200
    assert machine.run("once").returncode == 0
    complete(server, event["event_id"])
    assert machine.run("once").returncode == 0

    assert machine.phases == [*WHOLE_LIFE[:2], *WHOLE_LIFE]
    assert '"cases": []' in (machine.folder / "state" / "state.json").read_text()


def test_listener_says_who_is_drained(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server()
    port = free_port()
    machine = make_machine(server, listen=f"127.0.0.1:{port}")
    machine.start()
    wait_until(lambda: ask(port, "/readyz") == (200, "ok\n"), "it does not get ready", 20)
    assert ask(port, "/healthz") == (200, "ok\n")
    assert ask(port, "/drainz") == (200, "ok\n")
    assert ask(port, "/elsewhere")[0] == 404

    (event,) = server.create("Reboot", "solo-0")
    server.wait_for(event["event_id"], "Started")
    wait_until(lambda: ask(port, "/drainz") == (503, "draining\n"), "it is not drained", 20)
    machine.wait_for_phase("end started")
    complete(server, event["event_id"])
    wait_until(lambda: ask(port, "/drainz") == (200, "ok\n"), "it is still drained", 20)
    server.kill()
    wait_until(lambda: ask(port, "/readyz")[0] == 503, "it does not notice", 20)

    assert ask(port, "/healthz")[0] == 200
    assert "azure_scheduledevent_request_error 0" not in ask(port, "/metrics")[1]


def test_life_of_an_event_on_plain_azure(tmp_path: Path, environment: Mapping[str, str]) -> None:
    with plain_azure() as azure:
        machine = Machine(
            name="WestNO_0", folder=tmp_path, endpoint=azure.endpoint, environment=environment
        )
        machine.configure(postpone="1h")
        machine.answer("scheduled", 75)
        machine.start()
        try:
            azure.show({**EVENT, "EventType": "Reboot"})
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


def test_systemd_is_told_how_it_goes(
    start_server: ServerMaker, make_machine: MachineMaker, tmp_path: Path
) -> None:
    machine = make_machine(start_server())
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.settimeout(20)
        machine.environment = {
            **machine.environment,
            "NOTIFY_SOCKET": address,
            "WATCHDOG_USEC": "1000000",
            "JOURNAL_STREAM": "8:1",
        }
        machine.start()

        told = [systemd.recv(100) for _ in range(6)]
        assert machine.stop() == 0
        while told[-1] != b"STOPPING=1":
            told.append(systemd.recv(100))

    assert told[0] == b"READY=1"
    assert set(told[1:-1]) == {b"WATCHDOG=1"}
    assert machine.said().startswith("<6>agent_runs")


def test_check_shows_what_is_known_and_what_is_wrong(
    start_server: ServerMaker, make_machine: MachineMaker
) -> None:
    server = start_server()
    machine = make_machine(server, approval="never")
    (event,) = server.create("Reboot", "solo-0")
    machine.run("once")
    (machine.folder / "hooks.d" / "started.d" / "notes.txt").touch()

    checked = machine.run("check")

    known = f"{event['event_id']} handle scheduled: scheduled '10-note' ready"
    assert f"known event     {known}" in checked.stdout
    assert "notes.txt cannot be executed" in checked.stdout
    assert checked.returncode == 1
