"""What virtual machines ask for, carried out by the server that a relay follows."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, urlencode
from weakref import WeakValueDictionary

from forewarn.domain.errors import DomainError, UnknownEventError
from forewarn.domain.names import ScopeId, VmName
from forewarn.feed.upstream import Upstream, UpstreamRefusedError
from forewarn.ports.store import StoreUnavailableError
from forewarn.ports.verbs import Receipt
from forewarn.protocol.vocabulary import EventId

SHOWN_SECONDS: Final = 5.0
"""How long is waited at most until the board shows what was stored."""
_AT_ONCE: Final = 8
_AT_ONCE_OF_ONE: Final = 2
"""How much of that a virtual machine gets, so that none keeps the others from approving."""


class RemoteVerbs:
    """Asks *upstream*, unless it is known to be away, and waits until its answer is shown.

    *await_shown* waits so many seconds for a document of a scope, and tells whether it is shown.
    """

    def __init__(
        self,
        upstream: Upstream,
        *,
        is_current: Callable[[], bool],
        await_shown: Callable[[ScopeId, int, float], Awaitable[bool]],
    ) -> None:
        self._upstream = upstream
        self._is_current = is_current
        self._await_shown = await_shown
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="verbs")
        self._turns: WeakValueDictionary[VmName, asyncio.Semaphore] = WeakValueDictionary()

    async def request_start(
        self, vm: VmName, event_ids: tuple[EventId, ...], *, where: str
    ) -> Receipt:
        """Take *vm*'s StartRequests."""
        order = {"vm": vm, "event_ids": event_ids, "where": where}
        answer = await self._ask(vm, event_ids[:1], "POST", "start-requests", order)
        receipt = Receipt(
            scope_id=ScopeId(answer["scope_id"]),
            document_incarnation=answer["document_incarnation"],
        )
        if not await self._await_shown(
            receipt.scope_id, receipt.document_incarnation, SHOWN_SECONDS
        ):
            # It is stored, and to ask for it again is harmless. But whoever was told so would read
            # a document in which it is not.
            raise StoreUnavailableError(
                "The approval is stored, but this relay does not show it yet."
            )
        return receipt

    async def describe_event(self, vm: VmName, event_id: EventId) -> Mapping[str, object]:
        """Return what became of an event of *vm*'s scope."""
        path = f"events/{quote(event_id, safe='')}?{urlencode({'vm': vm})}"
        answer: Mapping[str, object] = await self._ask(vm, (event_id,), "GET", path)
        return answer

    async def postpone(
        self, vm: VmName, event_id: EventId, not_before: datetime, *, where: str
    ) -> Mapping[str, object]:
        """Postpone an event of *vm*'s scope."""
        order = {"vm": vm, "not_before": not_before.isoformat(), "where": where}
        path = f"events/{quote(event_id, safe='')}/postpone"
        answer: Mapping[str, object] = await self._ask(vm, (event_id,), "POST", path, order)
        return answer

    def close(self) -> None:
        """Ask nothing any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _ask(
        self,
        vm: VmName,
        event_ids: tuple[EventId, ...],
        method: str,
        path: str,
        order: object = None,
    ) -> Any:
        if not self._is_current():
            raise StoreUnavailableError("The server is unreachable.")
        loop = asyncio.get_running_loop()
        turn = self._turns.setdefault(vm, asyncio.Semaphore(_AT_ONCE_OF_ONE))
        try:
            async with turn:
                return await loop.run_in_executor(
                    self._threads, self._upstream.ask, method, path, order
                )
        except UpstreamRefusedError as error:
            if error.status == 404:
                raise UnknownEventError(*event_ids or (EventId(""),)) from None
            if error.status in {409, 422}:
                raise DomainError(str(error)) from None
            raise StoreUnavailableError(str(error)) from error
