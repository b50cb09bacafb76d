"""The client for asyncio."""

import socket
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime
from typing import Self

from forewarn.client._conversations import Conversations
from forewarn.client._errors import ClosedError
from forewarn.client._retrying import Conduct
from forewarn.client._watching import Change, Polled, Watch
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

    A client belongs to one event loop. Canceling a call leaves nothing behind.
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
        # asyncio takes longer to import than all the rest, and `Client` does without.
        from forewarn.client._async_driver import AsyncDriver

        self._make_driver = AsyncDriver
        self._driver = AsyncDriver()
        self._watchers: set[AsyncDriver] = set()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End every call that is under way; a `watch` just ends."""
        self._is_closed = True
        for driver in (self._driver, *tuple(self._watchers)):
            driver.close()

    @property
    def endpoint(self) -> str | None:
        """Where the metadata server is, None as long as it was not looked for."""
        return self._conversations.endpoint

    async def document(self) -> Document:
        """Return the document as it is now."""
        return await self._driver.run(self._conversations.document())

    async def events(self) -> tuple[Event, ...]:
        """Return the events of the document as it is now."""
        return (await self.document()).events

    async def approve(self, *events: Event | str) -> None:
        """Let *events* start before their time, each an Event or an EventId; no events, no call."""
        await self._driver.run(self._conversations.approve(events))

    async def postpone(self, event: Event | str, not_before: datetime) -> None:
        """Ask forewarn to move an event that waits; RefusedError if it does not, and on Azure."""
        await self._driver.run(self._conversations.postpone(event, not_before))

    async def changes(self, known: Iterable[Event] = ()) -> tuple[Change, ...]:
        """Return what has changed since the events *known*, in one look, as `watch` tells it."""
        return await self._driver.run(Watch(self._conversations, known).all_changes())

    async def whoami(self) -> Identity:
        """Return which virtual machine this is, for `event.affects(me)`."""
        return await self._driver.run(self._conversations.whoami(socket.gethostname()))

    async def watch(
        self,
        known: Iterable[Event] = (),
        *,
        observe: Callable[[Polled], None] | None = None,
    ) -> AsyncIterator[Change]:
        """Yield what changes, beginning with the events there are, until the client is closed.

        The events *known* from an earlier `watch` are not told again unless they have changed or
        are gone. *observe* is called after each poll.
        """
        watch, driver = Watch(self._conversations, known, observe), self._make_driver()
        self._watchers.add(driver)
        try:
            while not self._is_closed:
                yield await driver.run(watch.next_change())
        except ClosedError:
            return
        finally:
            driver.close()
            self._watchers.discard(driver)
