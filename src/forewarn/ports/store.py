"""Where everything is kept, by noun: all of it changes in one transaction."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Final, Protocol, TypeVar

from forewarn.domain.gate import Answer, Question
from forewarn.ports.access import AccessReading, AccessWriting
from forewarn.ports.changes import ChangeListener
from forewarn.ports.documents import DocumentReading, DocumentWriting
from forewarn.ports.entries import Figures
from forewarn.ports.events import EventReading, EventWriting
from forewarn.ports.fleet import FleetReading, FleetWriting
from forewarn.ports.maintenances import MaintenanceReading, MaintenanceWriting
from forewarn.ports.metrics import Distribution
from forewarn.ports.outbox import OutboxReading, OutboxWriting
from forewarn.ports.tasks import TaskReading, TaskWriting
from forewarn.protocol.errors import ForewarnError

T = TypeVar("T")

SERVER_PAUSE: Final = "server_pause"
"""The one setting that the scheduler looks at."""


class StoreError(ForewarnError):
    """The store cannot do it."""


class StoreUnavailableError(StoreError):
    """The store cannot be written now: disk full, read-only, or away."""


class LeaseLostError(StoreError):
    """Somebody else is the leader by now; what the old one wanted to write is refused."""

    def __init__(self, epoch: int, current: int) -> None:
        super().__init__(f"Lease epoch {epoch} has ended; the current epoch is {current}.")
        self.epoch = epoch
        self.current = current


class Reading(
    FleetReading,
    EventReading,
    MaintenanceReading,
    DocumentReading,
    OutboxReading,
    AccessReading,
    TaskReading,
    Protocol,
):
    """A consistent look at everything. Sequences are in the order of creation."""

    def lease_epoch(self) -> int:
        """Return the epoch of the current lease, or 0 before the first."""

    def gate_answers(self) -> Mapping[Question, Answer]:
        """Return what the leader has written down of what gates said."""

    def setting(self, name: str) -> str | None: ...


class Transaction(
    Reading,
    FleetWriting,
    EventWriting,
    MaintenanceWriting,
    DocumentWriting,
    OutboxWriting,
    AccessWriting,
    TaskWriting,
    Protocol,
):
    """A look that may also change things: all of it is committed, or nothing."""

    def put_setting(self, name: str, value: str) -> None: ...

    def put_gate_answers(
        self, news: Mapping[Question, Answer], *, forget: Iterable[Question] = (), epoch: int
    ) -> None:
        """Write down what gates said to the leader of *epoch*.

        It is refused as by `check_epoch`.
        """

    def next_epoch(self, *, ahead: int = 0) -> int:
        """Take over leadership: return a lease epoch nobody has had, *ahead* of the next one."""

    def check_epoch(self, epoch: int) -> None:
        """Refuse with LeaseLostError unless *epoch* is the current one.

        What the transaction records is the leader's own then, and no work for its scheduler.
        """


class Store(Protocol):
    """The one writer and the many readers.

    Works are serial: one at a time, over all replicas that share the store. Each sees all that
    those before it did, and sequences, ledger and incarnations are in the order of commitment.
    Readers wait for nobody and see whole commits only.
    """

    def submit(self, work: Callable[[Transaction], T]) -> Future[T]:
        """Have *work* done in a transaction; the future is resolved after commit and listeners.

        An error of *work* undoes what it did, and nothing else, and is the future's error. It may
        be undone and called again, if all of the fleet has to be read first.
        """

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Do *work* in a transaction and return its result, after commit and listeners."""

    def read(self, look: Callable[[Reading], T]) -> T:
        """Return what *look* sees in one consistent snapshot."""

    def listen(self, listener: ChangeListener) -> None:
        """Call *listener* after each commit that changed any of what a `StoreChange` tells."""

    def figures(self) -> Figures:
        """Count what there is."""

    @property
    def commits(self) -> Distribution:
        """How many works each commit had."""

    def is_writable(self) -> bool:
        """Tell whether the database is in its place, and the last write did not fail."""

    def close(self) -> None:
        """Finish what was submitted, then let go of the files."""
