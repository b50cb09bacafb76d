"""What every store promises, on a real database."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from queue import SimpleQueue
from threading import Event as Signal
from typing import Any, TypeVar

import pytest
from tests.contracts.conftest import OpenStore
from tests.works import TIMEOUT, held

from forewarn.domain.access import ConsoleSession, Token
from forewarn.domain.amending import build_topology
from forewarn.domain.course import Course
from forewarn.domain.event import Approval, Approver, Happening, Outcome, ScheduledEvent, Trigger
from forewarn.domain.fault import Fault, FaultKind
from forewarn.domain.gate import Answer, GateStatus, Question
from forewarn.domain.host_operation import HostOperation, HostPhase, OperationOutcome
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.maintenance import Maintenance, MaintenanceOutcome, Resolution
from forewarn.domain.names import (
    HostName,
    MaintenanceId,
    OperationId,
    ScenarioRunId,
    ScheduleName,
    ScopeId,
    VmName,
)
from forewarn.domain.news import Told
from forewarn.domain.notification import Phase
from forewarn.domain.policy import ApprovalPolicy, Policy
from forewarn.domain.profile import Profile
from forewarn.domain.publication import FIRST_DOCUMENT, show
from forewarn.domain.roles import Role
from forewarn.domain.scenario import Announcement, ClearStep, FaultStep, Intervention, ScenarioRun
from forewarn.domain.task import IN_DOUBT, Owner, Task, TaskState, lose
from forewarn.domain.topology import (
    Closure,
    DeliveryScope,
    Host,
    ScopeKind,
    Topology,
    VirtualMachine,
    standalone,
)
from forewarn.domain.windows import Blackout, Calendar, Window
from forewarn.ports.changes import StoreChange
from forewarn.ports.entries import (
    DONE,
    REFUSED,
    Actor,
    AuditEntry,
    KeptAnswer,
    LedgerEntry,
    LedgerLine,
    Membership,
    Showing,
)
from forewarn.ports.store import (
    SERVER_PAUSE,
    LeaseLostError,
    Reading,
    Store,
    Transaction,
)
from forewarn.protocol.document import Document
from forewarn.protocol.vocabulary import EventId, EventSource, EventStatus, EventType
from forewarn.storage.errors import (
    DocumentIncarnationError,
    StoreClosedError,
)

NOW = datetime(2026, 1, 5, 8, 0, 0, 123456, tzinfo=UTC)
WEB = ScopeId("availability-set/web")
SESSION = ConsoleSession(
    session_hash="a" * 64,
    token_hash="0" * 64,
    name="ada",
    is_link=False,
    created_at=NOW,
    used_at=NOW,
)

T = TypeVar("T")


def _event(number: int = 0, **changes: object) -> ScheduledEvent:
    event = ScheduledEvent(
        event_id=EventId(f"602D9444-D2CD-49C7-8624-{number:012X}"),
        event_type=EventType.REBOOT,
        event_source=EventSource.PLATFORM,
        event_status=EventStatus.SCHEDULED,
        scope_id=WEB,
        update_domain=0,
        resources=(VmName("web-1"), VmName("web-0")),
        description="Host server is undergoing maintenance.",
        duration_in_seconds=None,
        maintenance_id=None,
        host=None,
        created_at=NOW,
        not_before=datetime(2026, 1, 5, 8, 15, 1, tzinfo=UTC),
        first_not_before=datetime(2026, 1, 5, 8, 15, 1, tzinfo=UTC),
        is_announced=True,
        is_published=True,
    )
    return replace(event, **changes)  # type: ignore[arg-type]


ENDED = _event(
    7,
    event_type=EventType.FREEZE,
    event_source=EventSource.USER,
    event_status=EventStatus.COMPLETED,
    description='Größe "x" \\ 東京 \x01',
    duration_in_seconds=9,
    maintenance_id=MaintenanceId("kernel-6.12"),
    host=HostName("kvm-1"),
    is_announced=False,
    is_published=False,
    approvals=(
        Approval(approver=Approver.VIRTUAL_MACHINE, name="web-1", approved_at=NOW),
        Approval(approver=Approver.OPERATOR, name="ada", approved_at=NOW + timedelta(seconds=1)),
    ),
    started_at=NOW + timedelta(minutes=15),
    ended_at=NOW + timedelta(minutes=16),
    outcome=Outcome.FAILED,
    reason="web-1: did not come back",
    simulated_duration=timedelta(seconds=1, microseconds=5),
)

TASK = Task(
    subject="b",
    name="web-0",
    vm=VmName("web-0"),
    host=HostName("kvm-1"),
    runner="command",
    node="db-1:a",
    epoch=4,
    said=Impact(status=ImpactStatus.NOT_BEGUN),
    reserved_at=NOW,
)
OWNER = Owner(node="db-1:a", name="db-1", generation=1, heard_at=NOW)


def _document(incarnation: int, *events: ScheduledEvent) -> Document:
    return Document(document_incarnation=incarnation, events=tuple(show(event) for event in events))


def _fleet(*names: str) -> Topology:
    web = DeliveryScope(
        kind=ScopeKind.AVAILABILITY_SET,
        name="web",
        update_domains=3,
        policy=Policy(
            approval=ApprovalPolicy.LEADER,
            postpone_until=timedelta(minutes=90),
            auto_approve_user=True,
        ),
    )
    batch = DeliveryScope(
        kind=ScopeKind.SCALE_SET,
        name="batch",
        placement_group="pg-1",
        policy=Policy(terminate_notice=timedelta(minutes=7), notice=timedelta(hours=1)),
    )
    vms = [
        VirtualMachine(
            name=VmName(name),
            scope_id=web.scope_id,
            update_domain=2,
            fault_domain=1,
            host=HostName("kvm-1"),
            addresses=("10.0.0.10", "fd00::10"),
            vm_id=f"id-of-{name}",
            zone="2",
            location="westeurope",
            resource_group="shop",
            subscription_id="8d10da13-8125-4ba9-a717-bf7490507b3d",
            tags={"tier": "Ä", "a": ""},
            labels={"rack": "r1"},
            profile=Profile(vm_size="Standard_D2s_v5", user_data="aGVsbG8="),
        )
        for name in names[:1]
    ]
    lone = [standalone(VmName(name)) for name in names[1:]]
    vms += [VirtualMachine(name=VmName(each.name), scope_id=each.scope_id) for each in lone]
    closure = Closure(closed_at=NOW, closed_by="alice", closed_reason="new kernel")
    hosts = [Host(name=HostName("kvm-2"), labels={"room": "b"}, closure=closure)]
    return build_topology(scopes=[web, batch, *lone], virtual_machines=vms, hosts=hosts)


def _put_events(*events: ScheduledEvent) -> Callable[[Transaction], None]:
    def work(tx: Transaction) -> None:
        for event in events:
            tx.put_event(event)

    return work


def _publish(scope_id: ScopeId, document: Document) -> Callable[[Transaction], None]:
    return lambda tx: tx.put_document(scope_id, document, at=NOW)


def _apply(fleet: Topology) -> Callable[[Transaction], None]:
    return lambda tx: tx.put_topology(fleet)


class _Recorder:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.changes: list[StoreChange] = []

    def __call__(self, change: StoreChange) -> None:
        self.changes.append(change)


def _full_work(number: int) -> Callable[[Transaction], int]:
    def work(tx: Transaction) -> int:
        event = _event(number, scope_id=ScopeId(f"virtual-machine/vm-{number}"))
        tx.put_event(event)
        tx.put_document(event.scope_id, _document(1, event), at=NOW)
        tx.append_ledger(
            LedgerEntry(event_id=event.event_id, at=NOW, what=Happening.SCHEDULED, who="ada")
        )
        tx.append_audit(
            AuditEntry(at=NOW, maintenance_time=NOW, who="ada", action="create", subject="x")
        )
        return number

    return work


def _put(
    store: Store, verb: Callable[[Transaction], Callable[[T], None]], things: Iterable[T]
) -> None:
    def work(tx: Transaction) -> None:
        for thing in things:
            verb(tx)(thing)

    store.write(work)


# What is put is what is read.


@pytest.mark.parametrize("event", [_event(), ENDED], ids=["scheduled", "ended"])
def test_event_is_read_as_it_was_put(store: Store, event: ScheduledEvent) -> None:
    store.write(lambda tx: tx.put_event(event))

    assert store.read(lambda reading: reading.event(event.event_id)) == event


def test_moments_come_back_in_utc_to_the_microsecond(store: Store) -> None:
    moment = datetime.fromisoformat("2026-01-05T09:00:00.000001+01:00")
    store.write(lambda tx: tx.put_polled_at(WEB, moment))

    polled_at = store.read(lambda reading: reading.last_polled_at(WEB))

    assert polled_at == moment
    assert polled_at is not None
    assert polled_at.tzinfo is UTC


def test_maintenance_is_read_as_it_was_put(store: Store) -> None:
    plain = Maintenance(
        maintenance_id=MaintenanceId("b"), event_type=EventType.REBOOT, started_at=NOW
    )
    full = Maintenance(
        maintenance_id=MaintenanceId("a"),
        event_type=EventType.REDEPLOY,
        started_at=NOW,
        description="new kernel",
        duration_in_seconds=600,
        resources=(VmName("web-1"), VmName("web-0")),
        hosts=(HostName("kvm-2"), HostName("kvm-1")),
        course=Course(
            canary=("web", "kvm-1"),
            at_once=3,
            soak=timedelta(minutes=30),
            min_available=66,
            gates=("smoke", "ticket"),
            gate_patience=timedelta(hours=2),
            calendar=Calendar(
                windows=(
                    Window(
                        days=frozenset({0, 4}),
                        opens=time(22, 30),
                        closes=time(4),
                        zone="Europe/Berlin",
                    ),
                ),
                blackouts=(
                    Blackout(
                        first=date(2026, 12, 24), last=date(2027, 1, 1), zone="UTC", name="Ferien"
                    ),
                ),
            ),
            hold_all=True,
            in_order=True,
            notice_outside=True,
        ),
        resumed_at=NOW + timedelta(microseconds=1),
        is_paused=True,
        is_aborted=True,
        resolutions={ENDED.event_id: Resolution.SKIP, "operation": Resolution.RETRY},
        finished_at=NOW,
        outcome=MaintenanceOutcome.INCOMPLETE,
    )

    store.write(lambda tx: tx.put_maintenance(plain))
    store.write(lambda tx: tx.put_maintenance(full))

    assert store.read(lambda reading: reading.maintenance(MaintenanceId("a"))) == full
    assert store.read(lambda reading: reading.maintenances()) == (plain, full)
    assert store.read(lambda reading: reading.maintenances(finished=True)) == (full,)
    assert store.read(lambda reading: reading.maintenances(finished=False)) == (plain,)


def _put_maintenance(maintenance: Maintenance, tx: Transaction) -> None:
    tx.put_maintenance(maintenance)


def _put_operation(operation: HostOperation, tx: Transaction) -> None:
    tx.put_operation(operation)


def test_host_operation_is_read_as_it_was_put_with_its_maintenance(store: Store) -> None:
    running = Maintenance(
        maintenance_id=MaintenanceId("running"), event_type=EventType.FREEZE, started_at=NOW
    )
    over = replace(running, maintenance_id=MaintenanceId("over"), finished_at=NOW)
    plain = HostOperation(
        operation_id=OperationId("plain"),
        maintenance_id=running.maintenance_id,
        event_type=EventType.FREEZE,
        host=HostName("kvm-1"),
        created_at=NOW,
    )
    full = HostOperation(
        operation_id=OperationId("full"),
        maintenance_id=over.maintenance_id,
        event_type=EventType.REBOOT,
        host=HostName("kvm-2"),
        created_at=NOW,
        phase=HostPhase.OVER,
        attempt=3,
        verify_at=NOW,
        verify_by=NOW + timedelta(minutes=15),
        ended_at=NOW + timedelta(hours=1),
        outcome=OperationOutcome.FAILED,
        reason="It did not come back.",
    )
    for maintenance in (running, over):
        store.write(partial(_put_maintenance, maintenance))

    for operation in (replace(plain, attempt=2), full, plain):
        store.write(partial(_put_operation, operation))

    both = [running.maintenance_id, over.maintenance_id]
    assert store.read(lambda reading: reading.operations_under_way()) == (plain,)
    assert store.read(lambda reading: reading.operations_of(both)) == (plain, full)
    assert store.read(lambda reading: reading.operations_of([over.maintenance_id])) == (full,)
    assert store.read(lambda reading: reading.host_operation(full.operation_id)) == full
    assert store.read(lambda reading: reading.host_operation(OperationId("none"))) is None


def test_what_people_know_is_kept_until_the_maintenance_is_finished(store: Store) -> None:
    maintenance = Maintenance(
        maintenance_id=MaintenanceId("a"), event_type=EventType.FREEZE, started_at=NOW
    )
    first = Told(maintenance_id=maintenance.maintenance_id)
    then = replace(first, stopped=Phase.HELD, gates=("load", "smoke"), places=("kvm-1",))

    store.write(lambda tx: tx.put_maintenance(maintenance))
    store.write(lambda tx: tx.put_told(first))
    store.write(lambda tx: tx.put_told(then))
    known = store.read(lambda reading: reading.told())
    store.write(lambda tx: tx.put_maintenance(replace(maintenance, finished_at=NOW)))

    assert known == (then,)
    assert store.read(lambda reading: reading.told()) == ()


def test_scenario_run_is_read_as_it_was_put(store: Store) -> None:
    announcement = Announcement(
        at=timedelta(0),
        label="first",
        event_type=EventType.FREEZE,
        event_source=EventSource.USER,
        description="Größe 東京",
        duration_in_seconds=9,
        notice=timedelta(minutes=15, microseconds=1),
        impact=timedelta(minutes=5),
    )
    begun = ScenarioRun(
        run_id=ScenarioRunId("b"),
        name="night",
        resources=(VmName("web-1"), VmName("web-0")),
        began_at=NOW,
        speed=1.5,
        steps=(
            announcement,
            replace(announcement, label="2", notice=None, duration_in_seconds=None),
            Intervention(at=timedelta(days=1), label="first", trigger=Trigger.CANCEL),
            FaultStep(at=timedelta(days=1), fault=Fault(kind=FaultKind.SLOW, seconds=0.5, times=3)),
            ClearStep(at=timedelta(days=1), kind=FaultKind.SLOW),
            ClearStep(at=timedelta(days=1), kind=None),
        ),
    )
    over = replace(
        begun,
        run_id=ScenarioRunId("a"),
        steps_done=2,
        events={"first": (EventId("B"), EventId("A")), "2": ()},
        is_stopped=True,
        finished_at=NOW,
    )

    store.write(lambda tx: tx.put_scenario_run(begun))
    store.write(lambda tx: tx.put_scenario_run(over))

    assert store.read(lambda reading: reading.scenario_run(ScenarioRunId("a"))) == over
    assert store.read(lambda reading: reading.scenario_run(ScenarioRunId("c"))) is None
    assert store.read(lambda reading: reading.scenario_runs()) == (begun, over)
    assert store.read(lambda reading: reading.scenario_runs(finished=True)) == (over,)
    assert store.read(lambda reading: reading.scenario_runs(finished=False)) == (begun,)


def test_ledger_and_audit_are_read_in_the_order_they_were_written(store: Store) -> None:
    lines = [
        LedgerEntry(
            event_id=ENDED.event_id, at=NOW, what=what, who="ada", where="10.0.0.1", detail="d"
        )
        for what in (Happening.SCHEDULED, Happening.APPROVED, Happening.STARTED)
    ]
    entries = [
        AuditEntry(
            at=NOW,
            maintenance_time=NOW + timedelta(days=1),
            who="ada",
            actor=Actor.VIRTUAL_MACHINE,
            where="::1",
            action=action,
            subject="web-0",
            outcome="refused",
            detail="409",
        )
        for action in ("b", "a", "c")
    ]

    def work(tx: Transaction) -> None:
        for line, entry in zip(lines, entries, strict=True):
            tx.append_ledger(line)
            tx.append_audit(entry)

    store.write(work)

    assert store.read(lambda reading: reading.ledger(ENDED.event_id)) == tuple(lines)
    assert store.read(lambda reading: reading.ledger(EventId("X"))) == ()
    assert store.read(lambda reading: reading.audit()) == tuple(entries)
    assert store.read(lambda reading: reading.audit(limit=2)) == tuple(entries[1:])


def test_audit_is_filtered(store: Store) -> None:
    def entry(who: str, action: str, minutes: int) -> AuditEntry:
        at = NOW + timedelta(minutes=minutes)
        outcome = REFUSED if who == "bob" else DONE
        return AuditEntry(
            at=at, maintenance_time=NOW, who=who, action=action, subject="x", outcome=outcome
        )

    entries = (entry("ada", "a", 0), entry("bob", "a", 1), entry("ada", "b", 2))
    _put(store, lambda tx: tx.append_audit, entries)

    def audit(**filters: Any) -> tuple[AuditEntry, ...]:
        return store.read(lambda reading: reading.audit(**filters))

    assert audit(who="ada") == (entries[0], entries[2])
    assert audit(action="a") == entries[:2]
    assert audit(outcome=REFUSED) == entries[1:2]
    assert audit(outcome=DONE, action="a") == entries[:1]
    assert audit(since=NOW + timedelta(minutes=1)) == entries[1:]
    assert audit(who="ada", action="a", since=NOW) == entries[:1]
    assert audit(who="ada", limit=1) == entries[2:]


def test_token_is_found_by_hash_and_replaced(store: Store) -> None:
    token = Token(
        name="ada",
        token_hash="a" * 64,
        role=Role.OPERATOR,
        scopes=(ScopeId("availability-set/web"),),
        created_at=NOW,
        expires_at=NOW + timedelta(days=1),
    )
    host = HostName("kvm-1")
    other = Token(name="bob", token_hash="b" * 64, role=Role.RELAY, host=host, created_at=NOW)
    _put(store, lambda tx: tx.put_token, (token, other))
    revoked = replace(token, revoked_at=NOW, last_used_at=NOW)

    assert store.read(lambda reading: reading.token("a" * 64)) == token
    store.write(lambda tx: tx.put_token(revoked))

    assert store.read(lambda reading: reading.tokens()) == (revoked, other)
    assert store.read(lambda reading: reading.token("c" * 64)) is None


def test_session_is_found_by_hash_replaced_and_removed(store: Store) -> None:
    used = replace(SESSION, used_at=NOW + timedelta(minutes=1))
    link = replace(SESSION, session_hash="b" * 64, is_link=True)
    _put(store, lambda tx: tx.put_session, (SESSION, link))

    assert store.read(lambda reading: reading.session(SESSION.session_hash)) == SESSION
    store.write(lambda tx: tx.put_session(used))
    assert store.read(lambda reading: reading.session(SESSION.session_hash)) == used
    store.write(lambda tx: tx.remove_session(SESSION.session_hash))

    assert store.read(lambda reading: reading.session(SESSION.session_hash)) is None
    assert store.read(lambda reading: reading.session(link.session_hash)) == link


def test_unused_links_of_a_token_are_counted_by_the_time_they_were_made(store: Store) -> None:
    link = replace(SESSION, is_link=True)
    later = NOW + timedelta(seconds=1)
    others = (
        replace(link, session_hash="b" * 64, created_at=later, used_at=later),
        replace(link, session_hash="c" * 64, token_hash="1" * 64),
        replace(SESSION, session_hash="d" * 64),
    )
    _put(store, lambda tx: tx.put_session, (link, *others))

    def count(since: datetime) -> int:
        return store.read(lambda reading: reading.count_links(link.token_hash, since=since))

    assert [count(NOW - timedelta(seconds=1)), count(NOW), count(later)] == [2, 1, 0]


def test_task_is_read_as_it_was_put_and_replaced(store: Store) -> None:
    said = Impact(
        status=ImpactStatus.UNKNOWN, reason="Größe", ask_again_at=NOW, has_no_executor=True
    )
    full = replace(
        TASK,
        state=TaskState.ENDED,
        assignment=2,
        said=said,
        begun_at=NOW,
        heard_at=NOW,
        ended_at=NOW,
        details={"order": {"host": "KVM-1", "vm": None, "attempt": 1}},
    )
    part = replace(TASK, subject="a", name="work", vm=None, host=None)
    _put(store, lambda tx: tx.put_task, (TASK, part))

    assert store.read(lambda reading: reading.task(TASK.key)) == TASK
    store.write(lambda tx: tx.put_task(full))

    assert store.read(lambda reading: reading.task(TASK.key)) == full
    assert store.read(lambda reading: reading.tasks()) == (part, full)
    assert store.read(lambda reading: reading.tasks_of("a")) == (part,)
    assert store.read(lambda reading: reading.task(("a", "work-2"))) is None


def test_tasks_are_found_in_the_order_in_which_they_were_reserved(store: Store) -> None:
    later = replace(TASK, subject="a", reserved_at=NOW + timedelta(microseconds=1))
    first = replace(TASK, subject="c", reserved_at=NOW - timedelta(days=1))
    closed = replace(TASK, subject="closed", closed_at=NOW)
    _put(store, lambda tx: tx.put_task, (later, first, closed, TASK))

    assert store.read(lambda reading: reading.tasks()) == (first, TASK, later)
    assert store.read(lambda reading: reading.tasks_of("closed")) == (closed,)


@pytest.mark.parametrize("state", TaskState)
def test_only_what_is_not_over_is_an_open_task_of_its_node(store: Store, state: TaskState) -> None:
    task = replace(TASK, state=state)
    _put(store, lambda tx: tx.put_task, (task, replace(task, subject="other", node="db-2")))

    found = store.read(lambda reading: reading.open_tasks(TASK.node))

    assert found == (() if task.is_over else (task,))


def test_tasks_are_forgotten_after_they_were_closed(store: Store) -> None:
    closed = replace(TASK, subject="closed", state=TaskState.ENDED, closed_at=NOW)
    _put(store, lambda tx: tx.put_task, (TASK, closed))

    later = NOW + timedelta(days=1)
    early = store.write(lambda tx: tx.prune_tasks(before=NOW))
    late = store.write(lambda tx: tx.prune_tasks(before=later))

    assert (early, late) == (0, 1)
    assert store.read(lambda reading: reading.tasks_of("closed")) == ()
    assert store.read(lambda reading: reading.task(TASK.key)) == TASK


def test_owner_is_replaced_and_removed(store: Store) -> None:
    one, two = OWNER, replace(OWNER, node="db-2:b", name="db-2")
    again = replace(one, generation=2, heard_at=NOW + timedelta(seconds=1))
    _put(store, lambda tx: tx.put_owner, (two, one, again))

    assert store.read(lambda reading: reading.owners()) == (again, two)
    store.write(lambda tx: tx.remove_owner(one.node))

    assert store.read(lambda reading: reading.owners()) == (two,)


def test_sessions_are_forgotten_by_their_last_use(store: Store) -> None:
    recent = replace(SESSION, session_hash="b" * 64, used_at=NOW + timedelta(seconds=1))
    _put(store, lambda tx: tx.put_session, (SESSION, recent))

    counts = [store.write(lambda tx: tx.prune_sessions(before=recent.used_at)) for _ in range(2)]

    assert counts == [1, 0]
    assert store.read(lambda reading: reading.session(SESSION.session_hash)) is None
    assert store.read(lambda reading: reading.session(recent.session_hash)) == recent


def test_events_of_scopes_are_the_newest_of_these_and_of_their_groups(store: Store) -> None:
    scopes = ("scale-set/b", "scale-set/b/pg_1", "scale-set/bb", "scale-set/b/pgX1")
    events = [_event(event_id=EventId(scope), scope_id=ScopeId(scope)) for scope in scopes]
    _put(store, lambda tx: tx.put_event, events)

    def found(*wanted: str, limit: int = 10) -> list[str]:
        ids = tuple(map(ScopeId, wanted))
        listed = store.read(lambda reading: reading.events(scope_ids=ids, limit=limit))
        return [event.event_id for event in listed]

    assert found("scale-set/b") == [scopes[0], scopes[1], scopes[3]]
    assert found("scale-set/b", limit=2) == [scopes[1], scopes[3]]
    assert found("scale-set/b/pg_1", "scale-set/bb") == [scopes[1], scopes[2]]
    assert found() == []


def test_user_operations_in_flight_are_those_of_users(store: Store) -> None:
    user = _event(1, event_source=EventSource.USER)
    _put(store, lambda tx: tx.put_event, (_event(), user, ENDED))

    assert store.read(lambda reading: reading.user_operations_in_flight()) == (user,)


def test_settings_are_replaced(store: Store) -> None:
    store.write(lambda tx: tx.put_setting("clock", "real"))
    store.write(lambda tx: tx.put_setting("clock", "virtual"))

    assert store.read(lambda reading: reading.setting("clock")) == "virtual"
    assert store.read(lambda reading: reading.setting("wire")) is None


def test_nothing_is_there_at_first(store: Store) -> None:
    def look(reading: Reading) -> tuple[object, ...]:
        return (
            reading.topology(),
            reading.event(ENDED.event_id),
            reading.events(),
            reading.events_in_flight(),
            reading.maintenance(MaintenanceId("a")),
            reading.document(WEB),
            reading.documents(),
            reading.last_polled_at(WEB),
            reading.tasks(),
            reading.owners(),
            reading.gate_answers(),
        )

    empty = Topology(virtual_machines={}, scopes={}, hosts={})
    assert store.read(look) == (empty, None, (), (), None, FIRST_DOCUMENT, {}, None, (), (), {})


def test_everything_is_there_after_closing_and_opening(open_store: OpenStore) -> None:
    first = open_store()
    first.write(lambda tx: tx.put_event(ENDED))
    first.write(_apply(_fleet("web-0", "lone")))
    first.close()

    second = open_store()

    assert second.read(lambda reading: reading.events()) == (ENDED,)
    assert second.read(lambda reading: reading.topology()) == _fleet("web-0", "lone")
    second.close()


# Events.


def test_events_stay_in_order_of_creation_when_they_change(store: Store) -> None:
    events = [_event(number) for number in (3, 1, 2)]
    store.write(_put_events(*events))
    started = replace(events[0], event_status=EventStatus.STARTED, started_at=NOW)

    store.write(lambda tx: tx.put_event(started))

    expected = (started, *events[1:])
    assert store.read(lambda reading: reading.events()) == expected
    assert store.read(lambda reading: reading.events_in_flight()) == expected


def test_events_in_flight_are_scheduled_or_started(store: Store) -> None:
    elsewhere = ScopeId("virtual-machine/lone")
    events = [
        _event(1, event_status=EventStatus.STARTED),
        _event(2, event_status=EventStatus.COMPLETED),
        _event(3, event_status=EventStatus.CANCELED),
        _event(4, scope_id=elsewhere),
        _event(5),
    ]
    store.write(_put_events(*events))

    everywhere = store.read(lambda reading: reading.events_in_flight())
    here = store.read(lambda reading: reading.events_in_flight([WEB]))

    assert everywhere == (events[0], events[3], events[4])
    assert here == (events[0], events[4])


def test_events_of_maintenances_are_those_they_created(store: Store) -> None:
    a, b, c = (MaintenanceId(name) for name in "abc")
    events = [_event(number, maintenance_id=each) for number, each in enumerate((b, a, None, c, a))]
    store.write(_put_events(*events))

    assert store.read(lambda reading: reading.events_of([a, b])) == (
        events[0],
        events[1],
        events[4],
    )
    assert store.read(lambda reading: reading.events_of([])) == ()


def test_events_under_way_are_those_in_flight_and_all_of_unfinished_maintenances(
    store: Store,
) -> None:
    running, over = MaintenanceId("running"), MaintenanceId("over")
    events = [
        _event(1, event_status=EventStatus.COMPLETED, maintenance_id=over),
        _event(2, event_status=EventStatus.COMPLETED, maintenance_id=running),
        _event(3, event_status=EventStatus.STARTED, maintenance_id=running),
        _event(4, event_status=EventStatus.CANCELED),
        _event(5),
    ]
    store.write(_put_events(*events))
    unfinished = Maintenance(maintenance_id=running, event_type=EventType.FREEZE, started_at=NOW)
    finished = Maintenance(
        maintenance_id=over, event_type=EventType.FREEZE, started_at=NOW, finished_at=NOW
    )
    store.write(lambda tx: tx.put_maintenance(unfinished))
    store.write(lambda tx: tx.put_maintenance(finished))

    under_way = store.read(lambda reading: reading.events_under_way())

    assert under_way == (events[1], events[2], events[4])


def test_events_are_found_by_status_and_virtual_machine(store: Store) -> None:
    events = [
        _event(1, resources=(VmName("web-1"),)),
        _event(2, resources=(VmName("web-10"), VmName("web-1"))),
        _event(3, resources=(VmName("web-10"),)),
        _event(4, resources=(VmName("web-1"),), event_status=EventStatus.CANCELED),
    ]
    store.write(_put_events(*events))
    scheduled = [EventStatus.SCHEDULED, EventStatus.STARTED]
    vm = VmName("web-1")

    by_vm = store.read(lambda reading: reading.events(vm=vm))
    by_both = store.read(lambda reading: reading.events(status=scheduled, vm=vm))

    assert by_vm == (events[0], events[1], events[3])
    assert by_both == (events[0], events[1])


def test_limit_leaves_the_newest_events(store: Store) -> None:
    events = [_event(number) for number in range(5)]
    store.write(_put_events(*events))

    assert store.read(lambda reading: reading.events(limit=2)) == tuple(events[3:])


def test_older_events_are_those_announced_before_one(store: Store) -> None:
    events = [_event(number) for number in range(5)]
    store.write(_put_events(*events))
    seen = events[3].event_id

    older = store.read(lambda reading: reading.events(older_than=seen, limit=2))

    assert older == tuple(events[1:3])


# Documents.


def test_document_is_read_as_it_was_put(store: Store) -> None:
    started = _event(1, event_status=EventStatus.STARTED)
    document = _document(3, _event(), ENDED, started)

    store.write(_publish(WEB, document))

    assert store.read(lambda reading: reading.document(WEB)) == document


def test_documents_are_those_of_the_fleet(store: Store) -> None:
    fleet = _fleet("web-0")
    store.write(_apply(fleet))
    store.write(_publish(WEB, _document(9)))
    store.write(_publish(WEB, _document(10, _event())))
    store.write(_publish(ScopeId("x/gone"), _document(3)))

    documents = store.read(lambda reading: reading.documents())

    assert documents == {
        WEB: _document(10, _event()),
        ScopeId("scale-set/batch/pg-1"): FIRST_DOCUMENT,
    }
    assert list(documents) == list(fleet.scopes)


def test_removed_scope_leaves_its_document_as_a_tombstone(store: Store) -> None:
    lone = ScopeId("virtual-machine/lone")
    store.write(_apply(_fleet("web-0", "lone")))
    store.write(_publish(lone, _document(4)))

    store.write(_apply(_fleet("web-0")))

    assert store.read(lambda reading: reading.document(lone)) == _document(4)
    assert lone not in store.read(lambda reading: reading.documents())


def test_moment_of_a_poll_or_a_showing_never_goes_back(store: Store) -> None:
    later, vm = NOW + timedelta(seconds=1), VmName("web-0")
    for at in (NOW, later, NOW):
        store.write(partial(_put_moments, vm=vm, at=at))

    assert store.read(lambda reading: reading.last_polled_at(WEB)) == later
    assert store.read(lambda reading: reading.last_polls([vm])) == {vm: later}
    assert store.read(lambda reading: reading.showing(NOW)) == Showing(
        recorded_at=NOW, shown_at=later
    )


def _put_moments(tx: Transaction, *, vm: VmName, at: datetime) -> None:
    tx.put_polled_at(WEB, at)
    tx.put_polls({vm: at})
    tx.put_showings([Showing(recorded_at=NOW, shown_at=at)])


def test_incarnation_is_never_shown_with_other_content(store: Store) -> None:
    store.write(_publish(WEB, _document(4, _event())))

    store.write(_publish(WEB, _document(4, _event())))
    for document in (_document(4), _document(3), _document(3, _event())):
        with pytest.raises(DocumentIncarnationError, match="4 was already published"):
            store.write(_publish(WEB, document))

    assert store.read(lambda reading: reading.document(WEB)) == _document(4, _event())


# The fleet.


def test_topology_is_read_as_it_was_put_and_in_its_order(store: Store) -> None:
    fleet = _fleet("web-0", "z", "a", "m")

    store.write(_apply(fleet))

    topology = store.read(lambda reading: reading.topology())
    assert topology == fleet
    assert _order(topology) == _order(fleet)


FLEETS = [
    ("web-0", "a", "b", "c"),
    ("web-0", "a", "c"),
    ("web-0", "a", "new", "c"),
    ("web-0", "c", "new", "a"),
    ("c", "web-0"),
    ("x",),
    ("web-0", "a", "b", "c", "d"),
]


def test_changed_topology_is_read_by_everyone_and_after_opening_again(
    open_store: OpenStore,
) -> None:
    store = open_store()
    for names in FLEETS:
        fleet = _fleet(*names)
        store.write(_apply(fleet))
        seen = store.read(lambda reading: reading.topology())
        store.close()

        store = open_store()

        loaded = store.read(lambda reading: reading.topology())
        assert (seen, loaded) == (fleet, fleet)
        assert _order(seen) == _order(loaded) == _order(fleet)
    store.close()


def test_what_virtual_machines_have_in_common_is_in_memory_once(open_store: OpenStore) -> None:
    """A fleet may have a million of them, and each text needs as much memory as half of one."""
    fleet = _fleet("web-0")
    (vm,) = fleet.virtual_machines.values()
    twin = replace(vm, name=VmName("web-1"), vm_id="another", addresses=())
    scopes, hosts = fleet.scopes.values(), fleet.hosts.values()
    store = open_store()
    store.write(_apply(build_topology(scopes=scopes, virtual_machines=(vm, twin), hosts=hosts)))
    store.close()

    again = open_store()
    first, second = again.read(lambda reading: reading.topology().virtual_machines.values())
    again.close()

    for name in ("scope_id", "host", "zone", "location", "tags", "labels"):
        assert getattr(first, name) is getattr(second, name), name


def test_topology_of_an_undone_work_is_not_seen(store: Store) -> None:
    def undone(tx: Transaction) -> None:
        tx.put_topology(_fleet("web-0", "ghost"))
        assert tx.topology() == _fleet("web-0", "ghost")
        raise LookupError("changed my mind")

    store.write(_apply(_fleet("web-0")))
    with pytest.raises(LookupError, match="changed my mind"):
        store.write(undone)
    in_transaction = store.write(lambda tx: tx.topology())
    store.write(_apply(_fleet("web-0", "a")))

    assert in_transaction == _fleet("web-0")
    assert store.read(lambda reading: reading.topology()) == _fleet("web-0", "a")


def test_same_topology_is_no_change(store: Store) -> None:
    recorder = _Recorder()
    store.write(_apply(_fleet("web-0")))
    store.listen(recorder)

    store.write(_apply(_fleet("web-0")))

    assert recorder.changes == []


def _order(topology: Topology) -> tuple[list[str], ...]:
    return list(topology.virtual_machines), list(topology.scopes), list(topology.hosts)


# Transactions.


@pytest.mark.threads
@pytest.mark.parametrize("failing", [{0}, {1}, {0, 1}, {1, 2}, {0, 2}, {3}])
def test_raising_work_leaves_nothing_and_its_neighbours_everything(
    store: Store, failing: set[int]
) -> None:
    def work_of(number: int) -> Callable[[Transaction], int]:
        def work(tx: Transaction) -> int:
            _full_work(number)(tx)
            if number in failing:
                raise LookupError("changed my mind")
            return number

        return work

    with held(store):
        futures = [store.submit(work_of(number)) for number in range(4)]

    for number, future in enumerate(futures):
        if number in failing:
            assert isinstance(future.exception(TIMEOUT), LookupError)
        else:
            assert future.result(TIMEOUT) == number
    stored = [number for number in range(4) if number not in failing]
    events = store.read(lambda reading: reading.events())
    assert [event.event_id for event in events] == [_event(each).event_id for each in stored]
    assert len(store.read(lambda reading: reading.audit())) == len(stored)
    assert store.is_writable()


@pytest.mark.threads
def test_work_sees_what_its_predecessors_in_the_queue_did(store: Store) -> None:
    with held(store):
        store.submit(_apply(_fleet("web-0")))
        seen = store.submit(lambda tx: (tx.topology(), tx.next_epoch()))
        last = store.submit(lambda tx: tx.next_epoch())

    assert seen.result(TIMEOUT) == (_fleet("web-0"), 1)
    assert last.result(TIMEOUT) == 2


def test_row_that_breaks_a_rule_is_the_error_of_its_work_alone(store: Store) -> None:
    broken = replace(_fleet("web-0"), scopes={})

    with pytest.raises(Exception, match=r"(?i)foreign key"):
        store.write(_apply(broken))

    assert store.is_writable()
    assert store.write(_full_work(1)) == 1


@pytest.mark.threads
def test_canceled_work_is_not_done(store: Store) -> None:
    with held(store):
        future = store.submit(_full_work(0))
        assert future.cancel()

    store.write(_full_work(1))

    assert len(store.read(lambda reading: reading.events())) == 1


def test_listeners_have_seen_the_commit_before_it_is_acknowledged(store: Store) -> None:
    seen: list[tuple[StoreChange, Document, Topology]] = []

    def listener(change: StoreChange) -> None:
        look = store.read(lambda reading: (reading.document(WEB), reading.topology()))
        seen.append((change, *look))

    def work(tx: Transaction) -> None:
        tx.put_topology(_fleet("web-0"))
        tx.put_document(WEB, _document(1, _event()), at=NOW)

    store.listen(listener)
    store.write(work)

    document, topology = _document(1, _event()), _fleet("web-0")
    change = StoreChange(incarnations={WEB: 1}, topology_version=1, has_work=True)
    assert seen == [(change, document, topology)]


@pytest.mark.threads
def test_works_committed_together_are_one_change_with_the_latest_documents(store: Store) -> None:
    recorder = _Recorder()
    lone = ScopeId("virtual-machine/lone")
    with held(store):
        store.submit(_publish(WEB, _document(1)))
        store.submit(_publish(lone, _document(1)))
        store.submit(_publish(WEB, _document(2)))
        last = store.submit(lambda tx: tx.put_event(_event()))
        store.listen(recorder)

    last.result(TIMEOUT)

    assert recorder.changes == [StoreChange(incarnations={WEB: 2, lone: 1}, has_work=True)]


QUIET: Mapping[str, Callable[[Transaction], object]] = {
    "poll": lambda tx: tx.put_polled_at(WEB, NOW),
    "session": lambda tx: tx.put_session(SESSION),
    "end of a session": lambda tx: tx.remove_session(SESSION.session_hash),
    "owner": lambda tx: tx.put_owner(OWNER),
    "task that runs": lambda tx: tx.put_task(replace(TASK, state=TaskState.BEGUN)),
}


@pytest.mark.parametrize("work", QUIET.values(), ids=QUIET)
def test_listeners_are_not_called_without_a_change_for_them(
    store: Store, work: Callable[[Transaction], object]
) -> None:
    recorder = _Recorder()
    store.listen(recorder)

    store.write(work)

    assert recorder.changes == []


_MAINTENANCE = Maintenance(
    maintenance_id=MaintenanceId("a"), event_type=EventType.FREEZE, started_at=NOW
)
_OPERATION = HostOperation(
    operation_id=OperationId("a"),
    maintenance_id=_MAINTENANCE.maintenance_id,
    event_type=EventType.FREEZE,
    host=HostName("kvm-1"),
    created_at=NOW,
)
_RUN = ScenarioRun(
    run_id=ScenarioRunId("a"), name="night", resources=(), began_at=NOW, speed=1, steps=()
)
WORKS: Mapping[str, Callable[[Transaction], None]] = {
    "topology": lambda tx: tx.put_topology(_fleet("web-0")),
    "event": lambda tx: tx.put_event(_event()),
    "maintenance": lambda tx: tx.put_maintenance(_MAINTENANCE),
    "operation": lambda tx: tx.put_operation(_OPERATION),
    "task that is over": lambda tx: tx.put_task(replace(TASK, state=TaskState.ENDED)),
    "task that is lost": lambda tx: tx.put_task(
        replace(TASK, state=TaskState.UNKNOWN, said=Impact(status=ImpactStatus.UNKNOWN))
    ),
    "scenario": lambda tx: tx.put_scenario_run(_RUN),
    "schedule": lambda tx: tx.remove_schedule(ScheduleName("nightly")),
    "soak": lambda tx: tx.put_soak(WEB, NOW, at=NOW),
    "pause": lambda tx: tx.put_setting(SERVER_PAUSE, ""),
}


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
def test_whatever_the_scheduler_looks_at_is_work(
    store: Store, work: Callable[[Transaction], None]
) -> None:
    recorder = _Recorder()
    store.listen(recorder)

    store.write(work)

    assert [change.has_work for change in recorder.changes] == [True]


@pytest.mark.parametrize("task", [TASK, lose(TASK, IN_DOUBT)])
def test_watchers_hear_of_what_is_reserved_or_unknown_also_if_the_leader_records_it(
    store: Store, task: Task
) -> None:
    epoch, recorder = store.write(lambda tx: tx.next_epoch()), _Recorder()
    store.listen(recorder)

    def record(tx: Transaction) -> None:
        tx.check_epoch(epoch)
        tx.put_task(task)

    store.write(record)

    assert [change.has_tasks for change in recorder.changes] == [True]


@pytest.mark.threads
def test_what_the_leader_records_is_no_work_unless_others_record_some(store: Store) -> None:
    epoch, recorder = store.write(lambda tx: tx.next_epoch()), _Recorder()
    store.listen(recorder)

    def record(tx: Transaction) -> None:
        tx.check_epoch(epoch)
        _full_work(1)(tx)

    store.write(record)
    with held(store):
        store.submit(lambda tx: tx.put_event(_event(2)))
        last = store.submit(lambda tx: tx.check_epoch(epoch))
    last.result(TIMEOUT)

    assert [change.has_work for change in recorder.changes] == [False, True]


def test_documents_of_some_scopes_are_read(store: Store) -> None:
    gone = ScopeId("virtual-machine/gone")
    for scope_id, incarnation in ((WEB, 1), (WEB, 2), (gone, 7)):
        store.write(_publish(scope_id, _document(incarnation)))

    found = store.read(lambda reading: reading.documents([WEB, gone, ScopeId("x")]))

    assert found == {WEB: _document(2), gone: _document(7), "x": FIRST_DOCUMENT}


def test_listener_that_raises_harms_nobody(store: Store) -> None:
    recorder = _Recorder()

    def broken(change: StoreChange) -> None:
        raise ZeroDivisionError(change)

    store.listen(broken)
    store.listen(recorder)

    store.write(_publish(WEB, _document(1)))
    store.write(_publish(WEB, _document(2)))

    assert [change.incarnations[WEB] for change in recorder.changes] == [1, 2]
    assert [change.sequence for change in recorder.changes] == [1, 2]


def test_write_from_within_a_work_is_refused(store: Store) -> None:
    with pytest.raises(RuntimeError, match="submit"):
        store.write(lambda _: store.write(_full_work(0)))

    assert store.read(lambda reading: reading.events()) == ()


def test_submit_from_a_listener_is_done_afterwards(store: Store) -> None:
    done: list[Future[int]] = []

    def listener(change: StoreChange) -> None:
        done.append(store.submit(_full_work(change.incarnations[WEB])))

    store.listen(listener)

    store.write(_publish(WEB, _document(1)))

    assert done[0].result(TIMEOUT) == 1


def test_epoch_of_an_earlier_leader_is_refused(store: Store) -> None:
    def record(tx: Transaction, epoch: int) -> None:
        tx.put_event(_event())
        tx.check_epoch(epoch)

    old = store.write(lambda tx: tx.next_epoch())
    new = store.write(lambda tx: tx.next_epoch())

    with pytest.raises(LeaseLostError) as refusal:
        store.write(lambda tx: record(tx, old))

    assert (refusal.value.epoch, refusal.value.current) == (old, new)
    assert store.read(lambda reading: reading.events()) == ()
    store.write(lambda tx: record(tx, new))


def test_epoch_that_no_leader_was_given_is_refused(store: Store) -> None:
    current = store.write(lambda tx: tx.next_epoch())

    with pytest.raises(LeaseLostError) as refusal:
        store.write(lambda tx: tx.check_epoch(current + 1))

    assert (refusal.value.epoch, refusal.value.current) == (current + 1, current)


@pytest.mark.threads
def test_write_is_committed_before_it_is_answered(store: Store) -> None:
    found: SimpleQueue[str | None] = SimpleQueue()

    def look(_: Future[None]) -> None:
        found.put(store.read(lambda reading: reading.setting("a")))

    with held(store):
        future = store.submit(lambda tx: tx.put_setting("a", "1"))
        future.add_done_callback(look)

    assert found.get(timeout=TIMEOUT) == "1"


def test_what_gates_answered_is_read_as_it_was_put(store: Store) -> None:
    epoch = store.write(lambda tx: tx.next_epoch())
    question = Question(
        gate="smoke", maintenance_id=MaintenanceId("m"), scope_ids=(WEB,), steps_done=3
    )
    answer = Answer(status=GateStatus.SHUT, output="no", ask_again_at=NOW, asked_since=NOW)
    other, done = replace(question, gate="Größe"), Answer(status=GateStatus.OPEN)

    store.write(
        lambda tx: tx.put_gate_answers({question: answer, other: answer}, forget=(), epoch=epoch)
    )
    first = store.read(lambda reading: reading.gate_answers())
    store.write(lambda tx: tx.put_gate_answers({other: done}, forget=(question,), epoch=epoch))

    assert first == {question: answer, other: answer}
    assert store.read(lambda reading: reading.gate_answers()) == {other: done}
    with pytest.raises(LeaseLostError):
        store.write(lambda tx: tx.put_gate_answers({question: answer}, forget=(), epoch=epoch - 1))


# Many at once.


@pytest.mark.threads
def test_writes_of_many_threads_are_all_there(store: Store) -> None:
    def write_many(thread: int) -> list[int]:
        return [store.write(_full_work(thread * 100 + number)) for number in range(100)]

    with ThreadPoolExecutor(8) as threads:
        results = [number for numbers in threads.map(write_many, range(8)) for number in numbers]

    events = store.read(lambda reading: reading.events())
    assert results == list(range(800))
    assert {event.event_id for event in events} == {_event(number).event_id for number in results}
    assert len(store.read(lambda reading: reading.audit())) == 800


@pytest.mark.threads
def test_readers_see_one_moment_while_others_write(store: Store) -> None:
    stop = Signal()

    def look(reading: Reading) -> tuple[int, int, int]:
        count = len(reading.events())
        return count, len(reading.audit()), sum(len(reading.ledger(e)) for e in EVENT_IDS)

    def read_on() -> list[tuple[int, int, int]]:
        seen = []
        while not stop.is_set():
            seen.append(store.read(look))
        return seen

    with ThreadPoolExecutor(3) as threads:
        readers = [threads.submit(read_on) for _ in range(3)]
        for number in range(len(EVENT_IDS)):
            store.write(_full_work(number))
        stop.set()
        seen = [counts for reader in readers for counts in reader.result(TIMEOUT)]

    assert all(events == audit == ledger for events, audit, ledger in seen)
    assert store.read(look) == (len(EVENT_IDS),) * 3


EVENT_IDS = [_event(number).event_id for number in range(30)]


def test_closing_finishes_what_was_submitted(open_store: OpenStore) -> None:
    store = open_store()
    futures = [store.submit(_full_work(number)) for number in range(600)]

    store.close()

    assert wait(futures, 0).not_done == set()
    assert [future.result() for future in futures] == list(range(600))
    with pytest.raises(StoreClosedError):
        store.submit(_full_work(1))
    with pytest.raises(StoreClosedError):
        store.read(lambda reading: reading.events())
    store.close()


def test_ledger_of_all_events_can_be_followed(store: Store) -> None:
    for number in range(5):
        store.write(_full_work(number))

    def look(reading: Reading) -> tuple[tuple[LedgerLine, ...], tuple[LedgerLine, ...], int]:
        return (
            reading.ledger_after(2, limit=2),
            reading.ledger_after(5, limit=2),
            reading.last_sequence(),
        )

    some, none, last = store.read(look)
    assert [line.sequence for line in some] == [3, 4]
    assert (none, last) == ((), 5)
    assert some[0] == LedgerLine(
        sequence=3,
        event_id=_event(2).event_id,
        event_type=EventType.REBOOT,
        scope_id=ScopeId("virtual-machine/vm-2"),
        resources=(VmName("web-1"), VmName("web-0")),
        maintenance_id=_event(2).maintenance_id,
        host=_event(2).host,
        outcome=_event(2).outcome,
        at=NOW,
        what=Happening.SCHEDULED,
        who="ada",
        where="",
        detail="",
    )


def test_ledger_of_a_new_store_is_empty(store: Store) -> None:
    assert store.read(lambda reading: reading.last_sequence()) == 0


def test_listeners_hear_of_a_ledger_that_has_grown(store: Store) -> None:
    recorder = _Recorder()
    store.listen(recorder)
    entry = LedgerEntry(event_id=_event().event_id, at=NOW, what=Happening.APPROVED, who="ada")

    store.write(lambda tx: tx.append_ledger(entry))

    assert recorder.changes == [StoreChange(has_ledger_grown=True)]


def test_events_are_narrowed_down_by_scope_type_and_ending(store: Store) -> None:
    lone = ScopeId("virtual-machine/lone")
    events = (
        _event(1, ended_at=NOW),
        _event(2, ended_at=NOW + timedelta(hours=1), event_type=EventType.FREEZE),
        _event(3, scope_id=lone),
    )

    def put(tx: Transaction) -> None:
        for event in events:
            tx.put_event(event)

    def look(reading: Reading) -> tuple[tuple[ScheduledEvent, ...], ...]:
        hour = NOW + timedelta(hours=1)
        return (
            reading.events(scope_ids=[lone]),
            reading.events(scope_ids=[]),
            reading.events(event_type=EventType.FREEZE),
            reading.events(ended=(NOW, None)),
            reading.events(ended=(NOW, hour)),
            reading.events(created_before=NOW),
            reading.events(created_before=hour),
        )

    store.write(put)

    by_scope, by_type = (events[2:], ()), (events[1:2],)
    by_time = (events[:2], events[:1], (), events)
    assert store.read(look) == (*by_scope, *by_type, *by_time)


def test_document_of_a_moment_is_the_last_published_by_then(store: Store) -> None:
    store.write(lambda tx: tx.put_document(WEB, _document(1), at=NOW))
    store.write(lambda tx: tx.put_document(WEB, _document(3), at=NOW + timedelta(hours=1)))

    def look(reading: Reading) -> list[int]:
        moments = (NOW - timedelta(microseconds=1), NOW, NOW + timedelta(hours=1))
        return [reading.document_at(WEB, at).document_incarnation for at in moments]

    assert store.read(look) == [0, 1, 3]


def test_removed_documents_leave_the_current_one_and_its_number(store: Store) -> None:
    def publish(tx: Transaction) -> None:
        for number in (1, 2, 3):
            tx.put_document(WEB, _document(number), at=NOW + timedelta(hours=number))

    store.write(publish)
    before = NOW + timedelta(hours=2)

    found = store.read(lambda reading: reading.superseded_documents(before, limit=10))
    store.write(lambda tx: tx.remove_documents(found))

    assert found == ((WEB, 1),)
    assert store.read(lambda reading: reading.document(WEB)) == _document(3)
    with pytest.raises(DocumentIncarnationError):
        store.write(lambda tx: tx.put_document(WEB, _document(1, _event()), at=NOW))


def test_prepared_topology_is_written_as_if_it_had_not_been(store: Store) -> None:
    store.write(_apply(_fleet("web-0", "gone")))
    wanted = _fleet("web-0", "new")
    prepared = store.read(lambda reading: reading.prepare_topology(wanted))

    store.write(lambda tx: tx.put_topology(wanted, prepared))

    assert prepared.topology is wanted
    assert store.read(lambda reading: reading.topology()) == wanted


@pytest.mark.parametrize("meanwhile", [("web-0", "other"), ("web-0", "gone")])
def test_topology_prepared_on_top_of_another_one_leaves_nothing_of_it(
    open_store: OpenStore, meanwhile: tuple[str, ...]
) -> None:
    store = open_store()
    store.write(_apply(_fleet("web-0", "gone")))
    wanted = _fleet("web-0", "new")
    prepared = store.read(lambda reading: reading.prepare_topology(wanted))
    store.write(_apply(_fleet(*meanwhile)))

    store.write(lambda tx: tx.put_topology(wanted, prepared))
    store.write(lambda tx: tx.put_topology(wanted, prepared))

    store.close()
    again = open_store()
    found = again.read(lambda reading: reading.topology())
    again.close()
    assert (found, _order(found)) == (wanted, _order(wanted))


def test_membership_is_superseded_by_a_later_one_or_by_leaving_for_good(store: Store) -> None:
    def at(vm: str, hour: int, scope: str | None = "availability-set/web") -> Membership:
        since = NOW.replace(hour=hour)
        return Membership(
            vm=VmName(vm), since=since, scope_id=None if scope is None else ScopeId(scope)
        )

    store.write(
        lambda tx: tx.put_memberships(
            [
                *(at("moved", 1), at("moved", 2, "availability-set/app"), at("moved", 9)),
                at("stayed", 1),
                *(at("gone", 1), at("gone", 2, None)),
                *(at("back", 1), at("back", 2, None), at("back", 9)),
                *(at("left", 1), at("left", 9, None)),
            ]
        )
    )
    before = NOW.replace(hour=8)

    def forget(tx: Transaction) -> set[tuple[str, int]]:
        found = tx.superseded_memberships(before, limit=100)
        assert len(tx.superseded_memberships(before, limit=1)) == 1
        tx.remove_memberships(found)
        tx.remove_memberships([])
        assert tx.superseded_memberships(before, limit=100) == ()
        return {(vm, since.hour) for vm, since in found}

    assert store.write(forget) == {("moved", 1), ("gone", 1), ("gone", 2), ("back", 1)}
    kept = store.read(lambda reading: reading.memberships("MOVED"))
    assert [each.since.hour for each in kept] == [2, 9]


def test_answer_is_kept_for_who_was_answered_until_it_is_pruned(store: Store) -> None:
    first = KeptAnswer(who="alice", key="k", fingerprint="f", answered_at=NOW, body="{}")
    other = replace(first, who="bob", body="[]")
    store.write(lambda tx: tx.put_answer(replace(first, body="before")))
    store.write(lambda tx: tx.put_answer(first))
    store.write(lambda tx: tx.put_answer(other))

    assert store.read(lambda reading: reading.kept_answer("alice", "k")) == first
    assert store.read(lambda reading: reading.kept_answer("bob", "k")) == other
    assert store.read(lambda reading: reading.kept_answer("bob", "K")) is None
    assert store.write(lambda tx: tx.prune_answers(before=NOW)) == 0
    assert store.write(lambda tx: tx.prune_answers(before=NOW + timedelta(seconds=1))) == 2
    assert store.read(lambda reading: reading.kept_answer("alice", "k")) is None


def test_memberships_are_kept_in_order_and_in_any_case(store: Store) -> None:
    joined = Membership(vm=VmName("web-0"), since=NOW, scope_id=WEB)
    left = Membership(vm=VmName("web-0"), since=NOW + timedelta(hours=1), scope_id=None)
    store.write(lambda tx: tx.put_memberships([left, replace(joined, scope_id=None)]))
    store.write(lambda tx: tx.put_memberships([replace(joined, vm=VmName("WEB-0"))]))
    store.write(lambda tx: tx.put_memberships([]))

    assert store.read(lambda reading: reading.memberships("Web-0")) == (joined, left)


def test_soaks_are_kept_until_they_are_over(store: Store) -> None:
    web, db = ScopeId("availability-set/web"), ScopeId("availability-set/db")
    later = NOW + timedelta(hours=1)

    store.write(lambda tx: tx.put_soak(web, NOW, at=NOW - timedelta(hours=1)))
    assert store.read(lambda reading: reading.soaks()) == {web: NOW}
    store.write(lambda tx: tx.put_soak(db, later, at=NOW))

    assert store.read(lambda reading: reading.soaks()) == {db: later}
