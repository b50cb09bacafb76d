"""The port's Transaction, over one connection."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection, Table, delete

from forewarn.domain.access import ConsoleSession, Token
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.gate import Answer, Question
from forewarn.domain.host_operation import HostOperation
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import ScheduleName, ScopeId, VmName, name_key
from forewarn.domain.news import Told
from forewarn.domain.notification import Notification, NotificationStatus
from forewarn.domain.scenario import ScenarioRun
from forewarn.domain.schedule import Schedule
from forewarn.domain.task import Owner, Task, TaskState
from forewarn.domain.topology import Revision, Topology
from forewarn.ports.changes import StoreChange
from forewarn.ports.entries import (
    AuditEntry,
    DocumentKey,
    History,
    KeptAnswer,
    LedgerEntry,
    Membership,
    MembershipKey,
    Showing,
)
from forewarn.ports.replicas import name_replica
from forewarn.ports.store import SERVER_PAUSE, LeaseLostError, PreparedTopology
from forewarn.protocol.document import Document
from forewarn.storage import statements, tables
from forewarn.storage.columns import write_json
from forewarn.storage.errors import DocumentIncarnationError
from forewarn.storage.fleet import (
    StoredTopology,
    TopologyChange,
    prepare_topology,
    save_topology,
)
from forewarn.storage.gate_answers import write_question
from forewarn.storage.reading import LEASE, SqlReading
from forewarn.storage.rows import PUT, REMOVE, key_of
from forewarn.storage.topology_cache import (
    MOST_KEYS,
    TopologyCache,
    TopologyNotReadError,
    join_revisions,
)


@dataclass(slots=True)
class Changes:
    """What one work has changed, or those of a commit together, that others have to be told of."""

    incarnations: dict[ScopeId, int] = field(default_factory=dict)
    topology: StoredTopology | None = None
    revises: int | None = None
    revisions: tuple[Revision, ...] = ()
    recorded_at: datetime | None = None
    has_work: bool = False
    has_ledger_grown: bool = False
    has_outbox_grown: bool = False
    has_tasks: bool = False

    def add(self, later: "Changes") -> None:
        """Take in what a later work of the same commit has changed."""
        self.incarnations.update(later.incarnations)
        self.topology = later.topology or self.topology
        self.revises = later.revises if self.revises is None else self.revises
        self.revisions += later.revisions
        self.recorded_at = self.recorded_at or later.recorded_at
        self.has_work |= later.has_work
        self.has_ledger_grown |= later.has_ledger_grown
        self.has_outbox_grown |= later.has_outbox_grown
        self.has_tasks |= later.has_tasks

    def hint(self, sequence: int) -> StoreChange | None:
        """Return what listeners are told, if there is anything."""
        hint = StoreChange(
            sequence=sequence,
            incarnations=self.incarnations,
            topology_version=None if self.topology is None else self.topology.version,
            revises=self.revises,
            revision=join_revisions(self.revisions, MOST_KEYS) if self.revisions else None,
            has_work=self.has_work,
            has_ledger_grown=self.has_ledger_grown,
            has_outbox_grown=self.has_outbox_grown,
            has_tasks=self.has_tasks,
            recorded_at=self.recorded_at,
        )
        return None if hint == StoreChange() else hint


class SqlTransaction(SqlReading):
    """A look that may also change things, and remembers what listeners have to be told."""

    def __init__(
        self,
        connection: Connection,
        cache: TopologyCache,
        stored: StoredTopology | None = None,
    ) -> None:
        super().__init__(connection, cache)
        # What an earlier work of the same group has written, which the cache may not know yet.
        self._stored = stored
        self._is_leaders = False
        self.changes = Changes()

    def put_topology(self, topology: Topology, prepared: PreparedTopology | None = None) -> None:
        known = self._stored_topology()
        change = prepared if isinstance(prepared, TopologyChange) else None
        if change is None or change.known is not known or change.topology is not topology:
            change = prepare_topology(topology, known)
        self._stored = save_topology(self._connection, change)
        if self._stored is not known:
            revision = topology.revision_of(known.topology)
            self.changes.add(
                Changes(topology=self._stored, revises=known.version, revisions=(revision,))
            )
            self._note_work()

    def _stored_topology(self) -> StoredTopology:
        # All others who write wait for this transaction, which must not wait for a whole fleet.
        self._stored = self._stored or self._cache.find(self._connection, self._latest)
        if self._stored is None:
            raise TopologyNotReadError
        return self._stored

    def put_event(self, event: ScheduledEvent) -> None:
        self._put_work(tables.events, event)

    def put_maintenance(self, maintenance: Maintenance) -> None:
        self._put_work(tables.maintenances, maintenance)

    def put_operation(self, operation: HostOperation) -> None:
        self._put_work(tables.host_operations, operation)

    def put_task(self, task: Task) -> None:
        self._put(tables.tasks, task)
        # An owner hears of what it can begin, or has to find in its records, and the leader of what
        # is over, or never will be.
        self.changes.has_tasks |= task.state in {TaskState.RESERVED, TaskState.UNKNOWN}
        if task.is_over or task.said.is_lost:
            self._note_work()

    def prune_tasks(self, *, before: datetime) -> int:
        return self._connection.execute(statements.PRUNE_TASKS, {"before": before}).rowcount

    def put_owner(self, owner: Owner) -> None:
        self._put(tables.owners, owner)

    def remove_owner(self, node: str) -> None:
        self._remove(tables.owners, [(node,)])
        of_node = tables.replicas.c.replica_id.startswith(name_replica(node, ""), autoescape=True)
        self._connection.execute(delete(tables.replicas).where(of_node))
        self._note_work()

    def put_told(self, told: Told) -> None:
        self._put(tables.told, told)

    def put_scenario_run(self, run: ScenarioRun) -> None:
        self._put_work(tables.scenario_runs, run)

    def put_schedule(self, schedule: Schedule) -> None:
        self._put_work(tables.schedules, schedule)

    def remove_schedule(self, name: ScheduleName) -> None:
        self._remove(tables.schedules, [(name,)])
        self._note_work()

    def put_document(self, scope_id: ScopeId, document: Document, *, at: datetime) -> None:
        key = (scope_id, document.document_incarnation)
        if PUT[tables.documents].run(self._connection, *key, at, document, *key):
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
        self._remove(tables.documents, documents)

    def put_memberships(self, memberships: Iterable[Membership]) -> None:
        joined = tuple(memberships)
        rows = ((name_key(each.vm), each.since, each.scope_id) for each in joined)
        self._put_rows(tables.memberships, rows)
        for each in joined[:1]:
            self._record(each.since)

    def remove_memberships(self, memberships: Iterable[MembershipKey]) -> None:
        self._remove(tables.memberships, ((name_key(vm), since) for vm, since in memberships))

    def put_soak(self, scope_id: ScopeId, until: datetime, *, at: datetime) -> None:
        self._connection.execute(statements.FORGET_SOAKS, {"at": at})
        PUT[tables.soaks].run(self._connection, scope_id, until)
        self._note_work()

    def put_showings(self, showings: Iterable[Showing]) -> None:
        last = {each.recorded_at: each.shown_at for each in showings}
        self._put_rows(tables.showings, last.items())

    def prune_showings(self, *, before: datetime) -> None:
        self._connection.execute(statements.PRUNE_SHOWINGS, {"before": before})

    def put_polled_at(self, scope_id: ScopeId, at: datetime) -> None:
        PUT[tables.polls].run(self._connection, scope_id, at)

    def put_polls(self, polls: Mapping[VmName, datetime]) -> None:
        last = {name_key(vm): at for vm, at in polls.items()}
        self._put_rows(tables.vm_polls, last.items())

    def put_setting(self, name: str, value: str) -> None:
        PUT[tables.settings].run(self._connection, name, value)
        if name == SERVER_PAUSE:
            self._note_work()

    def put_token(self, token: Token) -> None:
        self._put(tables.tokens, token)

    def put_session(self, session: ConsoleSession) -> None:
        self._put(tables.sessions, session)

    def remove_session(self, session_hash: str) -> None:
        self._remove(tables.sessions, [(session_hash,)])

    def prune_sessions(self, *, before: datetime) -> int:
        return self._connection.execute(statements.PRUNE_SESSIONS, {"before": before}).rowcount

    def append_ledger(self, entry: LedgerEntry) -> None:
        self._put(tables.ledger, entry)
        self.changes.has_ledger_grown = True

    def append_audit(self, entry: AuditEntry) -> None:
        self._put(tables.audit, entry)

    def prune_history(
        self, kind: History, rows: Sequence[int], *, before: datetime
    ) -> tuple[tuple[str, datetime], ...]:
        values = {"rows": list(rows), "before": before}
        gone = tuple(
            (column.table.name, moment)
            for column, statement in statements.PRUNE_HISTORY[kind]
            for moment in self._connection.scalars(statement, values)
        )
        if kind is History.MAINTENANCES:
            self._connection.execute(statements.FORGET_TOLD)
        return gone

    def put_notification(self, notification: Notification) -> None:
        self._put(tables.outbox, notification)
        self.changes.has_outbox_grown = True

    def prune_notifications(self, status: NotificationStatus, *, ended_before: datetime) -> int:
        values = {"status": status, "ended_before": ended_before}
        return self._connection.execute(statements.PRUNE_NOTIFICATIONS, values).rowcount

    def put_answer(self, answer: KeptAnswer) -> None:
        self._put(tables.kept_answers, answer)

    def prune_answers(self, *, before: datetime) -> int:
        return self._connection.execute(statements.PRUNE_ANSWERS, {"before": before}).rowcount

    def put_gate_answers(
        self, news: Mapping[Question, Answer], *, forget: Iterable[Question] = (), epoch: int
    ) -> None:
        self.check_epoch(epoch)
        self._remove(tables.gate_answers, ((write_question(each),) for each in forget))
        rows = ((write_question(key), write_json(said), epoch) for key, said in news.items())
        self._put_rows(tables.gate_answers, rows)

    def next_epoch(self, *, ahead: int = 0) -> int:
        epoch = self.lease_epoch() + ahead + 1
        PUT[tables.leases].run(self._connection, LEASE, epoch, "", None)
        return epoch

    def check_epoch(self, epoch: int) -> None:
        current = self.lease_epoch()
        if epoch != current:
            raise LeaseLostError(epoch, current)
        self._is_leaders = True

    def _put(self, table: Table, thing: object) -> int:
        return PUT[table].put(self._connection, thing)

    def _put_work(self, table: Table, thing: object) -> None:
        self._put(table, thing)
        self._note_work()

    def _put_rows(self, table: Table, rows: Iterable[Iterable[object]]) -> None:
        put = PUT[table]
        put.run_many(self._connection, map(put.prepare, rows))

    def _remove(self, table: Table, keys: Iterable[Iterable[object]]) -> None:
        names = key_of(table)
        if gone := [dict(zip(names, key, strict=True)) for key in keys]:
            self._connection.execute(REMOVE[table], gone)

    def _note_work(self) -> None:
        # The leader knows what it records itself, and would only look in vain.
        self.changes.has_work |= not self._is_leaders
