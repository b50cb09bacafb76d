"""What is going on in the whole fleet, in one look."""

from collections.abc import Callable
from datetime import datetime, timedelta

from tests.operations.test_foresight import begin, in_flight, tick

from forewarn.domain.blockers import VerdictKind
from forewarn.domain.event import Outcome
from forewarn.domain.maintenance import MaintenanceOrder
from forewarn.domain.progress import WalkProgress
from forewarn.domain.standing import MaintenanceStatus
from forewarn.operations.context import Context
from forewarn.operations.events import complete_event, start_event
from forewarn.operations.maintenances import abort_maintenance, pause_maintenance
from forewarn.operations.seen import show_versions
from forewarn.operations.survey import Survey, survey
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventType


def look(store: Store, context: Context) -> Survey:
    return store.read(lambda reading: survey(reading, context, whole=reading))


def test_survey_has_what_is_under_way_and_what_comes_next(fleet: Store, operator: Context) -> None:
    begin(fleet, operator)
    tick(fleet, operator)

    found = look(fleet, operator)

    (undertaken,) = found.maintenances
    assert undertaken.progress == (
        WalkProgress(update_domain=0, under_way=1),
        WalkProgress(update_domain=1, waiting=1),
    )
    assert undertaken.explanation.status is MaintenanceStatus.RUNNING
    assert undertaken.explanation.standstill.verdict.until == operator.now + timedelta(minutes=15)
    assert [each.step.shares[0].resources for each in found.foreseen] == [("web-1",)]
    assert found.unpolled == ("web-0", "web-1", "batch-0", "solo")


def test_survey_has_failures_until_the_maintenance_is_aborted(
    fleet: Store, operator: Context
) -> None:
    key = begin(fleet, operator)
    tick(fleet, operator)
    event_id = in_flight(fleet)
    fleet.write(lambda tx: start_event(tx, operator, event_id))
    fleet.write(lambda tx: complete_event(tx, operator, event_id, Outcome.FAILED, "no room"))

    (held,) = look(fleet, operator).maintenances
    fleet.write(lambda tx: abort_maintenance(tx, operator, key))
    (aborted,) = look(fleet, operator).maintenances

    assert [failure.reason for failure in held.failures] == ["no room"]
    assert held.explanation.standstill.verdict.kind is VerdictKind.NEVER
    assert aborted.failures == ()


def test_survey_names_who_paused(
    fleet: Store, operator: Context, later: Callable[[datetime], Context]
) -> None:
    order = MaintenanceOrder(event_type=EventType.FREEZE, hosts=("kvm-0", "kvm-1"))
    key = begin(fleet, operator, order)
    fleet.write(lambda tx: pause_maintenance(tx, operator, key))

    found = look(fleet, later(operator.now + timedelta(hours=1)))

    (undertaken,) = found.maintenances
    assert undertaken.progress == (WalkProgress(update_domain=None, waiting=2),)
    assert "by alice" in undertaken.explanation.standstill.blockers[0].sentence
    assert found.foreseen == ()


def test_every_api_version_is_shown_as_it_is_served(fleet: Store, operator: Context) -> None:
    begin(fleet, operator)
    tick(fleet, operator)
    event = fleet.read(lambda reading: reading.events_in_flight()[0])

    shown = fleet.read(lambda reading: show_versions(reading, event.scope_id))

    assert len(shown) == 7
    assert all(event.event_id.encode() in body for body in shown.values())
