"""The port's Transaction, over one connection."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from operator import attrgetter
from typing import Final

from sqlalchemy import Connection

from forewarn.domain.access import Token
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.host_operation import HostOperation
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import ScheduleName, ScopeId, VmName, name_key
from forewarn.domain.news import Told
from forewarn.domain.notification import Notification, NotificationStatus
from forewarn.domain.scenario import ScenarioRun
from forewarn.domain.schedule import Schedule
from forewarn.domain.topology import Topology
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
from forewarn.ports.store import LeaseLostError, PreparedTopology
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
from forewarn.storage.reading import LEASE, SqlReading


class SqlTransaction(SqlReading):
    """A look that may also change things, and remembers what its readers have to be told."""

    def __init__(
        self, connection: Connection, cache: TopologyCache, stored: StoredTopology | None = None
    ) -> None:
        super().__init__(connection, cache)
        # What an earlier work of the same group has written, which the cache may not know yet.
        self._stored = stored
        self.published: dict[ScopeId, Document] = {}
        self.changed_topology: StoredTopology | None = None
        self.recorded_at: datetime | None = None
        self.has_ledger_grown = False
        self.has_outbox_changed = False

    def put_topology(self, topology: Topology, prepared: PreparedTopology | None = None) -> None:
        """Make *topology* the fleet; with less work if it was prepared and nothing came between."""
        known = self._stored_topology()
        change = prepared if isinstance(prepared, TopologyChange) else None
        if change is None or change.known is not known or change.topology is not topology:
            change = prepare_topology(topology, known)
        self._stored = save_topology(self._connection, change)
        if self._stored is not known:
            self.changed_topology = self._stored

    def put_event(self, event: ScheduledEvent) -> None:
        """Add *event*, or replace what is known of it."""
        statements.PUT_EVENT.run(self._connection, *_event_values(event))

    def put_maintenance(self, maintenance: Maintenance) -> None:
        """Add *maintenance*, or replace what is known of it."""
        statements.PUT_MAINTENANCE.run(self._connection, *_maintenance_values(maintenance))

    def put_operation(self, operation: HostOperation) -> None:
        """Add *operation*, or replace what is known of it."""
        statements.PUT_OPERATION.run(self._connection, *_operation_values(operation))

    def put_told(self, told: Told) -> None:
        """Remember what people know of a Maintenance."""
        statements.PUT_TOLD.run(self._connection, *_told_values(told))

    def put_scenario_run(self, run: ScenarioRun) -> None:
        """Add *run*, or replace what is known of it."""
        statements.PUT_SCENARIO_RUN.run(self._connection, *_scenario_run_values(run))

    def put_schedule(self, schedule: Schedule) -> None:
        """Add *schedule*, or replace what is known of it."""
        statements.PUT_SCHEDULE.run(self._connection, *_schedule_values(schedule))

    def remove_schedule(self, name: ScheduleName) -> None:
        """Forget a schedule; what it has begun stays."""
        self._connection.execute(statements.REMOVE_SCHEDULE, {"gone_name": name})

    def put_document(self, scope_id: ScopeId, document: Document, *, at: datetime) -> None:
        """Publish *document*, which has to be newer than the scope's current one, or the same."""
        key = (scope_id, document.document_incarnation)
        if statements.PUT_DOCUMENT.run(self._connection, *key, at, document, *key):
            self.published[scope_id] = document
            self._record(at)
            return
        current = self.document(scope_id)
        if current != document:
            raise DocumentIncarnationError(
                scope_id, document.document_incarnation, current.document_incarnation
            )

    def _record(self, at: datetime) -> None:
        self.recorded_at = min(at, self.recorded_at or at)

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

    def put_token(self, token: Token) -> None:
        """Add *token*, or replace what is known of it."""
        statements.PUT_TOKEN.run(self._connection, *_token_values(token))

    def append_ledger(self, entry: LedgerEntry) -> None:
        """Add a line to the life of an event."""
        statements.APPEND_LEDGER.run(self._connection, *_ledger_values(entry))
        self.has_ledger_grown = True

    def append_audit(self, entry: AuditEntry) -> None:
        """Add a line to the audit."""
        statements.APPEND_AUDIT.run(self._connection, *_audit_values(entry))

    def put_notification(self, notification: Notification) -> None:
        """Put *notification* into the outbox, or replace what is known of it."""
        statements.PUT_NOTIFICATION.run(self._connection, *_notification_values(notification))
        self.has_outbox_changed = True

    def prune_notifications(self, status: NotificationStatus, *, ended_before: datetime) -> int:
        """Forget messages of *status* that ended before then, and tell how many those were."""
        values = {"status": status, "ended_before": ended_before}
        return self._connection.execute(statements.PRUNE_NOTIFICATIONS, values).rowcount

    def put_answer(self, answer: KeptAnswer) -> None:
        """Keep *answer*, in place of what was kept for the same caller and key."""
        statements.PUT_ANSWER.run(self._connection, *_answer_values(answer))

    def prune_answers(self, *, before: datetime) -> int:
        """Forget what was answered before then, and tell how many answers those were."""
        return self._connection.execute(statements.PRUNE_ANSWERS, {"before": before}).rowcount

    def put_simulated_impact(self, impact: SimulatedImpact) -> bool:
        """Remember *impact*, unless one is there already; tell whether it was remembered."""
        return statements.PUT_SIMULATED_IMPACT.run(self._connection, *_impact_values(impact)) == 1

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


# The columns are named like the fields, and their types know how to write them.
_event_values: Final = attrgetter(*statements.PUT_EVENT.names)
_maintenance_values: Final = attrgetter(*statements.PUT_MAINTENANCE.names)
_operation_values: Final = attrgetter(*statements.PUT_OPERATION.names)
_scenario_run_values: Final = attrgetter(*statements.PUT_SCENARIO_RUN.names)
_schedule_values: Final = attrgetter(*statements.PUT_SCHEDULE.names)
_token_values: Final = attrgetter(*statements.PUT_TOKEN.names)
_answer_values: Final = attrgetter(*statements.PUT_ANSWER.names)
_ledger_values: Final = attrgetter(*statements.APPEND_LEDGER.names)
_told_values: Final = attrgetter(*statements.PUT_TOLD.names)
_notification_values: Final = attrgetter(*statements.PUT_NOTIFICATION.names)
_audit_values: Final = attrgetter(*statements.APPEND_AUDIT.names)
_impact_values: Final = attrgetter(*statements.PUT_SIMULATED_IMPACT.names)
