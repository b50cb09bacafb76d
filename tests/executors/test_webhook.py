"""Targets: what they are told, how often, and what is made of what they say, be it nonsense."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.executors.conftest import (
    EVENT,
    HOSTS,
    KEY,
    NOW,
    ORDER,
    OTHER,
    SECONDS,
    WEB_0,
    Grant,
    Withdrawn,
    begin,
    is_over,
    make_webhook,
    order_for,
    wait_for,
    wait_until,
)
from tests.executors.target import Asked, OrderTarget, Reply, say

from forewarn.clocks import VirtualClock
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import VmName
from forewarn.executors.task_input import Selection, TaskInput
from forewarn.executors.webhook import WebhookRunner, WebhookTarget
from forewarn.outbound.transport import sign
from forewarn.ports.store import StoreUnavailableError
from forewarn.protocol.vocabulary import EventType

SECRET = "open-sesame"  # noqa: S105

Maker = Callable[..., WebhookRunner]


@pytest.fixture
def target() -> Iterator[OrderTarget]:
    made = OrderTarget()
    with made.listening():
        yield made


@pytest.fixture
def make(target: OrderTarget, tmp_path: Path) -> Iterator[Maker]:
    """Return a function that makes executors on the same state, for one target."""
    with ExitStack() as closing:

        def make_one(**more: object) -> WebhookRunner:
            made = make_webhook(tmp_path, WebhookTarget(**{"url": target.url, **more}))  # type: ignore[arg-type]
            closing.callback(made.close)
            return made

        yield make_one


FIRST = order_for(epoch=7)


def post(runner: WebhookRunner, order: TaskInput = FIRST) -> WebhookRunner:
    """Begin *order*, and return the runner."""
    begin(runner, order)
    return runner


def is_unknown(impact: Impact) -> bool:
    return impact.status is ImpactStatus.UNKNOWN


def test_target_is_told_about_the_event_and_asked_how_far_it_is(
    target: OrderTarget, make: Maker
) -> None:
    executor = post(make(headers={"Authorization": "Bearer 1"}, secret=SECRET))

    running = wait_for(executor, lambda impact: impact.reason == "working")
    target.end(WEB_0, "done")

    assert running.ask_again_at is not None
    assert wait_for(executor, is_over) == Impact(status=ImpactStatus.DONE)
    order, *questions = target.asked
    assert (order.method, order.path) == ("POST", "/orders")
    content = json.loads(order.body)
    assert (content["event_id"], content["vm"], content["host"]) == (*KEY, HOSTS[WEB_0])
    assert questions
    assert {(asked.method, asked.path) for asked in questions} == {
        ("GET", f"/status/{EVENT.event_id}/web-0")
    }
    for asked in target.asked:
        assert asked.headers["forewarn-event-id"] == EVENT.event_id
        assert asked.headers["forewarn-virtual-machine"] == "web-0"
        assert asked.headers["forewarn-epoch"] == "7"
        assert asked.headers["authorization"] == "Bearer 1"
        assert is_signed(asked.headers["forewarn-signature"], asked.body)


def is_signed(header: str, body: bytes) -> bool:
    moment = int(header.partition(",")[0].removeprefix("t="))
    return header == sign(SECRET, body, datetime.fromtimestamp(moment, UTC))


def test_end_may_be_told_at_once(target: OrderTarget, make: Maker) -> None:
    target.on_post = lambda _: say(200, {"status": "failed", "message": "no\x1b such\nhost"})

    impact = wait_for(post(make()), is_over)

    assert impact == Impact(status=ImpactStatus.FAILED, reason="no suchhost")


def test_slow_target_keeps_nobody_waiting(target: OrderTarget, make: Maker) -> None:
    release = threading.Event()
    target.on_post = lambda _: None if release.wait(SECONDS) else say(500)
    executor = make()

    post(executor)
    first = executor.inquire(ORDER)
    release.set()

    assert first.status is ImpactStatus.RUNNING
    assert first.reason != "working", "the target has not answered yet"
    wait_for(executor, lambda impact: impact.reason == "working")


def test_target_that_is_down_is_tried_until_it_takes_the_order(
    target: OrderTarget, make: Maker
) -> None:
    answers = [say(503), say(500, {"status": "done"}), say(429, Retry_After="0")]
    target.on_post = lambda _: answers.pop() if answers else None
    executor = post(make())

    trouble = wait_for(executor, is_unknown)
    wait_for(executor, lambda impact: impact.reason == "working")

    assert trouble.reason.startswith("the target has not accepted it yet: ")
    assert [asked.method for asked in target.asked].count("POST") == 4
    assert target.deeds == [KEY]


def test_target_says_when_to_try_again(target: OrderTarget, make: Maker) -> None:
    answers = [say(503, Retry_After="1")]
    target.on_post = lambda _: answers.pop() if answers else None

    began = time.monotonic()
    wait_for(post(make()), lambda impact: impact.reason == "working")

    assert time.monotonic() - began >= 1


def test_nobody_there_is_tried_until_time_is_out(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/T0KEN"
        executor = make_webhook(tmp_path, WebhookTarget(url=url, timeout=timedelta(seconds=1)))
        trouble = wait_for(post(executor), is_unknown)
        impact = wait_for(executor, is_over)
        executor.close()

    assert trouble.reason.startswith("the target has not accepted it yet: the request failed: ")
    assert trouble.ask_again_at is not None
    assert impact.status is ImpactStatus.FAILED
    assert impact.reason.startswith(
        "it was not accepted within 1s: the target has not accepted it yet"
    )
    assert "T0KEN" not in trouble.reason + impact.reason


@pytest.mark.parametrize("code", [400, 403, 404, 410, 302])
def test_order_that_is_refused_has_failed(target: OrderTarget, make: Maker, code: int) -> None:
    target.on_post = lambda _: say(code, Location="/elsewhere")

    impact = wait_for(post(make()), is_over)

    assert impact.status is ImpactStatus.FAILED
    assert impact.reason.startswith(f"the target rejected it: {code} ")
    assert len(target.asked) == 1


def test_target_that_hangs_fails_in_time_and_what_it_says_later_is_ignored(
    target: OrderTarget, make: Maker
) -> None:
    executor = post(make(timeout=timedelta(seconds=1)))
    wait_for(executor, lambda impact: impact.reason == "working")

    impact = wait_for(executor, is_over)
    target.end(WEB_0, "done")

    reason = "no result was reported within 1s: working"
    assert impact == Impact(status=ImpactStatus.FAILED, reason=reason)
    assert executor.inquire(ORDER) == impact
    assert make().inquire(ORDER) == impact, "also after a restart"


def test_request_that_hangs_is_given_up_and_tried_again(target: OrderTarget, make: Maker) -> None:
    target.delay = 0.5
    executor = post(make(request_timeout=0.1))

    trouble = wait_for(executor, is_unknown)
    target.delay = 0.0

    assert trouble.reason == "the target has not accepted it yet: no answer within 0.1 seconds"
    wait_for(executor, lambda impact: impact.reason == "working")
    assert target.deeds == [KEY], "the target has seen it before"


@pytest.mark.parametrize("part", ["headers", "body"])
def test_target_that_drips_is_given_up_in_time(tmp_path: Path, part: str) -> None:
    with dripping(part) as (url, taken):
        executor = post(make_webhook(tmp_path, WebhookTarget(url=url, request_timeout=0.5)))
        impact = wait_for(executor, lambda impact: bool(impact.reason))
        if part == "headers":
            wait_for(executor, lambda _: len(taken) > 1)
        executor.close()

    said = {
        "headers": (
            ImpactStatus.UNKNOWN,
            "the target has not accepted it yet: no answer within 0.5 seconds",
        ),
        "body": (ImpactStatus.RUNNING, "complete the event when it has ended"),
    }
    assert (impact.status, impact.reason) == said[part]


@contextmanager
def dripping(part: str) -> Iterator[tuple[str, list[socket.socket]]]:
    """Listen, and answer with what never ends. Nothing of it is late by itself."""
    over, taken = threading.Event(), list[socket.socket]()
    head = b"HTTP/1.1 202 Accepted\r\n"
    begin, drop = (head, b"X-More: 1\r\n") if part == "headers" else (head + b"\r\n", b" ")

    def drip(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(65_536)
            connection.sendall(begin)
            while not over.wait(0.1):
                connection.sendall(drop)

    def listen(server: socket.socket) -> None:
        with suppress(OSError):
            while not over.is_set():
                taken.append(server.accept()[0])
                threading.Thread(target=drip, args=(taken[-1],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=listen, args=(server,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/orders", taken
        finally:
            over.set()
            server.shutdown(socket.SHUT_RDWR)


def test_target_that_says_done_of_what_was_never_begun_is_not_even_asked(
    target: OrderTarget, make: Maker
) -> None:
    target.end(WEB_0, "done")

    assert make().inquire(ORDER).status is ImpactStatus.NOT_BEGUN
    assert target.asked == []


@pytest.mark.parametrize(
    "lie",
    [say(404), say(410), say(200, {"status": "not begun"})],
    ids=["404", "410", "not begun"],
)
def test_target_that_has_forgotten_what_it_took_is_never_told_again(
    target: OrderTarget, make: Maker, lie: Reply
) -> None:
    executor = post(make())
    wait_for(executor, lambda impact: impact.reason == "working")

    target.on_get = lambda _: lie
    impact = wait_for(executor, is_unknown)
    post(executor)
    resumed = make()
    wait_for(resumed, is_unknown)
    post(resumed)

    assert impact.reason == "the target accepted it, but no longer knows it"
    target.on_get = lambda _: None
    target.end(WEB_0, "done")
    assert wait_for(executor, is_over).status is ImpactStatus.DONE, "it has remembered"
    assert [asked.method for asked in target.asked].count("POST") == 1


NONSENSE: dict[str, Reply] = {
    "no JSON": (200, {"Content-Type": "application/json"}, b"{"),
    "no text": (200, {"Content-Type": "application/json"}, b"\xff\xfe"),
    "deep": (200, {"Content-Type": "application/json"}, b"[" * 60_000),
    "long": (200, {"Content-Type": "application/json"}, b" " * 2_000_000 + b'{"status": "done"}'),
    "a list": say(200, ["done"]),
    "no status": say(200, {"message": "done"}),
    "unknown status": say(200, {"status": "great"}),
    "status of another kind": say(200, {"status": {"status": "done"}}),
    "a page": (200, {"Content-Type": "text/html"}, b"<h1>done</h1>"),
    "a word": (200, {"Content-Type": "text/plain"}, b'"done"'),
    "an error": say(500, {"status": "done"}),
    "a redirect": say(302, {"status": "done"}, Location="http://127.0.0.1:1/"),
}

OTHER_TYPES: list[dict[str, str]] = [
    {},
    {"Content-Type": "text/plain"},
    {"Content-Type": "text/html; charset=utf-16"},
    {"Content-Type": "application/octet-stream"},
]


@pytest.mark.parametrize("host", ["", "kvm 2", 5, ["kvm-2"], "x" * 200])
def test_host_that_cannot_be_is_not_believed(
    target: OrderTarget, make: Maker, host: object
) -> None:
    executor = post(make())
    target.statuses[WEB_0] = {"status": "done", "host": host}

    impact = wait_for(executor, is_unknown)

    assert impact.reason == "the target reported an invalid host name"
    target.statuses[WEB_0] = {"status": "done", "host": None}
    done = wait_for(executor, is_over)
    assert (done.status, done.moved_to) == (ImpactStatus.DONE, None)


@pytest.mark.parametrize("nonsense", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_not_believed(target: OrderTarget, make: Maker, nonsense: Reply) -> None:
    executor = post(make())
    wait_for(executor, lambda impact: impact.reason == "working")

    target.on_get = lambda _: nonsense
    impact = wait_for(executor, is_unknown)

    assert impact.reason.startswith(
        ("the target sent an invalid answer", "the target did not report its status: ")
    )
    assert impact.ask_again_at is not None
    target.on_get = lambda _: None
    target.end(WEB_0, "done")
    assert wait_for(executor, is_over).status is ImpactStatus.DONE


@pytest.mark.parametrize("headers", OTHER_TYPES, ids=str)
def test_json_is_read_whatever_the_content_type_says(
    target: OrderTarget, make: Maker, headers: dict[str, str]
) -> None:
    target.on_get = lambda _: (200, headers, '{"status": "failed", "message": "défaut"}'.encode())

    ended = wait_for(post(make()), is_over)

    assert ended == Impact(status=ImpactStatus.FAILED, reason="défaut")


def test_answer_is_read_as_utf_8_with_replacements(target: OrderTarget, make: Maker) -> None:
    said = '{"status": "failed", "message": "défaut"}'
    kind = {"Content-Type": "application/json; charset=iso-8859-1"}
    target.on_get = lambda _: (200, kind, said.encode("iso-8859-1"))

    assert wait_for(post(make()), is_over).reason == "d\ufffdfaut"


@pytest.mark.parametrize("headers", OTHER_TYPES, ids=str)
def test_answer_to_the_order_is_read_whatever_the_content_type_says(
    target: OrderTarget, make: Maker, headers: dict[str, str]
) -> None:
    target.on_post = lambda _: (202, headers, b'{"status": "done"}')

    assert wait_for(post(make()), is_over).status is ImpactStatus.DONE


@pytest.mark.parametrize("said", [b"", b"ok", b"true", b"<h1>taken</h1>"])
def test_order_is_taken_by_an_answer_in_words(
    target: OrderTarget, make: Maker, said: bytes
) -> None:
    target.on_post = lambda _: (200, {"Content-Type": "text/plain"}, said)

    running = wait_for(post(make()), lambda impact: bool(impact.reason))

    assert running.status is ImpactStatus.RUNNING
    assert running.reason == "complete the event when it has ended"


@pytest.mark.parametrize(
    "location", ["", "http://127.0.0.1:1/status", "http://[", "http:////[", "\x7f"]
)
def test_target_that_names_no_place_of_its_own_tells_the_end_by_completing_the_event(
    target: OrderTarget, make: Maker, location: str
) -> None:
    target.on_post = lambda _: say(202, Location=location)
    executor = post(make(timeout=timedelta(seconds=2)))

    running = wait_for(executor, lambda impact: bool(impact.reason))

    assert running.status is ImpactStatus.RUNNING
    assert running.reason == "complete the event when it has ended"
    assert wait_for(executor, is_over).status is ImpactStatus.FAILED
    assert len(target.asked) == 1


def test_clock_that_is_set_takes_no_time_from_the_target(
    target: OrderTarget, tmp_path: Path
) -> None:
    clock = VirtualClock(NOW)
    executor = post(make_webhook(tmp_path, WebhookTarget(url=target.url), wall=clock))
    wait_for(executor, lambda _: len(target.asked) > 1)

    clock.move_to(NOW + timedelta(hours=2))
    asked = len(target.asked)
    impact = wait_for(executor, lambda _: len(target.asked) > asked + 1)
    executor.close()

    assert impact.status is ImpactStatus.RUNNING


def test_order_whose_answer_was_lost_in_a_crash_is_sent_again_under_the_same_id(
    target: OrderTarget, make: Maker
) -> None:
    target.delay = 2.0
    post(make())
    wait_until(lambda: bool(target.asked), "the target is not told")

    second = make()  # as if the first had been killed before the answer came
    assert second.inquire(ORDER).status is ImpactStatus.NOT_BEGUN
    target.delay = 0.0
    post(second, order_for(epoch=8))

    wait_for(second, lambda impact: impact.reason == "working")
    assert target.deeds == [KEY]


def test_next_server_asks_where_the_target_said(target: OrderTarget, make: Maker) -> None:
    first = post(make())
    wait_for(first, lambda impact: impact.reason == "working")
    first.close()

    second = make()
    assert second.inquire(ORDER).status is ImpactStatus.RUNNING
    target.end(WEB_0, "done")

    assert wait_for(second, is_over).status is ImpactStatus.DONE
    assert target.asked[-1].headers["forewarn-epoch"] == "7", "that of the order"


def test_target_that_is_no_longer_in_the_file_is_not_asked(make: Maker) -> None:
    first = post(make())
    wait_for(first, lambda impact: impact.reason == "working")
    first.close()

    impact = make(url="http://127.0.0.1:1/orders").inquire(ORDER)

    assert impact.status is ImpactStatus.UNKNOWN
    assert impact.reason == "the target that accepted it is no longer in the executor file"


def test_target_that_is_gone_when_its_turn_comes_is_a_failure(
    target: OrderTarget, make: Maker
) -> None:
    executor, permit = make(selection=Selection(event_types=(EventType.FREEZE,))), Grant()

    executor.begin(ORDER, permit)

    reason = "the executor file has no webhook for a Reboot on host kvm-0"
    assert executor.inquire(ORDER) == Impact(status=ImpactStatus.FAILED, reason=reason)
    assert permit.asked == 0
    assert target.asked == []


def test_closing_does_not_wait_for_a_target_that_hangs(target: OrderTarget, make: Maker) -> None:
    release, answered = threading.Event(), list[Asked]()

    def hang(asked: Asked) -> None:
        release.wait(SECONDS)
        answered.append(asked)

    target.on_post = hang
    executor = post(post(make()), OTHER)
    wait_until(lambda: len(target.asked) == 2, "the target is not told")

    executor.close()

    assert answered == []
    release.set()


def test_closing_waits_a_moment_for_what_a_target_is_taking(
    target: OrderTarget, make: Maker
) -> None:
    target.delay = 0.3
    executor = post(make())
    wait_until(lambda: bool(target.asked), "the target is not told")

    executor.close()

    target.delay = 0.0
    wait_for(make(), lambda impact: impact.reason == "working")
    assert [asked.method for asked in target.asked].count("POST") == 1


def test_closed_executor_sends_nothing(target: OrderTarget, make: Maker) -> None:
    executor = make()
    executor.close()

    impact = post(executor).inquire(ORDER)

    assert impact.status is ImpactStatus.NOT_BEGUN
    wait_for(post(make()), lambda impact: impact.reason == "working")
    assert [asked.method for asked in target.asked].count("POST") == 1


def test_order_that_runs_out_of_time_before_its_turn_is_not_sent(
    target: OrderTarget, make: Maker
) -> None:
    release, at_once = threading.Event(), 32

    def hang(_: Asked) -> None:
        release.wait(SECONDS)

    target.on_post = hang
    executor = make(timeout=timedelta(seconds=1))
    orders = [order_for(VmName(f"vm-{number}")) for number in range(at_once + 8)]
    permits = [Grant() for _ in orders]
    for order, permit in zip(orders, permits, strict=True):
        executor.begin(order, permit)
    wait_until(lambda: len(target.asked) == at_once, "the target is not told")

    failed = [wait_for(executor, is_over, order) for order in orders]
    release.set()
    executor.close()

    assert {impact.status for impact in failed} == {ImpactStatus.FAILED}
    assert len(target.asked) == at_once
    assert sum(permit.asked for permit in permits) == at_once


def test_order_whose_permit_is_gone_is_not_sent_again(target: OrderTarget, make: Maker) -> None:
    target.on_post = lambda _: say(503)
    executor, permit = make(), Grant()
    executor.begin(ORDER, permit)
    wait_for(executor, is_unknown)

    permit.is_given = False
    waits = "it is waiting because the server is paused"
    wait_for(executor, lambda impact: impact.reason == waits)
    asked = len(target.asked)
    looks = permit.looks
    wait_for(executor, lambda _: permit.looks > looks)

    assert executor.inquire(ORDER).reason == waits
    assert len(target.asked) == asked
    permit.is_given = True
    target.on_post = lambda _: None
    wait_for(executor, lambda impact: impact.reason == "working")
    assert permit.asked == 1


def test_permit_that_came_late_is_looked_at_once_more(target: OrderTarget, make: Maker) -> None:
    executor, permit = make(), Withdrawn()
    executor.permit_seconds = 0.0

    executor.begin(ORDER, permit)
    wait_for(executor, lambda impact: impact.status is ImpactStatus.NOT_BEGUN)

    assert permit.asked == 1
    assert target.asked == []


@pytest.mark.parametrize(
    ("trouble", "logged"),
    [(StoreUnavailableError("away"), []), (OSError("no memory"), ["webhook_executor_failed"])],
)
def test_permit_that_could_not_be_obtained_is_asked_for_again(
    target: OrderTarget, make: Maker, trouble: Exception, logged: list[str]
) -> None:
    troubles = [trouble]

    def fail() -> None:
        if troubles:
            raise troubles.pop()

    executor, permit = make(), Grant(meanwhile=fail)
    with capture_logs() as logs:
        executor.begin(ORDER, permit)
        wait_for(executor, lambda impact: impact.reason == "working")

    assert permit.asked == 2
    assert target.deeds == [KEY]
    assert [line["event"] for line in logs] == logged
