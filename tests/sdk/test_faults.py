"""Both clients against the emulator, with every fault it has: they do their job all the same."""

import os
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from tests.docs.named_tests import find_tests
from tests.e2e.conftest import Server
from tests.http.metadata.conftest import wait_until
from tests.sdk.conftest import TIMEOUT, AnyClient, BlockingAsyncClient, ClientMaker, Metadata
from tests.sdk.rushed import RushedWatch

from forewarn.client import Change, ChangeKind, Client, RefusedError, UnavailableError
from forewarn.domain.fault import FaultKind
from forewarn.protocol.versions import API_VERSIONS
from forewarn.testing import EmulatedVm, Emulator

pytestmark = pytest.mark.timeout(300)

SURVIVED: Final = {
    # What a server or the network does, and which tests see that the client survives it. A name
    # without a path is of this file.
    "it answers with an empty body, at first or later": "test_whole_life_is_seen",
    "it is slow, up to two minutes at first": (
        "test_whole_life_is_seen",
        "tests/unit/client/test_watching.py::test_first_document_may_be_long_in_coming",
    ),
    "it resets connections": "test_whole_life_is_seen",
    "it answered 404, 408, 410, 429 or 5xx": "test_whole_life_is_seen",
    "it answered 410 for 70 seconds": "test_seventy_seconds_of_410_delay_a_change_by_seconds",
    "it answered 429, and says when to come back": (
        "test_retry_after_is_honoured",
        "test_retry_after_beyond_patience_is_told_at_once",
    ),
    "it never recovers": "test_patience_ends_with_the_last_trouble",
    "all of it at once": "test_whole_life_is_seen_under_all_faults_at_once",
    "any of it in any order": (
        "tests/properties/test_watch.py::test_no_end_is_lost_and_no_change_is_told_twice"
    ),
    "it begins to misbehave while a poll waits": "test_fault_that_comes_while_a_poll_is_parked",
    "it begins to count incarnations anew": "test_incarnation_reset_is_not_noticed",
    "an incarnation comes again with other content": (
        "test_incarnation_that_comes_again_with_other_content_misleads_for_ten_seconds"
    ),
    "it has types of events that nobody knows": (
        "test_unknown_type_is_passed_on_and_approved",
        "tests/sdk/test_survival.py::test_unknown_words_and_both_dates_come_through",
    ),
    "it has statuses and sources that nobody knows": (
        "tests/unit/protocol/test_document.py::test_unknown_words_stay_as_they_are",
        "tests/unit/client/test_watching.py::test_status_that_nobody_knows_is_no_change",
    ),
    "it shows events that have ended": (
        "tests/unit/client/test_watching.py::test_end_that_a_document_shows_is_told_once"
    ),
    "notice is shorter than promised": "test_short_notice_is_seen_for_what_is_left_of_it",
    "notice is over when the event is first seen": "test_event_may_be_seen_after_its_start",
    "there is no notice at all": "test_failure_is_seen_as_started",
    "it vanishes without a word": (
        "tests/sdk/test_transport.py"
        "::test_server_that_vanished_without_a_word_is_missed_in_time_for_a_preempt"
    ),
    "answers are cut off, drip, or have the wrong length": "test_whole_life_is_seen",
    "the answer to a POST is lost": "test_answer_that_is_lost_is_an_approval_all_the_same",
    "it redirects": "test_what_is_not_the_server_cannot_take_an_approval",
    "documents are stale": "test_whole_life_is_seen",
    "an event is missing from one document": "test_whole_life_is_seen",
    "an event vanishes and comes back": (
        "test_event_that_vanishes_for_longer_is_gone_and_comes_back"
    ),
    "an event that has started is scheduled again": (
        "test_second_impact_is_told_as_what_it_says_it_is"
    ),
    "an event is there twice": "test_whole_life_is_seen",
    "NotBefore moves, has the wrong weekday, or is empty": "test_whole_life_is_seen",
    "documents are not as documented: Events is null, names are in camel case": (
        "test_whole_life_is_seen"
    ),
    "a portal answers for it": (
        "tests/unit/client/test_conversations.py::test_page_of_a_portal_is_no_approval"
    ),
    "it restarts": "test_server_may_be_killed_and_come_back",
    "it closes connections, with or without a word": (
        "tests/sdk/test_survival.py::test_dead_connection_is_replaced_without_a_word",
        "tests/sdk/test_survival.py::test_answer_that_closes_the_connection_is_an_answer",
    ),
    "the environment names a proxy that is not there": "test_dead_proxy_is_not_used",
    "the environment names a proxy that is there": "test_living_proxy_is_not_asked",
    "a proxy answers with a page, or 504": (
        "tests/sdk/test_survival.py::test_call_survives",
        "test_whole_life_is_seen",
    ),
    "dates are RFC 1123 or ISO 8601, or empty once started": "test_every_version_is_understood",
    "fields are missing in older versions": "test_every_version_is_understood",
    "fields are there that nobody knows": (
        "tests/unit/protocol/test_document.py::test_unknown_fields_are_overlooked"
    ),
    "DocumentIncarnation is a string, or too large for 32 bits": (
        "test_whole_life_is_seen",
        "tests/unit/protocol/test_document.py::test_incarnation_is_read_as_number_or_string",
    ),
    "Content-Type is anything or missing": "tests/sdk/test_survival.py::test_call_survives",
    "the version is unknown to it": "test_unknown_version_is_told",
    "versions mix": "test_versions_may_mix",
    "a POST is answered with any 2xx and any body": (
        "tests/sdk/test_survival.py::test_approval_is_answered_in_any_way"
    ),
    "a POST is lost, or comes twice": "test_approval_that_came_twice_counts_once",
    "an approved event starts at once, long before its time": "test_whole_life_is_seen",
    "a Freeze is over, or called off": "test_end_says_whether_it_came_to_pass",
    "the end cannot be asked about just then": "test_end_is_asked_for_again",
    "which virtual machine this is": (
        "test_whole_life_is_seen",
        "tests/unit/protocol/test_identity.py::test_event_affects_a_machine_by_any_of_its_names",
        "tests/sdk/test_survival.py::test_azure_is_asked_who_we_are_by_instance_metadata",
    ),
    "it refuses": "test_refusal_is_told_at_once_and_harms_nothing",
    "it misbehaves towards a neighbour": "test_neighbour_notices_nothing",
}

FAULTS: Final[dict[str, dict[str, Any]]] = {
    "slow": {"kind": "slow", "seconds": 0.01, "times": 2},
    "slower than the time-out": {"kind": "slow", "seconds": 0.4, "times": 1},
    "reset": {"kind": "reset", "times": 2},
    "empty body": {"kind": "empty-body", "times": 2},
    **{
        str(status): {"kind": "status", "status": status, "times": 2}
        for status in (404, 408, 410, 429, 500, 503, 504)
    },
    "come back at once": {"kind": "status", "status": 429, "retry_after": 0, "times": 2},
    "failed post": {"kind": "failed-post", "status": 503, "times": 2},
    "drip": {"kind": "drip", "seconds": 0.05, "times": 2},
    "drip longer than the time-out": {"kind": "drip", "seconds": 0.5, "times": 1},
    "long length": {"kind": "long-length", "times": 1},
    "publish delay": {"kind": "publish-delay", "seconds": 30},
    "not before slip": {"kind": "not-before-slip", "seconds": 600},
    "short notice": {"kind": "short-notice", "seconds": 3600},
    # In one document only: more of them, and the event has vanished indeed.
    "vanish": {"kind": "vanish", "times": 1},
    **{
        kind: {"kind": kind, "times": 2}
        for kind in (
            "close",
            "html",
            "redirect",
            "truncated",
            "short-length",
            "stale",
            "second-impact",
            "null-events",
            "unknown-status",
            "camel-case",
        )
    },
    **{
        kind: {"kind": kind}
        for kind in (
            "bom",
            "plain-text",
            "incarnation-reset",
            "incarnation-jump",
            "string-incarnation",
            "duplicate-events",
            "wrong-weekday",
            "iso-date",
            "empty-not-before",
            "unknown-type",
            "lower-case-ids",
            "extra-fields",
            "missing-fields",
        )
    },
}
"""Those that let no event be seen as it is end by themselves."""
SOON: Final = 0.3
"""The time-out of clients where a server is slow, so that it costs little."""
PATIENT: Final = 20.0
"""The time-out of other clients: whoever counts requests wants none of them twice."""


class Follower:
    """Takes one change after the other from a watch, and waits for none of them for ever."""

    def __init__(self, client: AnyClient) -> None:
        self._changes = client.watch()
        self._thread = ThreadPoolExecutor(1)

    def begin(self) -> Future[Change]:
        return self._thread.submit(next, self._changes)

    def next(self) -> Change:
        return self.begin().result(TIMEOUT)

    def expect(self, *kinds: ChangeKind) -> Change:
        change = self.next()
        assert change.kind in kinds, change
        return change

    def expect_at_last(self, kind: ChangeKind) -> Change:
        """Return the first change of that *kind*; until then, the event may move, and nothing else.

        A fault that ends shows the event as it is, which is another change.
        """
        change = self.next()
        while change.kind is not kind:
            assert change.kind is ChangeKind.SCHEDULED, change
            change = self.next()
        return change

    def end(self) -> None:
        self._thread.shutdown(wait=False)


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as running:
        yield running


@pytest.fixture
def vm(emulator: Emulator) -> EmulatedVm:
    return emulator.vm("web-0")


@pytest.fixture
def slow_server() -> None:
    """Let the client of the test not wait long for an answer."""


@pytest.fixture
def client(
    request: pytest.FixtureRequest,
    make_client: ClientMaker,
    vm: EmulatedVm,
    in_haste: None,  # noqa: ARG001
) -> AnyClient:
    timeout = SOON if "slow_server" in request.fixturenames else PATIENT
    return make_client(vm.url, timeout=timeout)


@pytest.fixture
def follow() -> Generator[Callable[[AnyClient], Follower]]:
    """Return a function that follows a client, until the test is over."""
    made: list[Follower] = []

    def begin(client: AnyClient) -> Follower:
        made.append(Follower(client))
        return made[-1]

    yield begin
    for follower in made:
        follower.end()


@pytest.fixture
def follower(follow: Callable[[AnyClient], Follower], client: AnyClient) -> Follower:
    return follow(client)


def is_parked(vm: EmulatedVm) -> bool:
    return len(vm._engine.replica.board.waiters) == 1  # noqa: SLF001


def set_faults(vm: EmulatedVm, *faults: dict[str, Any]) -> None:
    for fault in faults:
        vm.fault(**fault)


def live(
    emulator: Emulator, client: AnyClient, follower: Follower, *faults: dict[str, Any]
) -> None:
    """Go through the life of an event, and meet *faults* at every step of it."""
    vm = emulator.vm("web-0")
    set_faults(vm, *faults)
    me = client.whoami()
    assert me.name == "web-0"

    set_faults(vm, *faults)
    event = vm.reboot()
    emulator.clock.advance(minutes=1)
    scheduled = follower.expect(ChangeKind.SCHEDULED)
    assert scheduled.event.event_id == event.event_id
    assert scheduled.event.affects(me)
    event.assert_not_approved()

    set_faults(vm, *faults)
    client.approve(scheduled.event)
    assert [approval.by for approval in event.approvals] == ["web-0"]
    event.assert_status("Started")
    emulator.clock.advance(minutes=1)
    set_faults(vm, *faults)
    started = follower.expect_at_last(ChangeKind.STARTED)
    assert (started.event.event_id, started.event.not_before) == (event.event_id, None)

    set_faults(vm, *faults)
    emulator.clock.advance(minutes=10)
    completed = follower.expect_at_last(ChangeKind.COMPLETED)
    assert completed.event.event_id == event.event_id
    set_faults(vm, *faults)
    assert client.document().events == client.events() == ()


def test_every_fault_is_tried() -> None:
    assert {fault["kind"] for fault in FAULTS.values()} == set(FaultKind)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.usefixtures("slow_server")
def test_whole_life_is_seen(
    emulator: Emulator, client: AnyClient, follower: Follower, fault: dict[str, Any]
) -> None:
    live(emulator, client, follower, fault)


@pytest.mark.usefixtures("slow_server")
def test_whole_life_is_seen_under_all_faults_at_once(
    emulator: Emulator, client: AnyClient, follower: Follower
) -> None:
    live(emulator, client, follower, *FAULTS.values())


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.usefixtures("slow_server")
def test_fault_that_comes_while_a_poll_is_parked(
    emulator: Emulator, vm: EmulatedVm, follower: Follower, fault: dict[str, Any]
) -> None:
    vm.freeze().cancel()
    change = follower.begin()
    wait_until(lambda: is_parked(vm), "the watch is parked")

    set_faults(vm, fault)
    event = vm.reboot()
    emulator.clock.advance(minutes=1)

    seen = change.result(TIMEOUT)
    assert (seen.kind, seen.event.event_id) == (ChangeKind.SCHEDULED, event.event_id)


def test_short_notice_is_seen_for_what_is_left_of_it(
    emulator: Emulator, vm: EmulatedVm, client: AnyClient, follower: Follower
) -> None:
    vm.fault("publish-delay", seconds=20)
    event = vm.preempt()
    emulator.clock.advance(seconds=20)

    scheduled = follower.expect(ChangeKind.SCHEDULED).event
    assert scheduled.not_before is not None
    assert scheduled.not_before - emulator.clock.now <= timedelta(seconds=11)
    client.approve(scheduled)
    event.assert_status("Started")

    emulator.clock.advance(seconds=20)
    follower.expect(ChangeKind.STARTED)
    emulator.clock.advance(seconds=40)
    follower.expect(ChangeKind.COMPLETED)


def test_event_may_be_seen_after_its_start(
    emulator: Emulator, vm: EmulatedVm, client: AnyClient, follower: Follower
) -> None:
    vm.fault("publish-delay", seconds=45)
    event = vm.preempt()
    emulator.clock.advance(seconds=45)

    scheduled = follower.expect(ChangeKind.SCHEDULED)
    event.assert_status("Started")
    client.approve(scheduled.event)

    event.assert_not_approved()
    emulator.clock.advance(seconds=45)
    follower.expect(ChangeKind.STARTED)
    emulator.clock.advance(seconds=45)
    follower.expect(ChangeKind.COMPLETED)


def test_failure_is_seen_as_started(vm: EmulatedVm, follower: Follower) -> None:
    event = vm.redeploy(started=True)
    assert follower.expect(ChangeKind.STARTED).event.event_id == event.event_id

    event.complete(failed="the host is lost")

    follower.expect(ChangeKind.COMPLETED)


def test_incarnation_reset_is_not_noticed(vm: EmulatedVm, follower: Follower) -> None:
    vm.freeze().cancel()
    first, second = vm.reboot(), vm.freeze()
    assert {follower.next().event.event_id for _ in range(2)} == {first.event_id, second.event_id}
    change = follower.begin()
    wait_until(lambda: is_parked(vm), "the watch is parked")

    vm.fault("incarnation-reset")
    second.start()

    started = change.result(TIMEOUT)
    assert (started.kind, started.event.event_id) == (ChangeKind.STARTED, second.event_id)
    assert started.document_incarnation == 1
    first.cancel()
    canceled = follower.next()
    assert (canceled.kind, canceled.event.event_id) == (ChangeKind.CANCELED, first.event_id)
    assert canceled.document_incarnation == 2


def test_incarnation_that_comes_again_with_other_content_misleads_for_ten_seconds(
    vm: EmulatedVm,
) -> None:
    with RushedWatch(vm.url) as watch:
        event = vm.reboot()
        watch.look(5)

        vm.fault("incarnation-reset")
        event.start()
        early, late = watch.look(3), watch.look(10)

    assert [change.kind for change in early] == []
    assert [change.kind for change in late] == [ChangeKind.STARTED]


def test_unknown_type_is_passed_on_and_approved(
    make_client: ClientMaker, vm: EmulatedVm, client: AnyClient, follower: Follower
) -> None:
    vm.fault("unknown-type", event_type="SpotRebalanceRecommendation", times=1)
    event = vm.reboot()

    unknown = follower.expect(ChangeKind.SCHEDULED).event
    known = follower.expect(ChangeKind.SCHEDULED).event

    assert (unknown.event_type, known.event_type) == ("SpotRebalanceRecommendation", "Reboot")
    assert unknown.event_id == known.event_id
    client.approve(unknown)
    event.assert_approved(by=make_client(vm.url).whoami().name)
    vm.fault("unknown-type")
    follower.expect(ChangeKind.STARTED)
    event.complete()
    assert follower.expect(ChangeKind.COMPLETED).event.event_type == "Hibernate"


def test_event_that_vanishes_for_longer_is_gone_and_comes_back(
    vm: EmulatedVm, client: AnyClient, follower: Follower
) -> None:
    event = vm.reboot()
    first = follower.expect(ChangeKind.SCHEDULED).event

    vm.fault("vanish", times=3)

    assert follower.expect(ChangeKind.GONE).event == first
    assert follower.expect(ChangeKind.SCHEDULED).event == first
    client.approve(first)
    event.assert_approved(by="web-0")
    follower.expect(ChangeKind.STARTED)


def test_second_impact_is_told_as_what_it_says_it_is(
    vm: EmulatedVm, client: AnyClient, follower: Follower
) -> None:
    event = vm.reboot()
    follower.expect(ChangeKind.SCHEDULED)
    event.start()
    follower.expect(ChangeKind.STARTED)

    vm.fault("second-impact", times=2)
    again = follower.expect(ChangeKind.SCHEDULED).event
    client.approve(again)

    assert (again.event_id, again.not_before) == (event.event_id, None)
    follower.expect(ChangeKind.STARTED)
    event.assert_not_approved()


@pytest.mark.usefixtures("slow_server")
def test_answer_that_is_lost_is_an_approval_all_the_same(vm: EmulatedVm, client: AnyClient) -> None:
    for kind in ("close", "truncated", "long-length"):
        event = vm.freeze()
        vm.fault(kind, times=1)

        client.approve(event.event_id)

        assert [approval.by for approval in event.approvals] == ["web-0"]
        event.complete()


@pytest.mark.parametrize("kind", ["html", "redirect"])
def test_what_is_not_the_server_cannot_take_an_approval(
    make_client: ClientMaker, vm: EmulatedVm, kind: str
) -> None:
    event = vm.reboot()
    client = make_client(vm.url, patience=0)
    vm.fault(kind)

    with pytest.raises(UnavailableError):
        client.approve(event.event_id)

    event.assert_not_approved(even_if_silent=True)
    vm.clear_faults()
    client.approve(event.event_id)
    event.assert_approved(by="web-0")


def test_neighbour_notices_nothing(make_client: ClientMaker) -> None:
    fleet = {
        "availability_set": [{"name": "web"}],
        "virtual_machine": [
            {"name": name, "availability_set": "web"} for name in ("web-0", "web-1")
        ],
    }
    with Emulator(fleet) as emulator:
        set_faults(emulator.vm("web-0"), {"kind": "unknown-type"}, {"kind": "reset"})
        (event,) = emulator.announce("Reboot", "web-0")
        client = make_client(emulator.vm("web-1").url, patience=0)

        (seen,) = client.events()
        client.approve(seen)

        assert (seen.event_type, seen.affects(client.whoami())) == ("Reboot", False)
        event.assert_approved(by="web-1")


@pytest.mark.parametrize("outcome", [ChangeKind.COMPLETED, ChangeKind.CANCELED])
def test_end_says_whether_it_came_to_pass(
    vm: EmulatedVm, follower: Follower, outcome: ChangeKind
) -> None:
    event = vm.freeze(duration=9)
    scheduled = follower.expect(ChangeKind.SCHEDULED).event
    vm.fault("status", status=503, times=3)

    if outcome is ChangeKind.COMPLETED:
        event.start()
        event.complete()
    else:
        event.cancel()

    assert follower.expect(outcome).event == scheduled


@pytest.mark.parametrize("kind", ["reset", "status"])
def test_end_is_asked_for_again(vm: EmulatedVm, kind: str) -> None:
    with RushedWatch(vm.url) as watch:
        event = vm.freeze()
        watch.look(5)

        event.cancel()
        watch.look_until_asked("/events/")
        set_faults(vm, {"kind": kind, "times": 2, **({"status": 503} if kind == "status" else {})})

        assert [change.kind for change in watch.look(5)] == [ChangeKind.CANCELED]


def test_seventy_seconds_of_410_delay_a_change_by_seconds(vm: EmulatedVm) -> None:
    with RushedWatch(vm.url) as watch:
        event = vm.reboot()
        watch.look(5)

        vm.fault("status", status=410)
        event.start()
        assert watch.look(70) == []
        vm.clear_faults()

        assert [change.kind for change in watch.look(20)] == [ChangeKind.STARTED]


def test_retry_after_is_honoured(vm: EmulatedVm) -> None:
    with RushedWatch(vm.url) as watch:
        vm.fault("status", status=429, retry_after=8, times=1)
        vm.reboot()

        changes = watch.look(9)

    assert watch.pauses[0] == 8
    assert [change.kind for change in changes] == [ChangeKind.SCHEDULED]


def test_retry_after_beyond_patience_is_told_at_once(
    make_client: ClientMaker, vm: EmulatedVm
) -> None:
    vm.fault("status", status=429, retry_after=3600)

    with pytest.raises(UnavailableError, match="it answered 429, 'Too many requests'") as caught:
        make_client(vm.url).document()

    assert caught.value.retry_after == 3600


@pytest.mark.parametrize(
    ("fault", "trouble"),
    [
        ({"kind": "reset"}, "it closed the connection without an answer"),
        ({"kind": "empty-body"}, "it answered 200 with an empty body"),
        ({"kind": "status", "status": 500}, "it answered 500"),
        ({"kind": "slow", "seconds": 9}, "it did not answer in time"),
    ],
    ids=["reset", "empty body", "500", "slow"],
)
@pytest.mark.usefixtures("in_haste")
def test_patience_ends_with_the_last_trouble(
    make_client: ClientMaker, vm: EmulatedVm, fault: dict[str, Any], trouble: str
) -> None:
    client = make_client(vm.url, timeout=0.5, patience=0.1)
    set_faults(vm, fault)

    with pytest.raises(UnavailableError, match=trouble):
        client.document()

    vm.clear_faults()
    assert client.document().document_incarnation == 0


@pytest.mark.parametrize("status", [400, 403, 405])
def test_refusal_is_told_at_once_and_harms_nothing(
    vm: EmulatedVm, client: AnyClient, status: int
) -> None:
    event = vm.reboot()
    vm.fault("status", status=status, times=1)

    with pytest.raises(RefusedError) as caught:
        client.approve(event.event_id)

    assert caught.value.status == status
    event.assert_not_approved(even_if_silent=True)
    client.approve(event.event_id)
    event.assert_approved(by="web-0")


@pytest.mark.usefixtures("slow_server")
def test_approval_that_came_twice_counts_once(vm: EmulatedVm, client: AnyClient) -> None:
    event, other = vm.reboot(), vm.freeze()
    events = client.events()
    vm.fault("slow", seconds=SOON + 0.2, times=1)

    client.approve(*events)
    client.approve(*events)
    vm.fault("reset", times=2)
    client.approve(event.event_id)

    # The other one waits until this one is over: a machine has one impact at a time.
    wait_until(lambda: event.event_status == "Started", "it has started")
    assert [given.by for given in event.approvals] == ["web-0"]
    assert [given.by for given in other.approvals] == ["web-0"]


@pytest.mark.parametrize("version", [version.name for version in API_VERSIONS])
@pytest.mark.usefixtures("in_haste")
def test_every_version_is_understood(
    make_client: ClientMaker,
    follow: Callable[[AnyClient], Follower],
    vm: EmulatedVm,
    version: str,
) -> None:
    client = make_client(vm.url, api_version=version)
    follower = follow(client)
    event = vm.reboot(description="New kernel")
    set_faults(vm, FAULTS["empty body"], FAULTS["410"])

    scheduled = follower.expect(ChangeKind.SCHEDULED).event
    assert scheduled.not_before == event.record.not_before
    assert scheduled.affects(client.whoami())

    client.approve(scheduled)
    assert follower.expect(ChangeKind.STARTED).event.not_before is None
    event.complete()
    follower.expect(ChangeKind.COMPLETED)


def test_versions_may_mix(make_client: ClientMaker, vm: EmulatedVm) -> None:
    event = vm.reboot()
    (seen,) = make_client(vm.url, api_version="2020-07-01").events()

    make_client(vm.url, api_version="2019-08-01").approve(seen)

    event.assert_status("Started")
    (started,) = make_client(vm.url, api_version="2017-03-01").events()
    assert started.event_id == seen.event_id


def test_unknown_version_is_told(make_client: ClientMaker, vm: EmulatedVm) -> None:
    with pytest.raises(UnavailableError, match=r"404, 'Not found\. Invalid version requested'"):
        make_client(vm.url, api_version="2030-01-01", patience=0).document()
    with pytest.raises(RefusedError, match=r"400: 'Bad request\. api-version is invalid"):
        make_client(vm.url, api_version="newest", patience=0).document()


PROXY_VARIABLES: Final = ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


def name_proxy(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    for name in PROXY_VARIABLES:
        monkeypatch.setenv(name, url)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


def test_dead_proxy_is_not_used(
    emulator: Emulator, client: AnyClient, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_proxy(monkeypatch, "http://127.0.0.1:9")

    live(emulator, client, follower, FAULTS["reset"])


def test_living_proxy_is_not_asked(
    emulator: Emulator,
    client: AnyClient,
    follower: Follower,
    metadata: Metadata,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name_proxy(monkeypatch, metadata.endpoint)

    live(emulator, client, follower, FAULTS["504"])

    assert metadata.seen == []


@pytest.fixture
def server(tmp_path: Path) -> Generator[Server]:
    """Start a server that is a process of its own; it is killed after the test."""
    fleet = tmp_path / "fleet.toml"
    machines = (f'[[virtual_machine]]\nname = "{name}"\n' for name in ("web-0", "web-1"))
    fleet.write_text("".join(machines), encoding="utf-8")
    started = Server(
        database=tmp_path / "forewarn.db",
        fleet=fleet,
        flags=(),
        environment={"PATH": os.defpath, "HOME": str(tmp_path)},
        log=tmp_path / "server.log",
    )
    started.start()
    yield started
    started.kill()


@pytest.mark.usefixtures("in_haste")
def test_server_may_be_killed_and_come_back(
    follow: Callable[[AnyClient], Follower], server: Server
) -> None:
    """Both clients are there at once, because its starts take so long."""
    address = f"127.0.0.1:{server.metadata_port}/vm"
    with ExitStack() as closing:
        sync, blocking = Client(f"{address}/web-0"), BlockingAsyncClient(f"{address}/web-1")
        closing.callback(sync.close)
        closing.callback(blocking.end)
        clients: dict[str, AnyClient] = {"web-0": sync, "web-1": blocking}
        followers = {vm: follow(client) for vm, client in clients.items()}
        events = {vm: server.create("Reboot", vm)[0]["event_id"] for vm in clients}
        for vm, follower in followers.items():
            assert follower.expect(ChangeKind.SCHEDULED).event.event_id == events[vm]

        server.kill()
        changes = [follower.begin() for follower in followers.values()]
        server.start()
        for vm, client in clients.items():
            client.approve(events[vm])

        for change in changes:
            assert change.result(TIMEOUT).kind is ChangeKind.STARTED
        server.restart()
        for vm, follower in followers.items():
            assert server.operate("POST", f"events/{events[vm]}/complete").status == 200
            follower.expect(ChangeKind.COMPLETED)


def test_every_test_named_above_exists() -> None:
    here = "tests/sdk/test_faults.py"
    named = {
        name if "::" in name else f"{here}::{name}"
        for names in SURVIVED.values()
        for name in ([names] if isinstance(names, str) else names)
    }

    assert named <= find_tests({name.partition("::")[0] for name in named})
