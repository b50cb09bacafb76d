"""Who follows this server, and what each of them has to be told.

Rules of this file: a subscription is told what is, not what has happened, so that only the names of
what has changed are kept for one that reads slowly, each once. What it is told is one round after
another: a round is of one fleet as a whole, so that machines never come before the document that
they read. Nothing is worked out on the thread that commits, and nothing is encoded on the event
loop, which answers polls meanwhile.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import Final

import structlog

from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.domain.topology import NO_FLEET, Topology, VirtualMachine, is_on
from forewarn.feed.frames import FeedLine, Hello, Mark, encode_line, gone_lines, put_lines
from forewarn.feed.host_index import HostIndex
from forewarn.feed.recent import MOST_REMEMBERED, Recent, Trace, trace
from forewarn.feed.subscriptions import Following, Subscription
from forewarn.ports.board import BoardReading, Posting

HEARTBEAT_SECONDS: Final = 15.0
"""How long a follower hears nothing at most; there may be twenty thousand of them."""
_LINES_AT_ONCE: Final = 8
_TELLERS: Final = 2

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """What a subscription is told next: all of these as they are in one fleet."""

    sequence: int
    topology: Topology
    names: Iterable[VmName]
    scope_ids: Iterable[ScopeId]
    gone_scopes: Iterable[ScopeId]


class Hub:
    """Tells followers what is put up on *board*; `note` is to be called when something is."""

    def __init__(
        self,
        board: BoardReading,
        *,
        heartbeat: float = HEARTBEAT_SECONDS,
        most_remembered: int = MOST_REMEMBERED,
        make_pool: Callable[[int, str], Executor] = ThreadPoolExecutor,
    ) -> None:
        self.feed: Final = secrets.token_hex(8)
        """What tells the sequences of this run from those of others."""
        self._board = board
        self._heartbeat = heartbeat
        self._noting = Lock()
        """For as long as it takes to count; the lock below may be held for longer."""
        self._sequence = 0
        self._make_pool = make_pool
        self._worker: Executor | None = None
        """Works out what has changed, once there has been a subscription."""
        # Of their own: slow requests of operators may hold all threads that others share.
        self._tellers = make_pool(_TELLERS, "feed-teller")
        self._lock = Lock()
        self._told = 0
        """The last sequence that followers have been told of, or will be in their next round."""
        self._topology = NO_FLEET
        self._recent = Recent(most_remembered)
        self._followers: dict[str, set[Subscription]] = {}
        """By host."""
        self._hosts: HostIndex | None = None
        self._is_stopped = False

    def note(self, posting: Posting) -> None:
        """Have followers told what was put up; called on the thread that commits."""
        with self._noting:
            self._sequence += 1
            if self._worker is None:
                self._told = self._recent.floor = self._sequence
            elif not self._is_stopped:
                self._worker.submit(self._take_in, self._sequence, posting)

    def stop(self) -> None:
        """End every stream, and whichever begins from now on; called on any thread."""
        with self._lock, self._noting:
            self._is_stopped = True
            if self._worker is not None:
                self._worker.shutdown(wait=False)
            self._end(self._all())

    @property
    def followers(self) -> int:
        """How many there are."""
        with self._lock:
            return sum(1 for _ in self._all())

    async def stream(self, following: Following) -> AsyncGenerator[bytes]:
        """Yield what *following* is told, in parts of a few lines, until its end."""
        loop = asyncio.get_running_loop()
        subscription = Subscription(following.host, loop)
        try:
            yield await loop.run_in_executor(self._tellers, self._greet, subscription, following)
            while not subscription.is_over:
                subscription.news.clear()
                told = self._told  # before the look: what is noted later is told later
                if subscription.has_news:
                    lines = self._tell(subscription)
                    while part := await loop.run_in_executor(self._tellers, _join, lines):
                        yield part
                else:
                    yield encode_line(Mark(sequence=told))
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._heartbeat):
                        await subscription.news.wait()
        finally:
            # Not awaited, because the stream may have been canceled; on a thread, because somebody
            # may have the lock.
            with suppress(RuntimeError):  # the server has stopped
                self._tellers.submit(self._leave, subscription)

    def find(self, names: Iterable[str], host: HostName) -> Iterator[VmName]:
        """Yield which of *names* are virtual machines on *host*."""
        known = self._board.topology.virtual_machines
        for name in names:
            vm = known.get(VmName(name))
            if vm is not None and is_on(vm, host):
                yield vm.name

    def _greet(self, subscription: Subscription, following: Following) -> bytes:
        """Have *subscription* told of all changes from now on, and return its first line."""
        with self._lock:
            self._begin()
            is_known = following.feed == self.feed
            resumed = is_known and self._recent.floor <= following.sequence <= self._told
            subscription.is_whole = not resumed
            if not subscription.is_over:  # or it has left meanwhile
                self._admit(subscription)
            if resumed:
                for each in self._recent.since(following.sequence):
                    if self._concerns(subscription, each):
                        subscription.note(each)
            if self._is_stopped:
                self._end((subscription,))
        return encode_line(
            Hello(
                feed=self.feed,
                host=subscription.host,
                resumed=resumed,
                heartbeat_seconds=self._heartbeat,
            )
        )

    def _begin(self) -> None:
        with self._noting:
            if self._worker is None and not self._is_stopped:
                self._worker = self._make_pool(1, "feed")
                self._topology = self._board.topology

    def _admit(self, subscription: Subscription) -> None:
        host = subscription.host_key
        if self._hosts is None:
            self._hosts = HostIndex(self._topology)
            for known in self._followers:
                self._hosts.follow(known)
        if host not in self._followers:
            self._followers[host] = set()
            self._hosts.follow(host)
        self._followers[host].add(subscription)

    def _leave(self, subscription: Subscription) -> None:
        with self._lock:
            subscription.is_over = True
            here = self._followers.get(subscription.host_key, set())
            here.discard(subscription)
            if self._hosts is not None and subscription.host_key in self._followers and not here:
                del self._followers[subscription.host_key]
                self._hosts.leave(subscription.host_key)

    def _take_in(self, sequence: int, posting: Posting) -> None:
        """Note for each subscription what of *posting* it has to be told."""
        try:
            # This may look at the whole fleet, so with no lock.
            traces = tuple(trace(self._topology, posting.topology, posting.scope_ids))
            with self._lock:
                woken = self._distribute(sequence, posting.topology, traces)
        except Exception:  # noqa: BLE001 - the top of a thread
            _log.exception("feed_failed")
            with self._lock:
                # They come back, and are told everything.
                self._topology, self._told = self._board.topology, sequence
                self._recent.forget(sequence)
                self._hosts = None
                self._end(self._all())
            return
        for each in woken:
            each.wake()

    def _distribute(
        self, sequence: int, topology: Topology, traces: tuple[Trace, ...]
    ) -> set[Subscription]:
        woken: set[Subscription] = set()
        before, self._topology = self._topology.virtual_machines, topology
        after = topology.virtual_machines
        if self._hosts is not None:
            for each in traces:
                if each.name is not None:
                    self._hosts.move(before.get(each.name), after.get(each.name))
        for each in traces:
            concerned = self._concerned(each)
            for subscription in concerned:
                subscription.note(each)
            woken.update(concerned)
        self._recent.add(sequence, traces)
        self._told = sequence
        return woken

    def _concerned(self, each: Trace) -> Iterable[Subscription]:
        if self._hosts is None:
            return ()
        hosts: Iterable[str | None] = (host for host, _ in each.stays)
        if each.name is None:
            hosts = self._hosts.hosts_with(each.scope_ids[0])
        followers = (self._followers.get(host or "", ()) for host in set(hosts))
        return {subscription for some in followers for subscription in some}

    def _concerns(self, subscription: Subscription, each: Trace) -> bool:
        here = subscription.host_key
        if self._hosts is None:
            return True
        if each.name is None:
            return here in self._hosts.hosts_with(each.scope_ids[0])
        return here in {host for host, _ in each.stays}

    def _tell(self, subscription: Subscription) -> Iterator[bytes]:
        with self._lock:
            if subscription.is_over or self._hosts is None:  # it comes back, and is told then
                return
            told = self._next_round(subscription, self._hosts)
        yield from map(encode_line, self._lines(told, subscription.host))
        yield encode_line(Mark(sequence=told.sequence))

    def _next_round(self, subscription: Subscription, hosts: HostIndex) -> _Round:
        names: Iterable[VmName] = subscription.names
        ids: Iterable[ScopeId] = subscription.scope_ids
        subscription.names, subscription.scope_ids = {}, {}
        known = hosts.scopes_on(subscription.host_key)
        if subscription.is_whole:
            names, ids = tuple(hosts.machines_on(subscription.host_key)), known
        subscription.is_whole = False
        # As they are in this fleet, and not in a later one that is taken in meanwhile.
        return _Round(
            sequence=self._told,
            topology=self._topology,
            names=names,
            scope_ids=[each for each in ids if each in known],
            gone_scopes=[each for each in ids if each not in known],
        )

    def _lines(self, told: _Round, host: HostName) -> Iterator[FeedLine]:
        scopes, machines = told.topology.scopes, told.topology.virtual_machines
        gone: list[VmName] = []

        def present() -> Iterator[VirtualMachine]:
            for name in told.names:
                vm = machines.get(name)
                if vm is not None and is_on(vm, host):
                    yield vm
                else:
                    gone.append(name)

        there = ((each, scopes[each]) for each in told.scope_ids if each in scopes)
        yield from put_lines(there, self._board.document_in, present())
        yield from gone_lines(gone, told.gone_scopes)

    def _all(self) -> Iterator[Subscription]:
        for some in self._followers.values():
            yield from some

    def _end(self, followers: Iterable[Subscription]) -> None:
        for each in followers:
            each.is_over = True
            each.wake()


def _join(lines: Iterator[bytes]) -> bytes:
    return b"".join(islice(lines, _LINES_AT_ONCE))
