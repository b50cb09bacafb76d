"""Where everything is kept: events, documents, ledger and audit change in one transaction."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from datetime import datetime
from typing import Final, Protocol, TypeVar

from forewarn.domain.access import Token
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.host_operation import HostOperation
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import (
    MaintenanceId,
    OperationId,
    ScenarioRunId,
    ScheduleName,
    ScopeId,
    VmName,
)
from forewarn.domain.news import Told
from forewarn.domain.notification import Notification, NotificationStatus
from forewarn.domain.scenario import ScenarioRun
from forewarn.domain.schedule import Schedule
from forewarn.domain.topology import Topology
from forewarn.ports.changes import ChangeListener
from forewarn.ports.entries import (
    AuditEntry,
    DocumentKey,
    Figures,
    KeptAnswer,
    LedgerEntry,
    LedgerLine,
    Membership,
    MembershipKey,
    Showing,
    SimulatedImpact,
)
from forewarn.ports.metrics import Distribution
from forewarn.protocol.document import Document
from forewarn.protocol.errors import ForewarnError
from forewarn.protocol.versions import PreviewWire
from forewarn.protocol.vocabulary import EventId, EventStatus, EventType

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
        super().__init__(f"Lease epoch {epoch} is over; the current one is {current}.")
        self.epoch = epoch
        self.current = current


class PreparedTopology(Protocol):
    """A topology, with the work that it takes to write it in place of another one."""

    @property
    def topology(self) -> Topology: ...


class Reading(Protocol):
    """A consistent look at everything. Sequences are in the order of creation."""

    def topology(self) -> Topology: ...

    def topology_version(self) -> int:
        """Return the number of the topology, which is higher than that of any before."""
        ...

    def prepare_topology(self, topology: Topology) -> PreparedTopology:
        """Do all the work for `put_topology` that need not be done while others wait."""
        ...

    def simulated_impact(self, event_id: EventId, /, vm: VmName) -> SimulatedImpact | None: ...

    def event(self, event_id: EventId) -> ScheduledEvent | None: ...

    def events_in_flight(self, scope_id: ScopeId | None = None) -> tuple[ScheduledEvent, ...]: ...

    def operation_events(self, operation_id: OperationId) -> tuple[ScheduledEvent, ...]:
        """Return the events of a host operation that are in flight, or refuse to name them."""
        ...

    def user_operations_in_flight(self) -> tuple[ScheduledEvent, ...]:
        """Return those of the whole server, whoever looks: they are limited together."""
        ...

    def events_under_way(self) -> tuple[ScheduledEvent, ...]:
        """Return what is in flight, and every event of a Maintenance that is not finished."""
        ...

    def events_of(self, maintenance_ids: Iterable[MaintenanceId]) -> tuple[ScheduledEvent, ...]: ...

    def events(  # noqa: PLR0913 - one for each way to narrow it down
        self,
        *,
        status: Iterable[EventStatus] = (),
        vm: VmName | None = None,
        scope_ids: Iterable[ScopeId] | None = None,
        event_type: EventType | None = None,
        ended: tuple[datetime | None, datetime | None] = (None, None),
        older_than: EventId | None = None,
        limit: int = 1000,
    ) -> tuple[ScheduledEvent, ...]:
        """Return the newest *limit* of these; *ended* is from when on, and before when.

        A scale set has the events of all its placement groups. *older_than* is an event of the
        page before: only what was announced earlier is returned.
        """
        ...

    def ledger(self, event_id: EventId, /) -> tuple[LedgerEntry, ...]: ...

    def ledger_after(self, sequence: int, *, limit: int) -> tuple[LedgerLine, ...]:
        """Return the lines that follow *sequence*, of all events, in the order of commitment."""
        ...

    def last_sequence(self) -> int:
        """Return the number of the last line of the ledger, 0 if there is none."""
        ...

    def maintenance(self, maintenance_id: MaintenanceId) -> Maintenance | None: ...

    def maintenances(
        self,
        *,
        finished: bool | None = None,
        older_than: MaintenanceId | None = None,
        limit: int | None = None,
    ) -> tuple[Maintenance, ...]:
        """Return the newest *limit* of these, before the one of the page before, or all."""
        ...

    def lease_epoch(self) -> int:
        """Return the epoch of the current lease, or 0 before the first."""
        ...

    def operations_under_way(self) -> tuple[HostOperation, ...]:
        """Return every host operation of a Maintenance that is not finished."""
        ...

    def operations_of(
        self, maintenance_ids: Iterable[MaintenanceId]
    ) -> tuple[HostOperation, ...]: ...

    def told(self) -> tuple[Told, ...]:
        """Return what people know of Maintenances that are not finished."""
        ...

    def scenario_run(self, run_id: ScenarioRunId) -> ScenarioRun | None: ...

    def scenario_runs(
        self,
        *,
        finished: bool | None = None,
        older_than: ScenarioRunId | None = None,
        limit: int | None = None,
    ) -> tuple[ScenarioRun, ...]:
        """Return the newest *limit* of these, before the one of the page before, or all."""
        ...

    def schedules(self) -> tuple[Schedule, ...]: ...

    def document(self, scope_id: ScopeId, /) -> Document:
        """Return the scope's current document; `FIRST_DOCUMENT` if it never had one."""
        ...

    def documents(self, scope_ids: Iterable[ScopeId] | None = None) -> dict[ScopeId, Document]:
        """Return the current document of every scope of the topology, or of these."""
        ...

    def document_at(self, scope_id: ScopeId, /, at: datetime) -> Document:
        """Return what the scope was shown at a moment; `FIRST_DOCUMENT` before its first."""
        ...

    def superseded_documents(self, before: datetime, *, limit: int) -> tuple[DocumentKey, ...]:
        """Return documents that nobody could read at *before* or later: newer ones were there."""
        ...

    def memberships(self, vm: str) -> tuple[Membership, ...]:
        """Return in which scopes a virtual machine was, in any case of its name, oldest first."""
        ...

    def superseded_memberships(self, before: datetime, *, limit: int) -> tuple[MembershipKey, ...]:
        """Return those that held for no moment from *before* on, and of machines gone by then."""
        ...

    def preview_wires(self) -> tuple[tuple[datetime, PreviewWire], ...]:
        """Return which account of 2017-03-01 was served from when on, oldest first."""
        ...

    def showing(self, at: datetime) -> Showing | None:
        """Return the last one that was recorded at *at* or before."""
        ...

    def last_polled_at(self, scope_id: ScopeId, /) -> datetime | None: ...

    def last_polls(self, vms: Iterable[VmName]) -> Mapping[VmName, datetime]: ...

    def soaks(self) -> Mapping[ScopeId, datetime]:
        """Return until when scopes are left alone after a step, some of which may be over."""
        ...

    def audit(
        self,
        *,
        who: str | None = None,
        action: str | None = None,
        since: datetime | None = None,
        older_than: int | None = None,
        limit: int = 1000,
    ) -> tuple[AuditEntry, ...]:
        """Return the newest *limit* entries of these, oldest first; *older_than* is a sequence."""
        ...

    def token(self, token_hash: str) -> Token | None: ...

    def tokens(self) -> tuple[Token, ...]: ...

    def setting(self, name: str) -> str | None: ...

    def kept_answer(self, who: str, key: str) -> KeptAnswer | None: ...

    def notification(self, notification_id: str) -> Notification | None: ...

    def notifications(
        self,
        *,
        status: NotificationStatus | None = None,
        scope_ids: Iterable[ScopeId] | None = None,
        older_than: str | None = None,
        limit: int = 1000,
    ) -> tuple[Notification, ...]:
        """Return the newest *limit* of these, in scopes and before another as for `events`."""
        ...

    def next_notifications(self, target: str, *, limit: int = 100) -> tuple[Notification, ...]:
        """Return the first waiting message of each subject for *target*, soonest first."""
        ...

    def targets_waited_for(self) -> tuple[str, ...]:
        """Return the name of every target for which a message is waiting."""
        ...


class Transaction(Reading, Protocol):
    """A look that may also change things: all of it is committed, or nothing."""

    def put_topology(self, topology: Topology, prepared: PreparedTopology | None = None) -> None:
        """Make *topology* the fleet. What was *prepared* for another one is of no use, nor harm."""
        ...

    def put_event(self, event: ScheduledEvent, /) -> None: ...

    def put_maintenance(self, maintenance: Maintenance, /) -> None: ...

    def put_operation(self, operation: HostOperation, /) -> None: ...

    def put_told(self, told: Told) -> None:
        """Remember what people know of a Maintenance."""
        ...

    def put_scenario_run(self, run: ScenarioRun) -> None: ...

    def put_schedule(self, schedule: Schedule) -> None: ...

    def remove_schedule(self, name: ScheduleName) -> None: ...

    def put_document(self, scope_id: ScopeId, /, document: Document, *, at: datetime) -> None: ...

    def remove_documents(self, documents: Iterable[DocumentKey]) -> None: ...

    def put_memberships(self, memberships: Iterable[Membership]) -> None: ...

    def remove_memberships(self, memberships: Iterable[MembershipKey]) -> None: ...

    def put_preview_wire(self, wire: PreviewWire, *, at: datetime) -> None: ...

    def put_showings(self, showings: Iterable[Showing]) -> None: ...

    def prune_showings(self, *, before: datetime) -> None: ...

    def put_polled_at(self, scope_id: ScopeId, at: datetime) -> None: ...

    def put_polls(self, polls: Mapping[VmName, datetime]) -> None: ...

    def put_soak(self, scope_id: ScopeId, /, until: datetime, *, at: datetime) -> None:
        """Leave the scope alone until then; forget what is over by *at*."""
        ...

    def put_setting(self, name: str, value: str) -> None: ...

    def put_token(self, token: Token) -> None: ...

    def put_answer(self, answer: KeptAnswer) -> None:
        """Keep *answer*, in place of what was kept for the same caller and key."""
        ...

    def prune_answers(self, *, before: datetime) -> int:
        """Forget what was answered before then, and tell how many answers those were."""
        ...

    def append_ledger(self, entry: LedgerEntry, /) -> None: ...

    def append_audit(self, entry: AuditEntry) -> None: ...

    def put_notification(self, notification: Notification, /) -> None:
        """Put *notification* into the outbox, or replace what is known of it."""
        ...

    def prune_notifications(self, status: NotificationStatus, *, ended_before: datetime) -> int:
        """Forget messages of *status* that ended before then, and tell how many those were."""
        ...

    def put_simulated_impact(self, impact: SimulatedImpact) -> bool:
        """Remember *impact*, unless one is there already; tell whether it was remembered."""
        ...

    def next_epoch(self, *, ahead: int = 0) -> int:
        """Take over leadership: return a lease epoch nobody has had, *ahead* of the next one."""
        ...

    def check_epoch(self, epoch: int) -> None:
        """Refuse with LeaseLostError unless *epoch* is the current one.

        What the transaction records is the leader's own then, and no work for its scheduler.
        """
        ...


class Store(Protocol):
    """The one writer and the many readers."""

    def submit(self, work: Callable[[Transaction], T]) -> Future[T]:
        """Have *work* done in a transaction; the future is resolved after commit and listeners.

        An error of *work* undoes what it did, and nothing else, and is the future's error.
        """
        ...

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Do *work* in a transaction and return its result, after commit and listeners."""
        ...

    def read(self, look: Callable[[Reading], T]) -> T:
        """Return what *look* sees in one consistent snapshot."""
        ...

    def listen(self, listener: ChangeListener) -> None:
        """Call *listener* after each commit that changed any of what a `StoreChange` tells."""
        ...

    def figures(self) -> Figures:
        """Count what there is."""
        ...

    @property
    def commits(self) -> Distribution:
        """How many works each commit had."""
        ...

    def is_writable(self) -> bool:
        """Tell whether the last attempt to write did not fail for want of disk or permission."""
        ...

    def close(self) -> None:
        """Finish what was submitted, then let go of the files."""
        ...
