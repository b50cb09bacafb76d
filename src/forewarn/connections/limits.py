"""How long we wait for what, and how much we take."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from forewarn.protocol.errors import ForewarnError

CONNECTIONS_WITHOUT_LIMIT: Final = 100_000
"""Memory ends before these do; each idle connection takes some 10 KiB."""
LARGE_BODY: Final = 64 * 1024
_KEPT_FREE: Final = 1000

STREAMS: Final = (
    "streams at once, such as event watches, open pages of the console and feeds of relays. Close "
    "one, or try again later."
)
LARGE_BODIES: Final = "large bodies at once. Try again later."


class StreamLimitError(ForewarnError):
    """A stream, or a large body, too many."""

    def __init__(self, whose: str, limit: int, what: str = STREAMS) -> None:
        super().__init__(f"{whose} may have at most {limit} {what}")
        self.limit = limit


def metadata_connections() -> int:
    """Return how many connections virtual machines get: all that operators leave."""
    return connections_within_open_files() - operator_connections()


def operator_connections() -> int:
    """Return how many connections operators get, which virtual machines cannot take.

    People and scripts are few, but each relay holds one, and there may be twenty thousand relays.
    """
    return min(connections_within_open_files() // 4, 25_000)


def operator_limits() -> "Limits":
    """Return the limits of the control listener: a fleet takes longer to send than an approval."""
    share = operator_connections()
    return Limits(
        body_seconds=60,
        effort_of_a_task=32,
        connections=share,
        connections_per_origin=max(share // 2, 4),
    )


def streams_within(connections: int) -> int:
    """Return how many of *connections* may be streams; the others are for short requests.

    These are few, but an admin has to find one: a quarter of a small number is enough.
    """
    return connections - min(connections // 4, _KEPT_FREE)


def connections_within_open_files() -> int:
    """Return how many connections leave room for the files that everything else opens."""
    try:
        import resource  # noqa: PLC0415  not on Windows
    except ImportError:
        return CONNECTIONS_WITHOUT_LIMIT
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return CONNECTIONS_WITHOUT_LIMIT
    # Whoever cannot open a file cannot write to the database either, so some are left over.
    return max(limit - max(limit // 10, 64), 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long we wait for what, in seconds, and how much we take."""

    head_seconds: float = 10
    """Heads come in one packet, or in two if one was lost; dripping keeps no connection."""
    body_seconds: float = 10
    """An approval is as short. It is for the whole body, so that dripping is no use here either."""
    write_seconds: float = 30
    """For a machine that is frozen or migrated while it reads, and is back within that time."""
    idle_seconds: int = 300
    """Pollers keep their connections, and many poll once a minute; a new one costs a handshake."""
    grace_seconds: float = 5
    """At the end: an answer that waits for the disk comes by then, or its client asks again."""
    head_bytes: int = 32 * 1024
    """Several times what proxies with long tokens send."""
    headers: int = 100
    """Clients send ten; each one more is work before anything is known about the caller."""
    queued_requests: int = 8
    """Requests behind one that is being answered; the rest is not even parsed."""
    held_bytes: int = 64 * 1024
    """As much as one read brings. Beyond that nothing is read, and TCP holds the sender up."""
    discarded_bytes: int = 256 * 1024
    """What a refused client may still send before it reads why; who sends more is not reading."""
    effort_of_a_task: int = 12
    """What a request through ASGI costs, in plain polls; both are in `make bench`."""
    connections: int = field(default_factory=metadata_connections)
    connections_per_origin: int = field(
        # Nobody takes all, and the polls that one machine may park (64) all find room.
        default_factory=lambda: max(metadata_connections() // 4, 64)
    )


class Streams:
    """The open streams, by token: so many *of_token* of *what* the refusal says.

    Used on one event loop. If the *newest_wins*, one that has no room takes the place of the
    oldest, which may be dead.
    """

    def __init__(self, of_token: int, *, newest_wins: bool = False, what: str = STREAMS) -> None:
        self._of_token = of_token
        self._what = what
        self._newest_wins = newest_wins
        # Of each token, how to drop each of its streams.
        self._open: defaultdict[str, list[Callable[[], None]]] = defaultdict(list)

    def place_of_body(self, token: str, headers: Mapping[str, str]) -> AbstractContextManager[None]:
        """Hold a place for a body if it is large or of unknown length: it takes memory."""
        length = int(headers.get("content-length", "0"))
        is_large = length > LARGE_BODY or "transfer-encoding" in headers
        return self.place(token, {}) if is_large else nullcontext()

    @contextmanager
    def place(self, token: str, scope: Mapping[str, Any]) -> Iterator[None]:
        """Hold a place for a stream of *token*, or refuse it with StreamLimitError."""
        drop = of_connection(scope, "drop", lambda: None)
        try:
            self._begin(token, of_connection(scope, "begin_stream", lambda: None))
            self._open[token].append(drop)
            yield
        finally:
            self._end(token, drop)

    def _begin(self, token: str, begin: Callable[[], None]) -> None:
        own = self._open[token]
        refusal = StreamLimitError("A token", self._of_token, self._what)
        if len(own) < self._of_token:
            try:
                return begin()
            except StreamLimitError as error:
                refusal = error
        if not self._newest_wins or not own:
            raise refusal
        own.pop(0)()
        return self._begin(token, begin)

    def _end(self, token: str, drop: Callable[[], None]) -> None:
        own = self._open[token]
        if drop in own:
            own.remove(drop)
        if not own:
            del self._open[token]


def of_connection(scope: Mapping[str, Any], name: str, default: Any) -> Any:
    """Return what the connection of a request can do; *default* if it is none of ours."""
    return scope.get("extensions", {}).get("connection", {}).get(name, default)
