"""What hosts take and report, on a real store."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.findings import find_problems

from forewarn.domain.host_operation import HostOperation, HostPhase
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName, MaintenanceId, OperationId
from forewarn.domain.task import FETCHED, Ownership, Task, TaskState, lose, observe
from forewarn.operations.context import Context
from forewarn.operations.pausing import pause_server, resume_server
from forewarn.operations.tasks import (
    NotTakenError,
    TakingRefusedError,
    TaskSelection,
    UnknownFetchedTaskError,
    fetching_node,
    find_fetched_tasks,
    find_tasks,
    report_fetched_task,
    take_task,
)
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventType

KVM = HostName("KVM-0")
KEY = ("9F6D1B52", "work")
CHECK = ("9F6D1B52", "verify-1")
RUNNING = Impact(status=ImpactStatus.RUNNING, reason="60 %")
DONE = Impact(status=ImpactStatus.DONE, reason="patched")
LOST = Impact(status=ImpactStatus.UNKNOWN, reason="the host has no record of it")


@pytest.fixture
def reserved(store: Store, operator: Context) -> Store:
    operation = HostOperation(
        operation_id=OperationId(KEY[0]),
        maintenance_id=MaintenanceId("kernel"),
        event_type=EventType.REBOOT,
        host=HostName("kvm-0"),
        created_at=operator.now,
        phase=HostPhase.WORK,
    )
    task = Task(
        subject=KEY[0],
        name=KEY[1],
        host=HostName("kvm-0"),
        runner=FETCHED,
        node=fetching_node(HostName("kvm-0")),
        epoch=1,
        said=Impact(status=ImpactStatus.NOT_BEGUN, reason="the host has not fetched it yet"),
        reserved_at=operator.at,
        details={"order": {"host": "kvm-0", "task": "work"}},
    )
    store.write(lambda tx: tx.put_operation(operation))
    store.write(lambda tx: tx.put_task(task))
    return store


def take(store: Store, context: Context, ticket: str = "ours", host: HostName = KVM) -> None:
    store.write(lambda tx: take_task(tx, context, host, KEY, {"ticket": ticket}))


def report(store: Store, context: Context, said: Impact = DONE, host: HostName = KVM) -> None:
    store.write(lambda tx: report_fetched_task(tx, context, host, KEY, said))


def known(store: Store) -> Task:
    task = store.read(lambda reading: reading.task(KEY))
    assert task is not None
    return task


def put(store: Store, task: Task) -> None:
    store.write(lambda tx: tx.put_task(task))


def listed(store: Store, host: HostName = KVM) -> list[TaskState]:
    return [each.state for each in store.read(lambda reading: find_fetched_tasks(reading, host))]


def audited(store: Store) -> list[tuple[str, str, str]]:
    entries = store.read(lambda reading: reading.audit(limit=10))
    return [(each.action, each.subject, each.detail) for each in entries]


def test_host_takes_what_is_reserved_for_it_and_reports_its_end(
    reserved: Store, operator: Context
) -> None:
    assert listed(reserved) == [TaskState.RESERVED]
    take(reserved, operator)
    assert listed(reserved) == [TaskState.BEGUN]
    report(reserved, operator, RUNNING)
    assert listed(reserved) == [TaskState.BEGUN]
    assert known(reserved).said == RUNNING
    report(reserved, operator)

    assert listed(reserved) == []
    assert (known(reserved).state, known(reserved).said) == (TaskState.ENDED, DONE)
    assert audited(reserved) == [
        ("host work take", "kvm-0", "work of operation 9F6D1B52"),
        ("host work done", "kvm-0", "work of operation 9F6D1B52: patched"),
    ]


def test_word_of_the_server_about_fetching_is_gone_once_the_host_has_taken_it(
    reserved: Store, operator: Context
) -> None:
    take(reserved, operator)

    assert known(reserved).said == Impact(status=ImpactStatus.RUNNING)


def test_report_tells_when_the_host_was_heard_although_it_says_nothing_new(
    reserved: Store, operator: Context
) -> None:
    take(reserved, operator)
    report(reserved, operator, RUNNING)
    later = replace(operator, at=operator.at + timedelta(seconds=20))

    report(reserved, later, RUNNING)

    assert known(reserved).heard_at == later.at


def test_checks_are_not_audited(reserved: Store, operator: Context) -> None:
    put(reserved, replace(known(reserved), name=CHECK[1]))

    reserved.write(lambda tx: take_task(tx, operator, KVM, CHECK, {"ticket": "ours"}))
    reserved.write(lambda tx: report_fetched_task(tx, operator, KVM, CHECK, DONE))

    task = reserved.read(lambda reading: reading.task(CHECK))
    assert task is not None
    assert task.state is TaskState.ENDED
    assert audited(reserved) == []


def test_repeated_requests_change_nothing(reserved: Store, operator: Context) -> None:
    for _ in range(2):
        take(reserved, operator)
    for _ in range(2):
        report(reserved, operator)
    report(reserved, operator, Impact(status=ImpactStatus.FAILED, reason="late"))

    assert known(reserved).said == DONE
    assert len(audited(reserved)) == 2


def test_second_taker_is_refused(reserved: Store, operator: Context) -> None:
    take(reserved, operator)

    with pytest.raises(TakingRefusedError, match="it is taken"):
        take(reserved, operator, "theirs")

    assert known(reserved).details["ticket"] == "ours"


@pytest.mark.parametrize(
    ("said", "problem"), [(LOST, "it is unknown"), (DONE, "it is over")], ids=["lost", "over"]
)
def test_what_was_reported_as_lost_or_over_is_not_taken_again(
    reserved: Store, operator: Context, said: Impact, problem: str
) -> None:
    take(reserved, operator)
    report(reserved, operator, said)
    if said is LOST:
        put(reserved, replace(known(reserved), state=TaskState.UNKNOWN))

    with pytest.raises(TakingRefusedError, match=problem):
        take(reserved, operator)


def test_loss_is_audited_once(reserved: Store, operator: Context) -> None:
    take(reserved, operator)
    for _ in range(2):
        report(reserved, operator, LOST)

    assert [action for action, *_ in audited(reserved)] == ["host work take", "host work unknown"]


def test_what_was_not_taken_cannot_be_reported(reserved: Store, operator: Context) -> None:
    with pytest.raises(NotTakenError):
        report(reserved, operator)

    assert known(reserved).state is TaskState.RESERVED


def test_what_an_operator_has_settled_is_not_ended_by_a_late_report(
    reserved: Store, operator: Context
) -> None:
    take(reserved, operator)
    put(reserved, replace(known(reserved), state=TaskState.SETTLED))
    before = known(reserved)

    report(reserved, operator)

    assert replace(known(reserved), details=before.details) == before


def test_late_report_of_a_host_is_audited_and_found_once(
    reserved: Store, operator: Context
) -> None:
    take(reserved, operator)
    word = Impact(status=ImpactStatus.FAILED, reason="settled by ops")
    put(reserved, replace(known(reserved), state=TaskState.SETTLED, said=word))

    for said in (RUNNING, RUNNING, DONE, DONE, LOST):
        report(reserved, operator, said)

    assert (known(reserved).state, known(reserved).said) == (TaskState.SETTLED, word)
    late = reserved.read(lambda reading: reading.audit(action="task late", limit=10))
    assert [(each.who, each.detail) for each in late] == [("KVM-0", "running"), ("KVM-0", "done")]

    (newest,) = (each.sentence for each in find_problems(reserved, operator))
    assert "Host KVM-0 reports the work on kvm-0 as done, but it was settled as failed" in newest


def test_end_of_what_was_unknown_counts(reserved: Store, operator: Context) -> None:
    take(reserved, operator)
    put(reserved, replace(known(reserved), state=TaskState.UNKNOWN, said=LOST))

    report(reserved, operator, RUNNING)
    assert known(reserved).said == LOST, "it stays unknown until it has ended"
    report(reserved, operator)

    assert (known(reserved).state, known(reserved).said) == (TaskState.ENDED, DONE)


def test_operator_cannot_settle_what_its_host_reports_again(
    reserved: Store, operator: Context
) -> None:
    take(reserved, operator)
    silent = operator.at - timedelta(hours=1)
    lost = lose(replace(known(reserved), heard_at=silent), "the host is away", is_final=False)
    put(reserved, lost)

    def can_settle() -> bool:
        (found,) = reserved.read(lambda reading: find_tasks(reading, operator, TaskSelection()))
        return found.can_settle

    assert can_settle()
    report(reserved, operator, RUNNING)
    assert not can_settle()


def test_for_another_host_it_does_not_exist(reserved: Store, operator: Context) -> None:
    other = HostName("kvm-1")

    assert listed(reserved, other) == []
    with pytest.raises(UnknownFetchedTaskError):
        take(reserved, operator, host=other)
    take(reserved, operator)
    before = known(reserved)
    with pytest.raises(UnknownFetchedTaskError):
        report(reserved, operator, host=other)

    assert known(reserved) == before


def test_task_of_a_server_is_not_for_its_host_to_fetch(reserved: Store, operator: Context) -> None:
    put(reserved, replace(known(reserved), runner="command"))

    with pytest.raises(UnknownFetchedTaskError):
        take(reserved, operator)


def test_what_was_never_reserved_does_not_exist(store: Store, operator: Context) -> None:
    with pytest.raises(UnknownFetchedTaskError):
        take(store, operator)


def test_nothing_is_taken_during_a_pause(reserved: Store, operator: Context) -> None:
    reserved.write(lambda tx: pause_server(tx, operator))

    assert listed(reserved) == []
    with pytest.raises(TakingRefusedError, match="the server is paused"):
        take(reserved, operator)

    reserved.write(lambda tx: resume_server(tx, operator))
    take(reserved, operator)
    assert listed(reserved) == [TaskState.BEGUN]


def test_pause_changes_nothing_of_what_was_taken_before(reserved: Store, operator: Context) -> None:
    take(reserved, operator)
    taken = known(reserved)
    reserved.write(lambda tx: pause_server(tx, operator))
    later = replace(operator, at=operator.at + timedelta(hours=1))
    reserved.write(lambda tx: resume_server(tx, later))

    assert known(reserved) == taken


def test_what_was_taken_before_a_pause_is_reported(reserved: Store, operator: Context) -> None:
    take(reserved, operator)
    reserved.write(lambda tx: pause_server(tx, operator))

    take(reserved, operator)
    report(reserved, operator)

    assert known(reserved).said == DONE


def test_nothing_is_taken_of_an_operation_that_is_over(reserved: Store, operator: Context) -> None:
    operation = reserved.read(lambda reading: reading.host_operation(OperationId(KEY[0])))
    assert operation is not None
    over = replace(operation, phase=HostPhase.OVER, ended_at=operator.now)
    reserved.write(lambda tx: tx.put_operation(over))

    assert listed(reserved) == []
    with pytest.raises(TakingRefusedError, match="its operation is over"):
        take(reserved, operator)
    assert known(reserved).state is TaskState.RESERVED


def test_host_that_reports_every_minute_is_not_away(reserved: Store, operator: Context) -> None:
    take(reserved, operator)
    said, limit = known(reserved).said, timedelta(minutes=2)

    def observe_after(silence: timedelta) -> Impact:
        at = operator.at + silence
        return observe(known(reserved), Ownership(node="kvm-9:node", at=at))

    assert observe_after(limit - timedelta(seconds=1)) == said
    away = observe_after(limit).away
    assert away is not None
    assert (away.name, away.since) == ("kvm-0", operator.at)
