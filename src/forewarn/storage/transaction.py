"""The port's Transaction, over one connection."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection

from forewarn.domain.access import Token
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.host_operation import HostOperation
from forewarn.domain.knowledge import NOTHING, Knowledge
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import ScheduleName, ScopeId, VmName, name_key
from forewarn.domain.news import Told
from forewarn.domain.notification import Notification, NotificationStatus
from forewarn.domain.scenario import ScenarioRun
from forewarn.domain.schedule import Schedule
from forewarn.domain.topology import Topology
from forewarn.ports.changes import StoreChange
from forewarn.ports.entries import (
    AuditEntry,
    DocumentKey,
    KeptAnswer,
    LedgerEntry,
    Membership,
    MembershipKey,
    Showing,
    SimulatedImpact,
)
from forewarn.ports.fleet import PreparedTopology
from forewarn.ports.store import SERVER_PAUSE, LeaseLostError
from forewarn.protocol.document import Document
from forewarn.protocol.versions import PreviewWire
from forewarn.storage import statements
from forewarn.storage.errors import DocumentIncarnationError
from forewarn.storage.fleet import (
    StoredTopology,
    TopologyCache,
    TopologyChange,
    prepare_topology,
    save_topology,
)
from forewarn.storage.knowledge import write_knowledge
from forewarn.storage.reading import LEASE, SqlReading
from forewarn.storage.statements import PreparedInsert


@dataclass(slots=True)
class Changes:
    """What one work has changed, or those of a commit together, that others have to be told of."""

    incarnations: dict[ScopeId, int] = field(default_factory=dict)
    topology: StoredTopology | None = None
    recorded_at: datetime | None = None
    has_work: bool = False
    has_ledger_grown: bool = False
    has_outbox_grown: bool = False

    def add(self, later: "Changes") -> None:
        """Take in what a later work of the same commit has changed."""
        self.incarnations.update(later.incarnations)
        self.topology = later.topology or self.topology
        self.recorded_at = self.recorded_at or later.recorded_at
        self.has_work |= later.has_work
        self.has_ledger_grown |= later.has_ledger_grown
        self.has_outbox_grown |= later.has_outbox_grown

    def hint(self, sequence: int) -> StoreChange | None:
        """Return what listeners are told, if there is anything."""
        hint = StoreChange(
            sequence=sequence,
            incarnations=self.incarnations,
            topology_version=None if self.topology is None else self.topology.version,
            has_work=self.has_work,
            has_ledger_grown=self.has_ledger_grown,
            has_outbox_grown=self.has_outbox_grown,
            recorded_at=self.recorded_at,
        )
        return None if hint == StoreChange() else hint


class SqlTransaction(SqlReading):
    """A look that may also change things, and remembers what listeners have to be told."""

    def __init__(
        self, connection: Connection, cache: TopologyCache, stored: StoredTopology | None = None
    ) -> None:
        super().__init__(connection, cache)
        # What an earlier work of the same group has written, which the cache may not know yet.
        self._stored = stored
        self._is_leaders = False
        self.changes = Changes()

    def put_topology(self, topology: Topology, prepared: PreparedTopology | None = None) -> None:
        """Make *topology* the fleet; with less work if it was prepared and nothing came between."""
        known = self._stored_topology()
        change = prepared if isinstance(prepared, TopologyChange) else None
        if change is None or change.known is not known or change.topology is not topology:
            change = prepare_topology(topology, known)
        self._stored = save_topology(self._connection, change)
        if self._stored is not known:
            self.changes.topology = self._stored
            self._note_work()

    def put_event(self, event: ScheduledEvent) -> None:
        """Add *event*, or replace what is known of it."""
        self._put_work(statements.PUT_EVENT, event)

    def put_maintenance(self, maintenance: Maintenance) -> None:
        """Add *maintenance*, or replace what is known of it."""
        self._put_work(statements.PUT_MAINTENANCE, maintenance)

    def put_operation(self, operation: HostOperation) -> None:
        """Add *operation*, or replace what is known of it."""
        self._put_work(statements.PUT_OPERATION, operation)

    def put_told(self, told: Told) -> None:
        """Remember what people know of a Maintenance."""
        statements.PUT_TOLD.put(self._connection, told)

    def put_scenario_run(self, run: ScenarioRun) -> None:
        """Add *run*, or replace what is known of it."""
        self._put_work(statements.PUT_SCENARIO_RUN, run)

    def put_schedule(self, schedule: Schedule) -> None:
        """Add *schedule*, or replace what is known of it."""
        self._put_work(statements.PUT_SCHEDULE, schedule)

    def remove_schedule(self, name: ScheduleName) -> None:
        """Forget a schedule; what it has begun stays."""
        self._connection.execute(statements.REMOVE_SCHEDULE, {"gone_name": name})
        self._note_work()

    def put_document(self, scope_id: ScopeId, document: Document, *, at: datetime) -> None:
        """Publish *document*, which has to be newer than the scope's current one, or the same."""
        key = (scope_id, document.document_incarnation)
        if statements.PUT_DOCUMENT.run(self._connection, *key, at, document, *key):
            self.changes.incarnations[scope_id] = document.document_incarnation
            self._record(at)
            return
        current = self.document(scope_id)
        if current != document:
            raise DocumentIncarnationError(
                scope_id, document.document_incarnation, current.document_incarnation
            )

    def _record(self, at: datetime) -> None:
        self.changes.recorded_at = min(at, self.changes.recorded_at or at)

    def remove_documents(self, documents: Iterable[DocumentKey]) -> None:
        """Forget documents that nobody can ask for any more."""
        gone = [{"gone_scope_id": scope, "gone_incarnation": number} for scope, number in documents]
        if gone:
            self._connection.execute(statements.REMOVE_DOCUMENT, gone)

    def put_memberships(self, memberships: Iterable[Membership]) -> None:
        """Remember who reads whose document from now on."""
        put, joined = statements.PUT_MEMBERSHIP, tuple(memberships)
        put.run_many(
            self._connection,
            (put.prepare((name_key(each.vm), each.since, each.scope_id)) for each in joined),
        )
        for each in joined[:1]:
            self._record(each.since)

    def remove_memberships(self, memberships: Iterable[MembershipKey]) -> None:
        """Forget who read whose document at moments that nobody can ask for any more."""
        gone = [{"gone_vm": name_key(vm), "gone_since": since} for vm, since in memberships]
        if gone:
            self._connection.execute(statements.REMOVE_MEMBERSHIP, gone)

    def put_preview_wire(self, wire: PreviewWire, *, at: datetime) -> None:
        """Remember how 2017-03-01 is written from now on."""
        statements.PUT_PREVIEW_WIRE.run(self._connection, at, wire)

    def put_soak(self, scope_id: ScopeId, until: datetime, *, at: datetime) -> None:
        """Leave the scope alone until then; forget what is over by *at*."""
        self._connection.execute(statements.FORGET_SOAKS, {"at": at})
        statements.PUT_SOAK.run(self._connection, scope_id, until)
        self._note_work()

    def put_showings(self, showings: Iterable[Showing]) -> None:
        """Remember from when on what is recorded was really served."""
        put = statements.PUT_SHOWING
        rows = (put.prepare((each.recorded_at, each.shown_at)) for each in showings)
        put.run_many(self._connection, rows)

    def prune_showings(self, *, before: datetime) -> None:
        """Forget those that are over by then."""
        self._connection.execute(statements.PRUNE_SHOWINGS, {"before": before})

    def put_polled_at(self, scope_id: ScopeId, at: datetime) -> None:
        """Remember that the scope was polled."""
        statements.PUT_POLL.run(self._connection, scope_id, at)

    def put_polls(self, polls: Mapping[VmName, datetime]) -> None:
        """Remember when virtual machines polled."""
        put = statements.PUT_VM_POLL
        put.run_many(
            self._connection, (put.prepare((name_key(vm), at)) for vm, at in polls.items())
        )

    def put_setting(self, name: str, value: str) -> None:
        """Put *value* under *name*."""
        statements.PUT_SETTING.run(self._connection, name, value)
        if name == SERVER_PAUSE:
            self._note_work()

    def put_token(self, token: Token) -> None:
        """Add *token*, or replace what is known of it."""
        statements.PUT_TOKEN.put(self._connection, token)

    def append_ledger(self, entry: LedgerEntry) -> None:
        """Add a line to the life of an event."""
        statements.APPEND_LEDGER.put(self._connection, entry)
        self.changes.has_ledger_grown = True

    def append_audit(self, entry: AuditEntry) -> None:
        """Add a line to the audit."""
        statements.APPEND_AUDIT.put(self._connection, entry)

    def put_notification(self, notification: Notification) -> None:
        """Put *notification* into the outbox, or replace what is known of it."""
        statements.PUT_NOTIFICATION.put(self._connection, notification)
        self.changes.has_outbox_grown = True

    def prune_notifications(self, status: NotificationStatus, *, ended_before: datetime) -> int:
        """Forget messages of *status* that ended before then, and tell how many those were."""
        values = {"status": status, "ended_before": ended_before}
        return self._connection.execute(statements.PRUNE_NOTIFICATIONS, values).rowcount

    def put_answer(self, answer: KeptAnswer) -> None:
        """Keep *answer*, in place of what was kept for the same caller and key."""
        statements.PUT_ANSWER.put(self._connection, answer)

    def prune_answers(self, *, before: datetime) -> int:
        """Forget what was answered before then, and tell how many answers those were."""
        return self._connection.execute(statements.PRUNE_ANSWERS, {"before": before}).rowcount

    def put_simulated_impact(self, impact: SimulatedImpact) -> bool:
        """Remember *impact*, unless one is there already; tell whether it was remembered."""
        return statements.PUT_SIMULATED_IMPACT.put(self._connection, impact) == 1

    def put_knowledge(self, news: Knowledge, *, forget: Knowledge = NOTHING, epoch: int) -> None:
        """Write down what the leader of *epoch* was told, or that it is about to begin it."""
        self.check_epoch(epoch)
        gone = [
            {"gone_kind": kind, "gone_about": about} for kind, about, _ in write_knowledge(forget)
        ]
        if gone:
            self._connection.execute(statements.FORGET_KNOWLEDGE, gone)
        put = statements.PUT_KNOWLEDGE
        put.run_many(
            self._connection, (put.prepare((*row, epoch)) for row in write_knowledge(news))
        )

    def next_epoch(self, *, ahead: int = 0) -> int:
        """Take over leadership: return a lease epoch nobody has had, *ahead* of the next one."""
        epoch = self.lease_epoch() + ahead + 1
        statements.PUT_LEASE.run(self._connection, LEASE, epoch)
        return epoch

    def check_epoch(self, epoch: int) -> None:
        """Refuse with LeaseLostError unless *epoch* is the current one."""
        current = self.lease_epoch()
        if epoch != current:
            raise LeaseLostError(epoch, current)
        self._is_leaders = True

    def _put_work(self, put: PreparedInsert, thing: object) -> None:
        put.put(self._connection, thing)
        self._note_work()

    def _note_work(self) -> None:
        # The leader knows what it records itself, and would only look in vain.
        self.changes.has_work |= not self._is_leaders
