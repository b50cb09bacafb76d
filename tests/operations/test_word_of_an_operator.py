"""What an operator's word does to what hangs, in each state and phase, with two update domains.

Whatever is said, never are two update domains out of service, and the event of a machine stays
Started until the turn of its host is over.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from itertools import product
from pathlib import Path

import pytest
from tests.roll_out import CANNOT_KNOW, DONE, FAILED, WORK, RollOut

from forewarn.domain.arrivals import HostUnderWayError
from forewarn.domain.blockers import BlockerKind, Verdict, VerdictKind
from forewarn.domain.errors import ConflictError
from forewarn.domain.event import Outcome
from forewarn.domain.failures import UnknownFailureError
from forewarn.domain.host_operation import HostPhase, OperationOutcome
from forewarn.domain.impact import ImpactStatus
from forewarn.domain.names import VmName
from forewarn.domain.standing import MaintenanceStatus, Standing
from forewarn.domain.task import SILENT_AFTER, Task, TaskState
from forewarn.domain.why import ReasonKind
from forewarn.operations.events import (
    EventOrder,
    complete_all_events,
    complete_event,
    create_events,
)
from forewarn.operations.explain import explain_event
from forewarn.operations.maintenances import (
    NoTurnError,
    TaskNotOverError,
    abort_maintenance,
    end_host_turn,
    retry_failures,
    skip_failures,
)
from forewarn.operations.tasks import NotSettleableError, TaskSelection, settle_selected
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventStatus, EventType
from forewarn.storage.sqlite import open_sqlite
from forewarn.wording.command_lines import command_for, say_blocker

FLEET = """
[[availability_set]]
name = "web"
update_domains = 2
[[virtual_machine]]
name = "web-0"
availability_set = "web"
update_domain = 0
host = "kvm-1"
[[virtual_machine]]
name = "web-1"
availability_set = "web"
update_domain = 1
host = "kvm-2"
"""
IMPACT, WORKING, VERIFY, RETURN = (
    HostPhase.IMPACT,
    HostPhase.WORK,
    HostPhase.VERIFY,
    HostPhase.RETURN,
)
PHASES = (IMPACT, WORKING, VERIFY, RETURN)


class State(StrEnum):
    """How a task hangs, and what is known of its owner."""

    RESERVED = "reserved"
    RUNNING = "running"
    AWAY = "unknown, its owner away"
    HEARD = "unknown, its owner heard of"
    LOST = "unknown to its owner, too"


STATES = tuple(State)
CASES = [
    (phase, state)
    for phase, state in product(PHASES, STATES)
    # A check only looks: one of which nothing is known is repeated.
    if phase is not VERIFY or state in {State.RESERVED, State.RUNNING}
]
TO_SETTLE = (State.AWAY, State.LOST)
GOES_ON = (State.RUNNING, State.HEARD)
SAYS = {
    State.RESERVED: TaskState.WITHDRAWN,
    State.RUNNING: TaskState.BEGUN,
    State.AWAY: TaskState.SETTLED,
    State.HEARD: TaskState.UNKNOWN,
    State.LOST: TaskState.SETTLED,
}
"""What a task becomes at the word of an operator who says how it ended."""

RollOutMaker = Callable[..., RollOut]


@pytest.fixture
def word_store(tmp_path: Path) -> Iterator[Store]:
    """Give the store of a server; properties/test_word_on_postgresql.py gives another one."""
    with closing(open_sqlite(tmp_path / "forewarn.db", is_durable=False)) as store:
        yield store


@pytest.fixture
def make_roll_out(word_store: Store) -> RollOutMaker:
    return lambda fleet=FLEET, **more: RollOut(word_store, fleet, **more)


@pytest.fixture
def roll_out(make_roll_out: RollOutMaker) -> RollOut:
    """Return the roll-out of the two hosts, which have work of their own."""
    return begin(make_roll_out(rules=(WORK,)))


@pytest.fixture
def impacts_only(make_roll_out: RollOutMaker) -> RollOut:
    """Return the roll-out of the two hosts, which have none."""
    return begin(make_roll_out())


def begin(made: RollOut) -> RollOut:
    made.start("kvm-1", "kvm-2", at_once=2, min_available=50)
    assert made.in_flight() == {"web-0"}
    made.advance(minutes=16)
    return made


def hang(made: RollOut, phase: HostPhase, state: State) -> Task:
    """Have the task of *phase* on kvm-1 hang in *state*, and return it."""
    while made.operation("kvm-1").phase is not phase:
        made.carry_out()
    (task,) = made.open()
    if state is not State.RESERVED:
        assert made.begin(task)
    if state is State.LOST:
        made.running.clear()
        made.say(task, CANNOT_KNOW)
    if state in {State.AWAY, State.HEARD}:
        made.lose("a")
        made.running.clear()  # the machine that ran it is off
    if state is State.HEARD:
        made.running[task.key] = task  # or so it seemed
        made.bring_back("a")
    made.check()
    return made.task(task.key)


def complete(made: RollOut, outcome: Outcome = Outcome.SUCCEEDED) -> None:
    """Type `event complete` for the event of web-0."""
    event_id = made.event("web-0").event_id
    made.write(lambda tx: complete_event(tx, made.context(), event_id, outcome))


def end_turn(made: RollOut, verb: str) -> None:
    """Type `maintenance VERB ID kvm-1`."""
    if verb == "skip":
        made.write(lambda tx: skip_failures(tx, made.context(), made.maintenance_id, ("kvm-1",)))
        return
    outcome = OperationOutcome.SUCCEEDED if verb == "complete" else OperationOutcome.FAILED
    made.write(lambda tx: end_host_turn(tx, made.context(), made.maintenance_id, "kvm-1", outcome))


def retry(made: RollOut) -> None:
    made.write(lambda tx: retry_failures(tx, made.context(), made.maintenance_id, ("kvm-1",)))


def abort(made: RollOut) -> None:
    made.write(lambda tx: abort_maintenance(tx, made.context(), made.maintenance_id))


def settle(made: RollOut, task: Task, *, is_done: bool) -> None:
    chosen = TaskSelection(task_ids=(task.task_id,))
    made.write(lambda tx: settle_selected(tx, made.context(), chosen, is_done=is_done))


def is_started(made: RollOut) -> bool:
    return made.event("web-0").event_status is EventStatus.STARTED


def wait_in_vain(made: RollOut) -> None:
    """Let time pass in which nothing that hangs ends, and check that kvm-2 is left alone."""
    for _ in range(8):
        made.advance(minutes=15)
        made.check()
        assert "web-1" not in made.in_flight()


@pytest.mark.parametrize(("phase", "state"), CASES)
def test_completed_event_stays_started_until_the_turn_of_its_host_is_over(
    roll_out: RollOut, phase: HostPhase, state: State
) -> None:
    task = hang(roll_out, phase, state)

    complete(roll_out)

    is_impact = phase is IMPACT
    assert roll_out.task(task.key).state is (SAYS[state] if is_impact else task.state)
    assert is_started(roll_out)
    wait_in_vain(roll_out)
    assert is_started(roll_out)
    if state in TO_SETTLE and not is_impact:
        settle(roll_out, task, is_done=True)
    if state in GOES_ON:
        roll_out.end(task, FAILED if is_impact else DONE)
    roll_out.carry_on()
    report = roll_out.report()
    assert report.standings == {"kvm-1": Standing.SUCCEEDED, "kvm-2": Standing.SUCCEEDED}
    assert report.status is MaintenanceStatus.COMPLETED
    assert {event.outcome for event in report.events} == {Outcome.SUCCEEDED}


@pytest.mark.parametrize("phase", PHASES)
def test_event_that_is_completed_as_failed_fails_its_host(
    roll_out: RollOut, phase: HostPhase
) -> None:
    hang(roll_out, phase, State.RESERVED)

    complete(roll_out, Outcome.FAILED)
    assert is_started(roll_out) or phase is IMPACT
    roll_out.carry_on()

    report = roll_out.report()
    assert report.standings == {"kvm-1": Standing.FAILED, "kvm-2": Standing.WAITING}
    assert roll_out.event("web-0").outcome is Outcome.FAILED
    works = [key for key in roll_out.begun if key[1] == "work"]
    assert len(works) == (0 if phase is IMPACT else 1)


@pytest.mark.parametrize("state", STATES)
def test_completed_event_without_host_work_ends_and_its_task_keeps_the_machine_busy(
    impacts_only: RollOut, state: State
) -> None:
    task = hang(impacts_only, IMPACT, state)

    complete(impacts_only)

    assert not is_started(impacts_only)
    assert impacts_only.task(task.key).state is SAYS[state]
    if state in GOES_ON:
        wait_in_vain(impacts_only)
        assert impacts_only.report().status is not MaintenanceStatus.COMPLETED
        impacts_only.end(task, FAILED)
    impacts_only.check()
    assert "web-1" in impacts_only.in_flight()
    impacts_only.carry_on()
    assert impacts_only.report().status is MaintenanceStatus.COMPLETED


@pytest.mark.parametrize("state", STATES)
def test_all_events_are_completed_one_by_one_as_the_table_says(
    roll_out: RollOut, state: State
) -> None:
    task = hang(roll_out, IMPACT, state)

    roll_out.write(lambda tx: complete_all_events(tx, roll_out.context()))

    assert roll_out.task(task.key).state is SAYS[state]
    assert is_started(roll_out)
    wait_in_vain(roll_out)


@pytest.mark.parametrize(
    ("phase", "state", "verb"),
    [(*case, verb) for case in CASES for verb in ("complete", "fail", "skip")],
)
def test_event_of_a_host_whose_turn_was_ended_ends_when_nothing_of_it_runs(
    roll_out: RollOut, phase: HostPhase, state: State, verb: str
) -> None:
    task = hang(roll_out, phase, state)

    end_turn(roll_out, verb)

    said = roll_out.task(task.key)
    assert said.state is SAYS[state]
    if said.is_over:
        is_done = verb == "complete"
        assert said.said.status is (ImpactStatus.DONE if is_done else ImpactStatus.FAILED)
    assert roll_out.operation("kvm-1").is_over
    assert is_started(roll_out) is (state in GOES_ON)
    if state in GOES_ON:
        wait_in_vain(roll_out)
        assert is_started(roll_out)
        with pytest.raises((TaskNotOverError, UnknownFailureError)):
            retry(roll_out)
        roll_out.end(task)
    assert not is_started(roll_out)
    outcome = Outcome.SUCCEEDED if verb == "complete" else Outcome.FAILED
    assert roll_out.event("web-0").outcome is outcome
    roll_out.carry_on()
    roll_out.check()
    standing = {"complete": Standing.SUCCEEDED, "fail": Standing.FAILED, "skip": Standing.SKIPPED}
    assert roll_out.standing("kvm-1") is standing[verb]
    assert ("web-1" in {vm for e in roll_out.report().events for vm in e.resources}) is (
        verb != "fail"
    )


@pytest.mark.parametrize(("phase", "state"), [case for case in CASES if case[1] in GOES_ON])
def test_completing_the_event_of_a_host_that_failed_does_not_hide_what_runs_there(
    roll_out: RollOut, phase: HostPhase, state: State
) -> None:
    task = hang(roll_out, phase, state)
    end_turn(roll_out, "skip")

    complete(roll_out)

    assert roll_out.task(task.key).state is task.state
    # What touches the host itself is announced for as long as it runs.
    assert is_started(roll_out) is (phase is not IMPACT)
    wait_in_vain(roll_out)
    roll_out.end(task)
    assert not is_started(roll_out)
    roll_out.carry_on()
    assert roll_out.standing("kvm-2") is Standing.SUCCEEDED


@pytest.mark.parametrize(("phase", "state"), CASES)
def test_retry_is_refused_until_nothing_runs_and_gives_full_notice_then(
    roll_out: RollOut, phase: HostPhase, state: State
) -> None:
    task = hang(roll_out, phase, state)
    with pytest.raises(UnknownFailureError):
        retry(roll_out)
    end_turn(roll_out, "fail")
    first = roll_out.event("web-0").event_id
    if state in GOES_ON:
        with pytest.raises(TaskNotOverError, match=f"kvm-1 cannot be retried while .*{task.name}"):
            retry(roll_out)
        roll_out.end(task)

    retry(roll_out)

    again = roll_out.event("web-0")
    assert again.event_id != first
    assert again.event_status is EventStatus.SCHEDULED
    assert again.not_before == roll_out.clock.now() + timedelta(minutes=15)
    roll_out.carry_on()
    assert roll_out.report().status is MaintenanceStatus.COMPLETED


@pytest.mark.parametrize(("phase", "state"), CASES)
def test_aborting_withdraws_what_is_reserved_and_waits_for_the_rest(
    roll_out: RollOut, phase: HostPhase, state: State
) -> None:
    task = hang(roll_out, phase, state)

    abort(roll_out)

    is_reserved = state is State.RESERVED
    assert roll_out.task(task.key).state is (TaskState.WITHDRAWN if is_reserved else task.state)
    if state in TO_SETTLE:
        assert roll_out.report().status is MaintenanceStatus.STUCK
        settle(roll_out, task, is_done=False)
    if state in GOES_ON:
        wait_in_vain(roll_out)
        assert is_started(roll_out)
        roll_out.end(task)
    roll_out.carry_on()
    roll_out.check()
    assert not is_started(roll_out)
    assert roll_out.report().status is MaintenanceStatus.ABORTED
    assert roll_out.begun.keys() & {(each, "work") for each in ("kvm-2",)} == set()
    assert "web-1" not in {vm for e in roll_out.report().events for vm in e.resources}


@pytest.mark.parametrize(
    ("phase", "state", "is_done"), [(*case, is_done) for case in CASES for is_done in (True, False)]
)
def test_only_a_task_whose_end_nobody_will_tell_is_settled(
    roll_out: RollOut, phase: HostPhase, state: State, *, is_done: bool
) -> None:
    task = hang(roll_out, phase, state)

    if state not in TO_SETTLE:
        with pytest.raises(NotSettleableError):
            settle(roll_out, task, is_done=is_done)
        assert roll_out.task(task.key).state is task.state
        wait_in_vain(roll_out)
        return
    settle(roll_out, task, is_done=is_done)

    assert roll_out.task(task.key).state is TaskState.SETTLED
    roll_out.carry_on()
    standing = roll_out.standing("kvm-1")
    assert standing is (Standing.SUCCEEDED if is_done else Standing.FAILED)


def test_owner_is_taken_at_its_word_ten_seconds_after_it_was_last_heard_of(
    roll_out: RollOut,
) -> None:
    task = hang(roll_out, WORKING, State.HEARD)
    roll_out.alive.discard("a")
    roll_out.pass_real_time(SILENT_AFTER - timedelta(seconds=1))
    with pytest.raises(NotSettleableError, match="replica-a is carrying it out"):
        settle(roll_out, task, is_done=True)

    roll_out.pass_real_time(timedelta(seconds=1))
    roll_out.running.clear()
    settle(roll_out, task, is_done=True)

    assert roll_out.task(task.key).state is TaskState.SETTLED


def test_owner_that_is_back_and_cannot_know_leaves_it_to_the_operator(roll_out: RollOut) -> None:
    task = hang(roll_out, WORKING, State.HEARD)

    roll_out.running.clear()
    roll_out.say(task, CANNOT_KNOW)
    settle(roll_out, task, is_done=True)

    assert roll_out.task(task.key).state is TaskState.SETTLED


def test_owner_that_is_back_before_a_settlement_has_the_last_word(roll_out: RollOut) -> None:
    task = hang(roll_out, WORKING, State.HEARD)

    roll_out.end(task)

    assert roll_out.task(task.key).state is TaskState.ENDED
    roll_out.carry_on()
    assert roll_out.report().status is MaintenanceStatus.COMPLETED


def test_impact_that_is_done_by_hand_is_settled_by_completing_its_event(
    impacts_only: RollOut,
) -> None:
    impacts_only.commands.by_hand = frozenset({VmName("web-1")})
    impacts_only.carry_out()
    impacts_only.advance(minutes=16)
    (task,) = impacts_only.open()
    event = impacts_only.event("web-1")

    impacts_only.write(lambda tx: complete_event(tx, impacts_only.context(), event.event_id))

    assert impacts_only.task(task.key).state is TaskState.SETTLED
    assert impacts_only.report().status is MaintenanceStatus.COMPLETED


@pytest.mark.parametrize("is_done", [True, False])
def test_impact_that_is_done_by_hand_can_be_settled(
    impacts_only: RollOut, *, is_done: bool
) -> None:
    impacts_only.commands.by_hand = frozenset({VmName("web-1")})
    impacts_only.carry_out()
    impacts_only.advance(minutes=16)
    (task,) = impacts_only.open()

    settle(impacts_only, task, is_done=is_done)

    assert impacts_only.task(task.key).state is TaskState.SETTLED
    expected = Outcome.SUCCEEDED if is_done else Outcome.FAILED
    assert impacts_only.event("web-1").outcome is expected


@pytest.mark.parametrize("verb", ["event complete", "complete", "fail", "skip", "abort", "nothing"])
def test_impact_by_hand_is_the_work_on_the_host_where_it_has_some(
    make_roll_out: RollOutMaker, verb: str
) -> None:
    made = make_roll_out(rules=(WORK,))
    made.commands.by_hand = frozenset({VmName("web-0"), VmName("web-1")})
    begin(made)
    work = next(task for task in made.open() if task.name == "work")
    assert made.begin(work)

    if verb == "event complete":
        complete(made)
    elif verb == "abort":
        abort(made)
    elif verb != "nothing":
        end_turn(made, verb)

    assert is_started(made)
    wait_in_vain(made)
    assert is_started(made)
    made.end(work)
    made.carry_on()
    assert not is_started(made)
    assert made.open() == ()
    assert made.begun[work.key] == 1


@pytest.mark.parametrize(("phase", "is_impact"), [(IMPACT, True), (WORKING, False)])
def test_task_that_an_operator_spoke_of_is_not_begun_again_when_its_owner_gives_it_back(
    roll_out: RollOut, phase: HostPhase, *, is_impact: bool
) -> None:
    task = hang(roll_out, phase, State.RUNNING)
    if is_impact:
        complete(roll_out)
    else:
        end_turn(roll_out, "skip")

    roll_out.give_back(task)

    assert roll_out.task(task.key).state is TaskState.WITHDRAWN
    roll_out.carry_on()
    assert roll_out.begun[task.key] == 0
    standing = Standing.SUCCEEDED if is_impact else Standing.SKIPPED
    assert roll_out.standing("kvm-1") is standing


def test_turn_that_has_not_begun_is_not_ended(make_roll_out: RollOutMaker) -> None:
    made = make_roll_out(rules=(WORK,))
    made.start("kvm-1", "kvm-2", at_once=2, min_available=50)

    for verb in ("complete", "fail"):
        with pytest.raises(NoTurnError):
            end_turn(made, verb)
    with pytest.raises(ConflictError):
        end_turn(made, "skip")


def test_check_of_which_nothing_is_known_is_repeated(roll_out: RollOut) -> None:
    task = hang(roll_out, VERIFY, State.RUNNING)

    roll_out.lose("a")
    roll_out.running.clear()

    assert roll_out.task(task.key).state is TaskState.SETTLED
    roll_out.carry_on()
    assert roll_out.begun[task.subject, "verify-2"] == 1
    assert roll_out.report().status is MaintenanceStatus.COMPLETED


def test_check_that_nobody_began_is_withdrawn_with_its_turn(make_roll_out: RollOutMaker) -> None:
    rule = replace(WORK, verify_within=timedelta(minutes=5))
    made = begin(make_roll_out(rules=(rule,)))
    check = hang(made, VERIFY, State.RESERVED)

    made.advance(minutes=6)

    assert made.task(check.key).state is TaskState.WITHDRAWN
    assert not is_started(made)
    assert made.standing("kvm-1") is Standing.FAILED


def test_host_is_not_worked_on_when_an_event_ended_while_it_had_no_work(
    make_roll_out: RollOutMaker,
) -> None:
    """An executor file that lacks the work for a moment must not hide a machine from it."""
    made = make_roll_out(
        f"{FLEET}[[virtual_machine]]\nname = 'db'\nhost = 'kvm-1'\n", rules=(WORK,)
    )
    made.start("kvm-1", "kvm-2", at_once=2, min_available=50)
    made.advance(minutes=16)
    made.rules = replace(made.rules, host_works=())
    complete(made)
    assert not is_started(made)

    made.rules = replace(made.rules, host_works=(WORK,))
    made.carry_on()

    assert (made.operation("kvm-1").operation_id, "work") not in made.begun
    assert made.operation("kvm-1").outcome is OperationOutcome.FAILED
    assert "web-0 is in service again" in made.operation("kvm-1").reason


def test_nothing_is_placed_on_a_host_on_which_something_still_runs(roll_out: RollOut) -> None:
    task = hang(roll_out, WORKING, State.RUNNING)
    end_turn(roll_out, "skip")
    moved = FLEET.replace("kvm-2", "kvm-1")
    with pytest.raises(HostUnderWayError, match="kvm-1 is in maintenance"):
        roll_out.apply(moved)

    roll_out.apply(moved, as_is=True)

    assert roll_out.event("web-1").event_status is EventStatus.STARTED
    roll_out.end(task)
    assert roll_out.in_flight() == set()
    assert roll_out.begun == {task.key: 1, (roll_out.event("web-0").event_id, "web-0"): 1}


@pytest.mark.parametrize("phase", [IMPACT, WORKING, RETURN])
def test_word_about_what_runs_counts_when_it_is_lost_later(
    roll_out: RollOut, phase: HostPhase
) -> None:
    task = hang(roll_out, phase, State.RUNNING)
    end_turn(roll_out, "fail")

    roll_out.lose("a")
    roll_out.running.clear()

    assert is_started(roll_out)
    assert roll_out.report().status is MaintenanceStatus.STUCK
    with pytest.raises(TaskNotOverError):
        retry(roll_out)
    settle(roll_out, task, is_done=False)
    assert not is_started(roll_out)


SPOKEN = ["nothing", "event complete", "complete", "fail", "skip", "abort"]


@pytest.mark.parametrize(("phase", "verb"), [*product(PHASES, SPOKEN)])
def test_commands_that_are_printed_are_accepted_and_end_what_is_stuck(
    roll_out: RollOut, phase: HostPhase, verb: str
) -> None:
    """Of a task that runs when an operator speaks, is lost, seems to come back, and is lost."""
    task = hang(roll_out, phase, State.RUNNING)
    speak(roll_out, verb)
    try_out(roll_out)
    roll_out.lose("a")
    roll_out.running.clear()
    try_out(roll_out)
    roll_out.bring_back("a")
    try_out(roll_out)
    assert not roll_out.printed() or verb in {"fail", "skip"}
    roll_out.say(task, CANNOT_KNOW)

    for _ in range(6):
        try_out(roll_out)
        for command in choose(roll_out.explain().standstill.verdict):
            roll_out.type(command)
            roll_out.check()
        roll_out.carry_on()

    assert roll_out.report().maintenance.finished_at is not None
    assert roll_out.open() == ()


def test_impact_that_is_lost_after_its_event_ended_is_named_until_it_is_settled(
    impacts_only: RollOut,
) -> None:
    """Nothing else is left of the Maintenance: no event, no step."""
    impacts_only.carry_out()
    impacts_only.advance(minutes=16)
    (task,) = impacts_only.open()
    assert impacts_only.begin(task)
    event_id = impacts_only.event("web-1").event_id
    impacts_only.write(lambda tx: complete_event(tx, impacts_only.context(), event_id))
    assert "it is still running" in sentences(impacts_only)
    assert impacts_only.explain().standstill.verdict.kind is VerdictKind.BY_PROGRESS

    impacts_only.lose("a")
    impacts_only.running.clear()

    assert impacts_only.report().status is MaintenanceStatus.STUCK
    assert "the state of the impact on web-1 is unknown" in sentences(impacts_only)
    assert f"forewarn task settle {task.task_id} done" in impacts_only.printed()
    settle(impacts_only, task, is_done=True)
    assert impacts_only.report().status is MaintenanceStatus.COMPLETED


def sentences(made: RollOut) -> str:
    blockers = made.explain().standstill.blockers
    return " ".join(say_blocker(each, made.maintenance_id)[0] for each in blockers)


def speak(made: RollOut, verb: str) -> None:
    if verb == "event complete":
        complete(made)
    elif verb == "abort":
        abort(made)
    elif verb != "nothing":
        end_turn(made, verb)


def try_out(made: RollOut) -> None:
    made.check()
    for command in made.printed():
        made.try_out(command)


def choose(verdict: Verdict) -> list[str]:
    """Return the last of each choice: what failed is skipped."""
    return [command_for(choice[-1]) for choice in verdict.remedies]


EMPTY = (
    FLEET
    + """
[[host]]
name = "kvm-9"
"""
)


def test_work_that_outlasts_its_turn_keeps_its_host_from_the_next_maintenance(
    make_roll_out: RollOutMaker,
) -> None:
    roll_out = make_roll_out(EMPTY, rules=(WORK,))
    roll_out.start("kvm-9")
    (work,) = roll_out.open()
    roll_out.begin(work)
    roll_out.type(f"forewarn maintenance fail {roll_out.maintenance_id} kvm-9")

    roll_out.start("kvm-9")

    kinds = {blocker.kind for blocker in roll_out.explain().standstill.blockers}
    assert BlockerKind.BUSY_TASK in kinds
    roll_out.end(work)
    assert roll_out.operation("kvm-9").phase is HostPhase.WORK


def test_next_event_of_a_machine_waits_until_its_impact_has_really_ended(
    impacts_only: RollOut,
) -> None:
    first = impacts_only.event("web-0")
    (impact,) = impacts_only.open()
    impacts_only.begin(impact)
    impacts_only.type(f"forewarn event complete {first.event_id}")
    order = EventOrder(event_type=EventType.REBOOT, resources=("web-0",))
    (second,) = impacts_only.write(lambda tx: create_events(tx, impacts_only.context(), order))
    impacts_only.advance(minutes=20)

    def look() -> tuple[EventStatus, set[ReasonKind]]:
        found = impacts_only.store.read(
            lambda reading: explain_event(reading, impacts_only.context(), second.event_id)
        )
        return found.event.event_status, {reason.kind for reason in found.reasons}

    status, kinds = look()
    assert (status, ReasonKind.OTHER_TASK in kinds) == (EventStatus.SCHEDULED, True)
    impacts_only.end(impact)
    assert look()[0] is EventStatus.STARTED


def test_impact_that_nobody_has_reserved_is_not_begun_after_it_was_done_by_hand(
    roll_out: RollOut,
) -> None:
    event = roll_out.event("web-0")
    (impact,) = roll_out.open()
    roll_out.store.write(lambda tx: tx.put_task(replace(impact, closed_at=roll_out.real)))
    assert roll_out.open() == ()

    completed = roll_out.store.write(
        lambda tx: complete_event(tx, roll_out.context(), event.event_id)
    )

    assert completed.event_status is EventStatus.STARTED
    known = roll_out.task(impact.key)
    assert (known.state, known.said.status) == (TaskState.WITHDRAWN, ImpactStatus.DONE)
