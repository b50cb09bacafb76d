"""What is written down of what gates said."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from forewarn.domain.gate import Answer, GateStatus, Question, find_unwritten
from forewarn.domain.names import MaintenanceId

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
QUESTION = Question(gate="smoke", maintenance_id=MaintenanceId("m"), scope_ids=(), steps_done=1)
SHUT = Answer(status=GateStatus.SHUT, output="no", ask_again_at=NOW, asked_since=NOW)
WRITTEN = {QUESTION: SHUT}


def test_what_was_never_written_is_to_be_written() -> None:
    assert find_unwritten(WRITTEN, {}) == WRITTEN


@pytest.mark.parametrize(
    "said",
    [replace(SHUT), replace(SHUT, ask_again_at=LATER)],
    ids=["the same", "to be asked again later"],
)
def test_same_word_again_is_no_news(said: Answer) -> None:
    assert find_unwritten({QUESTION: said}, WRITTEN) == {}


@pytest.mark.parametrize(
    "said",
    [
        replace(SHUT, output="still no"),
        replace(SHUT, ask_again_at=None),
        replace(SHUT, asked_since=LATER),
        Answer(status=GateStatus.OPEN, ask_again_at=NOW),
    ],
    ids=["other words", "never asked again", "asked since then", "open"],
)
def test_other_word_is_news(said: Answer) -> None:
    assert find_unwritten({QUESTION: said}, WRITTEN) == {QUESTION: said}


def test_gate_that_is_asked_again_has_said_what_it_said_before() -> None:
    asking = {QUESTION: Answer(status=GateStatus.ASKING, ask_again_at=LATER)}

    assert find_unwritten(asking, WRITTEN) == {}
    assert find_unwritten(asking, {}) == asking


def test_answer_has_news_when_it_is_time_to_ask_again() -> None:
    assert not SHUT.has_news(NOW - timedelta(seconds=1))
    assert SHUT.has_news(NOW)
    assert not replace(SHUT, ask_again_at=None).has_news(LATER)
