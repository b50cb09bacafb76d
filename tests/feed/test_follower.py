"""Relays that follow a server over HTTP: what virtual machines read there, with and without it."""

import asyncio
import socket
import threading
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import ExitStack, closing, suppress
from functools import partial
from itertools import dropwhile, pairwise
from operator import contains
from time import monotonic, sleep
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

import pytest
from structlog.testing import capture_logs
from tests.feed.conftest import TIMEOUT, Center, machine, scope_of
from tests.feed.relays import POLL, Relay, running_loop, running_relay
from tests.http.conftest import MORNING
from tests.waiting import wait_until

from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.domain.topology import DeliveryScope, ScopeKind
from forewarn.feed.follower import LONGEST_PAUSE, Follower, back_off
from forewarn.feed.frames import (
    MOST_IN_A_LINE,
    FeedLine,
    Gone,
    Hello,
    Mark,
    Put,
    decode_line,
    encode_line,
    put_lines,
)
from forewarn.feed.mirror import Mirror
from forewarn.feed.notes import SELDOM
from forewarn.feed.remote_verbs import RemoteVerbs
from forewarn.feed.upstream import PATIENCE, Upstream
from forewarn.metadata.board import Board
from forewarn.ports.store import StoreUnavailableError
from forewarn.protocol.document import Document
from forewarn.protocol.vocabulary import EventId
from forewarn.transport.requests import TransportError

Log: TypeAlias = MutableMapping[str, Any]
WEB = scope_of("web")
HOST = HostName("kvm-1")
A, B = machine("a", "kvm-1", scope="web"), machine("b", "kvm-2", scope="web")


@pytest.fixture
def center() -> Iterator[Center]:
    made = Center()
    made.place(A, B)
    made.publish(WEB, 1)
    yield made
    made.close()


@pytest.fixture
def relay(center: Center) -> Iterator[Relay]:
    """A relay on kvm-1, where a is."""
    with running_relay(center.port, center.relay_token("kvm-1")) as made:
        made.await_machine("a", 1)
        wait_until(lambda: made.follower.is_current, "the relay to be told all")
        yield made


def approve(relay: Relay, vm: str, event: str) -> tuple[int, dict[str, str]]:
    body = {"StartRequests": [{"EventId": event}]}
    status, headers, _ = relay.ask(vm, "POST", body=body)
    return status, headers


def test_machine_reads_at_its_relay_what_the_server_publishes(center: Center, relay: Relay) -> None:
    center.publish(WEB, 2)
    relay.await_machine("a", 2)

    status, headers, document = relay.ask("a")

    assert (status, headers["ETag"]) == (200, "2")
    assert document == {"DocumentIncarnation": 2, "Events": []}


def test_relay_does_not_know_machines_of_other_hosts(relay: Relay) -> None:
    assert relay.ask("b")[0] == 404
    assert approve(relay, "b", "x")[0] == 404


def test_machine_that_waits_at_a_relay_is_answered_when_its_document_changes(
    center: Center, relay: Relay
) -> None:
    timer = threading.Timer(0.2, lambda: center.publish(WEB, 2))
    timer.start()

    headers = {"If-None-Match": "1", "Prefer": f"wait={TIMEOUT:.0f}"}
    status, answered, _ = relay.ask("a", **headers)

    timer.join(TIMEOUT)
    assert (status, answered["ETag"]) == (200, "2")


def test_approval_at_a_relay_is_stored_and_shown(center: Center, relay: Relay) -> None:
    event = center.announce("a")

    status, _ = approve(relay, "a", event)

    stored = center.store.read(lambda reading: reading.event(event))
    assert status == 200
    assert stored is not None
    assert [each.name for each in stored.approvals] == ["a"]
    assert relay.incarnation("a") == 2


def test_event_that_is_not_known_is_refused_as_by_the_server(relay: Relay) -> None:
    assert approve(relay, "a", "00000000-0000-4000-8000-00000000ffff")[0] == 400
    path = "/metadata/forewarn/v1/events/00000000-0000-4000-8000-00000000ffff"
    assert relay.ask("a", path=path)[0] == 404


def test_event_is_described_and_postponed_through_a_relay(center: Center, relay: Relay) -> None:
    event = center.announce("a")
    path = f"/metadata/forewarn/v1/events/{event}"

    status, _, described = relay.ask("a", path=path)
    refused, _, problem = relay.ask(
        "a", "POST", f"{path}/postpone", {"not_before": MORNING.isoformat()}
    )

    assert (status, described["event_id"]) == (200, event)
    assert refused == 409
    assert "postpone" in problem["error"]


def test_relay_serves_without_the_server_and_takes_no_approval(
    center: Center, relay: Relay
) -> None:
    event = center.announce("a")
    relay.await_machine("a", 2)
    center.stop()
    wait_until(lambda: not relay.follower.is_current, "the relay to notice")

    polled, posted = relay.ask("a"), approve(relay, "a", event)
    described = relay.ask("a", path=f"/metadata/forewarn/v1/events/{event}")

    assert (polled[0], polled[1]["ETag"]) == (200, "2")
    assert (posted[0], posted[1]["Retry-After"]) == (503, "1")
    assert described[0] == 503
    stored = center.store.read(lambda reading: reading.event(event))
    assert stored is not None
    assert stored.approvals == ()
    center.start()


def test_relay_converges_after_the_server_was_away(center: Center, relay: Relay) -> None:
    with capture_logs() as logs:
        center.stop()
        wait_until(lambda: not relay.follower.is_current, "the relay to notice")
        center.publish(WEB, 7)
        center.place(machine("a", "kvm-1", scope="web"), machine("c", "kvm-1", scope="web"))
        wait_until(lambda: relay.follower._failures > 1, "a failure")  # noqa: SLF001
        center.start()
        relay.await_machine("c", 7)
        wait_until(lambda: "feed_followed" in events_of(since_lost(logs)), "the relay to say so")

    assert relay.incarnation("a") == 7
    told = since_lost(logs)
    lost = [line["error"] for line in told if line["event"] == "feed_lost"]
    assert len(lost) == len(set(lost)), "each trouble is told once"
    assert events_of(told) == [*["feed_lost"] * len(lost), "feed_followed"]


def since_lost(logs: Iterable[Log]) -> list[Log]:
    """Return what was logged of the feed, without its beginning: that is told a moment late."""
    feed = (line for line in logs if line["event"].startswith("feed_"))
    return [*dropwhile(lambda line: line["event"] != "feed_lost", feed)]


def events_of(logs: Iterable[Log]) -> list[str]:
    return [line["event"] for line in logs]


def test_relay_resumes_where_it_was_when_only_the_connection_breaks(center: Center) -> None:
    lines: list[FeedLine] = []
    token = center.relay_token("kvm-1")
    with running_relay(center.port, token, keep=lambda _, line: lines.append(line)) as relay:
        relay.await_machine("a", 1)
        reply = relay.follower._reply  # noqa: SLF001
        assert reply is not None
        reply.hang_up()
        wait_until(lambda: sum(isinstance(line, Hello) for line in lines) == 2, "a second hello")
        center.publish(WEB, 2)
        relay.await_machine("a", 2)

    hellos = [line for line in lines if isinstance(line, Hello)]
    assert [hello.resumed for hello in hellos] == [False, True]


def test_relay_gives_a_silent_connection_up() -> None:
    """Whoever has lost the network hears nothing, not even that the connection has ended."""
    hello = encode_line(Hello(feed="f", host=HOST, heartbeat_seconds=0.1))
    with closing(socket.create_server(("127.0.0.1", 0))) as silent, running_loop() as loop:
        upstream = Upstream(url=f"http://127.0.0.1:{silent.getsockname()[1]}", token=lambda: "x")
        mirror = Mirror(Board(), loop)
        follower = Follower(upstream, mirror, chance=lambda: 0.0)
        thread = threading.Thread(target=follower.run, daemon=True)
        thread.start()
        connection, _ = silent.accept()
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        began = monotonic()
        connection.sendall(head + b"%x\r\n" % len(hello) + hello + b"\r\n")
        again, _ = silent.accept()
        took = monotonic() - began
        follower.stop()
        connection.close()
        again.close()
        thread.join(TIMEOUT)

    assert 0.3 <= took < PATIENCE
    assert not thread.is_alive()


def test_feed_that_ends_at_once_is_not_asked_for_all_the_time() -> None:
    """As by a proxy that lets no answer last."""
    hello = Hello(feed="f", host=HOST, heartbeat_seconds=5)
    lines = encode_line(hello) + encode_line(Mark(sequence=1))
    with closing(socket.create_server(("127.0.0.1", 0))) as listener, running_loop() as loop:
        upstream = Upstream(url=f"http://127.0.0.1:{listener.getsockname()[1]}", token=lambda: "x")
        mirror = Mirror(Board(), loop)
        follower = Follower(upstream, mirror, chance=lambda: 1.0)
        thread = threading.Thread(target=follower.run, daemon=True)
        thread.start()
        began = monotonic()
        for _ in range(4):
            connection, _ = listener.accept()
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + lines)
            connection.close()
        took = monotonic() - began
        follower.stop()
        thread.join(TIMEOUT)

    assert took > 1


def test_caller_that_is_gone_when_it_is_refused_is_no_failure(
    relay: Relay, caplog: pytest.LogCaptureFixture
) -> None:
    """Relays run on asyncio's own loop, where the end of such a connection is an OSError."""
    for _ in range(50):
        with socket.create_connection(("127.0.0.1", relay.port), TIMEOUT) as connection:
            connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    assert relay.ask("a")[0] == 200

    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def test_answer_that_drips_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, and all of them never; guests wait for it on few threads."""
    monkeypatch.setattr("forewarn.feed.upstream.PATIENCE", 0.5)
    ended = threading.Event()

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n")
            while not ended.wait(0.05):
                connection.sendall(b"x")

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        dripping = threading.Thread(target=drip, args=(listener,))
        dripping.start()
        timer = threading.Timer(TIMEOUT, ended.set)
        timer.start()
        upstream = Upstream(url=f"http://127.0.0.1:{listener.getsockname()[1]}", token=lambda: "x")
        began = monotonic()
        with pytest.raises(StoreUnavailableError):
            upstream.ask("GET", "events/x")
        took = monotonic() - began
        ended.set()
        timer.cancel()
        dripping.join(TIMEOUT)

    assert took < TIMEOUT / 2


def test_machine_that_asks_for_much_leaves_room_for_others() -> None:
    """Also if the server takes its time, so that nothing that was asked for is over soon."""
    heard: list[bytes] = []

    def hear(listener: socket.socket) -> None:
        with ExitStack() as stack, suppress(TimeoutError):
            while not any(b"vm=b" in each for each in heard):
                connection = stack.enter_context(listener.accept()[0])
                heard.append(connection.recv(4096))

    async def ask(upstream: Upstream, listener: socket.socket) -> None:
        board = Board()
        verbs = RemoteVerbs(upstream, is_current=lambda: True, await_shown=board.await_document)
        asked = asyncio.gather(
            *(verbs.describe_event(VmName(vm), EventId("x")) for vm in (*["a"] * 20, "b")),
            return_exceptions=True,
        )
        await asyncio.to_thread(hear, listener)
        asked.cancel()
        with suppress(asyncio.CancelledError):
            await asked
        verbs.close()

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        listener.settimeout(TIMEOUT)
        upstream = Upstream(url=f"http://127.0.0.1:{listener.getsockname()[1]}", token=lambda: "x")
        asyncio.run(ask(upstream, listener))

    assert b"vm=b" in heard[-1]


@pytest.mark.parametrize("feed", ["a b\r\nX: y", "ü", "a:b?c#d&e"])
def test_feed_of_any_name_can_be_resumed(feed: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        upstream = Upstream(url=f"http://127.0.0.1:{listener.getsockname()[1]}", token=lambda: "x")
        following = threading.Thread(target=_follow_once, args=(upstream, f"{feed}:3"))
        following.start()
        listener.settimeout(TIMEOUT)
        connection, _ = listener.accept()
        target = connection.recv(4096).split()[1].decode("ascii")
        connection.close()
        following.join(TIMEOUT)

    assert parse_qs(urlsplit(target).query) == {"after": [f"{feed}:3"]}


def _follow_once(upstream: Upstream, place: str) -> None:
    with suppress(TransportError), upstream.follow(place):
        pass


@pytest.mark.parametrize(("failures", "longest"), [(1, 0.5), (2, 1.0), (6, 15.0), (5000, 15.0)])
def test_pauses_grow_up_to_a_limit_and_are_spread(failures: int, longest: float) -> None:
    assert back_off(failures, 1.0) == longest
    assert back_off(failures, 0.0) == longest / 2
    assert longest <= LONGEST_PAUSE


def test_relay_with_a_wrong_token_says_so_and_serves_nobody(center: Center) -> None:
    with capture_logs() as logs, running_relay(center.port, "wrong") as relay:
        wait_until(lambda: logs, "a word")
        answer = relay.ask("a")

    assert logs[0]["event"] == "feed_lost"
    assert "Unknown token." in logs[0]["error"]
    assert (answer[0], answer[1]["Retry-After"]) == (503, "1")


def test_approval_is_not_answered_before_the_board_shows_it(center: Center, relay: Relay) -> None:
    """With the feed held up, it is stored but not shown, and so it is not acknowledged."""
    event = center.announce("a")
    relay.await_machine("a", 2)
    center.publish(WEB, 3)
    relay.await_machine("a", 3)
    holding, held = threading.Event(), threading.Event()

    def hold(*_: object) -> None:
        held.set()
        holding.wait(TIMEOUT)

    relay.follower._keep = hold  # noqa: SLF001
    assert held.wait(TIMEOUT)
    center.publish(WEB, 4)
    answers: list[int] = []
    posting = threading.Thread(target=lambda: answers.append(approve(relay, "a", event)[0]))
    posting.start()
    sleep(0.3)
    before = list(answers)
    holding.set()
    posting.join(TIMEOUT)

    assert before == [], "it was answered before it was shown"
    assert answers == [200]
    assert relay.incarnation("a") == 5, "the approval is in the next document"


def test_incarnations_never_go_back(center: Center, relay: Relay) -> None:
    """Also if the server does, which a replica that lags looks like."""
    center.publish(WEB, 9)
    relay.await_machine("a", 9)
    center.stop()
    wait_until(lambda: not relay.follower.is_current, "the relay to notice")
    center.board.put_up({WEB: Document(document_incarnation=3)}, is_everything=True)
    with capture_logs() as logs:
        center.start()
        wait_until(lambda: relay.follower.is_current, "the relay to follow again")

    assert center.board.document_in(WEB).document_incarnation == 3
    assert relay.incarnation("a") == 9
    behind = [line for line in logs if line["event"] == "feed_behind"]
    assert [(line["shown"], line["told"]) for line in behind] == [(9, 3)], "said once"


def test_polls_at_a_relay_enable_events_soon(center: Center, relay: Relay) -> None:
    began = monotonic()
    relay.ask("a")

    def enabled() -> bool:
        center.polls.commit()
        return center.store.read(lambda reading: reading.last_polled_at(WEB)) is not None

    wait_until(enabled, "the first poll to be noted")
    assert monotonic() - began < SELDOM / 2


def test_relay_tells_what_it_has_answered_when_it_stops(center: Center) -> None:
    with running_relay(center.port, center.relay_token("kvm-1")) as relay:
        wait_until(lambda: relay.follower.is_current, "the relay to be told all")
        for _ in range(3):
            relay.ask("a")
        relay.ask("nobody")
        relay.ask("a", "POST", body={})

    assert center.tally.polls["2020-07-01"] == 3
    assert center.tally.posts == 1
    assert center.tally.refusals == {404: 1, 400: 1}


class CountingBoard(Board):
    """A board that counts how much is done to it at once."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self.threads: set[int] = set()

    def put(self, printed: object, scopes: object, virtual_machines: object) -> None:
        self.most = max(self.most, *map(len, (printed, scopes, virtual_machines)))  # type: ignore[arg-type]
        self.threads.add(threading.get_ident())
        super().put(printed, scopes, virtual_machines)  # type: ignore[arg-type]

    def remove(self, virtual_machines: object, scope_ids: object = ()) -> None:
        self.most = max(self.most, len(virtual_machines), len(scope_ids))  # type: ignore[arg-type]
        self.threads.add(threading.get_ident())
        super().remove(virtual_machines, scope_ids)  # type: ignore[arg-type]


def many_lines() -> Iterator[Put]:
    scope = DeliveryScope(kind=ScopeKind.AVAILABILITY_SET, name="x")
    ids = [ScopeId(f"s-{n}") for n in range(100)]
    vms = (machine(f"m-{n}", scope="web") for n in range(100))
    return put_lines(
        ((each, scope) for each in ids), lambda _: Document(document_incarnation=1), vms
    )


def test_little_at_once_is_entered_on_the_thread_that_answers_polls() -> None:
    board = CountingBoard()
    with running_loop() as loop:
        mirror = Mirror(board, loop)
        mirror.take(Hello(feed="f", host=HOST, heartbeat_seconds=1))
        for line in many_lines():
            mirror.take(line)
        mirror.take(Mark(sequence=1))
        mirror.take(Hello(feed="g", host=HOST, heartbeat_seconds=1))
        mirror.take(Mark(sequence=1))

    assert board.parts == ((), {}), "nothing of it is there any more"
    assert board.most == MOST_IN_A_LINE
    assert len(board.threads) == 1
    assert threading.get_ident() not in board.threads


def test_mistake_of_a_board_is_not_swallowed() -> None:
    class Broken(CountingBoard):
        def put(self, *_: object) -> None:
            raise LookupError

    with running_loop() as loop:
        mirror = Mirror(Broken(), loop)
        with pytest.raises(LookupError):
            mirror.take(next(many_lines()))


def test_what_is_shown_can_be_told_in_lines() -> None:
    one, two = (Board() for _ in range(2))
    with running_loop() as loop:
        first, second = Mirror(one, loop), Mirror(two, loop)
        assert [*first.lines()] == []
        first.take(Hello(feed="f", host=HOST, heartbeat_seconds=1))
        for line in many_lines():
            first.take(line)
        unfinished = [decode_line(text) for text in first.lines()]
        first.take(Mark(sequence=5))
        for text in first.lines():
            told = decode_line(text)
            assert told is not None
            second.take(told)

    assert not any(isinstance(line, Mark) for line in unfinished), "not all of it was told yet"
    assert first.place == second.place == "f:5"
    assert one.parts == two.parts
    assert {one.document_in(key) for key in one.parts[1]} == {
        two.document_in(key) for key in two.parts[1]
    }


def test_place_is_forgotten_while_everything_is_told_anew() -> None:
    with running_loop() as loop:
        mirror = Mirror(Board(), loop)
        places = []
        for line in (
            Hello(feed="f", host=HOST, heartbeat_seconds=1),
            Mark(sequence=3),
            Hello(feed="f", host=HOST, resumed=True, heartbeat_seconds=1),
            Gone(virtual_machines=(VmName("x"),)),
            Hello(feed="g", host=HOST, heartbeat_seconds=1),
        ):
            mirror.take(line)
            places.append(mirror.place)

    assert places == ["", "f:3", "f:3", "f:3", ""]


def test_incarnations_that_a_poller_reads_only_grow(center: Center, relay: Relay) -> None:
    seen: list[int] = []
    stopping = threading.Event()

    def poll() -> None:
        while not stopping.is_set():
            seen.append(int(relay.ask("a", path=POLL)[1]["ETag"]))

    poller = threading.Thread(target=poll)
    poller.start()
    for incarnation in range(2, 60):
        center.publish(WEB, incarnation)
        if incarnation % 20 == 0:
            wait_until(partial(contains, seen, incarnation), "a poll that reads it")
            center.stop()
            center.start()
    wait_until(lambda: 59 in seen, "a poll that reads the last one")
    stopping.set()
    poller.join(TIMEOUT)

    assert all(one <= two for one, two in pairwise(seen))
