"""What a decision is made on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.gate import Answer, Question
from forewarn.domain.host_operation import HostOperation, task_called
from forewarn.domain.host_work import HostTask, HostTaskKind, HostWorkRule
from forewarn.domain.impact import Impact
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import (
    MaintenanceId,
    OperationId,
    ScenarioRunId,
    ScheduleName,
    ScopeId,
    VmName,
)
from forewarn.domain.scenario import ScenarioRun
from forewarn.domain.schedule import Schedule
from forewarn.domain.server_pause import ServerPause
from forewarn.domain.task import Ownership, Task, TaskKey, TaskState, can_settle, observe
from forewarn.domain.topology import Topology
from forewarn.protocol.vocabulary import EventId, EventStatus


@dataclass(frozen=True, kw_only=True)  # without slots, to keep what is looked up often
class Snapshot:
    """All that a decision depends on.

    *events* are those in flight and every event of *maintenances*; *operations* are those of
    *maintenances*. These and *scenario_runs* are those not finished. *rows* are the tasks, as they
    are written down, and *impacts* and *tasks* what they say of virtual machines and of hosts; what
    is not reserved is not there. *answers* are the last ones of the gates. *host_works* are the
    rules for the work that hosts have. Events are overdue *overdue_after* their time, if ever.
    *speed* divides notice and soak. Nothing begins during a *server_pause*, and no step in a scope
    before *soaks* says.
    """

    topology: Topology
    events: Mapping[EventId, ScheduledEvent] = field(default_factory=dict)
    maintenances: Mapping[MaintenanceId, Maintenance] = field(default_factory=dict)
    operations: Mapping[OperationId, HostOperation] = field(default_factory=dict)
    scenario_runs: Mapping[ScenarioRunId, ScenarioRun] = field(default_factory=dict)
    impacts: Mapping[tuple[EventId, VmName], Impact] = field(default_factory=dict)
    tasks: Mapping[HostTask, Impact] = field(default_factory=dict)
    rows: Mapping[TaskKey, Task] = field(default_factory=dict)
    ownership: Ownership | None = None
    answers: Mapping[Question, Answer] = field(default_factory=dict)
    schedules: Mapping[ScheduleName, Schedule] = field(default_factory=dict)
    host_works: tuple[HostWorkRule, ...] = ()
    overdue_after: timedelta | None = None
    speed: float = 1
    server_pause: ServerPause | None = None
    soaks: Mapping[ScopeId, datetime] = field(default_factory=dict)

    def with_rows(self, rows: Mapping[TaskKey, Task]) -> "Snapshot":
        """Return the snapshot with other tasks."""
        impacts: dict[tuple[EventId, VmName], Impact] = {}
        tasks: dict[HostTask, Impact] = {}
        for row in rows.values():
            said = observe(row, self.ownership) if self.ownership else row.said
            if row.is_impact:
                impacts[EventId(row.subject), VmName(row.name)] = said
            elif operation := self.operations.get(OperationId(row.subject)):
                tasks[task_called(row.name, operation)] = said
        return replace(self, rows=rows, impacts=impacts, tasks=tasks)

    @cached_property
    def in_flight_on(self) -> Mapping[VmName, Sequence[ScheduledEvent]]:
        """The events in flight on each virtual machine, the oldest first."""
        found: dict[VmName, list[ScheduledEvent]] = {}
        for event in self.events.values():
            for vm in event.resources if event.is_in_flight else ():
                found.setdefault(vm, []).append(event)
        return found

    @cached_property
    def started_on(self) -> Mapping[VmName, Sequence[ScheduledEvent]]:
        """The events that have started on each virtual machine, the oldest first."""
        started = EventStatus.STARTED
        found = {
            vm: [event for event in events if event.event_status is started]
            for vm, events in self.in_flight_on.items()
        }
        return {vm: events for vm, events in found.items() if events}

    @cached_property
    def events_of(self) -> Mapping[OperationId, Sequence[ScheduledEvent]]:
        """The events of each host operation, the oldest first."""
        found: dict[OperationId, list[ScheduledEvent]] = {}
        for event in self.events.values():
            if event.operation_id is not None:
                found.setdefault(event.operation_id, []).append(event)
        return found

    @cached_property
    def in_flight_in(self) -> Mapping[ScopeId, Sequence[ScheduledEvent]]:
        """The events in flight in each scope, the oldest first."""
        found: dict[ScopeId, list[ScheduledEvent]] = {}
        for event in self.events.values():
            if event.is_in_flight:
                found.setdefault(event.scope_id, []).append(event)
        return found

    @cached_property
    def lingering(self) -> tuple[Task, ...]:
        """The tasks that are not over although what they were for is.

        Whatever an operator said of the event, they still keep their virtual machines busy.
        """
        return tuple(
            row for row in self.rows.values() if not row.is_over and not self.is_under_way(row)
        )

    @cached_property
    def lingering_on(self) -> Mapping[VmName, Sequence[Task]]:
        """The tasks of `lingering` that touch each virtual machine; work on a host touches all."""
        found: dict[VmName, list[Task]] = {}
        if not self.lingering:
            return found
        carried: dict[str, list[VmName]] = {}
        for vm in self.topology.virtual_machines.values():
            if vm.host is not None:
                carried.setdefault(vm.host, []).append(vm.name)
        for row in self.lingering:
            for name in [row.vm] if row.vm else carried.get(row.host or "", ()):
                found.setdefault(name, []).append(row)
        return found

    @cached_property
    def open_of(self) -> Mapping[str, Sequence[Task]]:
        """The tasks that are not over, by their event or host operation."""
        found: dict[str, list[Task]] = {}
        for row in self.rows.values():
            if not row.is_over:
                found.setdefault(row.subject, []).append(row)
        return found

    def open_in(self, operation_id: OperationId) -> Iterator[Task]:
        """Yield the tasks that are not over of the events of a host operation, and of itself."""
        events = self.events_of.get(operation_id, ())
        for subject in (*(event.event_id for event in events), operation_id):
            yield from self.open_of.get(subject, ())

    def awaits_word(self, row: Task) -> bool:
        """Tell whether a task, which is unknown, ends only if an operator says how it did."""
        if row.state is not TaskState.UNKNOWN:
            return False
        return self.ownership is None or can_settle(row, self.ownership)

    def is_under_way(self, row: Task) -> bool:
        """Tell whether the event or the host operation of a task is not over."""
        if row.is_impact:
            event = self.events.get(EventId(row.subject))
            return event is not None and event.is_in_flight
        operation = self.operations.get(OperationId(row.subject))
        return operation is not None and not operation.is_over

    def maintenance_of(self, row: Task) -> MaintenanceId | None:
        """Return the Maintenance that a task is part of, if it is part of one."""
        if row.is_impact:
            event = self.events.get(EventId(row.subject))
            return event.maintenance_id if event else None
        operation = self.operations.get(OperationId(row.subject))
        return operation.maintenance_id if operation else None

    @cached_property
    def in_doubt(self) -> Mapping[MaintenanceId, Sequence[tuple[str, Impact]]]:
        """The impacts and host tasks under way that are unknown, or whose replica is away, by name.

        Checks of hosts are left out, because they are repeated.
        """
        found: dict[MaintenanceId, list[tuple[str, Impact]]] = {}
        # Copied, as the scheduler may write while another thread reads.
        for (event_id, vm), said in list(self.impacts.items()):
            if said.is_lost or said.away:
                event = self.events.get(event_id)
                if event is not None and event.maintenance_id is not None:
                    found.setdefault(event.maintenance_id, []).append((f"the impact on {vm}", said))
        for task, said in list(self.tasks.items()):
            if (said.is_lost or said.away) and task.kind is not HostTaskKind.VERIFY:
                # No machine is named: a token that may see the host may not see all it carries.
                named = (f"the {task.kind} on {task.host}", said)
                found.setdefault(task.maintenance_id, []).append(named)
        return found
