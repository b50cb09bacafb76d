"""Who follows this server, and what each has to be told next."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

from forewarn.domain.names import HostName, ScopeId, VmName, name_key
from forewarn.feed.recent import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """A relay that follows the machines of its *host*.

    It has seen all up to a *sequence* of a *feed*, if it was here before.
    """

    host: HostName
    feed: str = ""
    sequence: int = 0


@dataclass(slots=True, eq=False)
class Subscription:
    """What one subscription has to be told, on the stream of its event loop.

    Its names are altered only by whoever holds the lock of the hub.
    """

    host: HostName
    loop: asyncio.AbstractEventLoop
    news: asyncio.Event = field(default_factory=asyncio.Event)
    names: dict[VmName, None] = field(default_factory=dict)
    scope_ids: dict[ScopeId, None] = field(default_factory=dict)
    is_whole: bool = False
    """Whether it has to be told everything."""
    is_over: bool = False

    @property
    def host_key(self) -> str:
        return name_key(self.host)

    @property
    def has_news(self) -> bool:
        """Whether there is something to tell it."""
        return bool(self.names or self.scope_ids or self.is_whole)

    def note(self, each: Trace) -> None:
        """Have it told of *each* in the next round."""
        if each.name is None:
            self.scope_ids.update(dict.fromkeys(each.scope_ids))
            return
        self.names[each.name] = None
        here = self.host_key
        # A scope may be new to the host, or gone from it.
        self.scope_ids.update({scope: None for host, scope in each.stays if host == here})

    def wake(self) -> None:
        """Have its stream go on; on any thread."""
        with suppress(RuntimeError):  # the loop is closed: nobody follows any more
            self.loop.call_soon_threadsafe(self.news.set)
