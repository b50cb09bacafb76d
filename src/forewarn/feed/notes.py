"""What a relay tells its server in turn: who has polled, and what it has answered.

The first poll of a machine is told within half a second, because it enables its events. Later ones
are told in batches, about once a minute, and so are the counts: every note is a request.
"""

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final, TypeVar

import structlog

from forewarn.domain.names import VmName
from forewarn.feed.upstream import Upstream, UpstreamRefusedError
from forewarn.ports.metrics import Tally
from forewarn.ports.store import StoreUnavailableError

K = TypeVar("K")

SOON: Final = 0.5
"""How many seconds a first poll waits at most."""
SELDOM: Final = 60.0
"""How often counts are told, and how often each machine is told to have polled."""
MOST_AT_ONCE: Final = 1500
"""How many machines one note names at most; a body of 256 KiB has room for them."""
MOST_COUNTED: Final = 10_000_000
"""How much one note adds to a count at most: more than a relay can answer in a minute."""
_PAUSE_AFTER_FAILURE: Final = 5.0

_log = structlog.get_logger(__name__)


class Notes:
    """Collects notes on the event loop, and sends them on a thread of its own."""

    def __init__(self, upstream: Upstream, tally: Tally, clock: Callable[[], float]) -> None:
        self._upstream = upstream
        self._tally = tally
        self._clock = clock
        self._seen: set[VmName] = set()
        """Who has polled in this minute."""
        self._ever: set[VmName] = set()
        """Whose polls have been sent."""
        self._fresh: deque[VmName] = deque()
        self._unsent: dict[VmName, None] = {}
        self._sent: defaultdict[str, Counter[str | int]] = defaultdict(Counter)
        self._minute = self._sent_at = clock()
        self._stopping = threading.Event()
        self._is_failing = False

    def note(self, vm: VmName) -> None:
        """Take note that *vm* has polled; called for every poll, on the event loop."""
        if vm not in self._seen:
            self._seen.add(vm)
            self._fresh.append(vm)

    def run(self) -> None:
        """Send notes until stopped, and what is left then."""
        while not self._stopping.wait(_PAUSE_AFTER_FAILURE if self._is_failing else SOON):
            self.send_due()
        self._gather()
        self._send()

    def stop(self) -> None:
        """Send what is left, and end; called on any thread."""
        self._stopping.set()

    def send_due(self) -> None:
        """Send what has to be sent by now."""
        now = self._clock()
        if now - self._minute >= SELDOM:
            self._minute, self._seen = now, set()
        is_urgent = self._gather()
        is_due = now - self._sent_at >= SELDOM
        if is_urgent or is_due or len(self._unsent) >= MOST_AT_ONCE:
            self._sent_at = now
            self._send()

    def _gather(self) -> bool:
        """Take in who has polled; tell whether one of them never had before."""
        is_urgent = False
        while self._fresh:
            vm = self._fresh.popleft()
            self._unsent[vm] = None
            is_urgent |= vm not in self._ever
        return is_urgent

    def _send(self) -> None:
        news = {name: _less(now, self._sent[name]) for name, now in self._counts().items()}
        polled = tuple(islice(self._unsent, MOST_AT_ONCE))
        if not polled and not any(news.values()):
            return
        body = {
            "polled": polled,
            "polls": news["polls"],
            "posts": news["posts"].get("", 0),
            "refusals": news["refusals"],
        }
        try:
            self._upstream.ask("POST", "notes", body)
        except (StoreUnavailableError, UpstreamRefusedError) as error:
            if not self._is_failing:
                _log.warning("notes_not_sent", error=str(error))
            self._is_failing = True
            return
        self._is_failing = False
        for name, more in news.items():
            self._sent[name].update(more)
        self._ever.update(polled)
        for vm in polled:
            del self._unsent[vm]
        if self._unsent:
            self._send()

    def _counts(self) -> dict[str, Mapping[str | int, int]]:
        tally = self._tally
        return {
            "polls": dict(tally.polls.items()),
            "posts": {"": tally.posts},
            "refusals": dict(tally.refusals.items()),
        }


def _less(now: Mapping[K, int], before: Mapping[K, int]) -> dict[K, int]:
    """Return by how much each count has grown, if it has; the rest of very much is told later."""
    grown = {key: count - before.get(key, 0) for key, count in now.items()}
    return {key: min(more, MOST_COUNTED) for key, more in grown.items() if more}
