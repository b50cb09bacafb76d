"""Waiting for code under test, in real time: in an event loop, or by blocking.

A wait is written once, as a coroutine. It naps with `asyncio.sleep`, or with a nap that blocks:
then it never suspends, and ends the first time that it is run.
"""
# ruff: noqa: ASYNC109 - the timeout says what did not happen, which asyncio.timeout cannot

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, NoReturn

from forewarn.protocol.errors import ForewarnError
from forewarn.protocol.vocabulary import EventStatus
from forewarn.testing.events import EmulatedEvent
from forewarn.testing.handles import EmulatedVm

__tracebackhide__ = True

TIMEOUT: Final = 5
_NAP_SECONDS: Final = 0.005


class WouldBlockError(ForewarnError):
    """A wait that would stop the very code it waits for."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"await_{name} would block the event loop; use: await emulator.until.{name}(…)"
        )


class Until:
    """What can be waited for: `await emulator.until.approved(event)`."""

    def __init__(self, nap: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._nap = nap

    async def polled(self, vm: EmulatedVm, timeout: float = TIMEOUT) -> None:
        """Wait until *vm* has read its document."""
        await self._until(
            lambda: any(entry.has_read for entry in vm.requests),
            vm.fail,
            "got no document",
            timeout,
        )

    async def seen(
        self, event: EmulatedEvent, timeout: float = TIMEOUT, *, by: EmulatedVm | None = None
    ) -> None:
        """Wait until *by*, or a machine that *event* happens to, has read of it."""
        vms = event.record.resources if by is None else (by.name,)
        await self._until(
            lambda: not set(vms).isdisjoint(event.seen_by),
            lambda problem: event.fail(problem, *vms),
            f"was not shown to {', '.join(vms)}",
            timeout,
        )

    async def approved(self, event: EmulatedEvent, timeout: float = TIMEOUT) -> None:
        """Wait until somebody has approved *event*."""
        await self._until(lambda: bool(event.approvals), event.fail, "was not approved", timeout)

    async def started(self, event: EmulatedEvent, timeout: float = TIMEOUT) -> None:
        """Wait until *event* has started."""
        await self._until(
            lambda: event.event_status is not EventStatus.SCHEDULED,
            event.fail,
            "was not started",
            timeout,
        )

    async def _until(
        self,
        has_come: Callable[[], bool],
        fail: Callable[[str], NoReturn],
        problem: str,
        timeout: float,
    ) -> None:
        deadline = time.monotonic() + timeout
        while not has_come():
            if time.monotonic() > deadline:
                fail(f"{problem} within {timeout:g} s")
            await self._nap(_NAP_SECONDS)


def block(name: str, wait: Callable[[Until], Coroutine[Any, Any, None]]) -> None:
    """Do the *wait* of that *name* in this thread, unless it runs an event loop."""
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise WouldBlockError(name)
    with suppress(StopIteration):
        wait(Until(_sleep)).send(None)


async def _sleep(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop
