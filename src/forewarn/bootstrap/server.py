"""The life of a server process from start to stop."""

import asyncio
import gc
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Final

import structlog

from forewarn.bootstrap.address import leave_address, public_url
from forewarn.bootstrap.database import OpenDatabase, open_database, own, wait_for
from forewarn.bootstrap.listening import Listeners, open_listeners
from forewarn.bootstrap.machine_sources import ReloadableSources
from forewarn.bootstrap.node import held
from forewarn.bootstrap.operators import ControlServer, control_server
from forewarn.bootstrap.presence import (
    check_agreement,
    heart_beating,
    introduce,
    longest_history,
)
from forewarn.bootstrap.replica import Outside, Replica, assemble
from forewarn.bootstrap.runners import ReloadableRunners
from forewarn.bootstrap.start import (
    FleetDeclaration,
    StartingPoint,
    begin_as_declared,
    read_fleet_declaration,
)
from forewarn.bootstrap.supervision import SupervisedThread, Supervisor
from forewarn.bootstrap.task_records import TaskRecords
from forewarn.bootstrap.tls import check_control
from forewarn.clocks import VirtualClock
from forewarn.connections.event_loop import fastest_loop
from forewarn.domain.task import Owner
from forewarn.environment import environment_with, notify_socket
from forewarn.executors.watcher import TaskWatcher
from forewarn.gates.configuration import read_gates
from forewarn.metadata.http import App, MetadataServer
from forewarn.notifications.configuration import read_notifications
from forewarn.outbound.client import Outbound
from forewarn.ports.replicas import ReplicaIdentity
from forewarn.protocol.errors import ForewarnError
from forewarn.settings import Settings
from forewarn.systemd import SystemdNotifier
from forewarn.telemetry.logs import configure_logging

log = structlog.get_logger()

_SWITCH_SECONDS: Final = 0.0003
"""How long a poll waits at most for a thread that has much to do.

A thread that waits for the event loop in turn is let in as soon, so shorter makes polls wait, too.
"""
_READY_SECONDS: Final = 0.02


def serve(settings: Settings, ready: Callable[[], None] = lambda: None) -> None:
    """Run a server until it is told to stop; call *ready* when everybody is answered.

    Whatever can be wrong is found before anything is written, or written in one transaction.
    """
    configure_logging(settings.log_format, settings.log_level)
    fleet = read_fleet_declaration(settings.fleet)
    parts = _read_parts(settings)
    with ExitStack() as stack:
        listeners = open_listeners(settings, stack)
        check_control(settings, listeners.control)
        itself = introduce(settings, public_url(settings, listeners.control[0]))
        replica = stack.enter_context(_replica(settings, itself, fleet, parts))
        _run(replica, listeners, _until_signalled, ready=ready)


def serve_during(
    settings: Settings,
    listeners: Listeners,
    errand: Callable[[], Awaitable[None]],
    around: Callable[[Replica, App], App] = lambda _, app: app,
) -> None:
    """Run a server on *listeners* as long as *errand* takes, which has the terminal to itself.

    *around* may put something around what answers virtual machines.
    """
    configure_logging(settings.log_format, settings.log_level)
    fleet = read_fleet_declaration(settings.fleet)
    itself = introduce(settings, public_url(settings, listeners.control[0]))
    with _replica(settings, itself, fleet, _read_parts(settings)) as replica:
        _run(replace(replica, around=partial(around, replica)), listeners, errand)


def _read_parts(settings: Settings) -> Outside:
    """Return what the operator's files ask for, read and checked before anything is written."""
    outbound = Outbound()
    return Outside(
        outbound=outbound,
        notifications=read_notifications(settings.notifications, outbound),
        gates=read_gates(settings.gates, environment_with({}), outbound),
        sources=None if settings.discovery_file is None else ReloadableSources(settings),
    )


@contextmanager
def _replica(
    settings: Settings, itself: ReplicaIdentity, fleet: FleetDeclaration | None, outside: Outside
) -> Iterator[Replica]:
    with ExitStack() as stack:
        # Last: a message that is canceled by it is not recorded as one that failed.
        stack.callback(outside.outbound.close)
        if settings.is_shared:
            stack.enter_context(held(settings.state_directory))
        database = stack.enter_context(open_database(settings, itself))
        supervisor = Supervisor()
        if settings.is_shared:
            stack.enter_context(heart_beating(database.replicas, supervisor))
        store = database.store
        try:
            if not settings.is_shared:  # whose lock says more, and comes first
                stack.enter_context(held(settings.state_directory))
            beginning = take_over(database, settings, fleet)
            database = own(database, settings)
        except BaseException:
            database.discard()
            raise
        wall = database.wall
        records = TaskRecords(settings.state_directory, store, database.node, itself.name)
        made_runners = ReloadableRunners(
            settings, store, beginning.clock, records.log, outside.outbound
        )
        runners = stack.enter_context(closing(made_runners))

        def register() -> Owner:
            owner = records.begin(wall.now())
            database.replicas.generation = owner.generation
            return owner

        watcher = wait_for(
            lambda: TaskWatcher(
                store,
                runners=runners,
                register=register,
                records=records.log,
                wall=wall,
            )
        )
        outside = replace(
            outside,
            runners=runners,
            watcher=watcher,
            archives=(records,),
            wall=wall,
            retention=partial(longest_history, database.replicas),
        )
        made = assemble(settings, store, beginning, outside, supervisor, database.leadership)
        yield replace(
            made,
            replicas=database.replicas,
            database=database.place,
            executor_problem=lambda: runners.problem,
            reload_executors=runners.reload,
            reload_sources=outside.sources.reload if outside.sources else lambda: None,
        )


def take_over(
    database: OpenDatabase, settings: Settings, fleet: FleetDeclaration | None
) -> StartingPoint:
    """Begin on *database*, or refuse to; one that replicas share may be away, and is waited for."""

    def attempt() -> StartingPoint:
        check_agreement(database.replicas)
        return begin_as_declared(database.store, settings, fleet, database.wall.now())

    return wait_for(attempt) if settings.is_shared else attempt()


def _run(
    replica: Replica,
    listeners: Listeners,
    errand: Callable[[], Awaitable[None]],
    *,
    ready: Callable[[], None] | None = None,
) -> None:
    sys.setswitchinterval(_SWITCH_SECONDS)
    with (
        leave_address(replica.settings, listeners.control[0]),
        asyncio.Runner(loop_factory=fastest_loop()) as runner,
    ):
        runner.run(_serve(replica, listeners, errand, ready=ready))


async def _serve(
    replica: Replica,
    listeners: Listeners,
    errand: Callable[[], Awaitable[None]],
    *,
    ready: Callable[[], None] | None,
) -> None:
    """Serve until *errand* is done, then let everything finish; one that is alone obeys signals."""
    metadata = replica.metadata_server(listeners.metadata)
    control = control_server(
        replica, listeners.control, is_ready=lambda: metadata.started and not metadata.should_exit
    )
    # What is there now stays. To look through it for garbage took 0.2 s, with everybody waiting.
    gc.freeze()
    replica.candidate.campaign()
    threads = tuple(_start_loops(replica))
    log.info("serving", metadata=replica.settings.metadata, control=replica.settings.control)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(metadata.run_until_stopped())
            group.create_task(control.serve())
            if ready is not None:
                _obey(group, replica, (metadata, control), ready)
            try:
                await errand()
            finally:
                metadata.stop()
                control.should_exit = True
    finally:
        await _end(replica, threads)
        log.info("stopped")


async def _end(replica: Replica, threads: Sequence[SupervisedThread]) -> None:
    # The log of events last, for all the others can still have changed one.
    *others, event_log = threads
    for thread in others:
        thread.stop()
    await asyncio.to_thread(replica.gates.close)
    for thread in others:
        await asyncio.to_thread(thread.join)
    event_log.stop()
    await asyncio.to_thread(event_log.join)


def _start_loops(replica: Replica) -> Iterator[SupervisedThread]:
    start = replica.supervisor.start
    yield start("leadership", replica.candidate)
    if replica.watcher is not None:
        yield start("tasks", replica.watcher.rounds)
    yield start("board", replica.store_feed.rounds)
    yield start("polls", replica.polls.rounds)
    yield start("showings", replica.showings.rounds)
    if not isinstance(replica.clock, VirtualClock):  # whose time is not that of the machine
        yield start("clock-watch", replica.clock_watch.rounds)
    yield start("event-log", replica.event_log.rounds)


def _obey(
    group: asyncio.TaskGroup,
    replica: Replica,
    servers: tuple[MetadataServer, ControlServer],
    ready: Callable[[], None],
) -> None:
    """Tell whoever started this process when it is ready, and reload when told to."""
    metadata, control = servers
    group.create_task(_tell_ready(metadata, control, ready))
    if not hasattr(signal, "SIGHUP"):
        return
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGHUP, lambda: group.create_task(asyncio.to_thread(_reload, replica, control))
    )


async def _tell_ready(
    metadata: MetadataServer, control: ControlServer, ready: Callable[[], None]
) -> None:
    """Tell *ready*, and systemd if it has asked for it, when everybody is answered."""
    notifier = SystemdNotifier(notify_socket(), None)
    while not (metadata.started and control.started):
        if metadata.should_exit:
            return
        await asyncio.sleep(_READY_SECONDS)
    notifier.tell("READY=1")
    ready()


def _reload(replica: Replica, control: ControlServer) -> None:
    """Read the files again that may change while the server runs; what is wrong stays as it was."""
    log.info("reloading")
    try:
        if control.renew_certificate():
            log.info("certificate_renewed")
    except ForewarnError as error:
        log.error("certificate_not_renewed", error=str(error))  # noqa: TRY400 - the sentence says it all
    for reload in (replica.reload_executors, replica.reload_sources):
        try:
            reload()
        except Exception:  # a server goes on without what cannot be reloaded
            log.exception("reload_failed")
    replica.candidate.wake()


async def _until_signalled() -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError):  # on Windows Ctrl-C arrives as an exception
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await stopping.wait()
