"""Nothing goes on after the end, and nobody waits for a watch."""

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from tests.sdk.conftest import (
    TIMEOUT,
    ClientMaker,
    Handler,
    Metadata,
    answer_well,
    answer_with,
    event,
    say_nothing,
)
from tests.waiting import wait_until

from forewarn.client import AsyncClient, Client, ClosedError

PROMPTLY = 10.0
"""Seconds within which something ends at once; what it does not wait for takes far longer."""
INTERRUPTED = ("forewarn.client", "threading", "queue")


def park(handler: Handler) -> None:
    """Hold a long poll for longer than any test waits."""
    assert handler.headers["Prefer"]
    say_nothing(handler)


def after(seconds: float, act: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, act)
    timer.start()
    return timer


def client_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "forewarn-client" in thread.name]


@pytest.mark.parametrize(
    "script",
    [
        pytest.param([answer_well, park], id="while the server has the poll parked"),
        pytest.param(
            [answer_well, answer_with(status=503, Retry_After="60")], id="while it pauses"
        ),
    ],
)
def test_closing_ends_a_watch_at_once(
    make_client: ClientMaker, metadata: Metadata, script: list[Callable[[Handler], None]]
) -> None:
    client = make_client(metadata.endpoint, timeout=TIMEOUT)
    metadata.events, metadata.script = [event(1)], script
    changes = client.watch()
    next(changes)

    closing = after(0.1, client.close)
    began = time.monotonic()
    rest = list(changes)

    assert rest == []
    assert time.monotonic() - began < PROMPTLY
    closing.join(TIMEOUT)


def test_closing_ends_a_call_at_once(make_client: ClientMaker, metadata: Metadata) -> None:
    client = make_client(metadata.endpoint, timeout=TIMEOUT)
    metadata.script = [say_nothing]

    closing = after(0.1, client.close)
    began = time.monotonic()
    with pytest.raises(ClosedError):
        client.document()

    assert time.monotonic() - began < PROMPTLY
    closing.join(TIMEOUT)


def test_closing_ends_a_call_that_still_connects(
    make_client: ClientMaker, full_server: str
) -> None:
    client = make_client(full_server, timeout=TIMEOUT)

    closing = after(0.1, client.close)
    began = time.monotonic()
    with pytest.raises(ClosedError):
        client.document()

    assert time.monotonic() - began < PROMPTLY
    closing.join(TIMEOUT)


def close_before(line: int, client: Client) -> Callable[..., Any]:
    """Return a trace that closes *client* before a *line* of ours, as a signal handler may."""
    left = line

    def trace(frame: FrameType, kind: str, _argument: object) -> Any:
        nonlocal left
        if kind == "line" and frame.f_globals["__name__"].startswith(INTERRUPTED):
            left -= 1
            if left == 0:
                client.close()
        return trace

    return trace


@pytest.mark.usefixtures("in_haste")
@pytest.mark.parametrize("status", [200, 503])
def test_handler_of_a_signal_may_close_the_client_that_it_interrupts(
    metadata: Metadata, status: int
) -> None:
    metadata.script = [answer_with(b'{"DocumentIncarnation":1,"Events":[]}', status)] * 10_000

    def ask(line: int) -> None:
        client = Client(metadata.endpoint)
        sys.settrace(close_before(line, client))
        with contextlib.suppress(ClosedError):
            while True:
                client.document()

    for line in range(1, 250):
        thread = threading.Thread(target=ask, args=(line,), daemon=True)
        thread.start()
        thread.join(TIMEOUT)
        assert not thread.is_alive(), f"interrupted before line {line}, it waits for itself"


def test_closed_client_can_do_nothing(make_client: ClientMaker, metadata: Metadata) -> None:
    client = make_client(metadata.endpoint)
    client.document()
    client.close()
    client.close()

    for call in (client.document, client.events, client.whoami, lambda: client.approve("an-id")):
        with pytest.raises(ClosedError, match="create a new one"):
            call()
    assert list(client.watch()) == []
    assert len(metadata.seen) == 1


def test_other_calls_do_not_wait_for_a_watch(make_client: ClientMaker, metadata: Metadata) -> None:
    client = make_client(metadata.endpoint, timeout=TIMEOUT)
    metadata.events, metadata.script = [event(1)], [answer_well, park]
    changes = client.watch()
    next(changes)
    watching = threading.Thread(target=lambda: list(changes))
    watching.start()
    wait_until(lambda: len(metadata.seen) == 2, "the watch is parked")

    began = time.monotonic()
    client.approve("an-id")

    assert time.monotonic() - began < PROMPTLY
    client.close()
    watching.join(TIMEOUT)
    assert not watching.is_alive()


def test_watch_that_is_given_up_frees_its_connection(
    make_client: ClientMaker, metadata: Metadata
) -> None:
    client = make_client(metadata.endpoint)
    metadata.events = [event(1)]

    for _ in client.watch():
        break

    assert client.document().document_incarnation == 1


def test_context_manager_closes(metadata: Metadata) -> None:
    with Client(metadata.endpoint) as client:
        assert client.document().document_incarnation == 1

    with pytest.raises(ClosedError):
        client.document()


def test_async_context_manager_closes(metadata: Metadata) -> None:
    async def use() -> None:
        async with AsyncClient(metadata.endpoint) as client:
            assert (await client.document()).document_incarnation == 1
        with pytest.raises(ClosedError):
            await client.document()

    asyncio.run(use())

    wait_until(lambda: not client_threads(), "the thread of the client ends")


def test_cancelled_call_frees_its_thread_for_the_next(metadata: Metadata) -> None:
    metadata.script = [say_nothing]

    async def use() -> float:
        async with AsyncClient(metadata.endpoint, timeout=TIMEOUT) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.document(), 0.1)
            began = time.monotonic()
            await client.document()
            return time.monotonic() - began

    assert asyncio.run(use()) < PROMPTLY
    wait_until(lambda: not client_threads(), "the thread of the client ends")


def test_cancelled_watch_ends_and_leaves_no_thread(metadata: Metadata) -> None:
    metadata.events, metadata.script = [event(1)], [answer_well, park]

    async def watch() -> None:
        async with AsyncClient(metadata.endpoint) as client:
            async for _ in client.watch():
                pass

    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(watch(), 0.3))

    wait_until(lambda: not client_threads(), "the threads of the client end")
