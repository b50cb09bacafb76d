"""The hot path: connections that send plain polls, without asyncio's transports in between.

An epoll of its own watches the listeners and the connections on the hot path; the event loop
watches that epoll. What a connection sends is answered on the spot, as long as it is one plain poll
at a time. A connection that sends anything else is handed over with what it has sent, for good.
Only Linux has epoll; elsewhere every connection takes the long way.
"""

import asyncio
import select
import socket
from dataclasses import dataclass
from typing import Final

from forewarn.connections.crowd import Crowd
from forewarn.connections.limits import Limits
from forewarn.metadata.identity import find_peer
from forewarn.metadata.plain_polls import PlainPolls
from forewarn.metadata.poller import HandOver, Poller

HAS_EPOLL: Final = hasattr(select, "epoll")
_READY_AT_ONCE: Final = 128
"""How many sockets are looked at before the event loop does something else."""
_ACCEPTED_AT_ONCE: Final = 16
_REST_SECONDS: Final = 0.5
"""How long nobody is let in after somebody could not be."""
_FRESH_SECONDS: Final = 0.002
"""How long a connection is left alone after its first answer: most clients close it by then."""
_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - only compared with


class HotPath:
    """Answers *polls* on any number of listeners; everybody else is for *hand_over*."""

    def __init__(
        self, polls: PlainPolls, crowd: Crowd, hand_over: HandOver, limits: Limits
    ) -> None:
        self.polls = polls
        self.crowd = crowd
        self.hand_over = hand_over
        self.limits = limits
        self.now = 0.0
        """The time by the event loop, at the last tick."""
        self.turn = 0
        """How often the event loop has come by."""
        self._epoll = select.epoll()
        self._doors: dict[int, _Door] = {}
        self._pollers: dict[int, Poller] = {}
        self._fresh: list[Poller] = []

    def __len__(self) -> int:
        """Return how many connections there are."""
        return len(self._pollers)

    def start(self) -> None:
        """Begin on the running event loop."""
        asyncio.get_running_loop().add_reader(self._epoll.fileno(), self._go_on)
        self.tick()

    def tick(self) -> None:
        """Take note of the time, about once a second, and close what has been idle for long."""
        self.now = asyncio.get_running_loop().time()
        since = self.now - self.limits.idle_seconds
        for poller in [each for each in self._pollers.values() if each.polled_at < since]:
            if poller.is_idle():
                poller.leave()

    def listen(self, listener: socket.socket) -> None:
        """Accept connections on *listener*."""
        # Until it sends something, the kernel keeps a connection to itself, for about a second.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)
        self._doors[listener.fileno()] = _Door(listener, _own_address(listener))
        self._epoll.register(listener.fileno(), select.EPOLLIN)

    def stop(self) -> None:
        """Answer every poll that waits, close all connections, and release the listeners."""
        self._doors.clear()
        for poller in tuple(self._pollers.values()):
            poller.finish()
        asyncio.get_running_loop().remove_reader(self._epoll.fileno())
        self._epoll.close()

    def watch(self, poller: Poller) -> None:
        """Answer what a connection sends from now on, if it stays open for a moment."""
        # To be woken for each client that closes its connection cost as much as half its poll.
        self._pollers[poller.connection.fileno()] = poller
        if not self._fresh:
            asyncio.get_running_loop().call_later(_FRESH_SECONDS, self._look_at_fresh)
        self._fresh.append(poller)

    def forget(self, poller: Poller) -> None:
        """Answer no more on a connection, which stays open."""
        self.lose(poller)
        if poller.is_followed:
            self._epoll.unregister(poller.connection.fileno())

    def lose(self, poller: Poller) -> None:
        """Answer no more on a connection that is closed at once, which ends the watch by itself."""
        del self._pollers[poller.connection.fileno()]

    def _go_on(self) -> None:
        self.turn += 1
        pollers = self._pollers
        for number, _ in self._epoll.poll(0, _READY_AT_ONCE):
            poller = pollers.get(number)
            if poller is not None:
                poller.go_on()
            elif number in self._doors:
                self._accept(self._doors[number])

    def _look_at_fresh(self) -> None:
        self.turn += 1
        fresh, self._fresh = self._fresh, []
        for poller in fresh:
            number = poller.connection.fileno()
            if self._pollers.get(number) is poller:
                poller.go_on()
            if self._pollers.get(number) is poller:
                self._epoll.register(number, select.EPOLLIN)
                poller.is_followed = True

    def _accept(self, door: "_Door") -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, client = door.listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # no file is left for it, most likely
                self.crowd.troubles.note("everybody", f"cannot accept: {error.strerror}")
                self._rest(door)
                return
            self._meet(door, connection, client[:2])

    def _meet(self, door: "_Door", connection: socket.socket, client: tuple[str, int]) -> None:
        poller = Poller(
            self, connection, find_peer(client, door.address or _own_address(connection))
        )
        holder = self.crowd.admit(poller, client[0])
        if holder is None:
            connection.close()
        else:
            poller.holder = holder
            poller.go_on()

    def _rest(self, door: "_Door") -> None:
        number = door.listener.fileno()
        self._epoll.unregister(number)

        def resume() -> None:
            if self._doors.get(number) is door:
                self._epoll.register(number, select.EPOLLIN)

        asyncio.get_running_loop().call_later(_REST_SECONDS, resume)


@dataclass(frozen=True, slots=True)
class _Door:
    """A listener, with its address unless it has many."""

    listener: socket.socket
    address: tuple[str, int] | None


def _own_address(bound: socket.socket) -> tuple[str, int] | None:
    host, port, *_ = bound.getsockname()
    return None if host in _ANY_ADDRESS else (host, port)
