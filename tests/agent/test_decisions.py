from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.agent.conftest import (
    ME,
    NOON,
    QUARTER,
    make_case,
    make_conduct,
    make_event,
    make_hooks,
)

from forewarn.agent.cases import Case
from forewarn.agent.decisions import (
    Action,
    Approve,
    Close,
    Conduct,
    Now,
    Postpone,
    RunHook,
    StopHook,
    decide,
)
from forewarn.agent.vocabulary import Approval, Consent, Outcome, Phase, Verdict

HOOKS = make_hooks(
    scheduled="first second", started="go", recovered="back", canceled="undo", notify="tell"
)
READY, NOT_YET, FAILED = Outcome.READY, Outcome.NOT_YET, Outcome.FAILED


def choose(
    case: Case, conduct: Conduct | None = None, *, wall: datetime = NOON, rest: float = 0
) -> Action | None:
    """Return what is decided at noon, in steady time 1000 seconds."""
    now = Now(wall=wall, steady=1000)
    return decide(case, HOOKS, conduct or make_conduct(), now, resting_until=1000 + rest)


def run(action: Action | None) -> tuple[str, float]:
    assert isinstance(action, RunHook)
    return action.hook.name, action.seconds


def after(phase: Phase = Phase.SCHEDULED, /, **outcomes: Outcome) -> Case:
    return make_case(phase, outcomes={phase: outcomes})


def test_hooks_run_in_their_order() -> None:
    assert run(choose(after()))[0] == "first"
    assert run(choose(after(first=READY)))[0] == "second"


@pytest.mark.parametrize("bad", [FAILED, Outcome.TIMED_OUT, Outcome.INTERRUPTED])
def test_hook_that_failed_holds_nobody_and_is_not_repeated(bad: Outcome) -> None:
    assert run(choose(after(first=bad)))[0] == "second"
    assert choose(after(first=bad, second=READY)) is None


def test_hook_that_is_not_ready_yet_holds_those_after_it() -> None:
    assert choose(after(first=NOT_YET), rest=1) is None
    assert run(choose(after(first=NOT_YET)))[0] == "first"


@pytest.mark.parametrize("outcome", [NOT_YET, Outcome.STOPPED])
def test_hook_that_was_taken_away_before_it_was_ready_holds_nobody(outcome: Outcome) -> None:
    assert choose(after(gone=outcome, first=READY, second=READY)) == Approve()


def test_hook_that_failed_and_was_taken_away_still_has_failed() -> None:
    assert choose(after(gone=FAILED, first=READY, second=READY)) is None


@pytest.mark.parametrize(
    ("phase", "hook"),
    [(Phase.STARTED, "go"), (Phase.RECOVERED, "back"), (Phase.CANCELED, "undo")],
)
def test_each_phase_has_its_hooks(phase: Phase, hook: str) -> None:
    assert run(choose(make_case(phase))) == (hook, 600)


def test_scheduled_hook_has_time_until_not_before() -> None:
    soon = make_case(event=make_event(not_before=NOON + timedelta(seconds=42)))

    assert run(choose(soon))[1] == 42
    assert run(choose(make_case()))[1] == 600


def test_not_before_that_is_past_says_nothing_about_time() -> None:
    assert run(choose(make_case(), wall=NOON + 2 * QUARTER))[1] == 600


def test_not_before_that_is_unknown_says_nothing_about_time() -> None:
    assert run(choose(make_case(event=make_event(not_before=None))))[1] == 600


def test_hook_is_left_alone_while_its_phase_lasts() -> None:
    assert choose(after(first=Outcome.RUNNING)) is None


def test_hook_of_a_phase_that_is_over_is_stopped() -> None:
    case = make_case(Phase.STARTED, outcomes={Phase.SCHEDULED: {"first": Outcome.RUNNING}})

    assert choose(case) == StopHook()


@pytest.mark.parametrize("phase", [Phase.RECOVERED, Phase.CANCELED])
def test_case_is_closed_when_the_last_hook_has_run(phase: Phase) -> None:
    (hook,) = HOOKS[phase]

    assert choose(after(phase, **{hook.name: FAILED})) == Close()


def test_nothing_is_done_between_started_and_gone() -> None:
    assert choose(after(Phase.STARTED, go=READY)) is None


@pytest.mark.parametrize(
    ("approval", "resources", "is_approved"),
    [
        (Approval.NEVER, ("web-0",), False),
        (Approval.WHEN_READY, ("web-0",), True),
        (Approval.WHEN_READY, ("web-1", "web-0"), True),
        (Approval.LEADER, ("_WEB-0", "web-1"), True),
        (Approval.LEADER, ("web-1", "web-0"), False),
        (Approval.LEADER, (), False),
    ],
)
def test_who_is_ready_approves_as_configured(
    approval: Approval,
    resources: tuple[str, ...],
    is_approved: bool,  # noqa: FBT001
) -> None:
    case = make_case(
        event=make_event(resources=resources),
        outcomes={Phase.SCHEDULED: {"first": READY, "second": READY}},
    )

    assert choose(case, make_conduct(approval=approval)) == (Approve() if is_approved else None)


@pytest.mark.parametrize(
    "fields",
    [
        {"consent": Consent.GIVEN},
        {"consent": Consent.REFUSED},
        {"outcomes": {Phase.SCHEDULED: {"first": FAILED, "second": READY}}},
        {"outcomes": {Phase.SCHEDULED: {"gone": FAILED, "first": READY, "second": READY}}},
    ],
)
def test_nobody_approves_twice_or_after_a_failure(fields: dict[str, Any]) -> None:
    ready = {Phase.SCHEDULED: {"first": READY, "second": READY}}

    assert choose(make_case(**{"outcomes": ready, **fields})) is None


def test_approval_that_did_not_get_through_is_tried_again_later() -> None:
    case = after(first=READY, second=READY)

    assert choose(case, rest=1) is None
    assert choose(case) == Approve()


def test_hook_that_is_not_ready_asks_for_more_time_when_little_is_left() -> None:
    case = after(first=NOT_YET)

    assert choose(case, wall=NOON + timedelta(minutes=12), rest=1) is None
    later = choose(case, wall=NOON + timedelta(minutes=13), rest=1)
    assert later == Postpone(NOON + timedelta(minutes=20))
    assert choose(case, wall=NOON + timedelta(minutes=15), rest=1) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"may_postpone": False},
        {"event": make_event(not_before=None)},
        {"phase": Phase.STARTED, "outcomes": {Phase.STARTED: {"go": NOT_YET}}},
    ],
)
def test_more_time_is_asked_for_only_where_there_may_be_some(fields: dict[str, Any]) -> None:
    case = make_case(**{"outcomes": {Phase.SCHEDULED: {"first": NOT_YET}}, **fields})

    assert choose(case, wall=NOON + timedelta(minutes=14), rest=1) is None


def test_event_to_notify_of_has_one_kind_of_hooks_whatever_becomes_of_it() -> None:
    told = {Phase.NOTIFY: {"tell": READY}}
    being_told = {Phase.NOTIFY: {"tell": Outcome.RUNNING}}

    for phase in (Phase.SCHEDULED, Phase.STARTED, Phase.RECOVERED):
        assert run(choose(make_case(phase, verdict=Verdict.NOTIFY)))[0] == "tell"
        assert choose(make_case(phase, verdict=Verdict.NOTIFY, outcomes=being_told)) is None
    assert choose(make_case(verdict=Verdict.NOTIFY, outcomes=told)) is None
    assert choose(make_case(Phase.RECOVERED, verdict=Verdict.NOTIFY, outcomes=told)) == Close()


def test_ignored_event_is_only_closed() -> None:
    assert choose(make_case(verdict=Verdict.IGNORE)) is None
    assert choose(make_case(Phase.RECOVERED, verdict=Verdict.IGNORE)) == Close()


def test_machine_is_known_by_every_name() -> None:
    case = make_case(
        event=make_event(resources=("WEB-0.example", "web-1")),
        outcomes={Phase.SCHEDULED: {"first": READY, "second": READY}},
    )

    assert choose(case, make_conduct(me=ME, approval=Approval.LEADER)) == Approve()
