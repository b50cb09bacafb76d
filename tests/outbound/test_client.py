"""The one client: how long it waits, how much it reads, where it goes, and what it never says."""

import asyncio
import hashlib
import hmac
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.ports import free_port
from tests.waiting import wait_until
from tests.web_site import Site

from forewarn.outbound.client import NoAnswerError, Outbound, OutboundRequest, Reply
from forewarn.outbound.transport import LARGEST_BODY, sign

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
SOON = 30.0
OUTBOUND = Outbound()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


def ask(url: str, *, timeout: float = SOON, **more: Any) -> Reply:
    return OUTBOUND.ask(
        OutboundRequest(**{"method": "GET", **more}, url=url, timeout=timeout), now=NOW
    )


def test_request_is_sent_as_it_was_written(site: Site) -> None:
    reply = ask(
        f"{site.url}/hook",
        method="POST",
        headers={"X-Team": "shop", "user-agent": "other"},
        parameters={"query": "a b&c"},
        body=b"{}",
    )

    assert (reply.status, reply.said, reply.body) == (200, "200 OK", "fine")
    assert reply.is_success
    assert reply.whole() is reply
    (request,) = site.received
    assert request.path in {"/hook?query=a+b%26c", "/hook?query=a%20b%26c"}
    assert request.body == b"{}"
    assert (request.headers["x-team"], request.headers["user-agent"]) == ("shop", "other")
    assert "forewarn-signature" not in request.headers


def test_secret_signs_time_and_body(site: Site) -> None:
    ask(site.url, method="POST", body=b"body", secret="hush")  # noqa: S106
    ask(site.url)

    first, second = site.received
    expected = hmac.new(b"hush", b"1767600000.body", hashlib.sha256).hexdigest()
    assert first.headers["forewarn-signature"] == f"t=1767600000,v1={expected}"
    assert sign("hush", b"body", NOW) == f"t=1767600000,v1={expected}"
    assert second.headers["user-agent"].startswith("forewarn/")


def test_body_is_utf_8_whatever_the_header_says(site: Site) -> None:
    site.headers = {"Content-Type": "text/plain; charset=utf-16"}
    site.body = "\ufeffgeprüft".encode() + b"\xff"

    assert ask(site.url).body == "geprüft\ufffd"


def test_redirect_is_not_followed(site: Site) -> None:
    site.status, site.headers = 302, {"Location": f"{site.url}/elsewhere"}

    reply = ask(site.url)

    assert (reply.status, reply.is_success) == (302, False)
    assert len(site.received) == 1


def test_long_answer_is_cut(site: Site) -> None:
    site.body = b"x" * (3 * LARGEST_BODY)

    assert ask(site.url).whole().content == b"x" * LARGEST_BODY


def test_silence_ends_at_the_deadline(site: Site) -> None:
    site.is_silent = True

    with pytest.raises(NoAnswerError, match=r"^No answer within 0\.5 seconds\.$"):
        ask(site.url, timeout=0.5)


@pytest.mark.parametrize(
    ("at_once", "status"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", 200),
        (b"HTTP/1.1 503 Not Now\r\n\r\n", 503),
    ],
)
def test_drips_end_at_the_deadline(at_once: bytes, status: int | None) -> None:
    """A deadline for each read would begin anew with every byte."""
    late = r"^No answer within 0\.5 seconds\.$"
    began = time.monotonic()

    with dripping(at_once) as url:
        if status is None:
            with pytest.raises(NoAnswerError, match=late):
                ask(url, timeout=0.5)
        else:
            reply = ask(url, timeout=0.5)
            assert reply.status == status
            with pytest.raises(NoAnswerError, match=late):
                reply.whole()

    assert time.monotonic() - began < SOON


@contextmanager
def dripping(at_once: bytes) -> Iterator[str]:
    """Say *at_once*, and then a byte at a time, always well before anybody could lose patience."""
    stopping = threading.Event()

    def answer() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(at_once)
            while not stopping.wait(0.1):
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/hook"
        finally:
            stopping.set()
            thread.join(SOON)


def test_body_that_breaks_off_is_not_whole(site: Site) -> None:
    site.headers = {"Content-Length": "1000"}

    reply = ask(site.url)

    assert (reply.status, reply.body) == (200, "fine")
    with pytest.raises(NoAnswerError, match=r"^The request failed: peer closed"):
        reply.whole()


def test_who_hangs_up_has_not_answered() -> None:
    def hang_up() -> None:
        listener.accept()[0].close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=hang_up, daemon=True).start()
        with pytest.raises(NoAnswerError, match=r"^The request failed: .*[^.]\.$"):
            ask(f"http://127.0.0.1:{listener.getsockname()[1]}/")


@pytest.mark.parametrize(
    ("url", "headers", "problem"),
    [
        ("http://127.0.0.1:{port}/T0KEN", {}, "Connection refused"),
        ("http://127.0.0.1:T0KEN/", {}, "InvalidURL"),
        ("{site}/", {"Authorization": "T0KEN "}, "LocalProtocolError"),
        ("https://{plain}/T0KEN", {}, r"\[SSL"),
    ],
)
def test_failure_is_told_without_address_and_secrets(
    site: Site, url: str, headers: dict[str, str], problem: str
) -> None:
    there = {"port": free_port(), "site": site.url, "plain": site.url.removeprefix("http://")}

    with pytest.raises(NoAnswerError, match=f"^The request failed: {problem}") as refused:
        ask(url.format_map(there), headers=headers)

    assert "T0KEN" not in str(refused.value)
    assert "127.0.0.1" not in str(refused.value)


def test_request_does_not_show_what_is_secret() -> None:
    shown = repr(
        OutboundRequest(
            method="GET",
            url="http://T0KEN",
            timeout=1,
            headers={"X": "T0KEN"},
            secret="T0KEN",  # noqa: S106
        )
    )

    assert "T0KEN" not in shown


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7),
        ("9" * 30, 86_400),
        ("Mon, 05 Jan 2026 08:00:30 GMT", 30),
        ("Mon, 05 Jan 2026 08:00:30 -0000", 30),
        ("Mon, 05 Jan 2026 07:00:00 GMT", 0),
        ("soon", 0),
        ("", 0),
        ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", 0),
        ("Mon, 05 Jan 2026 08:00:00 +99999999999999999999", 0),
    ],
)
def test_answer_says_when_to_come_back(text: str, seconds: int) -> None:
    reply = Reply(status=503, said="503", headers={"Retry-After": text}, content=b"")

    assert reply.retry_after(NOW) == timedelta(seconds=seconds)


def test_hundred_that_hang_take_one_thread_and_hold_up_nobody(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=200) as silent:
        request = OutboundRequest(
            method="GET", url=f"http://127.0.0.1:{silent.getsockname()[1]}/", timeout=60
        )
        before = threading.active_count()
        hanging = [OUTBOUND.begin(OUTBOUND.send(request, now=NOW)) for _ in range(100)]

        assert ask(site.url).is_success
        # Those of the site and of lookups come and go.
        assert threading.active_count() < before + 20
        for each in hanging:
            each.cancel()


def test_closing_ends_what_waits_and_refuses_what_comes(site: Site) -> None:
    site.is_silent = True
    outbound, said = Outbound(), list[str]()
    request = OutboundRequest(method="GET", url=site.url, timeout=60)

    def wait() -> None:
        with pytest.raises(NoAnswerError) as refused:
            outbound.ask(request, now=NOW)
        said.append(str(refused.value))

    waiting = threading.Thread(target=wait)
    waiting.start()
    wait_until(lambda: site.received, "a request")
    outbound.close()
    waiting.join(SOON)
    wait()
    outbound.close()

    assert said == ["The server is stopping."] * 2


def test_one_that_sent_nothing_has_nothing_to_close() -> None:
    before = threading.active_count()

    Outbound().close()

    assert threading.active_count() == before


def test_work_of_another_kind_is_done_beside_the_loop() -> None:
    outbound = Outbound()

    assert outbound.begin(asyncio.to_thread(pow, 2, 3)).result(SOON) == 8
    with pytest.raises(ZeroDivisionError):
        outbound.begin(asyncio.to_thread(divmod, 1, 0)).result(SOON)
    outbound.close()


def test_work_for_which_there_is_no_thread_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    outbound = Outbound()
    assert outbound.begin(asyncio.to_thread(pow, 2, 3)).result(SOON) == 8

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            outbound.begin(asyncio.to_thread(pow, 2, 3)).result(SOON)
    assert outbound.begin(asyncio.to_thread(pow, 2, 4)).result(SOON) == 16
    outbound.close()


def test_lookups_that_hang_take_64_threads_and_hold_up_nobody_later(site: Site) -> None:
    answering, port = threading.Event(), int(site.url.rpartition(":")[2])

    def look_up(host: str, *more: Any, **kind: Any) -> list[Any]:
        assert answering.wait(60), f"nobody lets {host} be found"
        return socket.getaddrinfo("127.0.0.1", *more, **kind)

    outbound, before = Outbound(look_up), threading.active_count()
    requests = [
        OutboundRequest(method="GET", url=f"http://host-{number}.example:{port}/", timeout=0.5)
        for number in range(500)
    ]

    hanging = [outbound.begin(outbound.send(each, now=NOW)) for each in requests]

    said = {str(each.exception(2 * SOON)) for each in hanging}
    assert said == {"No answer within 0.5 seconds."}
    assert threading.active_count() - before <= 64 + 1, "one more is the loop"
    answering.set()
    assert outbound.ask(replace(requests[-1], timeout=SOON), now=NOW).is_success
    outbound.close()


def test_name_server_that_says_nothing_does_not_keep_the_process_from_ending() -> None:
    began = time.monotonic()

    done = subprocess.run(
        [sys.executable, "-c", _NO_NAMES], capture_output=True, text=True, timeout=50, check=True
    )

    assert done.stdout == "No answer within 0.2 seconds.\n"
    assert time.monotonic() - began < 30


_NO_NAMES = """
import socket, threading
socket.getaddrinfo = lambda *_, **__: threading.Event().wait(40)

from datetime import UTC, datetime
from forewarn.outbound.client import NoAnswerError, Outbound, OutboundRequest

outbound = Outbound()
try:
    request = OutboundRequest(method="GET", url="http://hooks.example/", timeout=0.2)
    outbound.ask(request, now=datetime(2026, 1, 5, 8, tzinfo=UTC))
except NoAnswerError as error:
    print(error)
outbound.close()
"""
