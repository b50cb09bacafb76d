"""Tasks: every state against everything that can happen, and what the leader does by itself."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Final

import pytest

from forewarn.domain.impact import Impact, ImpactStatus, OwnerAway
from forewarn.domain.names import HostName, VmName
from forewarn.domain.task import (
    ADOPTABLE,
    ARROWS,
    BY_HAND,
    FETCHED,
    HOST_SILENT_AFTER,
    IN_DOUBT,
    MANUAL,
    OPEN,
    OWNER_GRACE,
    RESTARTS_HOST,
    SILENT_AFTER,
    SIMULATED,
    TIMEOUT_SECONDS,
    Arrow,
    Owner,
    Ownership,
    Task,
    TaskState,
    TaskStateError,
    assign,
    begin,
    finish,
    give_back,
    lose,
    next_tasks,
    observe,
    settle,
    withdraw,
)

NOW: Final = datetime(2026, 3, 2, 12, tzinfo=UTC)
LATER: Final = NOW + timedelta(seconds=7)
RUNNING: Final = Impact(status=ImpactStatus.RUNNING)
DONE: Final = Impact(status=ImpactStatus.DONE)
RESTART: Final = {RESTARTS_HOST: True, TIMEOUT_SECONDS: 1800}
NOT_BEGUN: Final = Impact(status=ImpactStatus.NOT_BEGUN)
UNKNOWN: Final = Impact(status=ImpactStatus.UNKNOWN)
SAID: Final = {
    TaskState.RESERVED: NOT_BEGUN,
    TaskState.BEGUN: RUNNING,
    TaskState.UNKNOWN: UNKNOWN,
    TaskState.ENDED: DONE,
    TaskState.SETTLED: DONE,
    TaskState.WITHDRAWN: Impact(status=ImpactStatus.FAILED),
}
TASK: Final = Task(
    subject="E1",
    name="web-0",
    vm=VmName("web-0"),
    host=HostName("kvm-1"),
    runner="command",
    node="n1",
    assignment=3,
    epoch=5,
    said=NOT_BEGUN,
    reserved_at=NOW,
)


def in_state(state: TaskState, *, runner: str = "command", node: str = "n1") -> Task:
    return replace(TASK, state=state, said=SAID[state], runner=runner, node=node)


VERBS: Final[dict[Arrow, Callable[[Task], Task]]] = {
    Arrow.ASSIGN: lambda task: assign(task, "n2", epoch=6),
    Arrow.BEGIN: lambda task: begin(task, LATER),
    Arrow.GIVE_BACK: lambda task: give_back(task, LATER),
    Arrow.LOSE: lambda task: lose(task, "it burns"),
    Arrow.END: lambda task: finish(task, DONE, LATER),
    Arrow.SETTLE: lambda task: settle(task, is_done=True, reason="seen", now=LATER),
    Arrow.WITHDRAW: lambda task: withdraw(task, is_done=False, reason="late", now=LATER),
}


@pytest.mark.parametrize(("state", "arrow"), list(product(TaskState, Arrow)))
def test_task_changes_only_along_the_arrows(state: TaskState, arrow: Arrow) -> None:
    # What is begun is settled only where nobody else tells of its end.
    task = in_state(state, runner=MANUAL if arrow is Arrow.SETTLE else "command")
    expected = ARROWS.get((state, arrow))

    if expected is None:
        with pytest.raises(TaskStateError, match=rf"'web-0' of E1 is {state}.*\({arrow}\)"):
            VERBS[arrow](task)
    else:
        assert VERBS[arrow](task).state is expected


@pytest.mark.parametrize("arrow", Arrow)
@pytest.mark.parametrize("state", [state for state in TaskState if state not in OPEN])
def test_nothing_changes_what_is_over(state: TaskState, arrow: Arrow) -> None:
    assert in_state(state).is_over
    assert (state, arrow) not in ARROWS


def test_assigned_task_is_another_owners() -> None:
    assigned = assign(TASK, "n2", epoch=6)

    assert assigned == replace(TASK, node="n2", assignment=4, epoch=6)
    begun = begin(assigned, LATER)
    assert (begun.begun_at, begun.heard_at, begun.said) == (LATER, LATER, RUNNING)


def test_task_that_is_given_back_is_as_if_it_had_never_begun() -> None:
    begun = begin(TASK, LATER)

    after = give_back(begun, LATER)

    assert replace(after, heard_at=None) == TASK


@pytest.mark.parametrize(
    ("runner", "said", "is_settled"),
    [
        ("command", RUNNING, False),
        ("webhook", RUNNING, False),
        (FETCHED, RUNNING, False),
        ("webhook", BY_HAND, True),
        (MANUAL, BY_HAND, True),
        (SIMULATED, RUNNING, False),
    ],
)
def test_operator_settles_nothing_that_somebody_is_at(
    runner: str, said: Impact, *, is_settled: bool
) -> None:
    task = replace(in_state(TaskState.BEGUN, runner=runner), said=said)

    if is_settled:
        after = settle(task, is_done=False, reason="burnt", now=LATER)
        assert (after.said.status, after.said.reason) == (ImpactStatus.FAILED, "burnt")
        assert after.ended_at == LATER
    else:
        with pytest.raises(TaskStateError):
            settle(task, is_done=False, reason="burnt", now=LATER)


def owner(node: str = "n2", *, silent_for: timedelta = timedelta(0)) -> Owner:
    return Owner(node=node, name=f"host-of-{node}", generation=1, heard_at=NOW - silent_for)


def ownership(*owners: Owner, restored_at: datetime | None = None) -> Ownership:
    """Return what the leader, which is n1, knows of the others."""
    return Ownership(
        node="n1",
        at=NOW,
        epoch=9,
        owners={each.node: each for each in (owner("n1"), *owners)},
        restored_at=restored_at,
    )


def follow(task: Task, known: Ownership, now: datetime = NOW) -> Task:
    """Return *task* as it is after the leader has looked once, which changes nothing twice."""
    (after,) = list(next_tasks([task], known, now)) or [task]
    assert list(next_tasks([after], known, now)) == []
    return after


PRESENT: Final = owner(silent_for=timedelta(seconds=2))
AWAY: Final = owner(silent_for=OWNER_GRACE - timedelta(seconds=1))
LOST: Final = owner(silent_for=OWNER_GRACE)
SITUATIONS: Final[dict[str, tuple[Task, Ownership, Callable[[Task], Task]]]] = {
    "reserved for itself": (in_state(TaskState.RESERVED), ownership(), lambda task: task),
    "reserved for another, which is there": (
        in_state(TaskState.RESERVED, node="n2"),
        ownership(PRESENT),
        lambda task: replace(task, node="n1", assignment=4, epoch=9),
    ),
    "reserved for another, which is gone": (
        in_state(TaskState.RESERVED, node="n2"),
        ownership(),
        lambda task: replace(task, node="n1", assignment=4, epoch=9),
    ),
    "reserved before a restoration, which another may not have seen": (
        in_state(TaskState.RESERVED),
        ownership(LOST, restored_at=NOW),
        lambda task: lose(task, IN_DOUBT, is_final=False),
    ),
    "reserved for another before a restoration": (
        in_state(TaskState.RESERVED, node="n2"),
        ownership(restored_at=NOW),
        lambda task: lose(task, IN_DOUBT, is_final=False),
    ),
    "reserved before a restoration, but only a check": (
        replace(in_state(TaskState.RESERVED), name="verify-1", vm=None),
        ownership(LOST, restored_at=NOW),
        lambda task: task,
    ),
    "reserved before a restoration, with nobody else": (
        in_state(TaskState.RESERVED),
        ownership(restored_at=NOW),
        lambda task: task,
    ),
    "reserved after a restoration": (
        in_state(TaskState.RESERVED),
        ownership(PRESENT, restored_at=NOW - timedelta(seconds=1)),
        lambda task: task,
    ),
    "begun by another, which is there": (
        in_state(TaskState.BEGUN, node="n2"),
        ownership(PRESENT),
        lambda task: task,
    ),
    "begun by another, which may come back": (
        in_state(TaskState.BEGUN, node="n2"),
        ownership(AWAY),
        lambda task: task,
    ),
    "begun by another, which does not come back": (
        in_state(TaskState.BEGUN, node="n2"),
        ownership(LOST),
        lambda task: lose(
            task,
            "replica host-of-n2 began it, and has been away since 2026-03-02 11:55:00 GMT",
            is_final=False,
        ),
    ),
    "begun by another, which said something before it went": (
        replace(in_state(TaskState.BEGUN, node="n2"), said=replace(RUNNING, reason="60 %")),
        ownership(LOST),
        lambda task: lose(
            task,
            "replica host-of-n2 began it, and has been away since 2026-03-02 11:55:00 GMT: 60 %",
            is_final=False,
        ),
    ),
    "begun by the leader, however long that takes": (
        replace(in_state(TaskState.BEGUN), heard_at=NOW - timedelta(days=1)),
        ownership(),
        lambda task: task,
    ),
    "stuck, as its owner says": (
        replace(in_state(TaskState.BEGUN), said=replace(UNKNOWN, reason="no record")),
        ownership(),
        lambda task: lose(task, "no record"),
    ),
    "unknown, but its owner asks again": (
        replace(in_state(TaskState.BEGUN), said=replace(UNKNOWN, ask_again_at=NOW)),
        ownership(),
        lambda task: task,
    ),
    "without an executor, so nothing was begun": (
        replace(
            in_state(TaskState.RESERVED),
            said=replace(UNKNOWN, has_no_executor=True, ask_again_at=LATER),
        ),
        ownership(),
        lambda task: task,
    ),
    "unknown, on a machine that is called like a check": (
        replace(in_state(TaskState.UNKNOWN, node="n2"), name="verify-1", vm=VmName("verify-1")),
        ownership(LOST),
        lambda task: task,
    ),
    "by hand, with nobody to be away": (
        replace(in_state(TaskState.BEGUN, runner=MANUAL, node="n2"), said=BY_HAND),
        ownership(LOST),
        lambda task: task,
    ),
    "fetched by a host that is silent": (
        replace(
            in_state(TaskState.BEGUN, runner=FETCHED, node="kvm-1:host"),
            heard_at=NOW - timedelta(minutes=30),
        ),
        ownership(),
        lambda task: lose(
            task,
            "the host began it, and has been away since 2026-03-02 11:30:00 GMT",
            is_final=False,
        ),
    ),
    "fetched by a host that may be restarting": (
        replace(
            in_state(TaskState.BEGUN, runner=FETCHED, node="kvm-1:host"),
            heard_at=NOW - timedelta(minutes=29),
            details=RESTART,
        ),
        ownership(),
        lambda task: task,
    ),
    "fetched by a host that has been restarting for too long": (
        replace(
            in_state(TaskState.BEGUN, runner=FETCHED, node="kvm-1:host"),
            heard_at=NOW - timedelta(minutes=31),
            details=RESTART,
        ),
        ownership(),
        lambda task: lose(
            task,
            "the host began it, and has been away since 2026-03-02 11:29:00 GMT",
            is_final=False,
        ),
    ),
    "fetched by a host that reports": (
        replace(in_state(TaskState.BEGUN, runner=FETCHED, node="kvm-1:host"), heard_at=NOW),
        ownership(),
        lambda task: task,
    ),
    "offered to a host that still has time": (
        replace(
            in_state(TaskState.RESERVED, runner=FETCHED, node="kvm-1:host"),
            details={"within_seconds": 1, "not_fetched": "the host did not fetch it"},
        ),
        ownership(),
        lambda task: task,
    ),
    "offered to a host that did not fetch it": (
        replace(
            in_state(TaskState.RESERVED, runner=FETCHED, node="kvm-1:host"),
            reserved_at=NOW - timedelta(seconds=1),
            details={"within_seconds": 1, "not_fetched": "the host did not fetch it"},
        ),
        ownership(),
        lambda task: withdraw(task, is_done=False, reason="the host did not fetch it", now=NOW),
    ),
    "simulated, still running": (
        replace(
            in_state(TaskState.BEGUN, runner=SIMULATED, node="n2"),
            said=replace(RUNNING, ask_again_at=LATER),
        ),
        ownership(LOST),
        lambda task: task,
    ),
    "simulated, and at its end": (
        replace(
            in_state(TaskState.BEGUN, runner=SIMULATED, node="n2"),
            said=replace(RUNNING, ask_again_at=NOW),
        ),
        ownership(),
        lambda task: replace(task, state=TaskState.ENDED, said=DONE, ended_at=NOW),
    ),
    "simulated, and fails at its end": (
        replace(
            in_state(TaskState.BEGUN, runner=SIMULATED),
            said=replace(RUNNING, ask_again_at=NOW),
            details={"failure": "no power"},
        ),
        ownership(),
        lambda task: replace(
            task,
            state=TaskState.ENDED,
            said=Impact(status=ImpactStatus.FAILED, reason="no power"),
            ended_at=NOW,
        ),
    ),
} | {
    f"{state}, whoever is away": (
        in_state(state, node="n2"),
        ownership(LOST),
        lambda task: task,
    )
    for state in TaskState
    if state not in {TaskState.RESERVED, TaskState.BEGUN}
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_leader_changes_a_task_by_itself(situation: str) -> None:
    task, known, expected = SITUATIONS[situation]

    assert follow(task, known) == expected(task)


@pytest.mark.parametrize("runner", sorted(ADOPTABLE))
def test_leader_adopts_what_the_target_recognizes(runner: str) -> None:
    task = in_state(TaskState.BEGUN, runner=runner, node="n2")

    assert follow(task, ownership(AWAY)) == task
    assert follow(task, ownership(LOST)) == replace(task, node="n1", assignment=4, epoch=9)


@pytest.mark.parametrize(
    ("heard", "began", "since"),
    [
        (NOW - timedelta(minutes=1), NOW - timedelta(minutes=9), NOW - timedelta(minutes=1)),
        (None, NOW - timedelta(minutes=9), NOW - timedelta(minutes=9)),
        (None, None, NOW),
    ],
)
def test_owner_that_nobody_knows_was_heard_of_last_with_its_task(
    heard: datetime | None, began: datetime | None, since: datetime
) -> None:
    task = replace(in_state(TaskState.BEGUN, node="gone:n9"), heard_at=heard, begun_at=began)
    late = replace(ownership(), at=NOW + timedelta(hours=1))

    assert late.away_since(task) == since
    assert late.name_of(task) == "gone"


@pytest.mark.parametrize(
    ("silent_for", "is_away"),
    [(SILENT_AFTER - timedelta(microseconds=1), False), (SILENT_AFTER, True)],
)
def test_owner_is_shown_as_away_after_ten_seconds_of_silence(
    silent_for: timedelta, *, is_away: bool
) -> None:
    task = in_state(TaskState.BEGUN, node="n2")

    said = observe(task, ownership(owner(silent_for=silent_for)))

    since = NOW - silent_for
    away = OwnerAway(name="host-of-n2", since=since, pages_at=since + OWNER_GRACE)
    assert timedelta(seconds=10) == SILENT_AFTER
    assert said == replace(RUNNING, away=away if is_away else None)


def test_unknown_task_whose_owner_is_back_says_so() -> None:
    lost = lose(in_state(TaskState.BEGUN, node="n2"), "it has been away", is_final=False)
    task = replace(lost, begun_at=NOW)

    assert observe(task, ownership(LOST)).reason == "it has been away"
    assert observe(task, ownership(PRESENT)).reason == (
        "host-of-n2 is back, and has not reported its end yet"
    )


@pytest.mark.parametrize("state", [state for state in TaskState if state is not TaskState.BEGUN])
def test_owner_is_not_away_from_what_it_has_not_begun(state: TaskState) -> None:
    assert observe(in_state(state, node="n2"), ownership(LOST)) == SAID[state]


@pytest.mark.parametrize(
    ("name", "vm", "is_impact"),
    [("web-0", "web-0", True), ("work", None, False), ("return-web-0", "web-0", False)],
)
def test_task_about_a_machine_is_an_impact_if_it_is_called_like_it(
    name: str, vm: str | None, *, is_impact: bool
) -> None:
    task = replace(TASK, name=name, vm=None if vm is None else VmName(vm))

    assert task.is_impact is is_impact


MOMENTS: Final[dict[str, tuple[Task, Ownership, datetime | None]]] = {
    "its own": (in_state(TaskState.BEGUN), ownership(), None),
    "by hand": (in_state(TaskState.BEGUN, runner=MANUAL, node="n2"), ownership(AWAY), None),
    "over": (in_state(TaskState.ENDED, node="n2"), ownership(AWAY), None),
    "offered to a host": (
        replace(
            in_state(TaskState.RESERVED, runner=FETCHED, node="kvm-1:host"),
            details={"within_seconds": 60},
        ),
        ownership(),
        TASK.reserved_at + timedelta(minutes=1),
    ),
    "begun by another, which counts as away soon": (
        in_state(TaskState.BEGUN, node="n2"),
        ownership(PRESENT),
        PRESENT.heard_at + SILENT_AFTER,
    ),
    "begun by another, which is lost soon": (
        in_state(TaskState.BEGUN, node="n2"),
        ownership(AWAY),
        AWAY.heard_at + OWNER_GRACE,
    ),
    "begun by another, which may be back soon": (
        in_state(TaskState.BEGUN, node="n2"),
        ownership(owner(silent_for=timedelta(minutes=1))),
        NOW + SILENT_AFTER,
    ),
    "begun by a host": (
        replace(in_state(TaskState.BEGUN, runner=FETCHED, node="kvm-1:host"), heard_at=NOW),
        ownership(),
        NOW + HOST_SILENT_AFTER,
    ),
    "begun by a host that it restarts": (
        replace(
            in_state(TaskState.BEGUN, runner=FETCHED, node="kvm-1:host"),
            heard_at=NOW,
            details=RESTART,
        ),
        replace(ownership(), at=NOW + timedelta(minutes=29, seconds=55)),
        NOW + timedelta(minutes=30),
    ),
    "unknown, and its owner away": (
        in_state(TaskState.UNKNOWN, node="n2"),
        ownership(LOST),
        NOW + SILENT_AFTER,
    ),
    "unknown, and its owner back": (
        in_state(TaskState.UNKNOWN, node="n2"),
        ownership(PRESENT),
        PRESENT.heard_at + SILENT_AFTER,
    ),
    "unknown, and its host back": (
        replace(in_state(TaskState.UNKNOWN, runner=FETCHED, node="kvm-1:host"), heard_at=NOW),
        ownership(),
        NOW + HOST_SILENT_AFTER,
    ),
}


@pytest.mark.parametrize("case", MOMENTS)
def test_leader_looks_again_when_a_task_of_another_would_change(case: str) -> None:
    task, known, moment = MOMENTS[case]

    assert known.look_again_at(task) == moment
