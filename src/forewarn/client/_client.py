"""The client that blocks."""

import socket
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Self

from forewarn.client._conversations import Conversations
from forewarn.client._drivers import Driver
from forewarn.client._errors import ClosedError
from forewarn.client._retrying import Conduct
from forewarn.client._watching import Change, Polled, Watch
from forewarn.protocol.document import Document, Event
from forewarn.protocol.identity import Identity
from forewarn.protocol.versions import NEWEST


class Client:
    """Talks to the metadata server of this virtual machine, forewarn's or Azure's.

        with Client() as client:
            me = client.whoami()
            for change in client.watch():
                if change.kind is ChangeKind.SCHEDULED and change.event.affects(me):
                    drain()
                    client.approve(change.event)

    *endpoint* is a URL, `HOST:PORT` or `HOST`; without one it is looked for at the first call. One
    request takes *timeout* seconds at most, besides the time that resolving a name takes, and what
    goes wrong for a while is tried again: `watch` never gives up, the others begin no attempt after
    *patience* seconds and raise UnavailableError. What the server refuses raises RefusedError at
    once.

    A client may be shared by threads. Each `watch` has a connection of its own, so that nobody
    waits for it; the other calls take turns.
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
        self._driver = Driver()
        self._watchers: set[Driver] = set()
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every call that is under way, from any thread; a `watch` just ends."""
        self._is_closed = True
        for driver in (self._driver, *tuple(self._watchers)):
            driver.close()

    @property
    def endpoint(self) -> str | None:
        """Where the metadata server is, None as long as it was not looked for."""
        return self._conversations.endpoint

    def document(self) -> Document:
        """Return the document as it is now."""
        return self._driver.run(self._conversations.document())

    def events(self) -> tuple[Event, ...]:
        """Return the events of the document as it is now."""
        return self.document().events

    def approve(self, *events: Event | str) -> None:
        """Let *events* start before their time, each an Event or an EventId; no events, no call."""
        self._driver.run(self._conversations.approve(events))

    def postpone(self, event: Event | str, not_before: datetime) -> None:
        """Ask forewarn to move an event that waits; RefusedError if it does not, and on Azure."""
        self._driver.run(self._conversations.postpone(event, not_before))

    def changes(self, known: Iterable[Event] = ()) -> tuple[Change, ...]:
        """Return what has changed since the events *known*, in one look, as `watch` tells it."""
        return self._driver.run(Watch(self._conversations, known).all_changes())

    def whoami(self) -> Identity:
        """Return which virtual machine this is, for `event.affects(me)`."""
        return self._driver.run(self._conversations.whoami(socket.gethostname()))

    def watch(
        self,
        known: Iterable[Event] = (),
        *,
        observe: Callable[[Polled], None] | None = None,
    ) -> Iterator[Change]:
        """Yield what changes, beginning with the events there are, until the client is closed.

        The events *known* from an earlier `watch` are not told again unless they have changed or
        are gone. *observe* is called after each poll.
        """
        watch, driver = Watch(self._conversations, known, observe), Driver()
        self._watchers.add(driver)
        try:
            while not self._is_closed:
                yield driver.run(watch.next_change())
        except ClosedError:
            return
        finally:
            driver.close()
            self._watchers.discard(driver)
