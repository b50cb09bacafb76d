"""Who follows this server, and what each of them has to be told.

Rules of this file: a subscription is told what is, not what has happened, so that only the names of
what has changed are kept for one that reads slowly, each once. What it is told is one round after
another: a round is of one fleet as a whole, so that machines never come before the document that
they read. Nothing is worked out on the thread that commits, and nothing is encoded on the event
loop, which answers polls meanwhile.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from threading import Condition, Lock
from typing import Final

import structlog

from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.domain.topology import NO_FLEET, Topology, VirtualMachine, is_on
from forewarn.feed.frames import FeedLine, Hello, Mark, encode_line, gone_lines, put_lines
from forewarn.feed.host_index import HostIndex
from forewarn.feed.recent import MOST_REMEMBERED, Recent, Trace, trace
from forewarn.feed.subscriptions import Following, Subscription
from forewarn.ports.board import BoardReading, Posting

HEARTBEAT_SECONDS: Final = 5.0
"""How long a front hears nothing at most."""
RELAY_HEARTBEAT_SECONDS: Final = 15.0
"""The same for relays, of which there may be twenty thousand."""
SHOWN_SECONDS: Final = 5.0
"""How long is waited at most until all fronts of this server show something."""
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
    gone_scopes: Iterable[ScopeId] = ()


class Hub:
    """Tells followers what is put up on *board*; `note` is to be called when something is."""

    def __init__(
        self,
        board: BoardReading,
        *,
        heartbeats: tuple[float, float] = (HEARTBEAT_SECONDS, RELAY_HEARTBEAT_SECONDS),
        most_remembered: int = MOST_REMEMBERED,
    ) -> None:
        self.feed: Final = secrets.token_hex(8)
        """What tells the sequences of this run from those of others."""
        self._board = board
        self._heartbeats = heartbeats
        self._noting = Lock()
        """For as long as it takes to count; the lock below may be held for longer."""
        self._sequence = 0
        self._worker: ThreadPoolExecutor | None = None
        """Works out what has changed, once there has been a subscription."""
        # Of their own: whoever waits for fronts may hold all threads that others share.
        self._tellers = ThreadPoolExecutor(_TELLERS, thread_name_prefix="feed-teller")
        self._lock = Lock()
        self._shown = Condition()
        self._told = 0
        """The last sequence that followers have been told of, or will be in their next round."""
        self._topology = NO_FLEET
        self._recent = Recent(most_remembered)
        self._fronts: set[Subscription] = set()
        self._relays: dict[str, set[Subscription]] = {}
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
        subscription = Subscription(following.name, following.host, loop)
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
                    async with asyncio.timeout(self._heartbeat_of(subscription)):
                        await subscription.news.wait()
        finally:
            # Not awaited, because the stream may have been canceled; on a thread, because somebody
            # may have the lock.
            with suppress(RuntimeError):  # the server has stopped
                self._tellers.submit(self._leave, subscription)

    def note_shown(self, name: str, sequence: int) -> None:
        """Take note that the front called *name* shows all up to *sequence*."""
        with self._shown:
            for each in tuple(self._fronts):
                if each.name == name:
                    each.shown = max(each.shown, sequence)
            self._shown.notify_all()

    def await_shown(self, seconds: float = SHOWN_SECONDS) -> bool:
        """Wait until all fronts of this server show what is put up now; tell whether they do."""
        if not self._fronts:
            return True
        sequence = self._sequence

        def is_shown() -> bool:
            counted = (each for each in tuple(self._fronts) if each.is_counted)
            return all(each.shown >= sequence for each in counted)

        with self._shown:
            return self._shown.wait_for(is_shown, seconds)

    def find(self, names: Iterable[str], host: HostName | None) -> Iterator[VmName]:
        """Yield which of *names* are virtual machines on *host*; None is any host, or none."""
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
                heartbeat_seconds=self._heartbeat_of(subscription),
            )
        )

    def _begin(self) -> None:
        with self._noting:
            if self._worker is None and not self._is_stopped:
                self._worker = ThreadPoolExecutor(1, thread_name_prefix="feed")
                self._topology = self._board.topology

    def _admit(self, subscription: Subscription) -> None:
        host = subscription.host_key
        if host is None:
            self._fronts.add(subscription)
            return
        if self._hosts is None:
            self._hosts = HostIndex(self._topology)
            for known in self._relays:
                self._hosts.follow(known)
        if host not in self._relays:
            self._relays[host] = set()
            self._hosts.follow(host)
        self._relays[host].add(subscription)

    def _leave(self, subscription: Subscription) -> None:
        with self._lock:
            subscription.is_over = True
            self._fronts.discard(subscription)
            here = self._relays.get(subscription.host_key or "", set())
            here.discard(subscription)
            if self._hosts is not None and subscription.host_key in self._relays and not here:
                del self._relays[subscription.host_key]
                self._hosts.leave(subscription.host_key)
        with self._shown:
            self._shown.notify_all()

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
        woken = set(self._fronts)  # they note the sequence, even if nothing has changed
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
        if not self._relays or self._hosts is None:
            return self._fronts
        hosts: Iterable[str | None] = (host for host, _ in each.stays)
        if each.name is None:
            hosts = self._hosts.hosts_with(each.scope_ids[0])
        relays = (self._relays.get(host or "", ()) for host in set(hosts))
        return {*self._fronts, *(subscription for some in relays for subscription in some)}

    def _concerns(self, subscription: Subscription, each: Trace) -> bool:
        here = subscription.host_key
        if here is None or self._hosts is None:
            return True
        if each.name is None:
            return here in self._hosts.hosts_with(each.scope_ids[0])
        return here in {host for host, _ in each.stays}

    def _tell(self, subscription: Subscription) -> Iterator[bytes]:
        with self._lock:
            told = self._next_round(subscription)
        yield from map(encode_line, self._lines(told, subscription.host))
        mark = self._mark(subscription, told.sequence)
        if mark is not None:
            yield encode_line(mark)

    def _next_round(self, subscription: Subscription) -> _Round:
        names: Iterable[VmName] = subscription.names
        ids: Iterable[ScopeId] = subscription.scope_ids
        subscription.names, subscription.scope_ids = {}, {}
        here, topology = subscription.host_key, self._topology
        gone: Iterable[ScopeId] = ()
        if here is None:
            if subscription.is_whole:
                names, ids = topology.virtual_machines, topology.scopes
            gone = (each for each in ids if each not in topology.scopes)
        elif self._hosts is None:  # something has failed, and this stream is about to end
            names, ids = (), ()
        else:
            known = self._hosts.scopes_on(here)
            if subscription.is_whole:
                names, ids = tuple(self._hosts.machines_on(here)), known
            # As they are in this fleet, and not in a later one that is taken in meanwhile.
            gone = [each for each in ids if each not in known]
            ids = [each for each in ids if each in known]
        subscription.is_whole = False
        return _Round(
            sequence=self._told, topology=topology, names=names, scope_ids=ids, gone_scopes=gone
        )

    def _lines(self, told: _Round, host: HostName | None) -> Iterator[FeedLine]:
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

    def _mark(self, subscription: Subscription, sequence: int) -> Mark | None:
        with self._lock, self._noting:
            # A front that begins to answer must not show less than what others have been told is
            # shown; from here on they wait for it.
            if subscription.host is None and not subscription.is_counted:
                if sequence != self._sequence:
                    return None
                subscription.is_counted = True
            return Mark(sequence=sequence)

    def _heartbeat_of(self, subscription: Subscription) -> float:
        of_fronts, of_relays = self._heartbeats
        return of_fronts if subscription.host is None else of_relays

    def _all(self) -> Iterator[Subscription]:
        yield from self._fronts
        for some in self._relays.values():
            yield from some

    def _end(self, followers: Iterable[Subscription]) -> None:
        for each in followers:
            each.is_over = True
            each.wake()


def _join(lines: Iterator[bytes]) -> bytes:
    return b"".join(islice(lines, _LINES_AT_ONCE))
