"""The emulator as a test of somebody's code uses it: over its real socket."""

import asyncio
import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from forewarn.client import Client
from forewarn.domain.errors import DomainError, NoticeTooShortError
from forewarn.domain.fault import FaultError
from forewarn.environment import SettingsError
from forewarn.files.fleet import FleetError
from forewarn.files.scenario import ScenarioError
from forewarn.protocol.versions import API_VERSIONS
from forewarn.testing import (
    EmulatedVm,
    Emulator,
    EmulatorClosedError,
    EventStatus,
    UnknownNameError,
    WouldBlockError,
)

FLEET = """
[[availability_set]]
name = "web"
update_domains = 2

[[virtual_machine]]
name = "web-0"
availability_set = "web"

[[virtual_machine]]
name = "web-1"
availability_set = "web"

[[virtual_machine]]
name = "web-2"
availability_set = "web"
"""
READY_SECONDS = 0.05


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as running:
        yield running


def ask(url: str, body: object = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Metadata": "true"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        content: bytes = answer.read()
    return content


def read(vm: EmulatedVm, version: str = "2020-07-01") -> dict[str, Any]:
    document: dict[str, Any] = json.loads(ask(f"{vm.scheduled_events_url}?api-version={version}"))
    return document


def approve(vm: EmulatedVm, event_id: str) -> None:
    url = f"{vm.scheduled_events_url}?api-version=2020-07-01"
    assert ask(url, {"StartRequests": [{"EventId": event_id}]}) == b""


def test_virtual_time_is_exact_to_the_second(emulator: Emulator) -> None:
    event = emulator.vm("web-0").reboot()

    emulator.clock.advance(minutes=14, seconds=59)
    event.assert_status("Scheduled")
    emulator.clock.advance(seconds=1)
    event.assert_status("Started")

    emulator.clock.advance(minutes=9, seconds=59)
    event.assert_status("Started")
    emulator.clock.advance(seconds=1)
    event.assert_status("Completed")


@pytest.mark.parametrize("version", [version.name for version in API_VERSIONS])
def test_document_is_what_a_client_reads(emulator: Emulator, version: str) -> None:
    web = emulator.vm("web-0")
    web.freeze(duration=9, description="Host server is undergoing maintenance.")

    assert web.document(version) == read(web, version) == emulator.document("web-0", version)
    assert len(read(web, version)["Events"]) == 1


def test_approval_over_the_wire_starts_the_event_at_once(emulator: Emulator) -> None:
    web = emulator.vm("web-0")
    event = web.reboot()

    approve(web, event.event_id.lower())

    emulator.await_started(event, timeout=0)
    event.assert_approved(by="web-0")
    assert [given.by for given in emulator.approvals] == ["web-0"] == [web.approvals[0].by]
    assert read(web)["Events"][0]["EventStatus"] == "Started"


def test_code_under_test_may_be_another_process(emulator: Emulator) -> None:
    web = emulator.vm("web-0")
    event = web.preempt()
    program = (
        "import json, os, urllib.request as u\n"
        "url = os.environ['FOREWARN_METADATA'] + "
        "'/metadata/scheduledevents?api-version=2020-07-01'\n"
        "ask = lambda data=None: u.urlopen(u.Request(url, data, {'Metadata': 'true'})).read()\n"
        "ids = [{'EventId': e['EventId']} for e in json.loads(ask())['Events']]\n"
        "ask(json.dumps({'StartRequests': ids}).encode())\n"
    )

    with subprocess.Popen([sys.executable, "-c", program], env=dict(web.environment)) as process:
        emulator.await_approved(event, timeout=30)
        assert process.wait(60) == 0

    emulator.clock.advance(seconds=30)
    event.assert_status("Completed")


def test_environment_is_for_programs_of_any_kind(emulator: Emulator) -> None:
    web = emulator.vm("web-0")

    assert web.environment == {
        "FOREWARN_METADATA_URL": web.url,
        "FOREWARN_METADATA": web.url,
        "AZURE_SCHEDULEDEVENTS_URL": f"{web.scheduled_events_url}?api-version=2019-08-01",
        "AZURE_METADATAINSTANCE_URL": f"{web.url}/metadata/instance?api-version=2019-08-01",
    }


def test_code_under_test_may_run_in_the_event_loop_of_the_test(emulator: Emulator) -> None:
    web = emulator.vm("web-0")
    event = web.reboot()

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(approve, web, event.event_id))
            await emulator.until.started(event)

    asyncio.run(run())

    event.assert_approved(by="web-0")


def test_waiting_in_an_event_loop_is_refused_with_the_way_to_do_it(emulator: Emulator) -> None:
    event = emulator.vm("web-0").reboot()

    async def run() -> None:
        emulator.await_started(event)

    with pytest.raises(WouldBlockError, match=r"await emulator\.until\.started\("):
        asyncio.run(run())


def test_every_type_has_its_verb(emulator: Emulator) -> None:
    web = emulator.vm("web-0")

    for announce in (web.freeze, web.reboot, web.redeploy, web.preempt, web.terminate):
        announce()

    types = [event.record.event_type for event in web.events]
    assert types == ["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"]
    assert {event["EventType"] for event in read(web)["Events"]} == set(types)


def test_owner_reboots_and_redeploys(emulator: Emulator) -> None:
    emulator.vm("web-0").user_reboot()
    emulator.vm("web-1").user_redeploy()

    sources = [event.record.event_source for event in emulator.events]
    assert sources == ["User", "User"]


def test_owner_gets_notice_only_if_somebody_polls() -> None:
    with Emulator(notice="when-enabled") as emulator:
        idle, polling = emulator.vm("idle"), emulator.vm("polling")
        read(polling)

        assert idle.user_reboot().event_status is EventStatus.STARTED
        assert polling.user_reboot().event_status is EventStatus.SCHEDULED


def test_operator_finds_out_who_polls_as_a_test_does() -> None:
    with Emulator(notice="when-enabled") as emulator:
        read(emulator.vm("polling"))
        request = urllib.request.Request(
            f"{emulator.control_url}/api/v1/virtual-machines/polling/restart",
            method="POST",
            headers={"Authorization": f"Bearer {emulator.token}"},
        )

        with urllib.request.urlopen(request, timeout=120) as answer:
            assert json.load(answer)["event_status"] == "Scheduled"


def test_cancel_withdraws_what_has_not_started(emulator: Emulator) -> None:
    web = emulator.vm("web-0")
    failure, planned = web.reboot(started=True), web.redeploy()

    web.cancel("not needed")

    failure.assert_status("Started")
    planned.assert_status("Canceled")
    with pytest.raises(DomainError):
        planned.cancel()


def test_event_can_be_approved_started_and_completed_by_hand(emulator: Emulator) -> None:
    first, second = (emulator.vm("web-0").reboot() for _ in range(2))

    first.approve()
    second.start()
    first.complete()
    second.complete(failed="did not come back")

    assert [event.record.outcome for event in (first, second)] == ["succeeded", "failed"]
    assert [entry.what for entry in second.ledger] == ["scheduled", "started", "completed"]


def test_notice_may_be_longer_but_not_shorter_than_the_minimum(emulator: Emulator) -> None:
    web = emulator.vm("web-0")
    late = web.reboot(notice=timedelta(hours=1))

    emulator.clock.advance(timedelta(minutes=59))
    late.assert_status("Scheduled")
    with pytest.raises(NoticeTooShortError):
        web.reboot(notice=timedelta(minutes=14))

    assert len(web.events) == 1


def test_fleet_says_who_shares_a_document() -> None:
    with Emulator(FLEET) as emulator:
        created = emulator.announce("Reboot", "web-0", "web-1", "web-2")

        resources = [set(event.record.resources) for event in created]
        assert resources == [{"web-0", "web-2"}, {"web-1"}]
        assert len({json.dumps(read(vm)) for vm in emulator.vms}) == 1


def test_fleet_may_be_a_file_or_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(FLEET, encoding="utf-8")

    for fleet in (path, {"virtual_machine": [{"name": "web-0"}]}):
        with Emulator(fleet) as emulator:
            assert emulator.vms[0].name == "web-0"


def test_machine_outside_a_given_fleet_is_refused() -> None:
    said = r"Unknown virtual machine 'web-9'; known: web-0, web-1, web-2\."
    with Emulator(FLEET) as emulator:
        event = emulator.vm("web-0").reboot()
        for mistake in (
            lambda: emulator.vm("web-9"),
            lambda: emulator.announce("Reboot", "web-0", "web-9"),
            lambda: emulator.run_scenario("redeploy", "web-9"),
            lambda: emulator.document("web-9"),
            lambda: event.assert_approved(by="web-9"),
        ):
            with pytest.raises(UnknownNameError, match=said):
                mistake()


def test_of_many_machines_some_are_named() -> None:
    fleet = {"virtual_machine": [{"name": f"vm-{number}"} for number in range(12)]}

    said = r"vm-8, vm-9 and 2 more\.$"
    with Emulator(fleet) as emulator, pytest.raises(UnknownNameError, match=said):
        emulator.vm("web-9")


def test_machine_is_there_as_soon_as_something_is_announced_to_it(emulator: Emulator) -> None:
    (event,) = emulator.announce("Reboot", "web-5")

    assert event.record.resources == ("web-5",)


def test_bad_fleet_is_refused_before_anything_starts() -> None:
    with pytest.raises(FleetError, match="cattle"):
        Emulator({"cattle": []})


def test_caller_without_a_name_is_the_default_machine() -> None:
    with Emulator(default_vm="solo") as emulator:
        event = emulator.vm("solo").reboot()

        url = f"http://{emulator.address}/metadata/scheduledevents?api-version=2020-07-01"
        assert json.loads(ask(url))["Events"][0]["EventId"] == event.event_id


def test_failed_wait_shows_document_and_ledger(emulator: Emulator) -> None:
    event = emulator.vm("web-0").reboot()

    with pytest.raises(AssertionError) as failure:
        emulator.await_started(event, timeout=0.01)

    message = str(failure.value)
    first, *others = message.splitlines()
    assert first == "Reboot of web-0 was not started within 0.01 s; web-0 sent no request"
    assert any(line.startswith(f"Ledger of {event.event_id}") for line in others)
    assert "Document of virtual-machine/web-0, incarnation 1" in message
    assert "Scheduled Reboot of web-0, not before" in message
    assert "scheduled by admin" in message


def test_assertions_say_what_is_wrong(emulator: Emulator) -> None:
    web = emulator.vm("web-0")
    event = web.reboot()

    with pytest.raises(AssertionError, match="is Scheduled, not Started"):
        event.assert_status("Started")
    with pytest.raises(AssertionError, match="was not approved"):
        event.assert_approved()
    approve(web, event.event_id)
    emulator.vm("web-1")
    with pytest.raises(AssertionError, match="not approved by web-1, but by web-0"):
        event.assert_approved(by="web-1")
    with pytest.raises(AssertionError, match="was approved by web-0"):
        event.assert_not_approved()


def test_unknown_api_version_is_refused(emulator: Emulator) -> None:
    with pytest.raises(ValueError, match="2016-01-01"):
        emulator.vm("web-0").document("2016-01-01")


def test_fault_concerns_one_machine_until_it_is_cleared(emulator: Emulator) -> None:
    faulty, healthy = emulator.vm("web-0"), emulator.vm("web-1")
    url = f"{faulty.scheduled_events_url}?api-version=2020-07-01"

    faulty.fault("status", status=410)
    assert _status(urllib.request.Request(url, headers={"Metadata": "true"})) == 410
    assert read(healthy)["Events"] == []
    faulty.clear_faults()

    assert read(faulty)["Events"] == []
    with pytest.raises(FaultError, match="needs status"):
        faulty.fault("status")


def test_client_of_the_sdk_comes_with_the_machine(emulator: Emulator) -> None:
    web = emulator.vm("web-0")
    event = web.reboot()

    with web.client() as client:
        client.approve(*(shown for shown in client.events() if shown.affects(client.whoami())))

    event.assert_approved(by="web-0")


def test_scenario_goes_on_as_time_passes(emulator: Emulator) -> None:
    run = emulator.run_scenario("live-migration", "web-0", "web-1")
    assert [event.event_status for event in run.events] == ["Scheduled", "Scheduled"]

    emulator.clock.advance(minutes=15)
    assert [event.event_status for event in run.events] == ["Started", "Started"]
    emulator.clock.advance(minutes=5)

    assert run.status == "finished"


def test_scenario_comes_from_a_file_and_can_be_stopped(emulator: Emulator, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'name = "mine"\ndescription = "Short notice."\n'
        '[[step]]\nat = "0s"\nannounce = "Reboot"\nnotice = "5s"\n',
        encoding="utf-8",
    )

    run = emulator.run_scenario(file, "web-0")
    (event,) = run.events
    run.stop()

    event.assert_status("Canceled")
    assert event.record.not_before - event.record.created_at == timedelta(seconds=5)
    with pytest.raises(UnknownNameError, match=r"'dead-migration'; known: .*live-migration"):
        emulator.run_scenario("dead-migration", "web-0")


def test_scenario_sets_and_clears_faults(emulator: Emulator, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'name = "mine"\n'
        '[[step]]\nat = "0s"\nfault = "unknown-type"\nevent_type = "Nap"\n'
        '[[step]]\nat = "0s"\nannounce = "Reboot"\n'
        '[[step]]\nat = "5m"\nclear = true\n',
        encoding="utf-8",
    )

    emulator.run_scenario(file, "web-0")
    with emulator.vm("web-0").client() as client:
        early = client.events()
        emulator.clock.advance(minutes=5)
        late = client.events()

    assert [event.event_type for event in (*early, *late)] == ["Nap", "Reboot"]


def test_answers_on_a_kept_connection_come_at_once(emulator: Emulator) -> None:
    with emulator.vm("web-0").client() as client:
        rounds = (time_documents(client) for _ in range(50))

        # Not in every round: on a busy machine an answer takes as long without any reason.
        assert any(took < 0.02 for took in rounds), (
            "half of them wait for a delayed acknowledgement, 40 ms each"
        )


def time_documents(client: Client) -> float:
    """Return the time within which a client gets three quarters of its documents."""
    took = []
    for _ in range(20):
        began = time.perf_counter()
        client.document()
        took.append(time.perf_counter() - began)
    return sorted(took)[14]


def test_approvals_are_in_the_order_they_were_given(emulator: Emulator) -> None:
    first, second = emulator.vm("web-0"), emulator.vm("web-1")
    events = [first.reboot(), second.reboot()]

    approve(second, events[1].event_id)
    approve(first, events[0].event_id)

    assert [given.by for given in emulator.approvals] == ["web-1", "web-0"]


@pytest.mark.parametrize(
    ("details", "problem"),
    [
        ({"durat": 5}, "Unknown detail 'durat'"),
        ({"duration": -5}, "whole number of seconds"),
        ({"duration": 2.5}, "whole number of seconds"),
        ({"duration": 10**30}, "whole number of seconds"),
        ({"notice": 5}, "timedelta"),
    ],
)
def test_wrong_detail_of_an_event_is_refused(
    emulator: Emulator, details: dict[str, Any], problem: str
) -> None:
    web = emulator.vm("web-0")

    with pytest.raises((TypeError, ValueError), match=problem):
        web.freeze(**details)

    assert web.events == ()


def test_wrong_word_is_refused_with_those_there_are(emulator: Emulator) -> None:
    web = emulator.vm("web-0")
    event = web.reboot()

    with pytest.raises(ValueError, match="Freeze, Reboot"):
        emulator.announce("Crash", "web-0")
    with pytest.raises(ValueError, match="needs at least one virtual machine"):
        emulator.announce("Reboot")
    with pytest.raises(ValueError, match="Scheduled, Started"):
        event.assert_status("started")
    with pytest.raises(ValueError, match="empty-body"):
        web.fault("bogus")
    with pytest.raises(TypeError, match="minutes=15"):
        emulator.clock.advance(5)  # type: ignore[arg-type]


def test_text_that_is_a_path_is_refused_with_how_to_write_it(
    emulator: Emulator, tmp_path: Path
) -> None:
    file = tmp_path / "bad.toml"
    file.write_text('name = "mine"\n[[step]]\nat = "0s"\nannounce = "Crash"\n', encoding="utf-8")

    with pytest.raises(FleetError, match=r"Path\('fleet.toml'\)"):
        Emulator("fleet.toml")
    with pytest.raises(ScenarioError, match=r"Path\('bad.toml'\)"):
        emulator.run_scenario("bad.toml", "web-0")
    with pytest.raises(ScenarioError, match=r"bad.toml:4: announce of step 1: "):
        emulator.run_scenario(file, "web-0")


def test_moment_without_a_time_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        Emulator(now=datetime(2030, 1, 5))  # noqa: DTZ001


def test_threads_that_start_it_together_start_it_once() -> None:
    emulator = Emulator()
    before = threading.active_count()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: emulator.start(), range(8)))
        urls = set(pool.map(lambda _: emulator.control_url, range(8)))
    emulator.close()

    assert len(urls) == 1
    assert threading.active_count() <= before


def test_what_is_left_of_a_closed_emulator_says_so() -> None:
    with Emulator() as emulator:
        web, clock = emulator.vm("web-0"), emulator.clock
        event = web.reboot()

    for look in (
        lambda: event.event_status,
        lambda: web.url,
        lambda: clock.now,
        lambda: web.fault("reset"),
    ):
        with pytest.raises(EmulatorClosedError):
            look()


def test_time_does_not_go_back(emulator: Emulator) -> None:
    with pytest.raises(ValueError, match="back"):
        emulator.clock.advance(minutes=-1)


def test_time_begins_where_it_is_told() -> None:
    start = datetime(2030, 1, 5, 8, 0, tzinfo=UTC)

    with Emulator(now=start) as emulator:
        event = emulator.vm("web-0").reboot()

        assert emulator.clock.now == start
        assert emulator.clock.advance(minutes=15) == event.record.not_before


def test_emulators_know_nothing_of_each_other() -> None:
    with Emulator() as one, Emulator() as other:
        one.vm("web-0").reboot()

        assert one.address != other.address
        assert read(other.vm("web-0"))["Events"] == []


def test_control_api_is_there_when_asked_for(emulator: Emulator) -> None:
    event = emulator.vm("web-0").reboot()
    request = urllib.request.Request(
        f"{emulator.control_url}/api/v1/events",
        headers={"Authorization": f"Bearer {emulator.token}"},
    )

    with urllib.request.urlopen(request, timeout=120) as answer:
        (shown,) = json.load(answer)["events"]

    assert shown["event_id"] == event.event_id
    assert emulator.control_url == emulator.control_url


def test_closed_emulator_says_so_and_answers_nobody() -> None:
    emulator = Emulator()
    with pytest.raises(EmulatorClosedError):
        _ = emulator.address

    with emulator:
        emulator.start()
        url = emulator.vm("web-0").scheduled_events_url
    emulator.close()

    with pytest.raises(EmulatorClosedError):
        emulator.vm("web-0")
    with pytest.raises(urllib.error.URLError):
        ask(url)


def test_closing_ends_a_long_poll_at_once() -> None:
    emulator = Emulator()
    emulator.start()
    url = f"{emulator.vm('web-0').scheduled_events_url}?api-version=2020-07-01"
    headers = {"Metadata": "true", "If-None-Match": "0", "Prefer": "wait=60"}

    async def close_while_waiting() -> int:
        poll = asyncio.to_thread(_status, urllib.request.Request(url, headers=headers))
        async with asyncio.TaskGroup() as group:
            polling = group.create_task(poll)
            await asyncio.to_thread(wait_until_parked, emulator)
            began = time.monotonic()
            await asyncio.to_thread(emulator.close)
            assert time.monotonic() - began < 30, "half of what it may wait"
        return polling.result()

    assert asyncio.run(close_while_waiting()) == 304


def wait_until_parked(emulator: Emulator) -> None:
    """Wait by itself: this file is also run on its own, with the oldest packages."""
    deadline = time.monotonic() + 30
    while [entry.seconds is None for entry in emulator.vm("web-0").requests] != [True]:
        assert time.monotonic() < deadline, "no poll waits"
        time.sleep(0.01)


def _status(request: urllib.request.Request) -> int:
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_emulator_is_ready_soon() -> None:
    """A guard at ten times the target, in processor time; `make bench` has the figure."""
    with Emulator():
        pass
    began = time.process_time()

    with Emulator() as emulator:
        emulator.vm("web-0")

        assert time.process_time() - began < 10 * READY_SECONDS


def test_wrong_setting_is_refused_in_a_sentence() -> None:
    refused = pytest.raises(SettingsError, match="Invalid setting notice")

    with refused, Emulator(notice="bogus"):
        pass


def test_log_of_the_program_under_test_has_nothing_of_ours(emulator: Emulator) -> None:
    with capture_logs() as logs:
        emulator.vm("web-0").reboot()
        emulator.clock.advance(hours=2)

    assert logs == []


def test_audit_tells_machines_from_operators_of_the_same_name() -> None:
    with Emulator({"virtual_machine": [{"name": "admin"}]}) as emulator:
        machine = emulator.vm("admin")
        machine.reboot()
        with machine.client() as client:
            client.approve(client.document().events[0].event_id)
        asking = urllib.request.Request(f"{emulator.control_url}/api/v1/audit")
        asking.add_header("Authorization", f"Bearer {emulator.token}")
        with urllib.request.urlopen(asking) as answer:
            entries = json.load(answer)["audit"]

    lines = [(entry["who"], entry["actor"], entry["action"]) for entry in entries]
    assert ("admin", "server", "fleet apply") in lines
    assert ("admin", "operator", "event create") in lines
    assert ("admin", "vm", "event approve") in lines
