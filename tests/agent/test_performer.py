"""What the agent asks of a server, each question in a thread of its own."""

from collections.abc import Generator
from datetime import timedelta
from queue import SimpleQueue

import pytest
from tests.agent.conftest import NOON, make_event
from tests.sdk.conftest import Handler, Metadata, answer_with, say_nothing

from forewarn.agent.performer import Answered, RealPerformer, Result
from forewarn.client import Client, ClientError
from forewarn.protocol.vocabulary import EventId

SECONDS = 45


@pytest.fixture
def metadata() -> Generator[Metadata]:
    server = Metadata()
    yield server
    server.stop()


class Asking:
    """A performer, and the answers in the order in which they come."""

    def __init__(self, metadata: Metadata) -> None:
        self.answers: SimpleQueue[Result] = SimpleQueue()
        self.performer = RealPerformer(
            lambda: Client(metadata.endpoint, patience=0), {}, self.answers.put
        )

    def next_answer(self) -> Answered:
        answer = self.answers.get(timeout=SECONDS)
        assert isinstance(answer, Answered)
        return answer


@pytest.fixture
def asking(metadata: Metadata) -> Asking:
    return Asking(metadata)


def test_question_without_an_answer_holds_up_no_other(metadata: Metadata, asking: Asking) -> None:
    metadata.script = [say_nothing, answer_with()]
    silent, answered = make_event(1), make_event(2)

    asking.performer.approve((silent,))
    while not metadata.seen:
        pass
    asking.performer.approve((answered,))

    assert asking.next_answer() == Answered(event=answered)


def test_several_events_are_approved_in_one_request(metadata: Metadata, asking: Asking) -> None:
    events = (make_event(1), make_event(2))

    asking.performer.approve(events)

    assert {asking.next_answer().event_id for _ in events} == {each.event_id for each in events}
    (seen,) = metadata.seen
    assert all(event.event_id.encode() in seen.body for event in events)


def test_event_that_is_refused_takes_no_other_with_it(metadata: Metadata, asking: Asking) -> None:
    metadata.script = [answer_with(b'{"error": "EventId is unknown"}', 400), refuse_first]
    metadata.script.append(refuse_first)
    events = (make_event(1), make_event(2))

    asking.performer.approve(events)
    answers = (asking.next_answer(), asking.next_answer())

    refused = {answer.event_id: answer.is_refused for answer in answers}
    assert refused == {events[0].event_id: True, events[1].event_id: False}


def refuse_first(handler: Handler) -> None:
    port = handler.client_address[1]
    (body,) = (seen.body for seen in handler.server.seen if seen.connection == port)
    is_first = make_event(1).event_id.encode() in body
    handler.answer(b"{}", 400 if is_first else 200)


def test_event_whose_id_fits_into_no_address_can_be_asked_about(
    metadata: Metadata, asking: Asking
) -> None:
    event = make_event(event_id=EventId("X\ud800Y"))

    asking.performer.postpone(event, NOON + timedelta(minutes=20))

    assert asking.next_answer().error is None
    assert "/events/X%3FY/postpone?" in metadata.seen[0].target


def test_mistake_is_a_question_that_was_not_answered(caplog: pytest.LogCaptureFixture) -> None:
    answers: SimpleQueue[Result] = SimpleQueue()

    def connect() -> Client:
        raise ZeroDivisionError

    RealPerformer(connect, {}, answers.put).approve((make_event(),))
    answer = answers.get(timeout=SECONDS)

    assert isinstance(answer, Answered)
    assert isinstance(answer.error, ClientError)
    assert not answer.is_refused
    assert "request_broken" in caplog.text
