"""How a Maintenance ended."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from forewarn.domain.ending import Ending, ending_of
from forewarn.domain.event import (
    Draft,
    Outcome,
    ScheduledEvent,
    Share,
    cancel,
    complete,
    schedule,
    start,
)
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import MaintenanceId, ScopeId, VmName
from forewarn.protocol.vocabulary import EventSource, EventType, event_id

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
OURS = MaintenanceId("m1")
MAINTENANCE = Maintenance(maintenance_id=OURS, event_type=EventType.FREEZE, started_at=NOW)


def scheduled(maintenance_id: MaintenanceId = OURS) -> ScheduledEvent:
    draft = Draft(
        event_type=EventType.FREEZE,
        event_source=EventSource.PLATFORM,
        share=Share(
            scope_id=ScopeId("virtual-machine/a"), update_domain=0, resources=(VmName("a"),)
        ),
        maintenance_id=maintenance_id,
    )
    return schedule(draft, event_id=event_id(f"{1:032x}"), now=NOW, notice=timedelta(minutes=15))


def ended(outcome: Outcome, maintenance_id: MaintenanceId = OURS) -> ScheduledEvent:
    return complete(start(scheduled(maintenance_id), now=NOW), outcome=outcome, now=NOW)


@pytest.mark.parametrize(
    ("last", "ending"),
    [
        (ended(Outcome.SUCCEEDED), Ending.SUCCEEDED),
        (ended(Outcome.FAILED), Ending.INCOMPLETE),
        (cancel(scheduled(), now=NOW), Ending.INCOMPLETE),
        (ended(Outcome.FAILED, MaintenanceId("m2")), Ending.SUCCEEDED),
    ],
)
def test_ending_is_that_of_all_its_events(last: ScheduledEvent, ending: Ending) -> None:
    assert ending_of(MAINTENANCE, [ended(Outcome.SUCCEEDED), last]) is ending


def test_aborted_maintenance_is_aborted_whatever_became_of_its_events() -> None:
    aborted = replace(MAINTENANCE, is_aborted=True)

    assert ending_of(aborted, [ended(Outcome.FAILED)]) is Ending.ABORTED
