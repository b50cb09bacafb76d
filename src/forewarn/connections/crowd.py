"""Who holds how many connections, and whose turn it is.

Connections count together by origin: a virtual machine, an address, a network. Nobody holds more
than a share. When all are taken, idle connections go: those of strangers first, then those of the
biggest holder; then streams, which come back by themselves; and then requests whose client keeps
us waiting for the body, or does not read the answer. Streams never take the last connections, so
that a request always finds one. In each turn of the event loop an origin gets so
much done and no more; the rest of what it asks for waits, while others are answered. An origin that
sends requests before it has the answers to others also rests between two turns, so that it never
has the event loop to itself.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address, ip_network
from itertools import chain, islice
from typing import Final, Protocol

import structlog

from forewarn.connections.limits import Limits, StreamLimitError, streams_within

EFFORT_PER_TURN: Final = 32
"""What an origin may have done in one turn of the event loop; a plain poll counts as one."""
REST_SECONDS: Final = 0.001
"""Enough for the event loop to serve the others; whoever sends ahead of answers can wait for it."""
TOLD_EVERY: Final = 60.0
"""How many seconds go by before the same trouble is told again."""
MOST_ORIGINS: Final = 100
"""How many origins are told apart in that time; the rest counts as one."""
OTHERS: Final = "others"
_LOOKED_AT: Final = 256
_TRIED: Final = 8
"""To find the biggest of all holders would take longest just when there are too many."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where connections come from that count together."""

    name: str
    is_known: bool = False
    has_share: bool = True


LOCAL_SOCKET: Final = Origin(name="unix socket", is_known=True, has_share=False)


def origin_of(address: str | None) -> Origin:
    """Return the origin of a stranger: an IPv4 address, or the /64 of an IPv6 address."""
    if address is None:
        return LOCAL_SOCKET
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return Origin(name=address)
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return Origin(name=str(ip_network((parsed, 64), strict=False)))
    return Origin(name=str(getattr(parsed, "ipv4_mapped", parsed)))


class Member(Protocol):
    """A connection, as the crowd sees it."""

    def is_idle(self) -> bool:
        """Tell whether nothing that it asked for is being answered."""

    def is_stalled(self) -> bool:
        """Tell whether it is up to its client to go on: to send a body, or to read an answer."""

    def drop(self) -> None:
        """End the connection at once."""


@dataclass(slots=True, eq=False)
class Holder:
    """Somebody with connections, and what is left to do for them in this turn."""

    origin: Origin
    note: Callable[["Holder"], None]
    members: dict[Member, None] = field(default_factory=dict)
    streams: dict[Member, None] = field(default_factory=dict)
    waiting: deque[Callable[[], None]] = field(default_factory=deque)
    left: int = EFFORT_PER_TURN
    turn: int = 0
    is_noted: bool = False
    is_pipelining: bool = False

    def spend(self, effort: int) -> bool:
        """Take *effort* out of this turn; False if nothing is left of it."""
        if not self.is_noted:
            self.is_noted = True
            self.note(self)
        if self.left <= 0:
            return False
        self.left -= effort
        return True

    def spend_in(self, turn: int) -> bool:
        """Take one out of *turn*, for somebody who counts turns and leaves nothing for the next."""
        if self.turn != turn and not self.is_noted:
            self.turn, self.left = turn, EFFORT_PER_TURN
        self.left -= 1
        return self.left >= 0

    def go_on(self) -> None:
        """Do what waits, as far as this turn goes."""
        self.left, self.is_noted = EFFORT_PER_TURN, False
        self.is_pipelining = False
        while self.waiting and self.spend(1):
            self.waiting.popleft()()


NOBODY: Final = Holder(Origin(name=""), lambda _: None)
"""Who holds a connection before it is admitted."""


class Troubles:
    """What goes wrong, by origin: the first is logged at once, the number after a minute."""

    def __init__(self, seconds: float = TOLD_EVERY) -> None:
        self._seconds = seconds
        self._counts = Counter[tuple[str, str]]()

    def note(self, origin: str, what: str) -> None:
        """Count that *what* happened to *origin*; called on the event loop."""
        if not self._counts:
            asyncio.get_running_loop().call_later(self._seconds, self._say)
        if (origin, what) not in self._counts and len(self._counts) >= MOST_ORIGINS:
            origin = OTHERS
        if (origin, what) not in self._counts:
            _log.warning("connection_refused", origin=origin, problem=what)
        self._counts[origin, what] += 1

    def _say(self) -> None:
        counts, self._counts = self._counts, Counter()
        for (origin, what), number in counts.items():
            if number > 1:
                _log.warning("connections_refused", origin=origin, problem=what, number=number)


class Crowd:
    """All connections of one listener."""

    def __init__(
        self, limits: Limits, find_origin: Callable[[str | None], Origin] = origin_of
    ) -> None:
        self._limits = limits
        self._find_origin = find_origin
        self._holders: dict[str, Holder] = {}
        self._strangers: dict[str, Holder] = {}
        self._number = self._streams = 0
        self._noted: list[Holder] = []
        self.troubles = Troubles()

    def admit(self, member: Member, address: str | None) -> Holder | None:
        """Count *member*, if need be in place of an idle one; None if there is no room."""
        holder = self._holder(self._find_origin(address))
        holder.members[member] = None
        self._number += 1
        share = self._limits.connections_per_origin
        if holder.origin.has_share and len(holder.members) > share:
            has_room = self._drop_idle(holder, member) or self._drop_busy(holder)
        else:
            has_room = self._number <= self._limits.connections or self._make_room(holder, member)
        if has_room:
            return holder
        self.leave(member, holder)
        self.troubles.note(holder.origin.name, "no connection left")
        return None

    def leave(self, member: Member, holder: Holder) -> None:
        """Count *member* no longer."""
        if member not in holder.members:
            return
        self.end_stream(member, holder)
        del holder.members[member]
        self._number -= 1
        if not holder.members:
            self._holders.pop(holder.origin.name, None)
            self._strangers.pop(holder.origin.name, None)

    def begin_stream(self, member: Member, holder: Holder) -> None:
        """Count *member* as a stream, or refuse it with StreamLimitError."""
        own = len(holder.streams) if holder.origin.has_share else 0
        for whose, number, connections in (
            ("An address", own, self._limits.connections_per_origin),
            ("All addresses together", self._streams, self._limits.connections),
        ):
            if number >= (limit := streams_within(connections)):
                self.troubles.note(holder.origin.name, "too many streams")
                raise StreamLimitError(whose, limit)
        if member in holder.members:  # or it was lost meanwhile
            holder.streams[member] = None
            self._streams += 1

    def end_stream(self, member: Member, holder: Holder) -> None:
        """Count *member* as a stream no longer, if it was one."""
        if member in holder.streams:
            del holder.streams[member]
            self._streams -= 1

    def _holder(self, origin: Origin) -> Holder:
        holder = self._holders.get(origin.name)
        if holder is None:
            holder = self._holders[origin.name] = Holder(origin, self._note)
            if not origin.is_known:
                self._strangers[origin.name] = holder
        return holder

    def _make_room(self, holder: Holder, newcomer: Member) -> bool:
        """Drop somebody's connection; strangers never take the place of those we know."""
        crowds = (self._strangers, self._holders) if holder.origin.is_known else (self._strangers,)
        looked_at: dict[int, Holder] = {}
        for crowd in crowds:
            some = {id(each): each for each in (*islice(crowd.values(), _LOOKED_AT), holder)}
            biggest = sorted(some.values(), key=lambda holder: len(holder.members), reverse=True)[
                :_TRIED
            ]
            if any(self._drop_idle(each, newcomer) for each in biggest):
                return True
            looked_at |= some
        biggest = sorted(
            looked_at.values(),
            key=lambda holder: (len(holder.streams), len(holder.members)),
            reverse=True,
        )
        return any(map(self._drop_busy, biggest[:_TRIED]))

    def _drop_idle(self, holder: Holder, newcomer: Member) -> bool:
        """Drop the oldest idle connection of *holder* beside *newcomer*."""
        idle = (each for each in holder.members if each is not newcomer and each.is_idle())
        return self._drop(holder, next(idle, None))

    def _drop_busy(self, holder: Holder) -> bool:
        """Drop the oldest stream of *holder*, or else the oldest stalled connection."""
        stalled = (each for each in holder.members if each.is_stalled())
        member = next(chain(holder.streams, stalled), None)
        if member is not None:
            what = "stream" if member in holder.streams else "slow request"
            self.troubles.note(holder.origin.name, f"{what} dropped, no connection left")
        return self._drop(holder, member)

    def _drop(self, holder: Holder, member: Member | None) -> bool:
        if member is None:
            return False
        self.leave(member, holder)
        member.drop()
        return True

    def _note(self, holder: Holder) -> None:
        if not self._noted:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._noted.append(holder)

    def _next_turn(self) -> None:
        noted, self._noted = deque(self._noted), []
        try:
            while noted:
                holder = noted.popleft()
                if holder.is_pipelining:
                    holder.left = 0
                    asyncio.get_running_loop().call_later(REST_SECONDS, holder.go_on)
                else:
                    holder.go_on()
        finally:
            # Whoever fails in its turn must not take the turns of others with it.
            for holder in noted:
                self._note(holder)
