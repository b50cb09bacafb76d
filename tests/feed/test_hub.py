"""What relays are told: over a socket, by a server with a real store."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from time import monotonic

import pytest
from structlog.testing import capture_logs
from tests.feed.conftest import BEAT, Center, machine, names, scope_of
from tests.waiting import wait_until

from forewarn.domain.names import HostName, VmName
from forewarn.domain.topology import Topology
from forewarn.feed.frames import MOST_IN_A_LINE, Gone, Mark, Put
from forewarn.feed.subscriptions import Subscription
from forewarn.ports.board import Posting

A, B = machine("a", "kvm-1", scope="web"), machine("b", "kvm-2", scope="web")
SOLO = machine("solo", "kvm-2")
WEB = scope_of("web")


@pytest.fixture
def center() -> Iterator[Center]:
    made = Center()
    made.place(A, B, SOLO)
    made.publish(WEB, 3)
    yield made
    made.close()


def test_relay_is_told_everything_of_its_host_first(center: Center) -> None:
    with center.follow(center.relay_token("kvm-2")) as heard:
        heard.until_mark()

    assert (heard.hello.host, heard.hello.resumed) == ("kvm-2", False)
    assert heard.machines == {vm.name: vm for vm in (B, SOLO)}
    assert heard.incarnations == {WEB: 3, SOLO.scope_id: 0}


def test_relay_is_told_of_its_own_host_only(center: Center) -> None:
    with center.follow(center.relay_token("kvm-1")) as heard:
        heard.until_mark()

    assert heard.hello.host == "kvm-1"
    assert names(heard.machines) == ["a"]
    assert heard.incarnations == {WEB: 3}


def test_follower_is_told_of_a_change(center: Center) -> None:
    with center.follow(center.relay_token("kvm-1")) as heard:
        heard.until_mark()
        center.publish(WEB, 4)
        heard.until(lambda it: it.incarnations[WEB] == 4, "the document")
        center.place(A, B, SOLO, machine("c", "kvm-1"))
        heard.until(lambda it: "c" in it.machines, "the new machine")

        assert names(heard.machines) == ["a", "c"]


def test_follower_is_told_what_is_gone(center: Center) -> None:
    with center.follow(center.relay_token("kvm-2")) as heard:
        heard.until_mark()
        center.place(A, B)
        heard.until(lambda it: SOLO.scope_id not in it.scopes, "what is gone")

    assert names(heard.machines) == ["b"]


def test_machine_that_moves_is_told_to_both_hosts(center: Center) -> None:
    with (
        center.follow(center.relay_token("kvm-1")) as old,
        center.follow(center.relay_token("kvm-2")) as new,
    ):
        for heard in (old, new):
            heard.until_mark()
        center.place(machine("a", "kvm-2", scope="blue"), B, SOLO)
        old.until(lambda it: not it.machines, "the departure")
        new.until(lambda it: "a" in it.machines, "the arrival")
        old.until(lambda it: not it.scopes, "that the scope has gone with it")

    assert new.scopes == {WEB, scope_of("blue"), SOLO.scope_id}
    gone = [line for line in old.lines if isinstance(line, Gone)]
    assert all(scope_of("blue") not in line.scope_ids for line in gone), "it was never there"


def test_relay_is_not_told_of_what_happens_elsewhere(center: Center) -> None:
    with center.follow(center.relay_token("kvm-1")) as heard:
        heard.until_mark()
        center.publish(SOLO.scope_id, 5)
        center.place(A, B)
        center.place(A, B, SOLO, machine("c"))
        after = center.hub._sequence  # noqa: SLF001
        lines = heard.until_mark(after)

    assert all(isinstance(line, Mark) for line in lines)


def test_documents_come_before_the_machines_that_read_them(center: Center) -> None:
    with center.follow(center.relay_token("kvm-1")) as heard:
        heard.until_mark()
        center.place(*(machine(f"m-{n}", "kvm-1", scope=f"set-{n % 60}") for n in range(250)))
        heard.until(lambda it: len(it.machines) == 250 and "a" not in it.machines, "all machines")

    puts = [line for line in heard.lines if isinstance(line, Put)]
    sizes = [len(line.documents) + len(line.scopes) + len(line.virtual_machines) for line in puts]
    assert max(sizes) == MOST_IN_A_LINE


def test_follower_that_comes_back_is_told_only_what_it_has_missed(center: Center) -> None:
    token = center.relay_token("kvm-2")
    with center.follow(token) as before:
        before.until_mark()
    center.publish(WEB, 4)
    center.place(A, B, machine("solo", "kvm-3"))
    center.await_hub()

    with center.follow(token, before.place) as heard:
        lines = heard.until_mark()

    assert heard.hello.resumed
    assert lines[0] == Put(
        documents={WEB: center.board.document_in(WEB)},
        scopes={WEB: center.board.topology.scopes[WEB]},
    )
    told = {(*line.virtual_machines, *line.scope_ids) for line in lines if isinstance(line, Gone)}
    assert told == {("solo",), (SOLO.scope_id,)}


def test_relay_that_was_away_during_a_move_resumes_without_the_machine(center: Center) -> None:
    token = center.relay_token("kvm-1")
    with center.follow(token) as before:
        before.until_mark()
    wait_until(lambda: center.hub.followers == 0, "the stream to end")
    center.place(machine("a", "kvm-2", scope="web"), B, SOLO)
    center.await_hub()

    with center.follow(token, before.place) as heard:
        lines = heard.until_mark()

    assert heard.hello.resumed
    assert [line for line in lines if isinstance(line, Put)] == []
    assert {VmName("a")} == {
        name for line in lines if isinstance(line, Gone) for name in line.virtual_machines
    }


@pytest.mark.parametrize("after", ["", "x", "x:3", ":", "{feed}:", "{feed}:99", "{feed}:-1", "0"])
def test_follower_with_a_place_that_is_not_known_is_told_everything(
    center: Center, after: str
) -> None:
    place = after.format(feed=center.hub.feed)

    with center.follow(center.relay_token("kvm-2"), place) as heard:
        heard.until_mark()

    assert not heard.hello.resumed
    assert len(heard.machines) == 2


def test_follower_that_has_missed_more_than_is_remembered_is_told_everything() -> None:
    center = Center(most_remembered=5)
    center.place(A, B, SOLO)
    token = center.relay_token("kvm-1")
    try:
        with center.follow(token) as before:
            before.until_mark()
        for incarnation in range(1, 4):
            center.publish(WEB, incarnation)
        with center.follow(token, before.place) as short:
            short.until_mark()
        for incarnation in range(4, 9):
            center.publish(WEB, incarnation)
        center.await_hub()
        with center.follow(token, before.place) as long:
            long.until_mark()
        center.place(*(machine(f"m-{n}", "kvm-1") for n in range(10)))
        center.await_hub()
        with center.follow(token, long.place) as longest:
            longest.until_mark()
    finally:
        center.close()

    assert [each.hello.resumed for each in (short, long, longest)] == [True, False, False]
    assert len(longest.machines) == 10


def test_heartbeat_is_heard_when_nothing_happens(center: Center) -> None:
    began = monotonic()
    with center.follow(center.relay_token("kvm-1")) as heard:
        heard.until_mark()
        lines = [*heard.until_mark(), *heard.until_mark()]

    assert heard.hello.heartbeat_seconds == BEAT
    assert len(lines) == 2
    assert monotonic() - began > BEAT


def test_slow_reader_is_told_what_is_and_not_all_that_was(center: Center) -> None:
    vms = [replace(machine(f"m-{n}", "kvm-1"), tags={"much": "x" * 4_000}) for n in range(5_000)]
    with center.follow(center.relay_token("kvm-1")) as heard:
        heard.until_mark()
        center.place(A, B, SOLO, *vms)
        for incarnation in range(4, 200):
            center.publish(WEB, incarnation)
        heard.until(lambda it: it.incarnations[WEB] == 199, "the last document")

    told = [line for line in heard.lines if isinstance(line, Put) and WEB in line.documents]
    assert len(told) < 20
    assert len(heard.machines) == 5_001


def test_streams_end_when_the_server_stops(center: Center) -> None:
    with center.follow(center.relay_token("kvm-1")) as heard:
        heard.until_mark()
        center.stop()

        assert heard.is_over()
    center.start()


def test_follower_that_hangs_up_is_forgotten(center: Center) -> None:
    with (
        center.follow(center.relay_token("kvm-1")) as one,
        center.follow(center.relay_token("kvm-2")) as two,
    ):
        for heard in (one, two):
            heard.until_mark()
        assert center.hub.followers == 2

    wait_until(lambda: center.hub.followers == 0, "the followers to be forgotten")


def test_failure_while_a_change_is_taken_in_has_everybody_come_back(center: Center) -> None:
    """What cannot be worked out is told as a whole; no follower stays behind unseen."""
    unreadable = Topology(virtual_machines=None, scopes={}, hosts={})  # type: ignore[arg-type]
    one, two = center.relay_token("kvm-1"), center.relay_token("kvm-2")
    with center.follow(one) as heard, capture_logs() as logs:
        heard.until_mark()
        center.hub.note(Posting(topology=unreadable))
        while not heard.is_over():
            pass

    with center.follow(one, heard.place) as again, center.follow(two) as other:
        for each in (again, other):
            each.until_mark()
        center.publish(WEB, 4)
        for each in (again, other):
            each.until(lambda it: it.incarnations[WEB] == 4, "the document")
    assert not again.hello.resumed
    assert [line["event"] for line in logs] == ["feed_failed"]


def test_stream_that_is_over_says_nothing_of_what_it_has_not_told(center: Center) -> None:
    """With a mark, its follower would come back to after a change that it was never told."""
    hub, loop = center.hub, asyncio.new_event_loop()
    over = Subscription(HostName("kvm-1"), loop, is_whole=True, is_over=True)
    with center.follow(center.relay_token("kvm-1")) as heard:
        heard.until_mark()

        assert [*hub._tell(over)] == []  # noqa: SLF001
    loop.close()
