"""The pause of the whole server: stored, audited, and said wherever something waits for it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from forewarn.clocks import VirtualClock
from forewarn.domain.blockers import BlockerKind, BrakeKind
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.maintenance import MaintenanceOrder
from forewarn.domain.server_pause import ServerPause
from forewarn.domain.why import ReasonKind
from forewarn.executors.simulated import Simulated
from forewarn.files.fleet import read_fleet_file
from forewarn.files.scenario import read_scenario
from forewarn.operations.context import Context
from forewarn.operations.events import EventOrder, create_events
from forewarn.operations.explain import explain_event, explain_maintenance
from forewarn.operations.inventory import apply_fleet
from forewarn.operations.maintenances import report_maintenance, start_maintenance
from forewarn.operations.pausing import find_pause, pause_server, resume_server
from forewarn.operations.scenarios import start_scenario
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventStatus, EventType, event_id
from forewarn.scheduler.scheduler import Scheduler
from forewarn.storage.sqlite import open_sqlite
from forewarn.wording.command_lines import say_actions, say_reason, say_verdict

FLEET = '[[virtual_machine]]\nname = "web-0"\n[[virtual_machine]]\nname = "web-1"\n'
SCENARIO = 'name = "one"\n[[step]]\nat = "0s"\nannounce = "Freeze"\nnotice = "10m"\n'
MONDAY = datetime(2026, 1, 5, 8, tzinfo=UTC)
PAUSED = "The server has been paused by alice (storage) since 2026-01-05 08:00:00 GMT"


class World:
    """A server without its network."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = VirtualClock(MONDAY)
        self._ids = (event_id(f"{number:032x}") for number in count(1))
        self.scheduler = self.lead()
        store.write(lambda tx: apply_fleet(tx, self.context(), read_fleet_file(FLEET)))

    def lead(self) -> Scheduler:
        return Scheduler(
            store=self.store,
            assigner=Simulated(),
            context=self.context,
            epoch=self.store.write(lambda tx: tx.next_epoch()),
        )

    def context(self) -> Context:
        now = self.clock.now()
        return Context(who="alice", now=now, at=now, new_id=self._ids.__next__)

    def pause(self) -> ServerPause:
        return self.store.write(lambda tx: pause_server(tx, self.context(), "storage"))

    def resume(self) -> None:
        self.store.write(lambda tx: resume_server(tx, self.context()))
        self.scheduler.settle()

    def create(self, vm: str, *, started: bool = False) -> ScheduledEvent:
        order = EventOrder(event_type=EventType.FREEZE, resources=(vm,), started=started)
        (event,) = self.store.write(lambda tx: create_events(tx, self.context(), order))
        self.scheduler.settle()
        return event

    def advance(self, **duration: float) -> None:
        self.scheduler.advance(timedelta(**duration), move_to=self.clock.move_to)

    def status(self, event: ScheduledEvent) -> EventStatus:
        found = self.store.read(lambda reading: reading.event(event.event_id))
        assert found
        return found.event_status

    def reasons(self, event: ScheduledEvent) -> dict[ReasonKind, str]:
        found = self.store.read(
            lambda reading: explain_event(reading, self.context(), event.event_id)
        )
        return {reason.kind: say_reason(reason) for reason in found.reasons}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    store = open_sqlite(tmp_path / "forewarn.db")
    yield World(store)
    store.close()


def test_event_does_not_start_during_a_pause_and_starts_after_it(world: World) -> None:
    world.pause()
    event = world.create("web-0")

    world.advance(hours=1)

    assert world.status(event) is EventStatus.SCHEDULED
    assert world.reasons(event)[ReasonKind.SERVER_PAUSED].startswith(PAUSED)
    world.resume()
    assert world.status(event) is EventStatus.STARTED
    assert ReasonKind.SERVER_PAUSED not in world.reasons(event)


def test_impact_does_not_begin_during_a_pause(world: World) -> None:
    world.pause()
    event = world.create("web-0", started=True)

    world.advance(hours=1)

    assert [*world.reasons(event)][:2] == [ReasonKind.SERVER_PAUSED, ReasonKind.NOT_BEGUN]
    world.resume()
    world.advance(hours=1)
    assert world.status(event) is EventStatus.COMPLETED


def test_impact_that_has_begun_ends_during_a_pause(world: World) -> None:
    event = world.create("web-0", started=True)
    world.pause()
    running = world.reasons(event)

    world.advance(hours=1)

    assert world.status(event) is EventStatus.COMPLETED
    assert ReasonKind.SERVER_PAUSED not in running


def test_no_step_is_announced_during_a_pause_and_explain_says_so(world: World) -> None:
    world.pause()
    order = MaintenanceOrder(event_type=EventType.FREEZE, scopes=("web-0",))
    begun = world.store.write(lambda tx: start_maintenance(tx, world.context(), order))

    world.advance(hours=1)

    found = world.store.read(
        lambda reading: explain_maintenance(reading, world.context(), begun.maintenance_id)
    ).standstill
    assert [blocker.kind for blocker in found.blockers] == [BlockerKind.SERVER_PAUSED]
    assert found.blockers[0].sentence == (
        "No step begins in virtual-machine/web-0: "
        "the server has been paused by alice (storage) since 2026-01-05 08:00:00 GMT."
    )
    assert (
        say_verdict(found.verdict)
        == "The maintenance does not continue until an operator acts: forewarn resume."
    )
    report = world.store.read(
        lambda reading: report_maintenance(reading, world.context(), begun.maintenance_id)
    )
    assert [brake.kind for stage in report.stages for brake in stage.brakes] == [
        BrakeKind.SERVER_PAUSED
    ]


def test_event_of_a_maintenance_that_waits_for_the_server_is_released_by_hand(world: World) -> None:
    order = MaintenanceOrder(event_type=EventType.FREEZE, scopes=("web-0",))
    begun = world.store.write(lambda tx: start_maintenance(tx, world.context(), order))
    world.scheduler.settle()
    world.pause()
    world.advance(hours=1)

    found = world.store.read(
        lambda reading: explain_maintenance(reading, world.context(), begun.maintenance_id)
    ).standstill

    assert ReasonKind.SERVER_PAUSED in {blocker.kind for blocker in found.blockers}
    assert say_actions(found.verdict) == ("forewarn resume",)


def test_scenario_takes_no_step_during_a_pause_and_the_rest_runs_out(world: World) -> None:
    event = world.create("web-1", started=True)
    world.pause()
    scenario = read_scenario(SCENARIO)
    world.store.write(lambda tx: start_scenario(tx, world.context(), scenario, ("web-0",)))

    world.advance(hours=1)

    in_flight = world.store.read(lambda reading: reading.events_in_flight())
    assert in_flight == ()
    assert world.status(event) is EventStatus.COMPLETED


def test_pause_outlives_the_leader_and_is_written_down_once(world: World) -> None:
    first = world.pause()
    world.advance(minutes=1)
    world.scheduler = world.lead()
    again = world.pause()
    event = world.create("web-0")
    world.advance(hours=1)

    assert first == again == world.store.read(find_pause)
    assert world.status(event) is EventStatus.SCHEDULED
    world.resume()
    world.resume()
    entries = world.store.read(lambda reading: reading.audit())
    told = [(entry.action, entry.detail) for entry in entries if entry.subject == "server"]
    assert told == [("pause", "storage"), ("resume", "")]
    assert world.store.read(find_pause) is None
