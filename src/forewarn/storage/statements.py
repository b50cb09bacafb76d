"""The looks at the tables, and what forgets rows, built once, as both engines write them."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from sqlalchemy import (
    JSON,
    BindParameter,
    Column,
    ColumnElement,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    exists,
    func,
    literal,
    or_,
    select,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import GenericFunction

from forewarn.domain.notification import NotificationStatus
from forewarn.domain.task import OPEN, ROWS_ONLY, TaskState
from forewarn.ports.entries import History
from forewarn.protocol.vocabulary import EventSource, EventStatus
from forewarn.storage.rows import given_columns
from forewarn.storage.tables import (
    audit,
    delivery_scopes,
    documents,
    events,
    gate_answers,
    host_operations,
    kept_answers,
    leases,
    ledger,
    maintenances,
    memberships,
    outbox,
    owners,
    polls,
    scenario_runs,
    schedules,
    sessions,
    settings,
    showings,
    soaks,
    tasks,
    tokens,
    told,
    vm_polls,
)


class json_items(GenericFunction[str]):  # noqa: N801 - it is the name of the function
    """The rows of a JSON list of strings, in a column called value."""

    inherit_cache = True


@compiles(json_items)
def _write_json_items(element: json_items, compiler: SQLCompiler, **options: Any) -> str:
    names = {"sqlite": "json_each", "postgresql": "json_array_elements_text"}
    return names[compiler.dialect.name] + compiler.function_argspec(element, **options)


def columns_select(table: Table) -> Select[Any]:
    """Return the look at every field, and none of the columns that only keep the order."""
    return select(*(table.c[name] for name in given_columns(table)))


def _by_key(table: Table, *names: str) -> Select[Any]:
    return columns_select(table).where(*(table.c[name] == bindparam(name) for name in names))


def _in_order(table: Table) -> Select[Any]:
    return columns_select(table).order_by(table.c.sequence)


def _by_progress(table: Table) -> Mapping[bool | None, Select[Any]]:
    """Return the looks at what is finished, at what is not, and at all."""
    look, end = _in_order(table), table.c.finished_at
    return {True: look.where(end.is_not(None)), False: look.where(end.is_(None)), None: look}


def newest(look: Select[Any], key: Column[Any], older_than: object = None) -> Select[Any]:
    """Return *look* at the newest rows of the table of *key* first, before the one seen if any.

    *older_than* is the key of that one.
    """
    table = key.table
    look = look.order_by(None).order_by(table.c.sequence.desc())
    if older_than is None:
        return look
    seen = table.alias("seen")
    place = select(seen.c.sequence).where(seen.c[key.name] == older_than).scalar_subquery()
    return look.where(table.c.sequence < place)


def narrow(
    look: Select[Any], filters: Mapping[str, ColumnElement[bool]], **wanted: object
) -> tuple[Select[Any], dict[str, Any]]:
    """Return *look* with the filters for which something is wanted, and the values of these."""
    values = {name: value for name, value in wanted.items() if value is not None}
    return look.where(*(filters[name] for name in values)), values


def in_scopes(scope_ids: Collection[str]) -> ColumnElement[bool]:
    """Return the condition that an event is in one of these scopes, or in a group of one."""
    scope = events.c.scope_id
    groups = (scope.startswith(f"{scope_id}/", autoescape=True) for scope_id in scope_ids)
    return or_(scope.in_(scope_ids), *groups)


EVENT: Final = _by_key(events, "event_id")
IS_IN_FLIGHT: Final = events.c.event_status.in_(
    [literal(status) for status in EventStatus if status.is_visible]
)
_UNFINISHED: Final = select(maintenances.c.maintenance_id).where(
    maintenances.c.finished_at.is_(None)
)
EVENTS_IN_FLIGHT: Final = _in_order(events).where(IS_IN_FLIGHT)
EVENTS_UNDER_WAY: Final = _in_order(events).where(
    or_(IS_IN_FLIGHT, events.c.maintenance_id.in_(_UNFINISHED))
)
_WANTED: Final = json_items(bindparam("scope_ids", type_=JSON)).table_valued("value")
EVENTS_IN_FLIGHT_OF_SCOPES: Final = EVENTS_IN_FLIGHT.where(
    events.c.scope_id.in_(select(_WANTED.c.value))
)
EVENTS_IN_FLIGHT_OF_OPERATION: Final = EVENTS_IN_FLIGHT.where(
    events.c.operation_id == bindparam("operation_id")
)
USER_OPERATIONS_IN_FLIGHT: Final = EVENTS_IN_FLIGHT.where(
    events.c.event_source == literal(EventSource.USER, events.c.event_source.type)
)
EVENTS_OF_MAINTENANCES: Final = _in_order(events).where(
    events.c.maintenance_id.in_(bindparam("maintenance_ids", expanding=True))
)
EVENTS: Final = columns_select(events)
_RESOURCE: Final = json_items(events.c.resources).table_valued("value", name="resource")
EVENT_FILTERS: Final = {
    "status": events.c.event_status.in_(bindparam("status", expanding=True)),
    "vm": exists().select_from(_RESOURCE).where(_RESOURCE.c.value == bindparam("vm")),
    "event_type": events.c.event_type == bindparam("event_type"),
    "ended_since": events.c.ended_at >= bindparam("ended_since"),
    "ended_before": events.c.ended_at < bindparam("ended_before"),
    "created_before": events.c.created_at < bindparam("created_before"),
}

LEDGER: Final = _by_key(ledger, "event_id").order_by(ledger.c.sequence)
LEDGER_AFTER: Final = (
    select(
        ledger.c.sequence,
        ledger.c.event_id,
        events.c.event_type,
        events.c.scope_id,
        events.c.resources,
        events.c.maintenance_id,
        events.c.host,
        events.c.outcome,
        ledger.c.at,
        ledger.c.what,
        ledger.c.who,
        ledger.c.where,
        ledger.c.detail,
    )
    .join_from(ledger, events, ledger.c.event_id == events.c.event_id)
    .where(ledger.c.sequence > bindparam("after"))
    .order_by(ledger.c.sequence)
    .limit(bindparam("limit"))
)
LAST_SEQUENCE: Final = select(func.max(ledger.c.sequence))
NEWEST_AUDIT: Final = select(audit).order_by(audit.c.sequence.desc()).limit(bindparam("limit"))
AUDIT_FILTERS: Final = {
    "who": audit.c.who == bindparam("who"),
    "action": audit.c.action == bindparam("action"),
    "outcome": audit.c.outcome == bindparam("outcome"),
    "since": audit.c.at >= bindparam("since"),
    "older_than": audit.c.sequence < bindparam("older_than"),
}
TOKEN: Final = _by_key(tokens, "token_hash")
TOKENS: Final = _in_order(tokens)
SESSION: Final = _by_key(sessions, "session_hash")
LINKS: Final = select(func.count()).where(
    sessions.c.used_at > bindparam("since"),  # when it was made, as long as nobody has used it
    sessions.c.token_hash == bindparam("token_hash"),
    sessions.c.is_link,
)
PRUNE_SESSIONS: Final = delete(sessions).where(sessions.c.used_at < bindparam("before"))
KEPT_ANSWER: Final = _by_key(kept_answers, "who", "key")
PRUNE_ANSWERS: Final = delete(kept_answers).where(kept_answers.c.answered_at < bindparam("before"))
MAINTENANCE: Final = _by_key(maintenances, "maintenance_id")
MAINTENANCES: Final = _by_progress(maintenances)
OPERATIONS_UNDER_WAY: Final = _in_order(host_operations).where(
    host_operations.c.maintenance_id.in_(_UNFINISHED)
)
OPERATION: Final = _by_key(host_operations, "operation_id")
TASK: Final = _by_key(tasks, "subject", "name")
_TASKS: Final = columns_select(tasks).order_by(tasks.c.reserved_at, tasks.c.subject, tasks.c.name)
TASKS: Final = _TASKS.where(tasks.c.closed_at.is_(None))
OPEN_TASKS: Final = TASKS.where(
    tasks.c.node == bindparam("node"), tasks.c.state.in_([literal(state) for state in OPEN])
)
SETTLED_TASKS: Final = _TASKS.where(
    tasks.c.node == bindparam("node"),
    tasks.c.state == literal(TaskState.SETTLED),
    tasks.c.runner.not_in(ROWS_ONLY),
)
TASKS_OF: Final = _TASKS.where(tasks.c.subject == bindparam("subject"))
PRUNE_TASKS: Final = delete(tasks).where(tasks.c.closed_at < bindparam("before"))
OWNERS: Final = select(owners).order_by(owners.c.node)
OPERATIONS_OF_MAINTENANCES: Final = _in_order(host_operations).where(
    host_operations.c.maintenance_id.in_(bindparam("maintenance_ids", expanding=True))
)
SCENARIO_RUN: Final = _by_key(scenario_runs, "run_id")
SCENARIO_RUNS: Final = _by_progress(scenario_runs)

FORGET_TOLD: Final = delete(told).where(
    told.c.maintenance_id.not_in(select(maintenances.c.maintenance_id))
)
TOLD: Final = select(told).where(
    told.c.maintenance_id == maintenances.c.maintenance_id, maintenances.c.finished_at.is_(None)
)
SCHEDULES: Final = _in_order(schedules)

_NEWEST_DOCUMENT: Final = (
    select(documents.c.body).order_by(documents.c.document_incarnation.desc()).limit(1)
)
DOCUMENT: Final = _NEWEST_DOCUMENT.where(documents.c.scope_id == bindparam("scope_id"))
DOCUMENT_AT: Final = DOCUMENT.where(documents.c.published_at <= bindparam("at"))


def _documents_of(scope_id: ColumnElement[Any]) -> Select[Any]:
    # A look per scope, so that it costs what the fleet costs, however long the history.
    current = _NEWEST_DOCUMENT.where(documents.c.scope_id == scope_id)
    return select(scope_id, current.scalar_subquery().label("body"))


DOCUMENTS: Final = _documents_of(delivery_scopes.c.scope_id).order_by(delivery_scopes.c.position)
DOCUMENTS_OF: Final = _documents_of(_WANTED.c.value)

_NEWER: Final = documents.alias("newer")
SUPERSEDED_DOCUMENTS: Final = (
    select(documents.c.scope_id, documents.c.document_incarnation)
    .where(
        # Implied by what follows as long as clocks go forward, and much quicker to tell.
        documents.c.published_at <= bindparam("before"),
        exists().where(
            _NEWER.c.scope_id == documents.c.scope_id,
            _NEWER.c.document_incarnation > documents.c.document_incarnation,
            _NEWER.c.published_at <= bindparam("before"),
        ),
    )
    .limit(bindparam("limit"))
)
MEMBERSHIPS: Final = _by_key(memberships, "vm").order_by(memberships.c.since)
_LATER: Final = memberships.alias("later")
_LATER_OF_SAME_VM: Final = (_LATER.c.vm == memberships.c.vm, _LATER.c.since > memberships.c.since)
SUPERSEDED_MEMBERSHIPS: Final = (
    select(memberships.c.vm, memberships.c.since)
    .where(
        memberships.c.since <= bindparam("before"),
        or_(
            exists().where(*_LATER_OF_SAME_VM, _LATER.c.since <= bindparam("before")),
            # Of one that has left for good nothing stays; one that came back has left until then.
            memberships.c.scope_id.is_(None) & ~exists().where(*_LATER_OF_SAME_VM),
        ),
    )
    .limit(bindparam("limit"))
)
NOTIFICATION: Final = _by_key(outbox, "notification_id")
NOTIFICATIONS: Final = columns_select(outbox)
IS_ABOUT_EVENT: Final = outbox.c.subject == events.c.event_id
NOTIFICATION_FILTERS: Final = {"status": outbox.c.status == bindparam("status")}
_WAITING: Final = literal(NotificationStatus.WAITING, outbox.c.status.type)
_EARLIER: Final = outbox.alias("earlier")
NEXT_NOTIFICATIONS: Final = (
    columns_select(outbox)
    .where(
        outbox.c.status == _WAITING,
        outbox.c.target == bindparam("target"),
        ~exists().where(
            _EARLIER.c.status == _WAITING,
            _EARLIER.c.target == outbox.c.target,
            _EARLIER.c.subject == outbox.c.subject,
            _EARLIER.c.sequence < outbox.c.sequence,
        ),
    )
    .order_by(outbox.c.next_attempt_at, outbox.c.sequence)
    .limit(bindparam("limit"))
)
TARGETS_WAITED_FOR: Final = select(outbox.c.target).where(outbox.c.status == _WAITING).distinct()
PRUNE_NOTIFICATIONS: Final = delete(outbox).where(
    NOTIFICATION_FILTERS["status"], outbox.c.ended_at < bindparam("ended_before")
)

_BEFORE: Final[BindParameter[Any]] = bindparam("before")
_NEWEST_LINE: Final = select(func.max(ledger.alias().c.sequence)).scalar_subquery()
_NEWEST_AUDIT_LINE: Final = select(func.max(audit.alias().c.sequence)).scalar_subquery()
_EVENT_IS_OLD: Final = and_(
    ~IS_IN_FLIGHT,
    events.c.ended_at < _BEFORE,
    ~exists().where(tasks.c.subject == events.c.event_id),
    # The numbers of lines are never used again, so the last one stays.
    ~exists().where(
        ledger.c.event_id == events.c.event_id,
        or_(ledger.c.at >= _BEFORE, ledger.c.sequence == _NEWEST_LINE),
    ),
    ~exists().where(
        scenario_runs.c.finished_at.is_(None), scenario_runs.c.began_at <= events.c.created_at
    ),
)
_OF_MAINTENANCE: Final = maintenances.c.maintenance_id
# A Maintenance goes whole, and before its parts: nobody is told of what is left of it.
_OLD: Final[Mapping[History, tuple[Column[Any], ColumnElement[bool]]]] = {
    History.MAINTENANCES: (
        maintenances.c.finished_at,
        and_(
            maintenances.c.finished_at < _BEFORE,
            ~exists().where(schedules.c.maintenance_id == _OF_MAINTENANCE),
            ~exists().where(events.c.maintenance_id == _OF_MAINTENANCE, ~_EVENT_IS_OLD),
            ~exists().where(
                host_operations.c.maintenance_id == _OF_MAINTENANCE,
                tasks.c.subject == host_operations.c.operation_id,
            ),
        ),
    ),
    History.EVENTS: (
        events.c.ended_at,
        and_(_EVENT_IS_OLD, ~exists().where(events.c.maintenance_id == _OF_MAINTENANCE)),
    ),
    History.HOST_OPERATIONS: (
        host_operations.c.created_at,
        and_(
            ~exists().where(host_operations.c.maintenance_id == _OF_MAINTENANCE),
            ~exists().where(events.c.maintenance_id == host_operations.c.maintenance_id),
        ),
    ),
    History.SCENARIO_RUNS: (scenario_runs.c.finished_at, scenario_runs.c.finished_at < _BEFORE),
    History.AUDIT: (
        audit.c.at,
        and_(audit.c.at < _BEFORE, audit.c.sequence < _NEWEST_AUDIT_LINE),
    ),
}
"""The time of rows, and which of them nothing needs any more."""
OLD_HISTORY: Final = {
    kind: select(moment.table.c.sequence)
    .where(is_old)
    .order_by(moment.table.c.sequence)
    .limit(bindparam("limit"))
    for kind, (moment, is_old) in _OLD.items()
}


_ROWS: Final[BindParameter[Any]] = bindparam("rows", expanding=True)
_CHOSEN: Final = {
    kind: and_(moment.table.c.sequence.in_(_ROWS), is_old)
    for kind, (moment, is_old) in _OLD.items()
}
_OF_EVENTS: Final = ledger.c.event_id.in_(select(events.c.event_id).where(_CHOSEN[History.EVENTS]))
_LINES: Final = (ledger.c.at, delete(ledger).where(_OF_EVENTS).returning(ledger.c.at))
PRUNE_HISTORY: Final = {
    kind: (
        *((_LINES,) if kind is History.EVENTS else ()),
        (moment, delete(moment.table).where(_CHOSEN[kind]).returning(moment)),
    )
    for kind, (moment, _) in _OLD.items()
}
"""What removes rows of each kind and tells when they were, parts first."""

SOAKS: Final = select(soaks)
FORGET_SOAKS: Final = delete(soaks).where(soaks.c.until <= bindparam("at"))
SHOWING: Final = (
    select(showings)
    .where(showings.c.recorded_at <= bindparam("at"))
    .order_by(showings.c.recorded_at.desc())
    .limit(1)
)
PRUNE_SHOWINGS: Final = delete(showings).where(showings.c.shown_at < bindparam("before"))
LAST_POLLED_AT: Final = select(polls.c.last_polled_at).where(
    polls.c.scope_id == bindparam("scope_id")
)
ALL_LAST_POLLS: Final = select(vm_polls)
LAST_POLLS: Final = select(vm_polls).where(vm_polls.c.vm.in_(bindparam("vms", expanding=True)))
SETTING: Final = select(settings.c.value).where(settings.c.name == bindparam("name"))
GATE_ANSWERS: Final = select(gate_answers.c.question, gate_answers.c.answer)
EPOCH: Final = select(leases.c.epoch).where(leases.c.name == bindparam("name"))
