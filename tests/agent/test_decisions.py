from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.agent.conftest import (
    ME,
    NOON,
    QUARTER,
    make_case,
    make_event,
    make_hooks,
    make_mandate,
)

from forewarn.agent.cases import Case
from forewarn.agent.decisions import (
    AgentAction,
    Approve,
    Circumstances,
    Close,
    Mandate,
    Now,
    Postpone,
    Repeat,
    RunHook,
    StopHook,
    decide,
)
from forewarn.agent.vocabulary import ApprovalMode, Consent, HookOutcome, HookPhase, RuleVerdict

HOOKS = make_hooks(
    scheduled="first second", started="go", recovered="back", canceled="undo", notify="tell"
)
READY, NOT_YET, FAILED = HookOutcome.READY, HookOutcome.NOT_YET, HookOutcome.FAILED


def choose(
    case: Case,
    mandate: Mandate | None = None,
    *,
    wall: datetime = NOON,
    rest: float = 0,
    **circumstances: bool,
) -> AgentAction | None:
    """Return what is decided at noon, in steady time 1000 seconds."""
    moment = Circumstances(
        now=Now(wall=wall, steady=1000), resting_until=1000 + rest, **circumstances
    )
    return decide(case, HOOKS, mandate or make_mandate(), moment)


def run(action: AgentAction | None) -> tuple[str, float]:
    assert isinstance(action, RunHook)
    return action.hook.name, action.seconds


def after(phase: HookPhase = HookPhase.SCHEDULED, /, **outcomes: HookOutcome) -> Case:
    return make_case(phase, outcomes={phase: outcomes})


def test_hooks_run_in_their_order() -> None:
    assert run(choose(after()))[0] == "first"
    assert run(choose(after(first=READY)))[0] == "second"


@pytest.mark.parametrize("bad", [FAILED, HookOutcome.TIMED_OUT, HookOutcome.INTERRUPTED])
def test_hook_that_failed_holds_nobody_and_is_not_repeated(bad: HookOutcome) -> None:
    assert run(choose(after(first=bad)))[0] == "second"
    assert choose(after(first=bad, second=READY)) is None


def test_hook_that_is_not_ready_yet_holds_those_after_it() -> None:
    assert choose(after(first=NOT_YET), rest=1) is None
    assert run(choose(after(first=NOT_YET)))[0] == "first"


@pytest.mark.parametrize("outcome", [NOT_YET, HookOutcome.STOPPED])
def test_hook_that_was_taken_away_before_it_was_ready_holds_nobody(outcome: HookOutcome) -> None:
    assert choose(after(gone=outcome, first=READY, second=READY)) == Approve()


def test_hook_that_failed_and_was_taken_away_still_has_failed() -> None:
    assert choose(after(gone=FAILED, first=READY, second=READY)) is None


@pytest.mark.parametrize(
    ("phase", "hook"),
    [(HookPhase.STARTED, "go"), (HookPhase.RECOVERED, "back"), (HookPhase.CANCELED, "undo")],
)
def test_each_phase_has_its_hooks(phase: HookPhase, hook: str) -> None:
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
    assert choose(after(first=HookOutcome.RUNNING)) is None


def test_hook_of_a_phase_that_is_over_is_stopped() -> None:
    case = make_case(
        HookPhase.STARTED, outcomes={HookPhase.SCHEDULED: {"first": HookOutcome.RUNNING}}
    )

    assert choose(case) == StopHook()


@pytest.mark.parametrize("phase", [HookPhase.RECOVERED, HookPhase.CANCELED])
def test_case_is_closed_when_the_last_hook_has_run(phase: HookPhase) -> None:
    (hook,) = HOOKS[phase]

    assert choose(after(phase, **{hook.name: READY})) == Close()


FAILURES = [FAILED, HookOutcome.TIMED_OUT, HookOutcome.INTERRUPTED]


@pytest.mark.parametrize("bad", FAILURES)
@pytest.mark.parametrize("phase", HookPhase)
def test_only_what_puts_things_back_is_repeated_after_a_failure(
    phase: HookPhase, bad: HookOutcome
) -> None:
    failed = {hook.name: bad for hook in HOOKS[phase]}
    repeated = {HookPhase.RECOVERED, HookPhase.CANCELED}

    assert choose(after(phase, **failed)) == (Repeat() if phase in repeated else None)


def test_hook_that_failed_to_put_things_back_and_was_taken_away_holds_nobody() -> None:
    assert choose(after(HookPhase.RECOVERED, gone=FAILED, back=READY)) == Close()


TO_BEGIN, WAITS, STOPS = "begins", "waits", "stops"
OTHERS = {
    # phase, runs already: while another event is open, while another's hook puts things back
    (HookPhase.SCHEDULED, False): (TO_BEGIN, WAITS),
    (HookPhase.STARTED, False): (TO_BEGIN, WAITS),
    (HookPhase.RECOVERED, False): (WAITS, TO_BEGIN),
    (HookPhase.CANCELED, False): (WAITS, TO_BEGIN),
    (HookPhase.SCHEDULED, True): (WAITS, WAITS),
    (HookPhase.STARTED, True): (WAITS, WAITS),
    (HookPhase.RECOVERED, True): (STOPS, WAITS),
    (HookPhase.CANCELED, True): (STOPS, WAITS),
}


def name_action(action: AgentAction | None) -> str:
    if isinstance(action, StopHook):
        return STOPS
    return TO_BEGIN if isinstance(action, RunHook) else WAITS


@pytest.mark.parametrize(("phase", "is_running"), OTHERS)
def test_events_that_overlap_are_one_absence(phase: HookPhase, is_running: bool) -> None:  # noqa: FBT001
    hook = HOOKS[phase][0].name
    case = after(phase, **({hook: HookOutcome.RUNNING} if is_running else {}))

    chosen = (
        name_action(choose(case, is_out=True)),
        name_action(choose(case, is_returning=True)),
    )

    assert chosen == OTHERS[phase, is_running]


def test_nothing_is_approved_while_things_are_put_back_for_another_event() -> None:
    case = after(first=READY, second=READY)

    assert choose(case, is_returning=True) is None
    assert choose(case, is_out=True) == Approve()


def test_notification_waits_for_nobody() -> None:
    case = make_case(verdict=RuleVerdict.NOTIFY)

    assert run(choose(case, is_out=True, is_returning=True))[0] == "tell"


def test_case_with_nothing_left_to_run_is_closed_whatever_else_there_is() -> None:
    assert choose(after(HookPhase.RECOVERED, back=READY), is_out=True) == Close()


def test_hook_waits_for_room() -> None:
    assert choose(after(), has_room=False) is None
    assert choose(after(first=READY, second=READY), has_room=False) == Approve()


def test_nothing_is_done_between_started_and_gone() -> None:
    assert choose(after(HookPhase.STARTED, go=READY)) is None


@pytest.mark.parametrize(
    ("approval", "resources", "is_approved"),
    [
        (ApprovalMode.NEVER, ("web-0",), False),
        (ApprovalMode.WHEN_READY, ("web-0",), True),
        (ApprovalMode.WHEN_READY, ("web-1", "web-0"), True),
        (ApprovalMode.LEADER, ("_WEB-0", "web-1"), True),
        (ApprovalMode.LEADER, ("web-1", "web-0"), False),
        (ApprovalMode.LEADER, (), False),
    ],
)
def test_who_is_ready_approves_as_configured(
    approval: ApprovalMode,
    resources: tuple[str, ...],
    is_approved: bool,  # noqa: FBT001
) -> None:
    case = make_case(
        event=make_event(resources=resources),
        outcomes={HookPhase.SCHEDULED: {"first": READY, "second": READY}},
    )

    assert choose(case, make_mandate(approval=approval)) == (Approve() if is_approved else None)


@pytest.mark.parametrize(
    "fields",
    [
        {"consent": Consent.GIVEN},
        {"consent": Consent.REFUSED},
        {"outcomes": {HookPhase.SCHEDULED: {"first": FAILED, "second": READY}}},
        {"outcomes": {HookPhase.SCHEDULED: {"gone": FAILED, "first": READY, "second": READY}}},
    ],
)
def test_nobody_approves_twice_or_after_a_failure(fields: dict[str, Any]) -> None:
    ready = {HookPhase.SCHEDULED: {"first": READY, "second": READY}}

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
        {"phase": HookPhase.STARTED, "outcomes": {HookPhase.STARTED: {"go": NOT_YET}}},
    ],
)
def test_more_time_is_asked_for_only_where_there_may_be_some(fields: dict[str, Any]) -> None:
    case = make_case(**{"outcomes": {HookPhase.SCHEDULED: {"first": NOT_YET}}, **fields})

    assert choose(case, wall=NOON + timedelta(minutes=14), rest=1) is None


def test_event_to_notify_of_has_one_kind_of_hooks_whatever_becomes_of_it() -> None:
    told = {HookPhase.NOTIFY: {"tell": READY}}
    being_told = {HookPhase.NOTIFY: {"tell": HookOutcome.RUNNING}}

    for phase in (HookPhase.SCHEDULED, HookPhase.STARTED, HookPhase.RECOVERED):
        assert run(choose(make_case(phase, verdict=RuleVerdict.NOTIFY)))[0] == "tell"
        assert choose(make_case(phase, verdict=RuleVerdict.NOTIFY, outcomes=being_told)) is None
    assert choose(make_case(verdict=RuleVerdict.NOTIFY, outcomes=told)) is None
    assert (
        choose(make_case(HookPhase.RECOVERED, verdict=RuleVerdict.NOTIFY, outcomes=told)) == Close()
    )


def test_ignored_event_is_only_closed() -> None:
    assert choose(make_case(verdict=RuleVerdict.IGNORE)) is None
    assert choose(make_case(HookPhase.RECOVERED, verdict=RuleVerdict.IGNORE)) == Close()


def test_machine_is_known_by_every_name() -> None:
    case = make_case(
        event=make_event(resources=("WEB-0.example", "web-1")),
        outcomes={HookPhase.SCHEDULED: {"first": READY, "second": READY}},
    )

    assert choose(case, make_mandate(me=ME, approval=ApprovalMode.LEADER)) == Approve()
