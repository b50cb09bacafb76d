"""The parts of a server, put together on top of a store."""

import random
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from structlog.typing import FilteringBoundLogger

from forewarn.bootstrap.executing import Employer
from forewarn.bootstrap.starting import Beginning, make_rules, new_id
from forewarn.clocks import SystemClock, VirtualClock
from forewarn.emulator.faults import MemoryFaults
from forewarn.gates.asking import AskedGates, KnownGate
from forewarn.metadata.app import MetadataApp
from forewarn.metadata.board import Board
from forewarn.metadata.http import MetadataServer, make_server
from forewarn.metadata.identity import Identity
from forewarn.metadata.polls import Polls
from forewarn.metadata.showings import Showings
from forewarn.metadata.verbs import StoreVerbs
from forewarn.notifications.outbox import Courier, Notifications
from forewarn.operations.context import Context
from forewarn.ports.changes import Change
from forewarn.ports.clock import Clock, WallClock
from forewarn.ports.entries import Actor
from forewarn.ports.metrics import Tally
from forewarn.ports.notifier import Notifier
from forewarn.ports.store import Store
from forewarn.protocol.versions import served_versions
from forewarn.scheduler.scheduler import Scheduler
from forewarn.scheduler.upkeep import Upkeep
from forewarn.settings import Settings
from forewarn.telemetry.clock_watch import ClockWatch
from forewarn.telemetry.event_log import EventLog
from forewarn.telemetry.logs import logger_above

SCHEDULER: Final = "scheduler"


def assemble(
    settings: Settings,
    store: Store,
    beginning: Beginning,
    workforce: Employer,
    notifications: Notifications | None = None,
    gates: Mapping[str, KnownGate] | None = None,
) -> "Service":
    """Put a server together on top of *store*; nothing is served yet."""
    told = notifications or Notifications()
    wall, clock = SystemClock(), beginning.clock
    fixed = replace(make_rules(settings), targets=told.targets, gates=tuple(gates or ()))

    def context(who: str) -> Context:
        # Which hosts have work can change while the server runs: their file is read again.
        works = workforce.host_worker.rules if workforce.host_worker else ()
        rules = replace(fixed, host_works=tuple(works)) if works else fixed
        return Context(who=who, now=clock.now(), at=wall.now(), new_id=new_id, rules=rules)

    def scheduling() -> Context:
        return replace(context(SCHEDULER), actor=Actor.SCHEDULER)

    board = _make_board(settings, store)
    showings = Showings(store, clock)
    store.listen(showings.note)  # after the board
    faults = MemoryFaults(document_of=board.document_of, clock=clock, changed=board.waiters.wake)
    store.listen(faults.note)
    reports = logger_above(settings.log_level)
    asked, scheduler = _make_scheduler(
        store, workforce, gates or {}, beginning, scheduling, reports
    )
    return Service(
        settings=settings,
        store=store,
        board=board,
        clock=clock,
        faults=faults,
        scheduler=scheduler,
        gates=asked,
        context=context,
        polls=Polls(store, board, clock, is_eager=isinstance(clock, VirtualClock)),
        showings=showings,
        notifiers=told.notifiers,
        couriers=_make_couriers(told, store, wall, beginning.epoch),
        upkeep=Upkeep(store, scheduling),
        clock_watch=ClockWatch(wall),
        event_log=_make_event_log(store),
        tally=Tally(board.versions),
        token=beginning.token,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The parts of one server; `serving` runs them in a process of their own."""

    settings: Settings
    store: Store
    board: Board
    clock: Clock
    faults: MemoryFaults
    scheduler: Scheduler
    gates: AskedGates
    context: Callable[[str], Context]
    polls: Polls
    showings: Showings
    notifiers: Mapping[str, Notifier]
    couriers: tuple[Courier, ...]
    upkeep: Upkeep
    clock_watch: ClockWatch
    event_log: EventLog
    tally: Tally
    token: str
    executor_problem: Callable[[], str] = lambda: ""
    reload_executors: Callable[[], None] = lambda: None

    def changed(self) -> None:
        """Have the scheduler look again; under the virtual clock, before anybody is answered."""
        if isinstance(self.clock, VirtualClock):
            self.scheduler.settle()
        else:
            self.scheduler.wake()

    def metadata_server(self, listeners: Iterable[socket.socket]) -> MetadataServer:
        """Return the server that answers virtual machines on *listeners*."""
        identity = Identity(
            self.board,
            default_vm=self.settings.default_vm,
            trust_path=self.settings.trust_path,
            trusted_proxies=self.settings.trusted_proxies,
            proxy_secret=self.settings.proxy_secret or "",
        )
        verbs = StoreVerbs(self.store, self.context, self.changed)
        app = MetadataApp(
            board=self.board,
            identity=identity,
            verbs=verbs,
            polled=self.polls.note,
            faults=self.faults,
            tally=self.tally,
        )
        return make_server(app, listeners)


def _make_board(settings: Settings, store: Store) -> Board:
    board = Board(served_versions(settings.preview_wire))
    board.take(
        store.read(lambda all_: Change(documents=all_.documents(), topology=all_.topology()))
    )
    store.listen(board.take)
    return board


def _make_scheduler(
    store: Store,
    workforce: Employer,
    gates: Mapping[str, KnownGate],
    beginning: Beginning,
    context: Callable[[], Context],
    reports: FilteringBoundLogger,
) -> tuple[AskedGates, Scheduler]:
    asked = AskedGates(
        gates,
        clock=beginning.clock,
        wall=SystemClock(),
        woken=lambda: scheduler.wake(),  # noqa: PLW0108 - it is made after them, to ask them
        waits=isinstance(beginning.clock, VirtualClock),
    )
    scheduler = Scheduler(
        store=store,
        executor=workforce.executor,
        context=context,
        epoch=beginning.epoch,
        gates=asked,
        reports=reports,
        host_worker=workforce.host_worker,
    )
    return asked, scheduler


def _make_event_log(store: Store) -> EventLog:
    event_log = EventLog(store)
    store.listen(event_log.note)
    return event_log


def _make_couriers(
    told: Notifications, store: Store, wall: WallClock, epoch: int
) -> tuple[Courier, ...]:
    couriers = tuple(
        Courier(
            name,
            notifier,
            store=store,
            wall=wall,
            retrying=told.retrying,
            chance=random.random,
            epoch=epoch,
        )
        for name, notifier in told.notifiers.items()
    )
    for courier in couriers:
        store.listen(courier.note)
    return couriers
