"""What a token that is limited to delivery scopes sees and changes: the one place that limits it.

Whatever is in other scopes is not there for it, so that asking for it and changing it are refused
as unknown (404). A change that would touch other scopes as well is refused naming what it would
touch (403). Everything that is not about scopes is refused as the admin's.

`LimitedReading` and `LimitedTransaction` are tables: a method of the port, and the rule that limits
it. A method without a rule is not there: the type checker says so, and so does the server.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Concatenate, NoReturn, ParamSpec, TypeAlias, TypeVar, cast

from forewarn.domain.access import OutsideScopesError, Principal, RoleTooLowError
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.host_operation import HostOperation
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import ScopeId, VmName, names_place
from forewarn.domain.notification import Notification, Target
from forewarn.domain.publication import FIRST_DOCUMENT
from forewarn.domain.roles import Role
from forewarn.domain.scenario import ScenarioRun
from forewarn.domain.task import Task
from forewarn.domain.topology import Topology
from forewarn.ports.entries import LedgerEntry, LedgerLine, Membership
from forewarn.ports.store import Reading, Transaction
from forewarn.protocol.vocabulary import EventId

P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K")

Method: TypeAlias = Callable[Concatenate[Transaction, P], T]
"""A method of the port."""
Limited: TypeAlias = Callable[Concatenate["LimitedReading", P], T]
"""The same method with a limit."""


def limit_reading(reading: Reading, principal: Principal) -> Reading:
    """Return *reading* as *principal* may have it."""
    return LimitedReading(reading, principal) if principal.scopes else reading


def limit_transaction(tx: Transaction, principal: Principal) -> Transaction:
    """Return *tx* as *principal* may have it."""
    return LimitedTransaction(tx, principal) if principal.scopes else tx


def limit_targets(targets: Iterable[Target], principal: Principal) -> tuple[Target, ...]:
    """Return those that are told of the scopes of *principal*, and of which of them."""

    def is_theirs(name: str) -> bool:
        named = any(names_place(name, scope) for scope in principal.scopes)
        return named or principal.covers(ScopeId(name))

    return tuple(
        replace(target, scopes=part)
        for target in targets
        if (part := tuple(filter(is_theirs, target.scopes))) or not target.scopes
    )


def limit_lines(lines: Iterable[LedgerLine], principal: Principal) -> tuple[LedgerLine, ...]:
    """Return those about events that *principal* may see."""
    return tuple(line for line in lines if principal.covers(line.scope_id))


class _Scopes:
    """The scopes of one principal: what is in them, and which part of what spans others as well."""

    def __init__(self, everything: Reading, principal: Principal) -> None:
        self.everything = everything
        self.principal = principal

    @cached_property
    def fleet(self) -> Topology:
        """The part of the fleet that is in the scopes, with the hosts that carry it."""
        whole = self.everything.topology()
        vms = {name: vm for name, vm in whole.virtual_machines.items() if self.covers(vm.scope_id)}
        carrying = {vm.host for vm in vms.values()}
        return Topology(
            virtual_machines=vms,
            scopes={key: scope for key, scope in whole.scopes.items() if self.covers(key)},
            hosts={name: host for name, host in whole.hosts.items() if name in carrying},
        )

    def covers(self, scope_id: ScopeId) -> bool:
        return self.principal.covers(scope_id)

    def has_vm(self, name: VmName) -> bool:
        return name in self.fleet.virtual_machines

    def has_event(self, event_id: EventId) -> bool:
        return self.event(self.everything.event(event_id)) is not None

    def ask(self, method: Callable[..., T], *args: object, **kwargs: object) -> T:
        """Return what *method* of the port returns, without a limit."""
        found: T = getattr(self.everything, method.__name__)(*args, **kwargs)
        return found

    def refuse(self) -> NoReturn:
        raise RoleTooLowError(self.principal.name, self.principal.role, Role.ADMIN)

    def event(self, event: ScheduledEvent | None) -> ScheduledEvent | None:
        return event if event is not None and self.covers(event.scope_id) else None

    def events(self, events: tuple[ScheduledEvent, ...]) -> tuple[ScheduledEvent, ...]:
        return tuple(event for event in events if self.covers(event.scope_id))

    def all_events(self, events: tuple[ScheduledEvent, ...]) -> tuple[ScheduledEvent, ...]:
        if len(self.events(events)) < len(events):
            raise OutsideScopesError(self.principal.name, ["other scopes on the same host"])
        return events

    def maintenance(self, maintenance: Maintenance | None) -> Maintenance | None:
        if maintenance is None:
            return None
        vms = tuple(filter(self.has_vm, maintenance.resources))
        hosts = tuple(host for host in maintenance.hosts if host in self.fleet.hosts)
        own = [maintenance.maintenance_id]
        if not (vms or hosts or self.events(self.everything.events_of(own))):
            return None
        known = {*self.fleet.scopes, *self.fleet.hosts}
        canary = tuple(name for name in maintenance.course.canary if name in known)
        course = replace(maintenance.course, canary=canary)
        return replace(maintenance, resources=vms, hosts=hosts, course=course)

    def whole_maintenance(self, maintenance: Maintenance | None) -> Maintenance | None:
        if maintenance is None or self.maintenance(maintenance) is None:
            return None
        if names := self.outside_maintenance(maintenance):
            raise OutsideScopesError(self.principal.name, names)
        return maintenance

    def run(self, run: ScenarioRun | None) -> ScenarioRun | None:
        if run is None:
            return None
        vms = tuple(filter(self.has_vm, run.resources))
        events = {label: tuple(filter(self.has_event, ids)) for label, ids in run.events.items()}
        return replace(run, resources=vms, events=events) if vms or any(events.values()) else None

    def operations(self, operations: tuple[HostOperation, ...]) -> tuple[HostOperation, ...]:
        # A reason may name virtual machines of other scopes.
        hosts = self.fleet.hosts
        return tuple(replace(each, reason="") for each in operations if each.host in hosts)

    def operation(self, operation: HostOperation | None) -> HostOperation | None:
        return next(iter(self.operations((operation,))), None) if operation else None

    def tasks(self, tasks: tuple[Task, ...]) -> tuple[Task, ...]:
        return tuple(part for task in tasks if (part := self._task(task)) is not None)

    def _task(self, task: Task) -> Task | None:
        if task.is_impact:
            return task if self.has_event(EventId(task.subject)) else None
        if task.host not in self.fleet.hosts or (task.vm and not self.has_vm(task.vm)):
            return None
        if not self.outside_task(task):
            return task
        # What is said of the host may name virtual machines of other scopes.
        return replace(task, said=replace(task.said, reason=""))

    def memberships(self, memberships: tuple[Membership, ...]) -> tuple[Membership, ...]:
        shown: list[Membership] = []
        for known in memberships:
            if known.scope_id is not None and self.covers(known.scope_id):
                shown.append(known)
            elif shown and shown[-1].scope_id is not None:
                shown.append(replace(known, scope_id=None))  # elsewhere it is in no fleet
        return tuple(shown)

    def notification(self, message: Notification | None) -> Notification | None:
        return message if message and self.tells(message) else None

    def tells(self, message: Notification) -> bool:
        return self.has_event(EventId(message.subject))

    def is_of_event(self, entry: LedgerEntry) -> bool:
        return self.has_event(entry.event_id)

    def by_scope(self, found: Mapping[ScopeId, T]) -> dict[ScopeId, T]:
        return {scope_id: value for scope_id, value in found.items() if self.covers(scope_id)}

    def by_vm(self, found: Mapping[VmName, T]) -> dict[VmName, T]:
        return {name: value for name, value in found.items() if self.has_vm(name)}

    def outside_event(self, event: ScheduledEvent) -> Sequence[str]:
        return () if self.covers(event.scope_id) else event.resources

    def outside_maintenance(self, maintenance: Maintenance) -> Sequence[str]:
        vms = self.everything.topology().virtual_machines.values()
        resources, hosts = set(maintenance.resources), set(maintenance.hosts)
        others = [vm for vm in vms if not self.covers(vm.scope_id)]
        touched = [vm.name for vm in others if vm.name in resources or vm.host in hosts]
        # A host that carries nothing is in nobody's scopes.
        return touched or sorted(hosts.difference(vm.host for vm in vms if vm.host))

    def outside_task(self, task: Task) -> Sequence[str]:
        if task.is_impact:
            event = self.everything.event(EventId(task.subject))
            return () if event is not None and self.covers(event.scope_id) else (task.name,)
        vms = self.everything.topology().virtual_machines.values()
        return [v.name for v in vms if v.host == task.host and not self.covers(v.scope_id)]

    def outside_operation(self, operation: HostOperation) -> Sequence[str]:
        vms = self.everything.topology().virtual_machines.values()
        return [v.name for v in vms if v.host == operation.host and not self.covers(v.scope_id)]


def _whole(method: Method[P, T]) -> Limited[P, T]:
    """Limit nothing: it is about no scope, or for all together."""

    def limited(self: "LimitedReading", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.scopes.ask(method, *args, **kwargs)

    return limited


def _part(method: Method[P, T], part: Callable[[_Scopes, T], T]) -> Limited[P, T]:
    """Return the *part* of the result that is in the scopes."""

    def limited(self: "LimitedReading", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return part(self.scopes, self.scopes.ask(method, *args, **kwargs))

    return limited


def _page(
    method: Method[P, tuple[T, ...]], part: Callable[[_Scopes, T | None], T | None]
) -> Limited[P, tuple[T, ...]]:
    """Return the newest *limit* parts that are in the scopes, in the order of creation."""

    def limited(self: "LimitedReading", /, *args: P.args, **kwargs: P.kwargs) -> tuple[T, ...]:
        limit = cast("int | None", kwargs.get("limit"))
        every = self.scopes.ask(method, *args, **{**kwargs, "limit": None})
        parts = (part(self.scopes, each) for each in reversed(every))
        return tuple(islice((part for part in parts if part is not None), limit))[::-1]

    return limited


def _narrowed(method: Method[P, T]) -> Limited[P, T]:
    """Ask for no other *scope_ids* than those of the principal."""

    def limited(self: "LimitedReading", /, *args: P.args, **kwargs: P.kwargs) -> T:
        asked = cast("Iterable[ScopeId] | None", kwargs.get("scope_ids"))
        own = self.scopes.principal
        chosen = own.scopes if asked is None else tuple(filter(own.covers, asked))
        return self.scopes.ask(method, *args, **{**kwargs, "scope_ids": chosen})

    return limited


def _only(
    method: Callable[Concatenate[Transaction, K, P], T],
    is_theirs: Callable[[_Scopes, K], bool],
    otherwise: Callable[[_Scopes], T],
) -> Callable[Concatenate["LimitedReading", K, P], T]:
    """Do it if what it is about is in the scopes, and *otherwise* something else."""

    def limited(self: "LimitedReading", about: K, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if not is_theirs(self.scopes, about):
            return otherwise(self.scopes)
        return self.scopes.ask(method, about, *args, **kwargs)

    return limited


def _inside(
    method: Callable[Concatenate[Transaction, K, P], T],
    outside: Callable[[_Scopes, K], Sequence[str]],
) -> Callable[Concatenate["LimitedReading", K, P], T]:
    """Do it, unless it would affect something *outside* the scopes."""

    def limited(self: "LimitedReading", thing: K, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if names := outside(self.scopes, thing):
            raise OutsideScopesError(self.scopes.principal.name, names)
        return self.scopes.ask(method, thing, *args, **kwargs)

    return limited


def _refused(self: "LimitedReading", *_: object, **__: object) -> NoReturn:
    """Refuse what only an admin may, who is never limited to scopes."""
    self.scopes.refuse()


class LimitedReading:
    """A look at the scopes of one principal."""

    def __init__(self, everything: Reading, principal: Principal) -> None:
        self.scopes = _Scopes(everything, principal)

    def topology(self) -> Topology:
        """Return the part of the fleet that is in the scopes, with the hosts that carry it."""
        return self.scopes.fleet

    event = _part(Reading.event, _Scopes.event)
    events = _narrowed(Reading.events)
    events_in_flight = _part(Reading.events_in_flight, _Scopes.events)
    events_under_way = _part(Reading.events_under_way, _Scopes.events)
    events_of = _part(Reading.events_of, _Scopes.events)
    operation_events = _part(Reading.operation_events, _Scopes.all_events)
    user_operations_in_flight = _whole(Reading.user_operations_in_flight)  # limited together
    ledger = _only(Reading.ledger, _Scopes.has_event, lambda _: ())
    last_sequence = _whole(Reading.last_sequence)

    maintenance = _part(Reading.maintenance, _Scopes.maintenance)
    maintenances = _page(Reading.maintenances, _Scopes.maintenance)
    operations_under_way = _part(Reading.operations_under_way, _Scopes.operations)
    operations_of = _part(Reading.operations_of, _Scopes.operations)
    host_operation = _part(Reading.host_operation, _Scopes.operation)
    # The work on a host affects all who are there.
    open_tasks = _part(Reading.open_tasks, lambda _, __: ())
    soaks = _part(Reading.soaks, _Scopes.by_scope)
    scenario_run = _part(Reading.scenario_run, _Scopes.run)
    scenario_runs = _page(Reading.scenario_runs, _Scopes.run)
    # What schedules select may be in any scope when they are due.
    schedules = _part(Reading.schedules, lambda _, __: ())

    document = _only(Reading.document, _Scopes.covers, lambda _: FIRST_DOCUMENT)
    documents = _part(Reading.documents, _Scopes.by_scope)
    document_at = _only(Reading.document_at, _Scopes.covers, lambda _: FIRST_DOCUMENT)
    memberships = _part(Reading.memberships, _Scopes.memberships)
    showing = _whole(Reading.showing)
    last_polled_at = _only(Reading.last_polled_at, _Scopes.covers, lambda _: None)
    last_polls = _part(Reading.last_polls, _Scopes.by_vm)

    notification = _part(Reading.notification, _Scopes.notification)
    notifications = _narrowed(Reading.notifications)
    lease_epoch = _whole(Reading.lease_epoch)
    gate_answers = _whole(Reading.gate_answers)
    tasks = _part(Reading.tasks, _Scopes.tasks)
    owners = _whole(Reading.owners)
    setting = _whole(Reading.setting)
    kept_answer = _whole(Reading.kept_answer)

    audit = token = tokens = session = count_links = _refused
    ledger_after = superseded_documents = _refused
    superseded_memberships = prepare_topology = topology_at_hand = _refused
    next_notifications = targets_waited_for = told = old_history = _refused
    task = tasks_of = settled_tasks = _refused


class LimitedTransaction(LimitedReading):
    """A look that may also change what is in the scopes, and nothing else."""

    # What is changed and put back is whole, and so is what is answered about it.
    maintenance = _part(Reading.maintenance, _Scopes.whole_maintenance)

    put_event = _inside(Transaction.put_event, _Scopes.outside_event)
    put_maintenance = _inside(Transaction.put_maintenance, _Scopes.outside_maintenance)
    put_operation = _inside(Transaction.put_operation, _Scopes.outside_operation)
    put_task = _inside(Transaction.put_task, _Scopes.outside_task)
    put_document = _only(Transaction.put_document, _Scopes.covers, _Scopes.refuse)
    put_soak = _only(Transaction.put_soak, _Scopes.covers, _Scopes.refuse)
    append_ledger = _only(Transaction.append_ledger, _Scopes.is_of_event, _Scopes.refuse)
    put_notification = _only(Transaction.put_notification, _Scopes.tells, _Scopes.refuse)
    append_audit = _whole(Transaction.append_audit)
    put_answer = _whole(Transaction.put_answer)

    put_schedule = remove_schedule = put_told = prune_tasks = prune_history = _refused
    put_owner = remove_owner = _refused
    put_topology = put_scenario_run = put_token = put_setting = _refused
    put_session = remove_session = prune_sessions = _refused
    put_polls = put_showings = prune_showings = _refused
    put_polled_at = next_epoch = check_epoch = _refused
    remove_memberships = remove_documents = put_memberships = _refused
    prune_notifications = prune_answers = put_gate_answers = _refused
