"""What a token that is limited to delivery scopes sees and changes: the one place that limits it.

Whatever is in other scopes is not there for it, so that asking for it and changing it are refused
as unknown (404). A change that would touch other scopes as well is refused naming what it would
touch (403). Everything that is not about scopes is refused as the admin's.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from forewarn.control.confined_reading import ConfinedReading
from forewarn.domain.access import OutsideScopesError, Principal
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.host_operation import HostOperation
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import MaintenanceId, ScopeId, names_place
from forewarn.domain.notification import Notification, Target
from forewarn.ports.entries import AuditEntry, KeptAnswer, LedgerEntry, LedgerLine
from forewarn.ports.store import Reading, Transaction
from forewarn.protocol.document import Document
from forewarn.protocol.vocabulary import EventId


def confine_reading(reading: Reading, principal: Principal) -> Reading:
    """Return *reading* as *principal* may have it."""
    return ConfinedReading(reading, principal) if principal.scopes else reading


def confine_transaction(tx: Transaction, principal: Principal) -> Transaction:
    """Return *tx* as *principal* may have it."""
    return ConfinedTransaction(tx, principal) if principal.scopes else tx


def confine_targets(targets: Iterable[Target], principal: Principal) -> tuple[Target, ...]:
    """Return those that are told of the scopes of *principal*, and of which of them."""

    def is_theirs(name: str) -> bool:
        named = any(names_place(name, scope) for scope in principal.scopes)
        return named or principal.covers(ScopeId(name))

    return tuple(
        replace(target, scopes=part)
        for target in targets
        if (part := tuple(filter(is_theirs, target.scopes))) or not target.scopes
    )


def confine_lines(lines: Iterable[LedgerLine], principal: Principal) -> tuple[LedgerLine, ...]:
    """Return those about events that *principal* may see."""
    return tuple(line for line in lines if principal.covers(line.scope_id))


class ConfinedTransaction(ConfinedReading):
    """A look that may also change what is in the scopes, and nothing else."""

    def __init__(self, tx: Transaction, principal: Principal) -> None:
        super().__init__(tx, principal)
        self._tx = tx

    def maintenance(self, maintenance_id: MaintenanceId) -> Maintenance | None:
        """Return all of a Maintenance that has a part in the scopes: what is put back is whole."""
        maintenance = self._all.maintenance(maintenance_id)
        is_seen = maintenance is not None and self.part_of(maintenance) is not None
        return maintenance if is_seen else None

    def put_event(self, event: ScheduledEvent) -> None:
        """Add or change an event of the scopes."""
        if not self._principal.covers(event.scope_id):
            raise OutsideScopesError(self._principal.name, event.resources)
        self._tx.put_event(event)

    def put_maintenance(self, maintenance: Maintenance) -> None:
        """Add or change a Maintenance that touches nothing but the scopes."""
        everything = self._tx.topology()
        resources, hosts = set(maintenance.resources), set(maintenance.hosts)
        vms = everything.virtual_machines.values()
        touched = [vm.name for vm in vms if vm.name in resources or vm.host in hosts]
        self._principal.require_vms(everything, touched)
        empty = hosts.difference(vm.host for vm in vms if vm.host)
        if empty:  # which are in nobody's scopes
            raise OutsideScopesError(self._principal.name, sorted(empty))
        self._tx.put_maintenance(maintenance)

    def put_operation(self, operation: HostOperation) -> None:
        """Change what is known of a host that carries nothing but the scopes."""
        everything = self._tx.topology()
        vms = everything.virtual_machines.values()
        self._principal.require_vms(
            everything, [vm.name for vm in vms if vm.host == operation.host]
        )
        self._tx.put_operation(operation)

    def put_document(self, scope_id: ScopeId, document: Document, *, at: datetime) -> None:
        """Publish to one of the scopes."""
        if not self._principal.covers(scope_id):
            self.refuse()
        self._tx.put_document(scope_id, document, at=at)

    def put_soak(self, scope_id: ScopeId, until: datetime, *, at: datetime) -> None:
        """Leave one of the scopes alone."""
        if not self._principal.covers(scope_id):
            self.refuse()
        self._tx.put_soak(scope_id, until, at=at)

    def append_ledger(self, entry: LedgerEntry) -> None:
        """Add to the life of an event of the scopes."""
        if self.event(entry.event_id) is None:
            self.refuse()
        self._tx.append_ledger(entry)

    def put_notification(self, notification: Notification) -> None:
        """Add or change a message about an event of the scopes."""
        if self.event(EventId(notification.subject)) is None:
            self.refuse()
        self._tx.put_notification(notification)

    def append_audit(self, entry: AuditEntry) -> None:
        """Add to the audit."""
        self._tx.append_audit(entry)

    def put_answer(self, answer: KeptAnswer) -> None:
        """Keep what the caller was answered."""
        self._tx.put_answer(answer)

    put_schedule = remove_schedule = put_told = ConfinedReading.refuse
    put_topology = put_scenario_run = put_token = put_setting = ConfinedReading.refuse
    put_polls = put_showings = prune_showings = ConfinedReading.refuse
    put_polled_at = put_simulated_impact = next_epoch = check_epoch = ConfinedReading.refuse
    remove_memberships = ConfinedReading.refuse
    remove_documents = put_memberships = put_preview_wire = ConfinedReading.refuse
    prune_notifications = prune_answers = ConfinedReading.refuse
