"""The parts of a server, put together on top of a store: a Replica, and the Leader it may be."""

import random
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

import structlog
from structlog.typing import FilteringBoundLogger

from forewarn.bootstrap.leader import Candidate, Leader
from forewarn.bootstrap.machine_sources import ReloadableSources
from forewarn.bootstrap.presence import introduce
from forewarn.bootstrap.start import StartingPoint, make_rules, new_id
from forewarn.bootstrap.supervision import Supervisor
from forewarn.clocks import SystemClock, VirtualClock
from forewarn.discovery.explorer import Explorer
from forewarn.domain.names import HostName
from forewarn.emulator.faults import MemoryFaults
from forewarn.emulator.journal import MemoryJournal
from forewarn.executors.simulated import Manual
from forewarn.executors.watcher import TaskWatcher
from forewarn.feed.hub import Hub
from forewarn.feed.relay_services import RelayServices
from forewarn.gates.asked_gates import AskedGates, KnownGate
from forewarn.metadata.app import MetadataApp
from forewarn.metadata.board import Board
from forewarn.metadata.http import App, MetadataServer
from forewarn.metadata.identity import Identifier
from forewarn.metadata.journaled import JournaledApp
from forewarn.metadata.polls import Polls
from forewarn.metadata.showings import Showings
from forewarn.metadata.store_feed import StoreFeed
from forewarn.metadata.verbs import StoreVerbs
from forewarn.notifications.outbox import Courier, Notifications
from forewarn.operations.context import Context
from forewarn.operations.discovery import find_sources, put_sources
from forewarn.operations.notifications import give_up_orphans
from forewarn.outbound.client import Outbound
from forewarn.ports.archive import Archive
from forewarn.ports.changes import ChangeListener
from forewarn.ports.clock import Clock, WallClock
from forewarn.ports.entries import Actor
from forewarn.ports.leadership import Leadership
from forewarn.ports.metrics import Tally
from forewarn.ports.notifier import Notifier
from forewarn.ports.replicas import Replicas
from forewarn.ports.runner import Assigner
from forewarn.ports.store import Store, Transaction
from forewarn.protocol.vocabulary import EventId
from forewarn.scheduler.scheduler import Performance, Scheduler
from forewarn.scheduler.upkeep import Upkeep
from forewarn.settings import Settings
from forewarn.storage.lock import FileLeadership, SoleReplica
from forewarn.telemetry.clock_watch import ClockWatch
from forewarn.telemetry.event_log import EventLog
from forewarn.telemetry.logs import logger_above
from forewarn.wording.durations import parse_duration

log = structlog.get_logger()

SCHEDULER: Final = "scheduler"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """Whom a server talks to outside: runners of tasks, gates, and targets to notify.

    Whoever makes *outbound* closes it. Without *runners*, operators do it all by hand. The
    *watcher* has them carry out the tasks of this node, whose records are the *archives*. With
    *sources*, the fleet follows what they say. Real time is measured by *wall*. *retention* is how
    long history is kept, if not forever. Ids are made by *new_id*.
    """

    outbound: Outbound
    runners: Assigner = field(default_factory=Manual)
    new_id: Callable[[], EventId] = new_id
    watcher: TaskWatcher | None = None
    archives: Sequence[Archive] = ()
    notifications: Notifications = field(default_factory=Notifications)
    gates: Mapping[str, KnownGate] = field(default_factory=dict)
    sources: ReloadableSources | None = None
    wall: WallClock = field(default_factory=SystemClock)
    retention: Callable[[], timedelta | None] = lambda: None


def assemble(
    settings: Settings,
    store: Store,
    beginning: StartingPoint,
    outside: Outside,
    supervisor: Supervisor | None = None,
    leadership: Leadership | None = None,
) -> "Replica":
    """Put a server together on top of *store*; nothing is served yet.

    Without a *supervisor* nothing is done by itself, only when `Replica.settle` is called.
    """
    clock = beginning.clock
    context = _make_context(settings, clock, outside)
    store_feed, showings = _follow(store, clock)
    board = store_feed.board
    faults = MemoryFaults(document_of=board.document_of, clock=clock, changed=board.look_again)
    gates = _make_gates(outside, clock, woken=lambda: candidate.wake())  # noqa: PLW0108
    reports = logger_above(settings.log_level)
    make = _LeaderMaker(store, outside, gates, faults, context, reports)
    candidate = Candidate(
        leadership or FileLeadership(store),
        make,
        supervisor,
        clock_tolerance=parse_duration(settings.clock_tolerance),
        check_records=outside.watcher.records.check if outside.watcher else str,
        reports=reports,
    )
    event_log = EventLog(store, leads=lambda: candidate.epoch > 0 or not settings.is_shared)
    _listen(store, faults.note, candidate.note, event_log.note)
    if outside.watcher is not None:
        outside.watcher.rests = lambda: candidate.is_resting
        store.listen(outside.watcher.note)
    return Replica(
        settings=settings,
        store=store,
        board=board,
        store_feed=store_feed,
        hub=_tell_followers(board),
        clock=clock,
        wall=outside.wall,
        faults=faults,
        journal=MemoryJournal(clock, SystemClock()),
        candidate=candidate,
        watcher=outside.watcher,
        performance=make.performance,
        gates=gates,
        context=context,
        polls=Polls(store, board, clock, is_eager=isinstance(clock, VirtualClock)),
        showings=showings,
        notifiers=outside.notifications.notifiers,
        event_log=event_log,
        tally=Tally(),
        token=beginning.token,
        supervisor=supervisor or Supervisor(),
        replicas=SoleReplica(store, introduce(settings, ""), now=SystemClock().now),
        database=str(settings.database_path),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """What lives as long as the process: everything that answers, whoever leads.

    *performance* is of all leaders this replica has been; *database* is how people know it. The
    *journal* stays empty unless the settings say that it is kept; *around* puts something around
    what answers virtual machines.
    """

    settings: Settings
    store: Store
    board: Board
    store_feed: StoreFeed
    hub: Hub
    clock: Clock
    wall: WallClock
    faults: MemoryFaults
    journal: MemoryJournal
    candidate: Candidate
    watcher: TaskWatcher | None = None
    performance: Performance
    gates: AskedGates
    context: Callable[[str], Context]
    polls: Polls
    showings: Showings
    notifiers: Mapping[str, Notifier]
    clock_watch: ClockWatch = field(default_factory=lambda: ClockWatch(SystemClock()))
    event_log: EventLog
    tally: Tally
    token: str
    supervisor: Supervisor
    replicas: Replicas
    database: str
    executor_problem: Callable[[], str] = lambda: ""
    reload_executors: Callable[[], None] = lambda: None
    reload_sources: Callable[[], None] = lambda: None
    around: Callable[[App], App] = lambda app: app

    def settle(self) -> None:
        """Do all that is due, before anybody is answered, under the virtual clock.

        Under the real clock the scheduler does it by itself: it hears of every commit.
        """
        if isinstance(self.clock, VirtualClock):
            self.candidate.scheduler.settle()

    def verbs(self, host: HostName | None) -> StoreVerbs:
        """Return what virtual machines on *host*, or on any, can have done."""
        return StoreVerbs(self.store, self.context, self.settle, host)

    @property
    def relay_services(self) -> RelayServices:
        """What this server does for relays."""
        return RelayServices(
            hub=self.hub, verbs=self.verbs, polled=self.polls.note_all, tally=self.tally
        )

    def metadata_server(self, listeners: Iterable[socket.socket]) -> MetadataServer:
        """Return the server that answers virtual machines on *listeners*."""
        identity = Identifier(
            self.board,
            default_vm=self.settings.default_vm,
            trust_path=self.settings.trust_path,
            trusted_proxies=self.settings.trusted_proxies,
            proxy_secret=self.settings.proxy_secret or "",
        )
        app = MetadataApp(
            board=self.board,
            identity=identity,
            verbs=self.verbs(None),
            polled=self.polls.note,
            faults=self.faults,
            tally=self.tally,
        )
        answering = self.around(app)
        if self.settings.journal:
            answering = JournaledApp(answering, identity, self.journal)
        return MetadataServer(answering, listeners)


def _follow(store: Store, clock: Clock) -> tuple[StoreFeed, Showings]:
    """Have a board show what *store* has; it is the first that hears of a change."""
    showings = Showings(store, clock)
    feed = StoreFeed(Board(), store, showings.note)
    feed.begin()
    return feed, showings


def _tell_followers(board: Board) -> Hub:
    hub = Hub(board)
    board.listen(hub.note)
    return hub


def _listen(store: Store, *listeners: ChangeListener) -> None:
    """Have *listeners* hear of changes, after the board, and each after those before it."""
    for listener in listeners:
        store.listen(listener)


def _make_context(settings: Settings, clock: Clock, outside: Outside) -> Callable[[str], Context]:
    wall, runners, watcher = outside.wall, outside.runners, outside.watcher
    tolerance = parse_duration(settings.clock_tolerance)
    fixed = replace(
        make_rules(settings),
        targets=outside.notifications.targets,
        gates=tuple(outside.gates),
        node=watcher.owner.node if watcher else "",
    )

    def context(who: str) -> Context:
        # Which hosts have work can change while the server runs: their file is read again.
        works = runners.rules
        rules = replace(fixed, host_works=tuple(works)) if works else fixed
        now, at = clock.now(), wall.now()
        if settings.is_shared:
            # Until it is noticed that the clock is off, it must not start events early.
            now = min(max(now, at - tolerance), at + tolerance)
        return Context(who=who, now=now, at=at, new_id=outside.new_id, rules=rules)

    return context


def _make_gates(outside: Outside, clock: Clock, *, woken: Callable[[], None]) -> AskedGates:
    """Return the gates, made before whoever asks them and is *woken* by their answers."""
    return AskedGates(
        outside.gates,
        outbound=outside.outbound,
        clock=clock,
        wall=outside.wall,
        woken=woken,
        waits=isinstance(clock, VirtualClock),
    )


@dataclass(frozen=True, slots=True)
class _LeaderMaker:
    """Makes a Leader for an epoch, from nothing but what is stored and who is outside."""

    store: Store
    outside: Outside
    gates: AskedGates
    faults: MemoryFaults
    context: Callable[[str], Context]
    reports: FilteringBoundLogger
    performance: Performance = field(default_factory=Performance)

    def own_context(self) -> Context:
        """Return in what the leader acts now."""
        return replace(self.context(SCHEDULER), actor=Actor.SCHEDULER)

    def __call__(self, epoch: int) -> Leader:
        self._give_up_orphans(epoch)
        scheduler = Scheduler(
            store=self.store,
            assigner=self.outside.runners,
            context=self.own_context,
            epoch=epoch,
            gates=self.gates,
            reports=self.reports,
            performance=self.performance,
            faults=self.faults,
        )
        return Leader(
            epoch=epoch,
            scheduler=scheduler,
            couriers=tuple(self._couriers(epoch)),
            upkeep=Upkeep(
                self.store,
                self.own_context,
                epoch=epoch,
                archives=self.outside.archives,
                retention=self.outside.retention,
            ),
            explorer=self._explorer(epoch, scheduler.wake),
        )

    def _explorer(self, epoch: int, changed: Callable[[], None]) -> Explorer | None:
        if self.outside.sources is None:
            self._forget_sources(epoch)
            return None
        return Explorer(
            self.outside.sources,
            store=self.store,
            context=lambda who: replace(self.context(who), actor=Actor.SERVER),
            wall=self.outside.wall,
            epoch=epoch,
            changed=changed,
        )

    def _forget_sources(self, epoch: int) -> None:
        """Have nobody told of the problems of sources that are no longer asked."""

        def forget(tx: Transaction) -> None:
            tx.check_epoch(epoch)
            put_sources(tx, ())

        if self.store.read(find_sources):
            self.store.write(forget)

    def _couriers(self, epoch: int) -> Iterator[Courier]:
        told = self.outside.notifications
        for name, notifier in told.notifiers.items():
            yield Courier(
                name,
                notifier,
                store=self.store,
                wall=self.outside.wall,
                retrying=told.retrying,
                chance=random.random,
                epoch=epoch,
            )

    def _give_up_orphans(self, epoch: int) -> None:
        targets, now = self.outside.notifications.notifiers, self.outside.wall.now()

        def give_up(tx: Transaction) -> int:
            tx.check_epoch(epoch)
            return give_up_orphans(tx, targets, now=now)

        if number := self.store.write(give_up):
            log.warning("notifications_given_up", number=number, problem="target not configured")
