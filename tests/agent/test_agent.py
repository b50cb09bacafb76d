"""The agent, step by step: what it records, begins, stops and asks for."""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from math import inf
from typing import Any

import pytest
from tests.agent.conftest import ID, NOON, Stage, make_change, make_event, make_hooks

from forewarn.agent.agent import Looked
from forewarn.agent.decisions import Now
from forewarn.agent.performer import Answered
from forewarn.agent.vocabulary import ApprovalMode, Consent, HookOutcome, HookPhase, RuleVerdict
from forewarn.client import ChangeKind, ClientError, RefusedError, UnavailableError

REFUSED = RefusedError("http://10.0.0.1", 409, "Not allowed")
SILENT = UnavailableError("http://10.0.0.1", "it did not answer in time")


def test_event_is_handled_from_scheduled_to_recovered(stage: Stage) -> None:
    agent = stage.start()

    stage.tell(agent, make_change())
    stage.end_hook(agent)
    stage.end_hook(agent)
    stage.answer(agent)
    stage.tell(agent, make_change(ChangeKind.STARTED))
    stage.end_hook(agent)
    stage.tell(agent, make_change(ChangeKind.COMPLETED))
    stage.end_hook(agent)

    assert stage.begun == ["scheduled first", "scheduled second", "started go", "recovered back"]
    assert stage.asked == ["approve 1"]
    assert stage.saved == {}


@pytest.mark.parametrize(
    ("kind", "hook"),
    [
        (ChangeKind.COMPLETED, "recovered back"),
        (ChangeKind.GONE, "recovered back"),
        (ChangeKind.CANCELED, "canceled undo"),
    ],
)
def test_event_that_leaves_the_document_is_undone(
    stage: Stage, kind: ChangeKind, hook: str
) -> None:
    agent = stage.start()

    stage.tell(agent, make_change())
    stage.tell(agent, make_change(kind))
    stage.end_hook(agent, status=-15)

    assert stage.begun == ["scheduled first", hook]


def test_event_that_comes_back_while_it_is_recovered_from_is_a_new_one(stage: Stage) -> None:
    agent = stage.start()
    stage.tell(agent, make_change())
    stage.end_hook(agent)
    stage.end_hook(agent)
    stage.answer(agent)
    stage.tell(agent, make_change(ChangeKind.GONE))

    stage.tell(agent, make_change())
    assert stage.process.signals == ["terminate"]
    stage.end_hook(agent, status=-15)
    stage.end_hook(agent)
    assert stage.asked == ["approve 1"], "the second hook is not ready again"
    stage.tell(agent, make_change(ChangeKind.GONE))
    stage.end_hook(agent, status=-15)
    stage.end_hook(agent)

    prepared = ["scheduled first", "scheduled second", "recovered back"]
    assert stage.begun == prepared * 2
    assert agent.cases == {}


def test_event_that_goes_and_comes_while_a_hook_is_stopped_is_prepared_for_again(
    stage: Stage,
) -> None:
    agent = stage.start()
    stage.tell(agent, make_change())

    stage.tell(agent, make_change(ChangeKind.GONE))
    stage.tell(agent, make_change())
    stage.end_hook(agent, status=-15)

    assert stage.begun == ["scheduled first", "scheduled first"]


def test_event_that_does_not_name_us_any_more_is_gone(stage: Stage) -> None:
    agent = stage.start()
    stage.tell(agent, make_change(resources=("web-0", "web-1")))
    stage.end_hook(agent)

    stage.tell(agent, make_change(resources=("web-1",)))
    stage.end_hook(agent)
    stage.end_hook(agent)

    assert stage.begun == ["scheduled first", "scheduled second", "recovered back"]
    assert stage.asked == []
    assert agent.cases == {}


def test_event_straight_to_started_skips_what_is_for_scheduled_ones(stage: Stage) -> None:
    agent = stage.start()

    stage.tell(agent, make_change(ChangeKind.STARTED))

    assert stage.begun == ["started go"]


def test_event_of_a_neighbour_is_none_of_our_business(stage: Stage) -> None:
    agent = stage.start()

    stage.tell(agent, make_change(resources=("web-1",)))

    assert (stage.begun, agent.cases) == ([], {})


def test_end_of_an_unknown_event_is_no_reason_to_recover(stage: Stage) -> None:
    agent = stage.start()

    stage.tell(agent, make_change(ChangeKind.GONE))

    assert (stage.begun, agent.cases) == ([], {})


def test_two_events_do_not_wait_for_each_other(stage: Stage) -> None:
    agent = stage.start()

    stage.tell(agent, make_change(number=1))
    stage.tell(agent, make_change(number=2))

    assert stage.begun == ["scheduled first", "scheduled first"]


def test_short_freeze_is_remembered_and_left_alone(stage: Stage) -> None:
    agent = stage.start()

    stage.tell(agent, make_change(event_type="Freeze", duration_in_seconds=5))

    assert stage.saved[ID].verdict is RuleVerdict.IGNORE
    assert (stage.begun, stage.asked) == ([], [])


def test_event_whose_type_becomes_known_is_handled_after_all(stage: Stage) -> None:
    agent = stage.start()
    stage.tell(agent, make_change(event_type="Hibernate"))
    assert stage.begun == ["notify tell"]
    stage.end_hook(agent)

    stage.tell(agent, make_change())

    assert stage.saved[ID].verdict is RuleVerdict.HANDLE
    assert stage.begun == ["notify tell", "scheduled first"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"event_type": "Hibernate"}),
        ({"event_type": "Freeze", "duration_in_seconds": 5}, {"event_type": "Freeze"}),
        ({"event_type": "Hibernate"}, {"event_type": "Nap"}),
        ({"event_type": "Hibernate"}, {"event_type": "Hibernate", "description": "It snows."}),
    ],
)
def test_verdict_is_kept_whatever_else_changes(
    stage: Stage, first: dict[str, Any], second: dict[str, Any]
) -> None:
    agent = stage.start()
    stage.tell(agent, make_change(**first))
    verdict = stage.saved[ID].verdict

    stage.tell(agent, make_change(**second))

    assert stage.saved[ID].verdict is verdict


def test_event_that_starts_ends_the_hook_that_prepares_for_it(stage: Stage) -> None:
    agent = stage.start()
    stage.tell(agent, make_change())

    stage.tell(agent, make_change(ChangeKind.STARTED))
    stage.tell(agent, make_change(ChangeKind.STARTED, description="changed"))
    assert stage.process.signals == ["terminate"]
    stage.end_hook(agent, status=0)

    assert stage.saved[ID].outcome(HookPhase.SCHEDULED, "first") is HookOutcome.STOPPED
    assert stage.begun == ["scheduled first", "started go"]


def test_hook_that_takes_too_long_is_asked_to_end_and_then_killed(stage: Stage) -> None:
    agent = stage.start()
    stage.tell(agent, make_change())

    for seconds in (599, 1, 4, 1, 5):
        stage.pass_time(seconds)
        agent.act(stage.now)

    assert stage.process.signals == ["terminate", "kill", "kill"]
    stage.end_hook(agent, status=-9)
    assert stage.saved[ID].outcome(HookPhase.SCHEDULED, "first") is HookOutcome.TIMED_OUT


def test_hook_that_has_ended_in_time_is_not_out_of_time_because_it_is_told_late(
    stage: Stage,
) -> None:
    agent = stage.start()
    stage.tell(agent, make_change())

    stage.process.has_ended = True
    stage.pass_time(600)
    agent.act(stage.now)
    assert agent.next_moment() > stage.now.steady
    stage.end_hook(agent)

    assert stage.saved[ID].outcome(HookPhase.SCHEDULED, "first") is HookOutcome.READY


def test_hook_has_as_long_as_the_event_was_postponed(stage: Stage) -> None:
    agent = stage.start()
    stage.tell(agent, make_change(not_before=NOON + timedelta(minutes=1)))

    stage.pass_time(50)
    stage.tell(agent, make_change(not_before=NOON + timedelta(minutes=5)))
    stage.pass_time(249)
    agent.act(stage.now)
    assert stage.process.signals == []
    stage.pass_time(1)
    agent.act(stage.now)

    assert stage.process.signals == ["terminate"]


def test_hook_of_an_event_that_was_postponed_for_long_has_no_more_than_its_time_out(
    stage: Stage,
) -> None:
    agent = stage.start()
    stage.tell(agent, make_change(not_before=NOON + timedelta(minutes=1)))

    stage.pass_time(50)
    stage.tell(agent, make_change(not_before=NOON + timedelta(hours=1)))

    assert agent.next_moment() == stage.now.steady - 50 + 600


def test_clock_that_jumps_ends_no_hook(stage: Stage) -> None:
    agent = stage.start()
    stage.tell(agent, make_change())

    stage.now = Now(wall=NOON + timedelta(days=1), steady=stage.now.steady + 1)
    agent.act(stage.now)

    assert stage.process.signals == []


def test_failed_hook_lets_the_next_one_run_and_approves_nothing(stage: Stage) -> None:
    agent = stage.start()

    stage.tell(agent, make_change())
    stage.end_hook(agent, status=1)
    stage.end_hook(agent)

    assert stage.begun == ["scheduled first", "scheduled second"]
    assert stage.asked == []


def test_hook_that_says_not_yet_is_asked_again(stage: Stage) -> None:
    agent = stage.start()
    stage.tell(agent, make_change())

    stage.end_hook(agent, status=75)
    assert agent.next_moment() == stage.now.steady + 10
    stage.pass_time(9)
    agent.act(stage.now)
    stage.pass_time(1)
    agent.act(stage.now)

    assert stage.begun == ["scheduled first", "scheduled first"]


def test_hook_that_says_not_yet_moves_the_event_if_little_time_is_left(stage: Stage) -> None:
    agent = stage.start()
    stage.tell(agent, make_change(not_before=NOON + timedelta(minutes=1)))

    stage.end_hook(agent, status=75)
    agent.act(stage.now)
    assert stage.asked == ["postpone 1 to 12:06:00"]
    stage.answer(agent, not_before=NOON + timedelta(minutes=5))
    agent.act(stage.now)

    assert stage.asked == ["postpone 1 to 12:06:00"]
    assert stage.saved[ID].event.not_before == NOON + timedelta(minutes=5)


def test_hook_that_runs_while_the_event_is_moved_has_as_long_as_that(stage: Stage) -> None:
    agent = stage.start()
    stage.tell(agent, make_change(not_before=NOON + timedelta(minutes=1)))

    stage.end_hook(agent, status=75)
    stage.pass_time(10)  # in which the server does not answer
    agent.act(stage.now)
    assert agent.next_moment() == stage.now.steady + 50
    stage.answer(agent, not_before=NOON + timedelta(minutes=5))

    assert stage.begun == ["scheduled first", "scheduled first"]
    assert agent.next_moment() == stage.now.steady + 290


def test_server_that_does_not_postpone_is_asked_once(stage: Stage) -> None:
    agent = stage.start()
    stage.tell(agent, make_change(not_before=NOON + timedelta(minutes=1)))

    stage.end_hook(agent, status=75)
    stage.answer(agent, REFUSED, not_before=NOON + timedelta(minutes=5))
    agent.act(stage.now)

    assert stage.asked == ["postpone 1 to 12:06:00"]
    assert not stage.saved[ID].may_postpone


def test_hook_is_asked_again_although_no_later_time_could_be_asked_for(stage: Stage) -> None:
    agent = stage.start()
    stage.tell(agent, make_change(not_before=NOON + timedelta(minutes=1)))

    stage.end_hook(agent, status=75)
    stage.answer(agent, SILENT, not_before=NOON + timedelta(minutes=5))
    assert not agent.is_busy
    stage.pass_time(10)
    agent.act(stage.now)
    assert stage.begun == ["scheduled first", "scheduled first"]
    stage.end_hook(agent, status=75)

    assert stage.asked == ["postpone 1 to 12:06:00", "postpone 1 to 12:06:00"]


def approving(stage: Stage) -> None:
    stage.hooks = make_hooks()


def test_approval_is_asked_for_until_it_gets_through(stage: Stage) -> None:
    approving(stage)
    agent = stage.start()
    stage.tell(agent, make_change())

    stage.answer(agent, SILENT)
    stage.pass_time(3)  # a Preempt leaves no time for more
    agent.act(stage.now)
    stage.answer(agent)
    agent.act(stage.now)

    assert stage.asked == ["approve 1", "approve 1"]
    assert stage.saved[ID].consent is Consent.GIVEN


def test_approval_that_is_refused_is_not_repeated(stage: Stage) -> None:
    approving(stage)
    agent = stage.start()
    stage.tell(agent, make_change())

    stage.answer(agent, REFUSED)
    stage.pass_time(60)
    agent.act(stage.now)

    assert stage.asked == ["approve 1"]
    assert stage.saved[ID].consent is Consent.REFUSED


@pytest.mark.parametrize("error", [REFUSED, SILENT])
def test_approval_that_was_not_taken_is_a_failure(stage: Stage, error: ClientError) -> None:
    approving(stage)
    agent = stage.start()
    stage.tell(agent, make_change())

    stage.answer(agent, error)

    assert agent.has_failed


def test_event_that_was_postponed_is_approved_again(stage: Stage) -> None:
    """Postponing clears the votes, those of machines that are ready too."""
    approving(stage)
    agent = stage.start()
    stage.tell(agent, make_change())
    stage.answer(agent)

    stage.tell(agent, make_change(not_before=NOON + timedelta(hours=1)))

    assert stage.asked == ["approve 1", "approve 1"]


def test_approval_of_what_was_postponed_meanwhile_does_not_count(stage: Stage) -> None:
    approving(stage)
    agent = stage.start()
    stage.tell(agent, make_change())

    stage.tell(agent, make_change(not_before=NOON + timedelta(hours=1)))
    stage.tell(agent, Answered(event=make_event()))

    assert stage.asked == ["approve 1", "approve 1"]


def test_answer_about_an_event_that_is_over_is_forgotten(stage: Stage) -> None:
    approving(stage)
    agent = stage.start()
    stage.tell(agent, make_change())

    stage.tell(agent, make_change(ChangeKind.CANCELED))
    stage.tell(agent, Answered(event=make_event()))

    assert agent.cases == {}
    assert not agent.is_busy


def test_answer_that_comes_too_late_delays_nothing(stage: Stage) -> None:
    stage.hooks = make_hooks(canceled="undo")
    agent = stage.start()
    stage.tell(agent, make_change())
    stage.tell(agent, make_change(ChangeKind.CANCELED))

    stage.answer(agent, SILENT)
    stage.end_hook(agent)

    assert agent.cases == {}
    assert agent.next_moment() == inf


def test_case_that_is_closed_leaves_no_time_to_wake_up_at(stage: Stage) -> None:
    agent = stage.start()
    stage.tell(agent, make_change())
    stage.end_hook(agent, status=75)

    stage.hooks = make_hooks()
    stage.tell(agent, make_change(ChangeKind.GONE))

    assert agent.cases == {}
    assert agent.next_moment() == inf


def test_approval_never_is_never(stage: Stage) -> None:
    approving(stage)
    stage.approval = ApprovalMode.NEVER
    agent = stage.start()

    stage.tell(agent, make_change())

    assert stage.asked == []


def test_killed_agent_does_not_run_again_what_was_running(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.tell(stage.start(), make_change())

    agent = stage.start()
    agent.act(stage.now)
    stage.end_hook(agent)

    assert stage.begun == ["scheduled first", "scheduled second"]
    assert stage.saved[ID].outcome(HookPhase.SCHEDULED, "first") is HookOutcome.INTERRUPTED
    assert "hook_interrupted" in caplog.text
    assert agent.outcomes == {
        (HookPhase.SCHEDULED, HookOutcome.INTERRUPTED): 1,
        (HookPhase.SCHEDULED, HookOutcome.READY): 1,
    }
    assert stage.asked == [], "nobody knows whether it is ready"


@pytest.mark.parametrize("kill_after", range(5))
def test_agent_that_is_killed_between_steps_does_nothing_twice(
    stage: Stage, kill_after: int
) -> None:
    agent = stage.start()
    steps: list[Callable[[], None]] = [
        lambda: stage.tell(agent, make_change()),
        lambda: stage.end_hook(agent),
        lambda: stage.end_hook(agent),
        lambda: stage.tell(agent, make_change(ChangeKind.STARTED)),
        lambda: stage.end_hook(agent),
        lambda: stage.tell(agent, make_change(ChangeKind.COMPLETED)),
    ]
    for step in steps[: kill_after + 1]:
        step()

    agent = stage.start()
    stage.tell(agent, make_change(ChangeKind.GONE))
    stage.end_hook(agent)

    once = [hook for hook in stage.begun if hook != "recovered back"]
    assert len(once) == len(set(once))
    assert stage.begun[-1] == "recovered back"
    assert stage.saved == {}


def test_restarted_agent_knows_which_events_were_told(stage: Stage) -> None:
    agent = stage.start()
    stage.tell(agent, make_change(number=1))
    stage.tell(agent, make_change(number=2))
    stage.tell(agent, make_change(ChangeKind.COMPLETED, number=2))

    assert [event.event_id for event in stage.start().events] == [ID]


def test_restarted_agent_looks_before_it_goes_on(stage: Stage) -> None:
    stage.tell(stage.start(), make_change())

    agent = stage.start(has_looked=False)
    agent.act(stage.now)
    assert stage.begun == ["scheduled first"], "the event may be over by now"
    stage.tell(agent, make_change(ChangeKind.COMPLETED))
    stage.tell(agent, Looked())

    assert stage.begun == ["scheduled first", "recovered back"]


def test_restarted_agent_goes_on_to_put_things_back_whether_or_not_the_server_answers(
    stage: Stage,
) -> None:
    stage.hooks = make_hooks(recovered="one two")
    agent = stage.start()
    stage.tell(agent, make_change())
    stage.tell(agent, make_change(ChangeKind.COMPLETED))

    stage.end_hook(agent)
    stage.start(has_looked=False).act(stage.now)

    assert stage.begun == ["recovered one", "recovered two", "recovered two"]


@pytest.mark.parametrize(
    ("kind", "hook"), [(ChangeKind.GONE, "recovered back"), (ChangeKind.CANCELED, "canceled undo")]
)
def test_agent_that_is_killed_while_it_puts_things_back_does_so_again(
    stage: Stage, caplog: pytest.LogCaptureFixture, kind: ChangeKind, hook: str
) -> None:
    stage.hooks = make_hooks(recovered="back", canceled="undo")
    agent = stage.start()
    stage.tell(agent, make_change())
    stage.tell(agent, make_change(kind))

    agent = stage.start(has_looked=False)
    agent.act(stage.now)
    stage.end_hook(agent)

    assert stage.begun == [hook, hook]
    assert "hook_interrupted" in caplog.text
    assert stage.saved == {}


def test_hook_that_fails_to_put_things_back_is_repeated_less_and_less_often(stage: Stage) -> None:
    stage.hooks = make_hooks(recovered="back more")
    agent = stage.start()
    stage.tell(agent, make_change())
    stage.tell(agent, make_change(ChangeKind.GONE))

    rests = []
    for _ in range(8):
        stage.end_hook(agent, status=1)
        if stage.begun[-1] == "recovered more":
            stage.end_hook(agent, status=0)
        rests.append(agent.next_moment() - stage.now.steady)
        stage.pass_time(rests[-1])
        agent.act(stage.now)
    assert list(stage.saved) == [ID], "it is still out"
    stage.end_hook(agent)

    assert rests == [10, 20, 40, 80, 160, 300, 300, 300]
    assert stage.begun == ["recovered back", "recovered more", *["recovered back"] * 8]
    assert stage.saved == {}
    assert agent.next_moment() == inf


def test_two_hooks_that_fail_to_put_things_back_are_repeated_together(stage: Stage) -> None:
    stage.hooks = make_hooks(recovered="back more")
    agent = stage.start()
    stage.tell(agent, make_change())
    stage.tell(agent, make_change(ChangeKind.GONE))

    stage.end_hook(agent, status=1)
    stage.end_hook(agent, status=1)
    stage.pass_time(10)
    agent.act(stage.now)
    stage.end_hook(agent)
    stage.end_hook(agent)

    assert stage.begun == ["recovered back", "recovered more"] * 2
    assert stage.saved == {}


def test_things_are_put_back_when_the_last_event_is_over(stage: Stage) -> None:
    agent = stage.start()
    stage.tell(agent, make_change(ChangeKind.STARTED, number=1))
    stage.end_hook(agent, number=1)
    stage.tell(agent, make_change(ChangeKind.STARTED, number=2))
    stage.end_hook(agent, number=2)

    stage.tell(agent, make_change(ChangeKind.GONE, number=1))
    assert stage.begun == ["started go"] * 2
    assert len(agent.cases) == 2
    stage.tell(agent, make_change(ChangeKind.GONE, number=2))

    assert stage.begun == [*["started go"] * 2, *["recovered back"] * 2]


def test_event_that_another_one_replaces_puts_nothing_back_in_between(stage: Stage) -> None:
    agent = stage.start()
    stage.tell(agent, make_change(number=1))
    stage.end_hook(agent, number=1)
    stage.end_hook(agent, number=1)

    stage.tell(agent, make_change(number=2))
    stage.tell(agent, make_change(ChangeKind.CANCELED, number=1))
    stage.end_hook(agent, number=2)
    stage.end_hook(agent, number=2)

    assert stage.begun == ["scheduled first", "scheduled second"] * 2
    assert stage.asked == ["approve 1", "approve 2"]


def test_event_that_comes_while_things_are_put_back_stops_that_first(stage: Stage) -> None:
    stage.hooks = make_hooks(scheduled="first", recovered="back")
    agent = stage.start()
    stage.tell(agent, make_change(number=1))
    stage.end_hook(agent, number=1)
    stage.tell(agent, make_change(ChangeKind.GONE, number=1))

    stage.tell(agent, make_change(number=2))
    assert stage.begun == ["scheduled first", "recovered back"]
    assert stage.process.signals == ["terminate"]
    stage.end_hook(agent, status=-15, number=1)
    assert stage.begun == ["scheduled first", "recovered back", "scheduled first"]
    stage.end_hook(agent, number=2)
    stage.tell(agent, make_change(ChangeKind.GONE, number=2))

    assert stage.begun[3:] == ["recovered back"] * 2


def test_event_that_is_ignored_keeps_nobody_out(stage: Stage) -> None:
    agent = stage.start()
    stage.tell(agent, make_change(ChangeKind.STARTED, number=1))
    stage.end_hook(agent, number=1)
    stage.tell(agent, make_change(number=2, event_type="Freeze", duration_in_seconds=5))

    stage.tell(agent, make_change(ChangeKind.GONE, number=1))

    assert stage.begun == ["started go", "recovered back"]


def test_no_more_than_four_hooks_run_at_a_time(stage: Stage) -> None:
    agent = stage.start()

    for number in range(1, 7):
        stage.tell(agent, make_change(ChangeKind.STARTED, number=number))
    assert stage.begun == ["started go"] * 4
    stage.end_hook(agent, number=1)

    assert stage.begun == ["started go"] * 5


def test_hooks_that_only_notify_leave_room_for_others(stage: Stage) -> None:
    agent = stage.start()
    for number in range(1, 5):
        stage.tell(agent, make_change(number=number, event_type="Unheard-of"))

    stage.tell(agent, make_change(number=5))

    assert stage.begun == ["notify tell"] * 3 + ["scheduled first"]


def test_events_that_are_ready_at_once_are_approved_in_one(stage: Stage) -> None:
    approving(stage)
    agent = stage.start()

    for number in (1, 2, 3):
        agent.take(make_change(number=number), stage.now)
    agent.act(stage.now)
    agent.act(stage.now)

    assert stage.asked == ["approve 1 2 3"]


def test_event_that_does_not_name_us_is_said_once(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "forewarn.agent")
    agent = stage.start()
    others = ("web-1", "web-2")

    stage.tell(agent, make_change(resources=others))
    stage.tell(agent, make_change(ChangeKind.STARTED, resources=others))
    stage.tell(agent, make_change(ChangeKind.GONE, resources=others))

    (line,) = caplog.messages
    assert line == f"event_of_others event={ID} resources=web-1,web-2 name=web-0"


def test_what_cannot_be_recorded_is_not_begun(stage: Stage) -> None:
    agent = stage.start()
    stage.is_disk_full = True

    stage.tell(agent, make_change())
    assert stage.begun == []
    assert agent.has_failed
    stage.is_disk_full = False
    stage.pass_time(10)
    agent.act(stage.now)

    assert stage.begun == ["scheduled first"]


def test_what_could_not_be_saved_is_saved_with_the_next_news(stage: Stage) -> None:
    agent = stage.start()
    stage.is_disk_full = True
    stage.tell(agent, make_change(event_type="Freeze", duration_in_seconds=1))
    stage.is_disk_full = False

    stage.tell(agent, make_change(number=2, resources=("web-1",)))

    assert stage.saved == agent.cases != {}


def test_agent_that_is_to_stop_begins_nothing_new(stage: Stage) -> None:
    agent = stage.start()
    agent.take(make_change(), stage.now)

    agent.act(stage.now, may_begin=False)

    assert stage.begun == []


def test_agent_that_is_to_stop_still_ends_what_takes_too_long(stage: Stage) -> None:
    agent = stage.start()
    stage.tell(agent, make_change())

    stage.pass_time(600)
    agent.act(stage.now, may_begin=False)

    assert stage.process.signals == ["terminate"]


def test_rule_is_asked_once_in_the_life_of_an_event(stage: Stage) -> None:
    agent = stage.start()
    stage.tell(agent, make_change(event_type="Freeze", duration_in_seconds=5))

    stage.tell(agent, make_change(event_type="Freeze", duration_in_seconds=60))

    assert stage.begun == []


def test_event_without_hooks_is_forgotten_when_it_is_gone(stage: Stage) -> None:
    stage.hooks = make_hooks()
    stage.approval = ApprovalMode.NEVER
    agent = stage.start()
    stage.tell(agent, make_change())

    stage.tell(agent, replace(make_change(ChangeKind.GONE)))

    assert stage.saved == {}
