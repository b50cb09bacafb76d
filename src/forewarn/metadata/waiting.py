"""Polls that wait for a change. They are woken on the event loop, by changes from any thread."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final, TypeAlias

from forewarn.domain.names import ScopeId

Waiter: TypeAlias = Callable[[], None]

_WOKEN_AT_ONCE: Final = 64
"""How many look again before the event loop does something else."""


class Waiters:
    """The polls that are parked, by delivery scope: each is called when it is to look again.

    They belong to the event loop; other threads only ever ask it to wake them.
    """

    def __init__(self) -> None:
        self._parked: dict[ScopeId, set[Waiter]] = {}
        self._woken: dict[Waiter, None] = {}
        """Those whose turn is to come, in order."""
        self._loop: asyncio.AbstractEventLoop | None = None

    async def wait(
        self, where_to_wait: Callable[[], ScopeId | None], *, until: asyncio.Event, seconds: float
    ) -> None:
        """Return when *where_to_wait* names no scope any more, at *until*, or after *seconds*."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        async with asyncio.TaskGroup() as group:
            ending = group.create_task(_happens(until))
            while (scope_id := where_to_wait()) and not ending.done() and loop.time() < deadline:
                woken = loop.create_future()
                waiter = partial(woken.set_result, None)
                self.park(scope_id, waiter)
                try:
                    # Looking again closes the gap: a change before the parking wakes nobody.
                    if where_to_wait() == scope_id:
                        await asyncio.wait(
                            {woken, ending},
                            timeout=deadline - loop.time(),
                            return_when=asyncio.FIRST_COMPLETED,
                        )
                finally:
                    self.leave(scope_id, waiter)
            ending.cancel()

    def wake(self, scope_ids: Iterable[ScopeId] | None = None) -> None:
        """Wake those of *scope_ids*, or all; from any thread."""
        if self._loop is None or not self._parked:
            return
        wanted = None if scope_ids is None else tuple(scope_ids)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._wake, wanted)

    def __len__(self) -> int:
        return sum(len(parked) for parked in tuple(self._parked.values()))

    def park(self, scope_id: ScopeId, waiter: Waiter) -> None:
        """Have *waiter* called once, when the scope is woken."""
        self._loop = asyncio.get_running_loop()
        self._parked.setdefault(scope_id, set()).add(waiter)

    def leave(self, scope_id: ScopeId, waiter: Waiter) -> None:
        """Call *waiter* no more."""
        self._woken.pop(waiter, None)
        parked = self._parked.get(scope_id, set())
        parked.discard(waiter)
        if not parked:
            self._parked.pop(scope_id, None)

    def _wake(self, scope_ids: tuple[ScopeId, ...] | None) -> None:
        is_calling = bool(self._woken)
        for scope_id in tuple(self._parked) if scope_ids is None else scope_ids:
            self._woken |= dict.fromkeys(self._parked.pop(scope_id, ()))
        if not is_calling:
            self._call()

    def _call(self) -> None:
        try:
            for waiter in tuple(islice(self._woken, _WOKEN_AT_ONCE)):
                del self._woken[waiter]
                waiter()
        finally:
            if self._woken:
                asyncio.get_running_loop().call_soon(self._call)


async def first_of(*ends: asyncio.Event, seconds: float | None) -> None:
    """Return when one of *ends* happens, or after *seconds*."""
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(_happens(end)) for end in ends]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()


async def _happens(what: asyncio.Event) -> None:
    await what.wait()
