"""What a trial does with its events, whatever the handler does at the same moment."""

import json
import sys
import time
from itertools import groupby
from pathlib import Path
from threading import Thread

import pytest
from tests.waiting import wait_until

from forewarn.conformance.situations import SITUATIONS
from forewarn.conformance.trial import NEIGHBOUR_VM, TrialOverError, TrialRules, begin_trial
from forewarn.domain.fault import FaultKind
from forewarn.testing import EventStatus

pytestmark = pytest.mark.timeout(300)

HANDLER = (sys.executable, str(Path(__file__).with_name("handler.py")))
ROUNDS = 200


def test_handler_may_remove_what_is_not_its_own_and_print_without_end() -> None:
    command = 'rm -r "$(dirname "$FOREWARN_CONFORMANCE_FOLDER")/marks"; yes | head -c 9000000'
    with begin_trial(TrialRules(command=("sh", "-c", command))) as trial:
        with pytest.raises(TrialOverError):
            trial.start_handler()

        assert trial.observe().marks == ()
        assert trial.last_lines() == ("y",) * 5


def test_poll_that_is_on_its_way_tells_nothing_of_what_happens_now() -> None:
    with begin_trial(TrialRules(command=HANDLER)) as trial:
        trial.set_fault(FaultKind.SLOW, {"seconds": 1.5})
        trial.start_handler()
        wait_until(lambda: trial.observe().polls[-1].seconds is None, "a poll on its way")
        on_its_way = len(trial.observe().polls)

        trial.watch(polls=1)

        assert len(trial.observe().polls) > on_its_way


def test_document_lists_events_in_the_order_in_which_they_were_announced() -> None:
    with begin_trial(TrialRules(command=("false",))) as trial:
        first, second = trial.announce(NEIGHBOUR_VM), trial.announce()

        assert first.record.created_at < second.record.created_at


def test_event_that_is_approved_while_it_ends_is_ended() -> None:
    with begin_trial(TrialRules(command=("false",))) as trial:
        for number in range(ROUNDS):
            event = trial.announce()
            approving = Thread(target=event.approve)
            approving.start()
            time.sleep(number % 50 * 0.00002)  # from before the approval to after it
            trial.end_event(event)
            approving.join()

            assert event.event_status in {EventStatus.CANCELED, EventStatus.COMPLETED}


def test_event_is_shown_as_started_before_its_second_impact_without_an_approval() -> None:
    (situation,) = (each for each in SITUATIONS if each.name == "fault-second-impact")
    with begin_trial(TrialRules(command=(*HANDLER, "never-approves"))) as trial:
        situation.play(trial)
        seen = trial.observe()

    first = seen.events[0].event_id
    shown = [
        event["EventStatus"]
        for poll in seen.polls
        for event in json.loads(poll.answer)["Events"]
        if event["EventId"] == first
    ]
    assert [status for status, _ in groupby(shown)] == ["Scheduled", "Started", "Scheduled"]
    assert not any(seen.approvals_of(event) for event in seen.events)
