"""What operators need from the rest of the server."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import BoundedSemaphore
from typing import Final, Protocol

from forewarn.connections.limits import LARGE_BODIES, Streams
from forewarn.desk.ledger_watch import LedgerWatch
from forewarn.domain.access import Principal
from forewarn.domain.errors import ConflictError, says
from forewarn.domain.gate import Answer
from forewarn.domain.scenario import Scenario
from forewarn.feed.relay_services import RelayServices
from forewarn.operations.context import Context
from forewarn.ports.clock import ClockJump
from forewarn.ports.entries import Showing
from forewarn.ports.faults import FaultControl
from forewarn.ports.journal import JournalEntry
from forewarn.ports.notifier import Notifier
from forewarn.ports.replicas import Replicas
from forewarn.ports.store import Store
from forewarn.protocol.errors import ForewarnError


@says("The real clock cannot be advanced; start the server with `clock: virtual`.")
class ClockError(ConflictError):
    """The clock cannot be set: it is the real one."""


@says("This server does not record requests; start it with `journal: true`.")
class JournalError(ConflictError):
    """Nothing was written down."""


class ClockControl(Protocol):
    """Maintenance time, as an operator sees and moves it."""

    @property
    def kind(self) -> str:
        """Tell which it is: real or virtual."""

    def now(self) -> datetime:
        """Return the present moment, aware, in UTC."""

    def advance(self, duration: timedelta) -> datetime:
        """Let *duration* pass with everything that falls due in it; ClockError if it is real."""


class GateControl(Protocol):
    """The gates, as an operator sees and tries them."""

    def kinds(self) -> Mapping[str, str]:
        """Return the kind of each gate, in the order of the file."""

    def test(self, name: str) -> Answer:
        """Ask the gate of that *name* at once, and wait for the answer."""


STREAMS_OF_A_TOKEN: Final = 16
"""Browsers close the streams of pages that nobody looks at; nobody looks at so many at once."""
FEEDS_OF_A_TOKEN: Final = 4
"""A relay needs one, but a feed that broke without a word may last for a quarter of an hour."""
LARGE_BODIES_OF_A_TOKEN: Final = 8
"""They are worked on one at a time, and each takes up to 1 MiB while it comes."""
AT_ONCE: Final = 4
"""A test may wait two minutes for its answer, and all other verbs share forty threads."""


class BusyError(ForewarnError):
    """Too many slow verbs are under way."""

    def __init__(self) -> None:
        super().__init__(
            f"The server is busy with {AT_ONCE} tests of gates or notification targets, or "
            "holiday files. Try again later."
        )


class SlowVerbs:
    """Lets a few in, and refuses the others at once."""

    def __init__(self) -> None:
        self._places = BoundedSemaphore(AT_ONCE)

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place, or refuse with BusyError."""
        if not self._places.acquire(blocking=False):
            raise BusyError
        try:
            yield
        finally:
            self._places.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything operators use. *settle* is called after each write, for virtual time.

    *authenticate* tells whose the token with a secret is, *recognise* whose the one with a hash;
    both refuse a token that has ended. *finish_turn* returns once the scheduler does nothing any
    more that it decided before the last write. *ledger_watch* has to be told of the changes of the
    store; *metrics* writes the figures for Prometheus.
    """

    store: Store
    context: Callable[[str], Context]
    clock: ClockControl
    faults: FaultControl
    authenticate: Callable[[str], Principal | None]
    recognise: Callable[[str], Principal | None]
    is_ready: Callable[[], bool]
    settle: Callable[[], None]
    finish_turn: Callable[[], None]
    ledger_watch: LedgerWatch
    scenarios: Mapping[str, Scenario]
    metrics: Callable[[], bytes]
    gates: GateControl
    replicas: Replicas
    database: str
    """The database as people know it, without passwords."""
    notifiers: Mapping[str, Notifier] = field(default_factory=dict)
    slow_verbs: SlowVerbs = field(default_factory=SlowVerbs)
    streams: Streams = field(default_factory=lambda: Streams(STREAMS_OF_A_TOKEN))
    """The open streams of operators."""
    feeds: Streams = field(default_factory=lambda: Streams(FEEDS_OF_A_TOKEN, newest_wins=True))
    """The open feeds of relays."""
    large_bodies: Streams = field(
        default_factory=lambda: Streams(LARGE_BODIES_OF_A_TOKEN, what=LARGE_BODIES)
    )
    """The large bodies that are read or wait for their turn."""
    records_problem: Callable[[], str] = str
    """Why the task log cannot be written; nothing if it can."""
    hand_over: Callable[[], None] = lambda: None
    """Let another replica lead."""
    failing: Callable[[], tuple[str, ...]] = tuple
    """The loops that have died and are about to be restarted."""
    jumps: Callable[[], Sequence[ClockJump]] = tuple
    """The last jumps of the real clock."""
    showings: Callable[[], Sequence[Showing]] = tuple
    """From when on changes were served, as far as it is not written down yet."""
    journal: Callable[[], Sequence[JournalEntry]] | None = None
    """The last requests of virtual machines, if they are kept."""
    relay_services: RelayServices | None = None
    """What relays are served with, if this server has any."""
    refused: Counter[str] = field(default_factory=Counter)
    """How often each kind of problem was answered. The audit counts; others only read."""
