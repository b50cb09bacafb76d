"""The port's Reading, over one connection. `ports/store.py` says what each method does."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final, TypeVar

from sqlalchemy import Column, Connection, Select

from forewarn.domain.access import ConsoleSession, Token
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.gate import Answer, Question
from forewarn.domain.host_operation import HostOperation
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import (
    MaintenanceId,
    OperationId,
    ScenarioRunId,
    ScopeId,
    VmName,
    name_key,
)
from forewarn.domain.news import Told
from forewarn.domain.notification import Notification, NotificationStatus
from forewarn.domain.publication import FIRST_DOCUMENT
from forewarn.domain.scenario import ScenarioRun
from forewarn.domain.schedule import Schedule
from forewarn.domain.task import Owner, Task, TaskKey
from forewarn.domain.topology import Topology
from forewarn.ports.entries import (
    AuditEntry,
    DocumentKey,
    History,
    KeptAnswer,
    LedgerEntry,
    LedgerLine,
    Membership,
    MembershipKey,
    Showing,
)
from forewarn.ports.store import PreparedTopology
from forewarn.protocol.document import Document
from forewarn.protocol.vocabulary import EventId, EventStatus, EventType
from forewarn.storage import statements
from forewarn.storage.fleet import StoredTopology, prepare_topology
from forewarn.storage.gate_answers import read_answers
from forewarn.storage.tables import events, maintenances, outbox, scenario_runs
from forewarn.storage.topology_cache import TopologyCache

T = TypeVar("T")

LEASE: Final = "scheduler"
"""The name of the lease; there is one."""
MANY_POLLS: Final = 500
"""Of more virtual machines, it is quicker to read all polls than to name each machine."""


class SqlReading:
    """A consistent look at everything that *connection* sees."""

    def __init__(self, connection: Connection, cache: TopologyCache) -> None:
        self._connection = connection
        self._cache = cache
        # Before the first statement, so that it is not newer than what the connection sees.
        self._latest = cache.latest
        self._stored: StoredTopology | None = None

    def topology(self) -> Topology:
        return self._stored_topology().topology

    def topology_at_hand(self) -> tuple[int, Topology] | None:
        stored = self._stored or self._cache.find(self._connection, self._latest)
        return None if stored is None else (stored.version, stored.topology)

    def prepare_topology(self, topology: Topology) -> PreparedTopology:
        return prepare_topology(topology, self._stored_topology())

    def event(self, event_id: EventId) -> ScheduledEvent | None:
        return self._one(ScheduledEvent, statements.EVENT, event_id=event_id)

    def events_in_flight(
        self, scope_ids: Iterable[ScopeId] | None = None
    ) -> tuple[ScheduledEvent, ...]:
        if scope_ids is None:
            return self._all(ScheduledEvent, statements.EVENTS_IN_FLIGHT)
        look = statements.EVENTS_IN_FLIGHT_OF_SCOPES
        return self._all(ScheduledEvent, look, scope_ids=list(scope_ids))

    def operation_events(self, operation_id: OperationId) -> tuple[ScheduledEvent, ...]:
        look = statements.EVENTS_IN_FLIGHT_OF_OPERATION
        return self._all(ScheduledEvent, look, operation_id=operation_id)

    def user_operations_in_flight(self) -> tuple[ScheduledEvent, ...]:
        return self._all(ScheduledEvent, statements.USER_OPERATIONS_IN_FLIGHT)

    def events_under_way(self) -> tuple[ScheduledEvent, ...]:
        return self._all(ScheduledEvent, statements.EVENTS_UNDER_WAY)

    def events_of(self, maintenance_ids: Iterable[MaintenanceId]) -> tuple[ScheduledEvent, ...]:
        wanted = list(maintenance_ids)
        return self._all(ScheduledEvent, statements.EVENTS_OF_MAINTENANCES, maintenance_ids=wanted)

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
        look, values = statements.narrow(
            statements.EVENTS,
            statements.EVENT_FILTERS,
            status=list(status) or None,
            vm=vm,
            event_type=event_type,
            ended_since=ended[0],
            ended_before=ended[1],
            created_before=created_before,
        )
        if scope_ids is not None:
            look = look.where(statements.in_scopes(tuple(scope_ids)))
        return self._page(ScheduledEvent, look, events.c.event_id, older_than, limit, **values)

    def ledger(self, event_id: EventId) -> tuple[LedgerEntry, ...]:
        return self._all(LedgerEntry, statements.LEDGER, event_id=event_id)

    def ledger_after(self, sequence: int, *, limit: int) -> tuple[LedgerLine, ...]:
        return self._all(LedgerLine, statements.LEDGER_AFTER, after=sequence, limit=limit)

    def last_sequence(self) -> int:
        return self._value(statements.LAST_SEQUENCE) or 0

    def maintenance(self, maintenance_id: MaintenanceId) -> Maintenance | None:
        return self._one(Maintenance, statements.MAINTENANCE, maintenance_id=maintenance_id)

    def maintenances(
        self,
        *,
        finished: bool | None = None,
        older_than: MaintenanceId | None = None,
        limit: int | None = None,
    ) -> tuple[Maintenance, ...]:
        look = statements.MAINTENANCES[finished]
        return self._page(Maintenance, look, maintenances.c.maintenance_id, older_than, limit)

    def lease_epoch(self) -> int:
        epoch: int | None = self._value(statements.EPOCH, name=LEASE)
        return epoch or 0

    def gate_answers(self) -> dict[Question, Answer]:
        rows = self._connection.execute(statements.GATE_ANSWERS).all()
        return read_answers((question, answer) for question, answer in rows)

    def task(self, key: TaskKey) -> Task | None:
        subject, name = key
        return self._one(Task, statements.TASK, subject=subject, name=name)

    def tasks(self) -> tuple[Task, ...]:
        return self._all(Task, statements.TASKS)

    def tasks_of(self, subject: str) -> tuple[Task, ...]:
        return self._all(Task, statements.TASKS_OF, subject=subject)

    def open_tasks(self, node: str) -> tuple[Task, ...]:
        return self._all(Task, statements.OPEN_TASKS, node=node)

    def settled_tasks(self, node: str) -> tuple[Task, ...]:
        return self._all(Task, statements.SETTLED_TASKS, node=node)

    def owners(self) -> tuple[Owner, ...]:
        return self._all(Owner, statements.OWNERS)

    def operations_under_way(self) -> tuple[HostOperation, ...]:
        return self._all(HostOperation, statements.OPERATIONS_UNDER_WAY)

    def operations_of(self, maintenance_ids: Iterable[MaintenanceId]) -> tuple[HostOperation, ...]:
        wanted = list(maintenance_ids)
        return self._all(
            HostOperation, statements.OPERATIONS_OF_MAINTENANCES, maintenance_ids=wanted
        )

    def host_operation(self, operation_id: OperationId) -> HostOperation | None:
        return self._one(HostOperation, statements.OPERATION, operation_id=operation_id)

    def told(self) -> tuple[Told, ...]:
        return self._all(Told, statements.TOLD)

    def scenario_run(self, run_id: ScenarioRunId) -> ScenarioRun | None:
        return self._one(ScenarioRun, statements.SCENARIO_RUN, run_id=run_id)

    def scenario_runs(
        self,
        *,
        finished: bool | None = None,
        older_than: ScenarioRunId | None = None,
        limit: int | None = None,
    ) -> tuple[ScenarioRun, ...]:
        look = statements.SCENARIO_RUNS[finished]
        return self._page(ScenarioRun, look, scenario_runs.c.run_id, older_than, limit)

    def schedules(self) -> tuple[Schedule, ...]:
        return self._all(Schedule, statements.SCHEDULES)

    def document(self, scope_id: ScopeId) -> Document:
        document: Document | None = self._value(statements.DOCUMENT, scope_id=scope_id)
        return FIRST_DOCUMENT if document is None else document

    def documents(self, scope_ids: Iterable[ScopeId] | None = None) -> dict[ScopeId, Document]:
        look, wanted = statements.DOCUMENTS, dict[str, object]()
        if scope_ids is not None:
            look, wanted = statements.DOCUMENTS_OF, {"scope_ids": list(scope_ids)}
        rows = self._connection.execute(look, wanted)
        return {scope_id: body or FIRST_DOCUMENT for scope_id, body in rows}

    def document_at(self, scope_id: ScopeId, at: datetime) -> Document:
        document: Document | None = self._value(statements.DOCUMENT_AT, scope_id=scope_id, at=at)
        return FIRST_DOCUMENT if document is None else document

    def superseded_documents(self, before: datetime, *, limit: int) -> tuple[DocumentKey, ...]:
        values = {"before": before, "limit": limit}
        rows = self._connection.execute(statements.SUPERSEDED_DOCUMENTS, values)
        return tuple((scope_id, incarnation) for scope_id, incarnation in rows)

    def memberships(self, vm: str) -> tuple[Membership, ...]:
        return self._all(Membership, statements.MEMBERSHIPS, vm=name_key(vm))

    def superseded_memberships(self, before: datetime, *, limit: int) -> tuple[MembershipKey, ...]:
        values = {"before": before, "limit": limit}
        rows = self._connection.execute(statements.SUPERSEDED_MEMBERSHIPS, values)
        return tuple((vm, since) for vm, since in rows)

    def soaks(self) -> dict[ScopeId, datetime]:
        return {row["scope_id"]: row["until"] for row in self._rows(statements.SOAKS)}

    def showing(self, at: datetime) -> Showing | None:
        return self._one(Showing, statements.SHOWING, at=at)

    def last_polled_at(self, scope_id: ScopeId) -> datetime | None:
        moment: datetime | None = self._value(statements.LAST_POLLED_AT, scope_id=scope_id)
        return moment

    def last_polls(self, vms: Iterable[VmName]) -> dict[VmName, datetime]:
        keys = {name_key(vm): vm for vm in vms}
        if len(keys) > MANY_POLLS:
            rows = self._connection.execute(statements.ALL_LAST_POLLS).all()
        else:
            rows = self._connection.execute(statements.LAST_POLLS, {"vms": list(keys)}).all()
        return {keys[key]: moment for key, moment in rows if key in keys}

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
        look, values = statements.narrow(
            statements.NEWEST_AUDIT,
            statements.AUDIT_FILTERS,
            who=who,
            action=action,
            outcome=outcome,
            since=since,
            older_than=older_than,
        )
        return self._all(AuditEntry, look, limit=limit, **values)[::-1]

    def old_history(self, kind: History, before: datetime, *, limit: int) -> tuple[int, ...]:
        values = {"before": before, "limit": limit}
        return tuple(self._connection.scalars(statements.OLD_HISTORY[kind], values))

    def token(self, token_hash: str) -> Token | None:
        return self._one(Token, statements.TOKEN, token_hash=token_hash)

    def tokens(self) -> tuple[Token, ...]:
        return self._all(Token, statements.TOKENS)

    def session(self, session_hash: str) -> ConsoleSession | None:
        return self._one(ConsoleSession, statements.SESSION, session_hash=session_hash)

    def count_links(self, token_hash: str, *, since: datetime) -> int:
        number: int = self._value(statements.LINKS, token_hash=token_hash, since=since)
        return number

    def setting(self, name: str) -> str | None:
        value: str | None = self._value(statements.SETTING, name=name)
        return value

    def kept_answer(self, who: str, key: str) -> KeptAnswer | None:
        return self._one(KeptAnswer, statements.KEPT_ANSWER, who=who, key=key)

    def notification(self, notification_id: str) -> Notification | None:
        return self._one(Notification, statements.NOTIFICATION, notification_id=notification_id)

    def notifications(
        self,
        *,
        status: NotificationStatus | None = None,
        scope_ids: Iterable[ScopeId] | None = None,
        older_than: str | None = None,
        limit: int = 1000,
    ) -> tuple[Notification, ...]:
        look, values = statements.narrow(
            statements.NOTIFICATIONS, statements.NOTIFICATION_FILTERS, status=status
        )
        if scope_ids is not None:
            is_in_scopes = statements.in_scopes(tuple(scope_ids))
            look = look.where(statements.IS_ABOUT_EVENT, is_in_scopes)
        key = outbox.c.notification_id
        return self._page(Notification, look, key, older_than, limit, **values)

    def next_notifications(self, target: str, *, limit: int = 100) -> tuple[Notification, ...]:
        return self._all(Notification, statements.NEXT_NOTIFICATIONS, target=target, limit=limit)

    def targets_waited_for(self) -> tuple[str, ...]:
        return tuple(row["target"] for row in self._rows(statements.TARGETS_WAITED_FOR))

    def _stored_topology(self) -> StoredTopology:
        if self._stored is None:
            self._stored = self._cache.look(self._connection, self._latest)
        return self._stored

    def _page(
        self,
        kind: Callable[..., T],
        look: Select[Any],
        key: Column[Any],
        older_than: str | None,
        limit: int | None,
        **values: object,
    ) -> tuple[T, ...]:
        if older_than is None and limit is None:
            return self._all(kind, look, **values)
        newest = statements.newest(look, key, older_than).limit(limit)
        return self._all(kind, newest, **values)[::-1]

    def _all(self, kind: Callable[..., T], look: Select[Any], **values: object) -> tuple[T, ...]:
        return tuple(kind(**row) for row in self._rows(look, **values))

    def _one(self, kind: Callable[..., T], look: Select[Any], **values: object) -> T | None:
        row = self._connection.execute(look, values).one_or_none()
        return None if row is None else kind(**row._asdict())

    def _rows(self, look: Select[Any], **values: object) -> list[dict[str, Any]]:
        # All at once: whoever lets go of the interpreter for each row keeps others from it, who
        # never wait long enough in between to be let in.
        return [row._asdict() for row in self._connection.execute(look, values).all()]

    def _value(self, look: Select[Any], **values: object) -> Any:
        return self._connection.execute(look, values).scalar()
