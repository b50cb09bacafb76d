"""The journal of requests, as a test of somebody's code reads it."""

import asyncio
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.waiting import wait_until

from forewarn.testing import EmulatedVm, Emulator, WouldBlockError

FLEET = {
    "availability_set": [{"name": "web", "update_domains": 2}],
    "virtual_machine": [
        {"name": f"web-{number}", "availability_set": "web"} for number in (0, 1, 2)
    ],
}


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as running:
        yield running


def ask(vm: EmulatedVm, body: object = None, *, metadata: str = "true") -> int:
    url = f"{vm.scheduled_events_url}?api-version=2020-07-01"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Metadata": metadata})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
            status: int = answer.status
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code
    return status


def test_requests_are_those_of_the_machine_in_their_order(emulator: Emulator) -> None:
    web, other = emulator.vm("web-0"), emulator.vm("web-1")
    ask(web)
    ask(other)
    ask(web, {"StartRequests": [{"EventId": "mistyped"}]})

    assert [(entry.method, entry.status) for entry in web.requests] == [("GET", 200), ("POST", 400)]
    assert web.requests[1].error == "Bad request. EventId is unknown"
    assert [entry.vm for entry in emulator.requests] == ["web-0", "web-1", "web-0"]


def test_requests_are_stamped_with_virtual_time(emulator: Emulator) -> None:
    web = emulator.vm("web-0")
    emulator.clock.advance(hours=5)

    ask(web)

    assert web.requests[0].maintenance_time == emulator.clock.now


def first_line(failure: pytest.ExceptionInfo[AssertionError]) -> str:
    return re.sub(r"\d+\.\d s\b", "N s", str(failure.value).splitlines()[0])


def test_failed_assertion_begins_with_what_the_machine_did(emulator: Emulator) -> None:
    web = emulator.vm("web-0")
    event = web.reboot()
    ask(web)
    for _ in range(4):
        ask(web, {"StartRequests": [{"EventId": "mistyped"}]})

    with pytest.raises(AssertionError) as failure:
        event.assert_approved()

    assert first_line(failure) == (
        "Reboot of web-0 was not approved; web-0 sent 4 POSTs, all 400 "
        "(last: EventId is unknown); last GET N s ago"
    )
    assert "Requests of web-0:\n" in str(failure.value)


def test_failure_names_the_neighbour_who_approved() -> None:
    with Emulator(FLEET) as emulator:
        mine, neighbour = emulator.vm("web-0"), emulator.vm("web-1")
        event = mine.reboot()
        ask(neighbour)
        ask(neighbour, {"StartRequests": [{"EventId": event.event_id}]})

        with pytest.raises(AssertionError) as wrong_one:
            event.assert_approved(by="web-0")
        with pytest.raises(AssertionError) as any_one:
            event.assert_not_approved()

    assert first_line(wrong_one) == (
        "Reboot of web-0 was not approved by web-0, but by its neighbor web-1; "
        "web-0 sent no request, but web-1 did"
    )
    assert first_line(any_one) == "Reboot of web-0 was approved by its neighbor web-1"


def test_failure_names_the_event_that_was_approved_instead(emulator: Emulator) -> None:
    web = emulator.vm("web-0")
    event, freeze = web.reboot(), web.freeze()
    ask(web)
    ask(web, {"StartRequests": [{"EventId": freeze.event_id}]})

    with pytest.raises(AssertionError) as failure:
        emulator.await_approved(event, timeout=0.01)

    assert first_line(failure) == (
        "Reboot of web-0 was not approved within 0.01 s; "
        "web-0 sent 1 POST, 200, for Freeze of web-0; last GET N s ago"
    )


def test_failed_status_says_what_every_machine_of_the_event_did() -> None:
    with Emulator(FLEET) as emulator:
        (event,) = emulator.announce("Reboot", "web-0", "web-2")
        ask(emulator.vm("web-2"), metadata="no")

        with pytest.raises(AssertionError) as failure:
            event.assert_status("Started")

    assert first_line(failure) == (
        "Reboot of web-0, web-2 is Scheduled, not Started; "
        "web-0 sent no request, but web-2 did; "
        "web-2 sent 1 GET, 400 (Required metadata header not specified), "
        "was not shown the event, and sent no POST; last GET N s ago"
    )


def test_event_that_nobody_could_approve_is_no_success(emulator: Emulator) -> None:
    web = emulator.vm("web-0")
    event = web.reboot()
    ask(web, metadata="no")

    with pytest.raises(AssertionError) as failure:
        event.assert_not_approved()
    event.assert_not_approved(even_if_silent=True)
    ask(web)

    event.assert_not_approved()
    assert first_line(failure) == (
        "Reboot of web-0 was not approved, but no virtual machine polled "
        "(even_if_silent=True accepts that); web-0 sent 1 GET, 400 (Required metadata header "
        "not specified), was not shown the event, and sent no POST; last GET N s ago"
    )


def is_parked(vm: EmulatedVm) -> bool:
    """Tell whether a client of the SDK waits for a change: it does from its second poll on."""
    return [entry.seconds is None for entry in vm.requests] == [False, True]


def test_poll_before_the_event_says_nothing_about_it(emulator: Emulator) -> None:
    web = emulator.vm("web-0")
    ask(web)
    event = web.reboot()

    with pytest.raises(AssertionError, match=r"^Reboot of web-0 was not approved, but no virtual"):
        event.assert_not_approved()
    web.fault("vanish")
    ask(web)

    event.assert_not_approved()


def test_machine_of_another_scope_could_not_have_approved(emulator: Emulator) -> None:
    web, other = emulator.vm("web-0"), emulator.vm("db-0")
    event = web.reboot()
    ask(other)

    with pytest.raises(AssertionError, match=r"^Reboot of web-0 was not approved, but no virtual"):
        event.assert_not_approved()


def test_poll_that_waited_for_the_event_could_approve_it(emulator: Emulator) -> None:
    web = emulator.vm("web-0")

    with web.client() as client, ThreadPoolExecutor(1) as threads:
        watching = threads.submit(lambda: next(iter(client.watch())))
        wait_until(lambda: is_parked(web), "the second poll waits")
        event = web.reboot()
        watching.result(60)

    event.assert_not_approved()


def test_neighbour_who_reads_could_have_approved() -> None:
    with Emulator(FLEET) as emulator:
        event = emulator.vm("web-1").reboot()
        ask(emulator.vm("web-0"))

        event.assert_not_approved()


def test_poll_is_waited_for(emulator: Emulator) -> None:
    web = emulator.vm("web-0")

    with pytest.raises(
        AssertionError, match=r"^web-0 got no document within 0.01 s; web-0 sent no"
    ):
        emulator.await_polled(web, timeout=0.01)
    ask(web, metadata="no")
    with pytest.raises(AssertionError, match=r"web-0 sent 1 GET, 400 .* and no POST; last GET"):
        emulator.await_polled(web, timeout=0.01)
    with ThreadPoolExecutor(1) as threads:
        threads.submit(ask, web)
        emulator.await_polled(web, timeout=60)


def test_event_is_seen_when_a_document_with_it_was_read() -> None:
    with Emulator(FLEET) as emulator:
        mine, neighbour = emulator.vm("web-0"), emulator.vm("web-1")
        ask(mine)
        event = mine.reboot()
        ask(neighbour)

        assert list(event.seen_by) == ["web-1"]
        emulator.await_seen(event, by=neighbour, timeout=0)
        with pytest.raises(AssertionError) as failure:
            emulator.await_seen(event, timeout=0.01)
        ask(mine)

        emulator.await_seen(event, timeout=0)
        assert list(event.seen_by) == ["web-1", "web-0"]
    assert first_line(failure) == (
        "Reboot of web-0 was not shown to web-0 within 0.01 s; web-0 sent 1 GET, "
        "was not shown the event, and sent no POST; last GET N s ago"
    )


def test_event_is_seen_under_another_spelling(emulator: Emulator) -> None:
    web = emulator.vm("web-0")
    event = web.reboot()
    web.fault("lower-case-ids")

    ask(web)

    assert list(event.seen_by) == ["web-0"]
    emulator.await_seen(event, timeout=0)


def test_poll_that_waits_is_no_failure(emulator: Emulator) -> None:
    web = emulator.vm("web-0")

    with ThreadPoolExecutor(1) as threads, web.client() as client:
        threads.submit(lambda: list(client.watch()))
        wait_until(lambda: is_parked(web), "the second poll waits")
        with pytest.raises(AssertionError) as failure:
            web.fail("is asked about")
        client.close()

    # It is left out, unless this has taken a second.
    assert re.fullmatch(
        r"web-0 is asked about; web-0 sent \d GETs? and no POST; "
        r"(last GET N s ago|its last GET has waited for N s)",
        first_line(failure),
    )


def test_all_waits_can_be_awaited(emulator: Emulator) -> None:
    web = emulator.vm("web-0")
    event = web.reboot()
    turns: list[int] = []

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(count())
            waits = [
                tasks.create_task(emulator.until.polled(web)),
                tasks.create_task(emulator.until.seen(event)),
                tasks.create_task(emulator.until.approved(event)),
                tasks.create_task(emulator.until.started(event)),
            ]
            await asyncio.sleep(0.05)
            assert not any(wait.done() for wait in waits)
            await asyncio.to_thread(ask, web)
            await asyncio.to_thread(ask, web, {"StartRequests": [{"EventId": event.event_id}]})

    async def count() -> None:
        for turn in range(5):
            turns.append(turn)
            await asyncio.sleep(0)

    asyncio.run(run())

    assert len(turns) == 5, "the event loop went on meanwhile"


def test_wait_in_vain_fails_in_an_event_loop_as_elsewhere(emulator: Emulator) -> None:
    event = emulator.vm("web-0").reboot()

    with pytest.raises(AssertionError, match=r"^Reboot of web-0 was not approved within 0.02 s; "):
        asyncio.run(emulator.until.approved(event, timeout=0.02))


@pytest.mark.parametrize("name", ["polled", "seen", "approved", "started"])
def test_blocking_wait_in_an_event_loop_names_the_other(emulator: Emulator, name: str) -> None:
    web = emulator.vm("web-0")
    subject = web if name == "polled" else web.reboot()

    async def run() -> None:
        getattr(emulator, f"await_{name}")(subject)

    with pytest.raises(WouldBlockError, match=rf"await emulator\.until\.{name}\(…\)"):
        asyncio.run(run())


def test_description_has_the_last_requests_of_everybody(emulator: Emulator) -> None:
    web = emulator.vm("web-0")
    for _ in range(7):
        ask(web)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://{emulator.address}/nowhere", timeout=60)
    refused.value.close()

    lines = emulator.describe().splitlines()

    start = lines.index("Requests of web-0, the last 5 of 7:")
    assert all("GET /vm/web-0/metadata/scheduledevents" in line for line in lines[start + 1 :][:5])
    assert lines[start + 6] == "Requests of unknown callers:"
    assert " GET /nowhere: 404 " in lines[start + 7]


def test_reprs_say_what_it_is(emulator: Emulator) -> None:
    web = emulator.vm("web-0")
    event = web.reboot()
    run = emulator.run_scenario("live-migration", "web-0")

    assert repr(emulator) == f"<emulator at {emulator.address}>"
    assert repr(web) == "<virtual machine web-0>"
    assert repr(event) == f"<Reboot of web-0, Scheduled: {event.event_id}>"
    assert repr(run) == "<scenario live-migration for web-0, running>"
    assert repr(emulator.clock).startswith("<clock at 20")
    event.start()
    assert ", Started: " in repr(event)


def test_reprs_of_a_closed_emulator_harm_nobody() -> None:
    with Emulator() as emulator:
        event = emulator.vm("web-0").reboot()
        things = [event, emulator.run_scenario("redeploy", "web-0"), emulator.clock]

    assert repr(emulator) == "<emulator that is not running>"
    assert event.event_id in repr(event)
    assert all("closed" in repr(thing) for thing in things)
