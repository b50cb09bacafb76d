"""The client for asyncio."""

import socket
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from forewarn.client._conversations import Conversations
from forewarn.client._drivers import AsyncDriver
from forewarn.client._errors import ClosedError
from forewarn.client._retrying import Conduct
from forewarn.client._watching import Change, Watch
from forewarn.protocol.document import Document, Event
from forewarn.protocol.identity import Identity
from forewarn.protocol.versions import NEWEST


class AsyncClient:
    """Does what `Client` does, with the same words, to be awaited.

        async with AsyncClient() as client:
            me = await client.whoami()
            async for change in client.watch():
                if change.kind is ChangeKind.SCHEDULED and change.event.affects(me):
                    await drain()
                    await client.approve(change.event)

    A client belongs to one event loop. Cancelling a call leaves nothing behind.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        api_version: str = NEWEST.name,
        timeout: float = 10,
        patience: float = 30,
    ) -> None:
        conduct = Conduct(api_version=api_version, timeout=timeout, patience=patience)
        self._conversations = Conversations(endpoint, conduct)
        self._driver = AsyncDriver()
        self._watchers: set[AsyncDriver] = set()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End every call that is under way; a `watch` just ends."""
        self._is_closed = True
        for driver in (self._driver, *tuple(self._watchers)):
            driver.close()

    async def document(self) -> Document:
        """Return the document as it is now."""
        return await self._driver.run(self._conversations.document())

    async def events(self) -> tuple[Event, ...]:
        """Return the events of the document as it is now."""
        return (await self.document()).events

    async def approve(self, *events: Event | str) -> None:
        """Let *events* start before their time, each an Event or an EventId; no events, no call."""
        await self._driver.run(self._conversations.approve(events))

    async def whoami(self) -> Identity:
        """Return which virtual machine this is, for `event.affects(me)`."""
        return await self._driver.run(self._conversations.whoami(socket.gethostname()))

    async def watch(self) -> AsyncIterator[Change]:
        """Yield what changes, beginning with the events there are, until the client is closed."""
        watch, driver = Watch(self._conversations), AsyncDriver()
        self._watchers.add(driver)
        try:
            while not self._is_closed:
                yield await driver.run(watch.next_change())
        except ClosedError:
            return
        finally:
            driver.close()
            self._watchers.discard(driver)
