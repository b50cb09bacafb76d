"""What a virtual machine could read at a moment gone by."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from forewarn.domain.errors import UnknownVirtualMachineError
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.context import Context, Rules
from forewarn.operations.events import EventOrder, cancel_event, create_events
from forewarn.operations.inventory import apply_fleet, remove_vm
from forewarn.operations.seen import NotSeenError, UnknownApiVersionError, forget, kept_since, see
from forewarn.ports.entries import Showing
from forewarn.ports.store import Store
from forewarn.protocol.document import encode_document
from forewarn.protocol.versions import NEWEST
from forewarn.protocol.vocabulary import EventType

Later = Callable[[datetime], Context]
EMPTY = b'{"DocumentIncarnation":0,"Events":[]}'
MINUTE = timedelta(minutes=1)


def seen(
    store: Store, context: Context, vm: str, at: datetime, version: str = NEWEST.name
) -> bytes:
    return store.read(lambda reading: see(reading, context, vm, at, version))


def announce(store: Store, context: Context, vm: str) -> bytes:
    """Announce a Reboot of *vm*, and return what it is shown from now on."""
    order = EventOrder(event_type=EventType.REBOOT, resources=(vm,))
    (event,) = store.write(lambda tx: create_events(tx, context, order))
    document = store.read(lambda reading: reading.document(event.scope_id))
    return encode_document(document, NEWEST)


def test_each_document_is_seen_from_its_publication_until_the_next(
    fleet: Store, operator: Context, later: Later
) -> None:
    began = operator.now
    first = announce(fleet, later(began + MINUTE), "web-0")
    second = announce(fleet, later(began + 2 * MINUTE), "web-1")
    now = later(began + 10 * MINUTE)

    shown = [
        seen(fleet, now, "WEB-1", began + minutes * MINUTE) for minutes in (0, 0.99, 1, 1.99, 2, 10)
    ]

    assert shown == [EMPTY, EMPTY, first, first, second, second]
    assert seen(fleet, now, "solo", now.now) == EMPTY


def test_document_is_seen_when_it_was_shown_not_when_it_was_recorded(
    fleet: Store, operator: Context, later: Later
) -> None:
    recorded_at = operator.now + MINUTE
    document = announce(fleet, later(recorded_at), "web-0")
    slow = Showing(recorded_at=recorded_at, shown_at=recorded_at + MINUTE)
    now = later(operator.now + 10 * MINUTE)

    def seen_at(at: datetime) -> bytes:
        return fleet.read(
            lambda reading: see(reading, now, "web-0", at, NEWEST.name, pending=[slow])
        )

    assert seen_at(recorded_at) == EMPTY
    assert seen_at(recorded_at + MINUTE) == document


def test_moment_that_has_not_come_is_refused(fleet: Store, operator: Context) -> None:
    with pytest.raises(NotSeenError, match="2026-01-05 08:01:00 GMT is in the future"):
        seen(fleet, operator, "web-0", operator.now + MINUTE)


def test_moment_older_than_the_retention_is_refused_with_the_first_that_is_not(
    fleet: Store, operator: Context
) -> None:
    much_later = replace(
        operator,
        now=operator.now + timedelta(days=2),
        rules=Rules(document_retention=timedelta(days=1)),
    )

    with pytest.raises(NotSeenError, match="from 2026-01-06 08:00:00 GMT ") as refused:
        seen(fleet, much_later, "web-0", operator.now)

    assert refused.value.since == kept_since(much_later)


def test_what_was_forgotten_stays_so_when_more_is_kept(fleet: Store, operator: Context) -> None:
    before = operator.now + timedelta(hours=1)
    now = replace(operator, now=operator.now + timedelta(days=1))

    fleet.write(lambda tx: forget(tx, before=before))
    fleet.write(lambda tx: forget(tx, before=before - MINUTE))

    with pytest.raises(NotSeenError, match="from 2026-01-05 09:00:00 GMT "):
        seen(fleet, now, "web-0", before - MINUTE)
    assert seen(fleet, now, "web-0", before) == EMPTY


def test_machine_that_moved_read_the_document_of_its_scope_then(
    fleet: Store, operator: Context, later: Later
) -> None:
    began = operator.now
    of_web = announce(fleet, later(began + MINUTE), "web-1")
    alone = read_fleet_file('[[virtual_machine]]\nname = "web-0"')
    fleet.write(lambda tx: apply_fleet(tx, later(began + 2 * MINUTE), alone))
    now = later(began + 10 * MINUTE)

    assert seen(fleet, now, "web-0", began + MINUTE) == of_web
    assert json.loads(seen(fleet, now, "web-0", began + 2 * MINUTE)) == {
        "DocumentIncarnation": 2,
        "Events": [],
    }
    assert seen(fleet, now, "web-1", began + 2 * MINUTE) == of_web


def test_machine_that_left_read_nothing_and_is_known_as_long_as_it_was_there(
    fleet: Store, operator: Context, later: Later
) -> None:
    began = operator.now
    fleet.write(lambda tx: remove_vm(tx, later(began + MINUTE), "solo"))
    now = later(began + 2 * MINUTE)

    assert seen(fleet, now, "solo", began) == EMPTY
    problem = r"was not in the fleet at .* it left the fleet at 2026-01-05 08:01"
    with pytest.raises(NotSeenError, match=problem):
        seen(fleet, now, "solo", began + MINUTE)


def test_machine_that_came_back_in_the_same_moment_never_left(
    fleet: Store, operator: Context
) -> None:
    fleet.write(lambda tx: remove_vm(tx, operator, "solo"))
    back = read_fleet_file('[[virtual_machine]]\nname = "SOLO"')
    fleet.write(lambda tx: apply_fleet(tx, operator, back))

    assert seen(fleet, operator, "solo", operator.now) == EMPTY


def test_machine_is_not_known_before_it_joined(fleet: Store, operator: Context) -> None:
    with pytest.raises(NotSeenError, match="start at 2026-01-05 08:00:00 GMT") as refused:
        seen(fleet, operator, "web-0", operator.now - MINUTE)

    assert refused.value.since == operator.now


def test_unknown_machine_and_unknown_version_are_refused(fleet: Store, operator: Context) -> None:
    with pytest.raises(UnknownVirtualMachineError):
        seen(fleet, operator, "ghost", operator.now)
    with pytest.raises(UnknownApiVersionError, match="use 2017-03-01, "):
        seen(fleet, operator, "web-0", operator.now, "2018-01-01")


def test_canceled_event_is_gone_from_the_moment_it_was_canceled(
    fleet: Store, operator: Context, later: Later
) -> None:
    shown = announce(fleet, operator, "solo")
    (event,) = fleet.read(lambda reading: reading.events_in_flight())
    canceled = operator.now + MINUTE
    fleet.write(lambda tx: cancel_event(tx, later(canceled), event.event_id))

    moments = [operator.now, canceled - timedelta(microseconds=1), canceled]
    bodies = [seen(fleet, later(canceled), "solo", moment) for moment in moments]

    assert bodies == [shown, shown, b'{"DocumentIncarnation":2,"Events":[]}']
