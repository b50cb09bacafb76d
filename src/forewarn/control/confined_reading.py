"""What a token that is limited to delivery scopes sees.

Of what spans other scopes as well, it sees the part in its own. Everything that is not about scopes
is refused as the admin's.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import NoReturn, TypeVar

from forewarn.domain.access import OutsideScopesError, Principal, RoleTooLowError
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.host_operation import HostOperation
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import MaintenanceId, OperationId, ScenarioRunId, ScopeId, VmName
from forewarn.domain.notification import Notification, NotificationStatus
from forewarn.domain.publication import FIRST_DOCUMENT
from forewarn.domain.roles import Role
from forewarn.domain.scenario import ScenarioRun
from forewarn.domain.schedule import Schedule
from forewarn.domain.topology import Topology
from forewarn.ports.entries import KeptAnswer, LedgerEntry, Membership, Showing, SimulatedImpact
from forewarn.ports.store import Reading
from forewarn.protocol.document import Document
from forewarn.protocol.versions import PreviewWire
from forewarn.protocol.vocabulary import EventId, EventStatus, EventType

T = TypeVar("T")


class ConfinedReading:
    """A look at the scopes of one principal.

    A method that is not here is refused by the type checker, so that none is forgotten.
    """

    def __init__(self, reading: Reading, principal: Principal) -> None:
        self._all = reading
        self._principal = principal
        self._topology: Topology | None = None

    def topology(self) -> Topology:
        """Return the part of the fleet that is in the scopes, with the hosts that carry it."""
        if self._topology is None:
            self._topology = self._confine(self._all.topology())
        return self._topology

    def simulated_impact(self, event_id: EventId, vm: VmName) -> SimulatedImpact | None:
        """Return what was begun for an event of the scopes."""
        return self._all.simulated_impact(event_id, vm) if self.event(event_id) else None

    def event(self, event_id: EventId) -> ScheduledEvent | None:
        """Return an event of the scopes."""
        event = self._all.event(event_id)
        return event if event is not None and self._principal.covers(event.scope_id) else None

    def events_in_flight(self, scope_id: ScopeId | None = None) -> tuple[ScheduledEvent, ...]:
        """Return what is in flight in the scopes, or in one of them."""
        return self._covered(self._all.events_in_flight(scope_id))

    def user_operations_in_flight(self) -> tuple[ScheduledEvent, ...]:
        """Return those of the whole server: they are limited together."""
        return self._all.user_operations_in_flight()

    def operation_events(self, operation_id: OperationId) -> tuple[ScheduledEvent, ...]:
        """Return what is in flight on a host, or refuse if some of it is in other scopes."""
        events = self._all.operation_events(operation_id)
        if len(self._covered(events)) < len(events):
            raise OutsideScopesError(self._principal.name, ["other scopes on the same host"])
        return events

    def events_under_way(self) -> tuple[ScheduledEvent, ...]:
        """Return what is in flight or belongs to what is, in the scopes."""
        return self._covered(self._all.events_under_way())

    def events_of(self, maintenance_ids: Iterable[MaintenanceId]) -> tuple[ScheduledEvent, ...]:
        """Return what Maintenances have created in the scopes."""
        return self._covered(self._all.events_of(maintenance_ids))

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
        """Return the newest events of the scopes."""
        return self._all.events(
            status=status,
            vm=vm,
            scope_ids=self._chosen(scope_ids),
            event_type=event_type,
            ended=ended,
            older_than=older_than,
            limit=limit,
        )

    def ledger(self, event_id: EventId) -> tuple[LedgerEntry, ...]:
        """Return the life of an event of the scopes."""
        return self._all.ledger(event_id) if self.event(event_id) else ()

    def maintenance(self, maintenance_id: MaintenanceId) -> Maintenance | None:
        """Return the part of a Maintenance that is in the scopes."""
        maintenance = self._all.maintenance(maintenance_id)
        return None if maintenance is None else self.part_of(maintenance)

    def maintenances(
        self,
        *,
        finished: bool | None = None,
        older_than: MaintenanceId | None = None,
        limit: int | None = None,
    ) -> tuple[Maintenance, ...]:
        """Return the parts of Maintenances that are in the scopes."""
        every = self._all.maintenances(finished=finished, older_than=older_than)
        return _newest(map(self.part_of, reversed(every)), limit)

    def operations_under_way(self) -> tuple[HostOperation, ...]:
        """Return the host operations that touch the scopes, without what was said of them."""
        return self._on_hosts(self._all.operations_under_way())

    def operations_of(self, maintenance_ids: Iterable[MaintenanceId]) -> tuple[HostOperation, ...]:
        """Return the host operations of Maintenances that touch the scopes, likewise."""
        return self._on_hosts(self._all.operations_of(maintenance_ids))

    def scenario_run(self, run_id: ScenarioRunId) -> ScenarioRun | None:
        """Return the part of a run that is in the scopes."""
        run = self._all.scenario_run(run_id)
        return None if run is None else self._part_of_run(run)

    def scenario_runs(
        self,
        *,
        finished: bool | None = None,
        older_than: ScenarioRunId | None = None,
        limit: int | None = None,
    ) -> tuple[ScenarioRun, ...]:
        """Return the parts of runs that are in the scopes."""
        every = self._all.scenario_runs(finished=finished, older_than=older_than)
        return _newest(map(self._part_of_run, reversed(every)), limit)

    def schedules(self) -> tuple[Schedule, ...]:
        """Return none: what they select may be in any scope when they are due."""
        return ()

    def document(self, scope_id: ScopeId) -> Document:
        """Return what one of the scopes is shown."""
        return self._all.document(scope_id) if self._principal.covers(scope_id) else FIRST_DOCUMENT

    def documents(self) -> dict[ScopeId, Document]:
        """Return what each of the scopes is shown."""
        documents = self._all.documents().items()
        return {scope: body for scope, body in documents if self._principal.covers(scope)}

    def document_at(self, scope_id: ScopeId, at: datetime) -> Document:
        """Return what one of the scopes was shown at a moment."""
        is_theirs = self._principal.covers(scope_id)
        return self._all.document_at(scope_id, at) if is_theirs else FIRST_DOCUMENT

    def memberships(self, vm: str) -> tuple[Membership, ...]:
        """Return when a virtual machine was in the scopes; elsewhere it is in no fleet."""
        shown: list[Membership] = []
        for known in self._all.memberships(vm):
            is_theirs = known.scope_id is not None and self._principal.covers(known.scope_id)
            if is_theirs:
                shown.append(known)
            elif shown and shown[-1].scope_id is not None:
                shown.append(replace(known, scope_id=None))
        return tuple(shown)

    def preview_wires(self) -> tuple[tuple[datetime, PreviewWire], ...]:
        """Return what holds for the whole server."""
        return self._all.preview_wires()

    def last_sequence(self) -> int:
        """Return the place of the last line of the whole ledger."""
        return self._all.last_sequence()

    def lease_epoch(self) -> int:
        """Return the epoch of the current lease, which says nothing about any scope."""
        return self._all.lease_epoch()

    def soaks(self) -> dict[ScopeId, datetime]:
        """Return until when the scopes are left alone."""
        found = self._all.soaks().items()
        return {scope_id: until for scope_id, until in found if self._principal.covers(scope_id)}

    def showing(self, at: datetime) -> Showing | None:
        """Return what holds for the whole server."""
        return self._all.showing(at)

    def last_polled_at(self, scope_id: ScopeId) -> datetime | None:
        """Return when one of the scopes was last polled."""
        return self._all.last_polled_at(scope_id) if self._principal.covers(scope_id) else None

    def last_polls(self, vms: Iterable[VmName]) -> Mapping[VmName, datetime]:
        """Return when virtual machines of the scopes last polled."""
        known = self.topology().virtual_machines
        return self._all.last_polls(vm for vm in vms if vm in known)

    def notification(self, notification_id: str) -> Notification | None:
        """Return a message about an event of the scopes."""
        message = self._all.notification(notification_id)
        return message if message and self.event(EventId(message.subject)) else None

    def notifications(
        self,
        *,
        status: NotificationStatus | None = None,
        scope_ids: Iterable[ScopeId] | None = None,
        older_than: str | None = None,
        limit: int = 1000,
    ) -> tuple[Notification, ...]:
        """Return the newest messages about events of the scopes."""
        chosen = self._chosen(scope_ids)
        return self._all.notifications(
            status=status, scope_ids=chosen, older_than=older_than, limit=limit
        )

    def setting(self, name: str) -> str | None:
        """Return what holds for the whole server."""
        return self._all.setting(name)

    def kept_answer(self, who: str, key: str) -> KeptAnswer | None:
        """Return what the caller was answered before."""
        return self._all.kept_answer(who, key)

    def refuse(self, *_: object, **__: object) -> NoReturn:
        """Refuse what only an admin may, who is never limited to scopes."""
        raise RoleTooLowError(self._principal.name, self._principal.role, Role.ADMIN)

    audit = token = tokens = ledger_after = superseded_documents = refuse
    superseded_memberships = prepare_topology = refuse
    next_notifications = targets_waited_for = told = refuse

    def _chosen(self, asked: Iterable[ScopeId] | None) -> tuple[ScopeId, ...]:
        own = self._principal
        return own.scopes if asked is None else tuple(filter(own.covers, asked))

    def _covered(self, events: Iterable[ScheduledEvent]) -> tuple[ScheduledEvent, ...]:
        return tuple(event for event in events if self._principal.covers(event.scope_id))

    def _confine(self, topology: Topology) -> Topology:
        covers = self._principal.covers
        vms = {n: vm for n, vm in topology.virtual_machines.items() if covers(vm.scope_id)}
        carrying = {vm.host for vm in vms.values()}
        return Topology(
            virtual_machines=vms,
            scopes={key: scope for key, scope in topology.scopes.items() if covers(key)},
            hosts={name: host for name, host in topology.hosts.items() if name in carrying},
        )

    def _on_hosts(self, operations: Iterable[HostOperation]) -> tuple[HostOperation, ...]:
        # A reason may name virtual machines of other scopes.
        hosts = self.topology().hosts
        return tuple(replace(each, reason="") for each in operations if each.host in hosts)

    def part_of(self, maintenance: Maintenance) -> Maintenance | None:
        """Return what of *maintenance* is in the scopes; None if nothing is."""
        topology = self.topology()
        vms = tuple(vm for vm in maintenance.resources if vm in topology.virtual_machines)
        hosts = tuple(host for host in maintenance.hosts if host in topology.hosts)
        if vms or hosts or self.events_of([maintenance.maintenance_id]):
            known = {*topology.scopes, *topology.hosts}
            canary = tuple(name for name in maintenance.course.canary if name in known)
            course = replace(maintenance.course, canary=canary)
            return replace(maintenance, resources=vms, hosts=hosts, course=course)
        return None

    def _part_of_run(self, run: ScenarioRun) -> ScenarioRun | None:
        topology = self.topology()
        vms = tuple(vm for vm in run.resources if vm in topology.virtual_machines)
        events = {
            label: tuple(event_id for event_id in event_ids if self.event(event_id))
            for label, event_ids in run.events.items()
        }
        return replace(run, resources=vms, events=events) if vms or any(events.values()) else None


def _newest(parts: Iterator[T | None], limit: int | None) -> tuple[T, ...]:
    """Return the first *limit* of *parts*, which are newest first, in the order of creation."""
    seen = (part for part in parts if part is not None)
    return tuple(islice(seen, limit))[::-1]
