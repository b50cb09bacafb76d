"""Explaining an event from what the store has."""

import pytest
from tests.tasks import RUNNING, Assigner, Workers

from forewarn.domain.errors import UnknownEventError
from forewarn.domain.why import ReasonKind
from forewarn.operations.context import Context
from forewarn.operations.events import EventOrder, create_events
from forewarn.operations.explain import explain_event
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventId, EventType
from forewarn.scheduler.tick import decide_and_record


def test_event_is_explained_with_what_the_executor_said(fleet: Store, operator: Context) -> None:
    order = EventOrder(event_type=EventType.REBOOT, resources=("solo",), started=True)
    (event,) = fleet.write(lambda tx: create_events(tx, operator, order))
    fleet.write(lambda tx: decide_and_record(tx, operator, {}, Assigner(), epoch=tx.next_epoch()))
    Workers(fleet, lambda _: RUNNING).attend(operator.at)

    found = fleet.read(lambda reading: explain_event(reading, operator, event.event_id))

    assert found.event == event
    assert [reason.kind for reason in found.reasons] == [ReasonKind.RUNNING]


def test_event_that_never_existed_is_not_explained(fleet: Store, operator: Context) -> None:
    with pytest.raises(UnknownEventError):
        fleet.read(lambda reading: explain_event(reading, operator, EventId("NO")))
