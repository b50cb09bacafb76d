"""Where everything is kept, by noun: all of it changes in one transaction."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import Final, Protocol, TypeVar

from forewarn.domain.access import ConsoleSession, Token
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.gate import Answer, Question
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
from forewarn.domain.task import Owner, Task, TaskKey
from forewarn.domain.topology import Topology
from forewarn.ports.changes import ChangeListener
from forewarn.ports.entries import (
    AuditEntry,
    DocumentKey,
    Figures,
    History,
    KeptAnswer,
    LedgerEntry,
    LedgerLine,
    Membership,
    MembershipKey,
    Showing,
)
from forewarn.ports.metrics import Distribution
from forewarn.protocol.document import Document
from forewarn.protocol.errors import ForewarnError
from forewarn.protocol.vocabulary import EventId, EventStatus, EventType

T = TypeVar("T")

SERVER_PAUSE: Final = "server_pause"
"""The one setting that the scheduler looks at."""

HISTORY_RETENTION: Final = "history_retention"
"""The setting, in whole seconds, without which the database itself lets no record be deleted."""


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


class PreparedTopology(Protocol):
    """A topology, with the work that it takes to write it in place of another one."""

    @property
    def topology(self) -> Topology: ...


class Reading(Protocol):
    """A consistent look at everything. Sequences are in the order of creation."""

    def topology(self) -> Topology:
        """Return the fleet."""

    def topology_at_hand(self) -> tuple[int, Topology] | None:
        """Return the fleet and its number, which is higher than that of any before.

        None if all of it would have to be read, for which whoever holds up others has no time.
        """

    def prepare_topology(self, topology: Topology) -> PreparedTopology:
        """Do all the work for `put_topology` that need not be done while others wait."""

    def memberships(self, vm: str) -> tuple[Membership, ...]:
        """Return in which scopes a virtual machine was, in any case of its name, oldest first."""

    def superseded_memberships(self, before: datetime, *, limit: int) -> tuple[MembershipKey, ...]:
        """Return those that held for no moment from *before* on, and of machines gone by then."""

    def last_polled_at(self, scope_id: ScopeId, /) -> datetime | None:
        """Return when the scope was last polled, as far as it was recorded."""

    def last_polls(self, vms: Iterable[VmName]) -> Mapping[VmName, datetime]:
        """Return when each of *vms* last polled, as far as it was recorded."""

    def event(self, event_id: EventId) -> ScheduledEvent | None:
        """Return one event, wherever it is in its life."""

    def events_in_flight(
        self, scope_ids: Iterable[ScopeId] | None = None
    ) -> tuple[ScheduledEvent, ...]:
        """Return what is Scheduled or Started, everywhere or in these scopes."""

    def operation_events(self, operation_id: OperationId) -> tuple[ScheduledEvent, ...]:
        """Return the events of a host operation that are in flight, or refuse to name them."""

    def user_operations_in_flight(self) -> tuple[ScheduledEvent, ...]:
        """Return those of the whole server, whoever looks: they are limited together."""

    def events_under_way(self) -> tuple[ScheduledEvent, ...]:
        """Return what is in flight, and every event of a Maintenance that is not finished."""

    def events_of(self, maintenance_ids: Iterable[MaintenanceId]) -> tuple[ScheduledEvent, ...]:
        """Return every event that one of the Maintenances has created."""

    def events(
        self,
        *,
        status: Iterable[EventStatus] = (),
        vm: VmName | None = None,
        scope_ids: Iterable[ScopeId] | None = None,
        event_type: EventType | None = None,
        ended: tuple[datetime | None, datetime | None] = (None, None),
        created_before: datetime | None = None,
        older_than: EventId | None = None,
        limit: int = 1000,
    ) -> tuple[ScheduledEvent, ...]:
        """Return the newest *limit* of these; *ended* is from when on, and before when.

        A scale set has the events of all its placement groups. *older_than* is an event of the
        page before: only what was announced earlier is returned.
        """

    def ledger(self, event_id: EventId, /) -> tuple[LedgerEntry, ...]:
        """Return the life of one event."""

    def ledger_after(self, sequence: int, *, limit: int) -> tuple[LedgerLine, ...]:
        """Return the lines that follow *sequence*, of all events, in the order of commitment."""

    def last_sequence(self) -> int:
        """Return the number of the last line of the ledger, 0 if there is none."""

    def maintenance(self, maintenance_id: MaintenanceId) -> Maintenance | None:
        """Return one Maintenance."""

    def maintenances(
        self,
        *,
        finished: bool | None = None,
        older_than: MaintenanceId | None = None,
        limit: int | None = None,
    ) -> tuple[Maintenance, ...]:
        """Return the newest *limit* of these, before the one of the page before, or all."""

    def operations_under_way(self) -> tuple[HostOperation, ...]:
        """Return every host operation of a Maintenance that is not finished."""

    def operations_of(self, maintenance_ids: Iterable[MaintenanceId]) -> tuple[HostOperation, ...]:
        """Return every host operation that one of the Maintenances has begun."""

    def host_operation(self, operation_id: OperationId) -> HostOperation | None:
        """Return one host operation."""

    def told(self) -> tuple[Told, ...]:
        """Return what people know of Maintenances that are not finished."""

    def soaks(self) -> Mapping[ScopeId, datetime]:
        """Return until when scopes are left alone after a step, some of which may be over."""

    def scenario_run(self, run_id: ScenarioRunId) -> ScenarioRun | None:
        """Return one run of a scenario."""

    def scenario_runs(
        self,
        *,
        finished: bool | None = None,
        older_than: ScenarioRunId | None = None,
        limit: int | None = None,
    ) -> tuple[ScenarioRun, ...]:
        """Return the newest *limit* of these, before the one of the page before, or all."""

    def schedules(self) -> tuple[Schedule, ...]:
        """Return every schedule."""

    def task(self, key: TaskKey, /) -> Task | None:
        """Return one task."""

    def tasks(self) -> tuple[Task, ...]:
        """Return the tasks that matter to decisions, in the order in which they were reserved."""

    def tasks_of(self, subject: str) -> tuple[Task, ...]:
        """Return all tasks of an event or a host operation."""

    def open_tasks(self, node: str) -> tuple[Task, ...]:
        """Return the tasks of *node* that are not over."""

    def settled_tasks(self, node: str) -> tuple[Task, ...]:
        """Return the tasks of *node* that an operator has settled in its absence."""

    def owners(self) -> tuple[Owner, ...]:
        """Return the state directories that can own tasks."""

    def document(self, scope_id: ScopeId, /) -> Document:
        """Return the scope's current document; `FIRST_DOCUMENT` if it never had one."""

    def documents(self, scope_ids: Iterable[ScopeId] | None = None) -> dict[ScopeId, Document]:
        """Return the current document of every scope of the topology, or of these."""

    def document_at(self, scope_id: ScopeId, /, at: datetime) -> Document:
        """Return what the scope was shown at a moment; `FIRST_DOCUMENT` before its first."""

    def superseded_documents(self, before: datetime, *, limit: int) -> tuple[DocumentKey, ...]:
        """Return documents that nobody could read at *before* or later: newer ones were there."""

    def showing(self, at: datetime) -> Showing | None:
        """Return the last one that was recorded at *at* or before."""

    def notification(self, notification_id: str) -> Notification | None:
        """Return one message."""

    def notifications(
        self,
        *,
        status: NotificationStatus | None = None,
        scope_ids: Iterable[ScopeId] | None = None,
        older_than: str | None = None,
        limit: int = 1000,
    ) -> tuple[Notification, ...]:
        """Return the newest *limit* of these, in scopes and before another as for `events`."""

    def next_notifications(self, target: str, *, limit: int = 100) -> tuple[Notification, ...]:
        """Return the first waiting message of each subject for *target*, soonest first."""

    def targets_waited_for(self) -> tuple[str, ...]:
        """Return the name of every target for which a message is waiting."""

    def token(self, token_hash: str) -> Token | None:
        """Return the token whose secret has this hash."""

    def tokens(self) -> tuple[Token, ...]:
        """Return every token, also those that grant nothing any more."""

    def session(self, session_hash: str) -> ConsoleSession | None:
        """Return the session or link whose secret has this hash."""

    def count_links(self, token_hash: str, *, since: datetime) -> int:
        """Return how many unused links of the token with this hash were made after *since*."""

    def audit(
        self,
        *,
        who: str | None = None,
        action: str | None = None,
        outcome: str | None = None,
        since: datetime | None = None,
        older_than: int | None = None,
        limit: int = 1000,
    ) -> tuple[AuditEntry, ...]:
        """Return the newest *limit* entries of these, oldest first; *older_than* is a sequence."""

    def kept_answer(self, who: str, key: str) -> KeptAnswer | None:
        """Return what was answered to the request of *who* that had *key*."""

    def old_history(self, kind: History, before: datetime, *, limit: int) -> tuple[int, ...]:
        """Return the sequences of rows that ended before then, and that nothing needs any more."""

    def lease_epoch(self) -> int:
        """Return the epoch of the current lease, or 0 before the first."""

    def gate_answers(self) -> Mapping[Question, Answer]:
        """Return what the leader has written down of what gates said."""

    def setting(self, name: str) -> str | None:
        """Return what was put under *name*."""


class Transaction(Reading, Protocol):
    """A look that may also change things: all of it is committed, or nothing."""

    def put_topology(self, topology: Topology, prepared: PreparedTopology | None = None) -> None:
        """Make *topology* the fleet. What was *prepared* for another one is of no use, nor harm."""

    def put_memberships(self, memberships: Iterable[Membership]) -> None:
        """Remember who reads whose document from now on."""

    def remove_memberships(self, memberships: Iterable[MembershipKey]) -> None:
        """Forget who read whose document at moments that nobody can ask for any more."""

    def put_polled_at(self, scope_id: ScopeId, at: datetime) -> None:
        """Remember that the scope was polled."""

    def put_polls(self, polls: Mapping[VmName, datetime]) -> None:
        """Remember when virtual machines polled."""

    def put_event(self, event: ScheduledEvent, /) -> None:
        """Add *event*, or replace what is known of it."""

    def append_ledger(self, entry: LedgerEntry, /) -> None:
        """Add a line to the life of an event."""

    def put_maintenance(self, maintenance: Maintenance, /) -> None:
        """Add *maintenance*, or replace what is known of it."""

    def put_operation(self, operation: HostOperation, /) -> None:
        """Add *operation*, or replace what is known of it."""

    def put_told(self, told: Told) -> None:
        """Remember what people know of a Maintenance."""

    def put_soak(self, scope_id: ScopeId, /, until: datetime, *, at: datetime) -> None:
        """Leave the scope alone until then; forget what is over by *at*."""

    def put_scenario_run(self, run: ScenarioRun) -> None:
        """Add *run*, or replace what is known of it."""

    def put_schedule(self, schedule: Schedule) -> None:
        """Add *schedule*, or replace what is known of it."""

    def remove_schedule(self, name: ScheduleName) -> None:
        """Forget a schedule; what it has begun stays."""

    def put_task(self, task: Task, /) -> None:
        """Add *task*, or replace what is known of it."""

    def prune_tasks(self, *, before: datetime) -> int:
        """Forget tasks that matter to no decision since before then; tell how many those were."""

    def put_owner(self, owner: Owner) -> None:
        """Add *owner*, or replace what is known of it."""

    def remove_owner(self, node: str) -> None:
        """Forget an owner."""

    def put_document(self, scope_id: ScopeId, /, document: Document, *, at: datetime) -> None:
        """Publish *document*, which has to be newer than the scope's current one, or the same."""

    def remove_documents(self, documents: Iterable[DocumentKey]) -> None:
        """Forget documents that nobody can ask for any more."""

    def put_showings(self, showings: Iterable[Showing]) -> None:
        """Remember from when on what is recorded was really served."""

    def prune_showings(self, *, before: datetime) -> None:
        """Forget those that are over by then."""

    def put_notification(self, notification: Notification, /) -> None:
        """Put *notification* into the outbox, or replace what is known of it."""

    def prune_notifications(self, status: NotificationStatus, *, ended_before: datetime) -> int:
        """Forget messages of *status* that ended before then, and tell how many those were."""

    def put_token(self, token: Token) -> None:
        """Add *token*, or replace what is known of it."""

    def put_session(self, session: ConsoleSession) -> None:
        """Add *session*, or replace what is known of it."""

    def remove_session(self, session_hash: str) -> None:
        """Forget a session or a link."""

    def prune_sessions(self, *, before: datetime) -> int:
        """Forget those that were last used before then, and tell how many those were."""

    def append_audit(self, entry: AuditEntry) -> None:
        """Add a line to the audit."""

    def prune_history(
        self, kind: History, rows: Sequence[int], *, before: datetime
    ) -> tuple[tuple[str, datetime], ...]:
        """Remove those of *rows* that `old_history` returns, with what belongs to them.

        Return the table and the time of each row that is gone. The database refuses to remove lines
        of ledger and audit that are younger than `HISTORY_RETENTION`.
        """

    def put_answer(self, answer: KeptAnswer) -> None:
        """Keep *answer*, in place of what was kept for the same caller and key."""

    def prune_answers(self, *, before: datetime) -> int:
        """Forget what was answered before then, and tell how many answers those were."""

    def put_setting(self, name: str, value: str) -> None:
        """Put *value* under *name*."""

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
