"""One connection on the hot path: what it sends is answered at once, or when there is news."""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from forewarn.connections.crowd import NOBODY, Crowd
from forewarn.connections.limits import Limits
from forewarn.metadata.board import PrintedDocument
from forewarn.metadata.identity import Peer
from forewarn.metadata.plain_polls import (
    LONGEST_POLL,
    PARKED_PER_VM,
    PlainPoll,
    PlainPolls,
    ResolvedPoll,
    has_to_wait,
)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What is left to do for a connection: answer what was *received*, send what is *unsent*.

    If it *closes*, there is nothing to answer. The first request may be one that *has_waited*.
    """

    received: bytes = b""
    unsent: bytes = b""
    closes: bool = False
    has_waited: bool = False


HandOver: TypeAlias = Callable[[socket.socket, Unfinished], None]
"""Takes the connections that are not for the hot path."""


class Path(Protocol):
    """The hot path, as its connections see it."""

    polls: PlainPolls
    crowd: Crowd
    limits: Limits
    hand_over: HandOver
    now: float
    turn: int

    def watch(self, poller: "Poller") -> None:
        """Answer what a connection sends from now on, if it stays open for a moment."""

    def forget(self, poller: "Poller") -> None:
        """Answer no more on a connection, which stays open."""

    def lose(self, poller: "Poller") -> None:
        """Answer no more on a connection that is closed at once, which ends the watch by itself."""


class Poller:
    """A connection whose requests have all been plain polls so far."""

    __slots__ = (
        "_has_spoken",
        "_is_watched",
        "_resolved",
        "_wait",
        "connection",
        "holder",
        "is_followed",
        "path",
        "peer",
        "polled_at",
    )

    def __init__(self, path: Path, connection: socket.socket, peer: Peer) -> None:
        self.path = path
        self.connection = connection
        self.peer = peer
        self.holder = NOBODY
        self.polled_at = path.now
        self.is_followed = False
        """Whether the path is woken for what it sends."""
        self._has_spoken = False
        self._is_watched = False
        self._resolved: ResolvedPoll | None = None
        self._wait: _Wait | None = None

    def is_idle(self) -> bool:
        return self._wait is None

    def is_stalled(self) -> bool:
        return False

    def drop(self) -> None:
        self.leave()

    def leave(self) -> None:
        """Close the connection."""
        if self._wait is not None:
            self._wait.end()
        if self._is_watched:
            self.path.lose(self)
        self.path.crowd.leave(self, self.holder)
        self.connection.close()

    def finish(self) -> None:
        """Answer the poll that waits, if there is one, and close the connection."""
        if self._wait is None or self.path.polls.find_again(self._wait.name) is None:
            self.leave()
        else:
            self.end(self._wait, closes=True)

    def go_on(self) -> None:
        """Answer what has come, if this is within what the origin may have done now."""
        if not self.holder.spend_in(self.path.turn):
            self._stay()
            return
        try:
            data = self.connection.recv(LONGEST_POLL + 1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            self._await_more()
        except OSError:
            self.leave()
        else:
            if self._wait is not None:
                self.end(self._wait, closes=not data, following=data)
            elif data:
                self._hear(data)
            else:
                self.leave()

    def _await_more(self) -> None:
        if self._is_watched:
            return
        self._stay()
        # One that is silent for longer than the kernel waits gets a little more time.
        seconds = self.path.limits.head_seconds
        asyncio.get_running_loop().call_later(seconds, self._leave_if_silent)

    def _leave_if_silent(self) -> None:
        if not self._has_spoken and self.connection.fileno() >= 0:
            self.leave()

    def _hear(self, data: bytes) -> None:
        self._has_spoken = True
        polls, resolved = self.path.polls, self._resolved
        if (
            resolved is None
            or resolved.generation != polls.board.generation
            or resolved.data != data
        ):
            self._resolved = resolved = polls.resolve(data, self.peer)
        if resolved is None:
            self.hand_over(Unfinished(data))
        elif not has_to_wait(resolved.poll, resolved.page):
            polls.note(resolved.poll, resolved.vm)
            self.answer(resolved.poll, resolved.page, closes=resolved.poll.closes)
        elif polls.parked[resolved.vm.name] >= PARKED_PER_VM:
            self.hand_over(Unfinished(data))
        else:
            polls.note(resolved.poll, resolved.vm)
            self._stay()
            self._wait = _Wait(self, resolved)
            self._wait.begin()

    def answer(
        self, poll: PlainPoll, page: PrintedDocument, *, closes: bool, following: bytes = b""
    ) -> None:
        """Answer *poll*, and then what came *following* it, unless this *closes* the connection."""
        answer = self.path.polls.write(poll, page, closes=closes)
        try:
            sent = self.connection.send(answer, socket.MSG_DONTWAIT)
        except OSError:  # nothing more fits in, or the other end is gone: the long way finds out
            sent = 0
        if sent < len(answer):
            self.hand_over(Unfinished(following, answer[sent:], closes))
        elif closes:
            self.leave()
        elif following:
            self._hear(following)
        else:
            self._stay()

    def end(self, wait: "_Wait", *, closes: bool = False, following: bytes = b"") -> None:
        """Answer the poll of *wait* with what there is now."""
        self._wait = None
        wait.end()
        vm = self.path.polls.find_again(wait.name)
        if vm is None:
            self.hand_over(Unfinished(wait.data + following, has_waited=True))
        else:
            page = self.path.polls.page(wait.poll, vm)
            closes |= wait.poll.closes
            self.answer(wait.poll, page, closes=closes, following=following)

    def hand_over(self, unfinished: Unfinished) -> None:
        """Leave the connection to the long way."""
        if self._is_watched:
            self.path.forget(self)
        self.holder.left -= self.path.limits.effort_of_a_task
        self.path.crowd.leave(self, self.holder)
        self.connection.setblocking(False)
        self.path.hand_over(self.connection, unfinished)

    def _stay(self) -> None:
        self.polled_at = self.path.now
        if not self._is_watched:
            self._is_watched = True
            self.path.watch(self)


class _Wait:
    """A poll that waits for a change."""

    __slots__ = (
        "_deadline",
        "_etag",
        "_poller",
        "_polls",
        "_scope_id",
        "data",
        "name",
        "poll",
    )

    def __init__(self, poller: Poller, resolved: ResolvedPoll) -> None:
        self.data = resolved.data
        self.poll = resolved.poll
        self.name = resolved.vm.name
        self._poller = poller
        self._polls = poller.path.polls
        self._scope_id = resolved.vm.scope_id
        self._etag = resolved.page.etag
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self.poll.seconds, poller.end, self)

    def begin(self) -> None:
        """Wait, unless there is news by now: a change before the parking wakes nobody."""
        self._polls.parked[self.name] += 1
        self._polls.board.waiters.park(self._scope_id, self.look)
        self.look()

    def end(self) -> None:
        """Wait no longer."""
        self._deadline.cancel()
        self._polls.board.waiters.leave(self._scope_id, self.look)
        self._polls.parked[self.name] -= 1
        if not self._polls.parked[self.name]:
            del self._polls.parked[self.name]

    def look(self) -> None:
        """Go on waiting, unless there is news, or nobody to wait for it."""
        vm = self._polls.find_again(self.name)
        is_stopping = self._polls.is_stopping
        if is_stopping or vm is None or self._polls.page(self.poll, vm).etag != self._etag:
            self._poller.end(self, closes=is_stopping)
        else:
            self._scope_id = vm.scope_id
            self._polls.board.waiters.park(self._scope_id, self.look)
