"""The life of a server process from start to stop."""

import asyncio
import gc
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol

import structlog

from forewarn.bootstrap.address import leave_address
from forewarn.bootstrap.operators import ControlServer, control_server
from forewarn.bootstrap.reloading import ReloadableWorkforce
from forewarn.bootstrap.service import Service, assemble
from forewarn.bootstrap.starting import (
    FleetDeclaration,
    Listeners,
    begin_as_declared,
    open_listeners,
    read_fleet_declaration,
)
from forewarn.bootstrap.tls import check_control
from forewarn.clocks import SystemClock, VirtualClock
from forewarn.environment import environment_with, notify_socket
from forewarn.gates.asking import KnownGate
from forewarn.gates.configuration import read_gates
from forewarn.metadata.http import MetadataServer
from forewarn.notifications.configuration import read_notifications
from forewarn.notifications.outbox import Notifications
from forewarn.operations.notifications import give_up_orphans
from forewarn.ports.store import Store
from forewarn.protocol.errors import ForewarnError
from forewarn.settings import Settings
from forewarn.storage.schema import remove_files
from forewarn.storage.sqlite import open_sqlite
from forewarn.systemd import Notifier
from forewarn.telemetry.logs import configure_logging

log = structlog.get_logger()

_COURIER_SECONDS: Final = 2.0
_SWITCH_SECONDS: Final = 0.001
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
        service = stack.enter_context(_service(settings, fleet, parts))
        _run(service, listeners, _until_signalled, ready=ready)


def serve_during(
    settings: Settings, listeners: Listeners, errand: Callable[[], Awaitable[None]]
) -> None:
    """Run a server on *listeners* as long as *errand* takes, which has the terminal to itself."""
    configure_logging(settings.log_format, settings.log_level)
    fleet = read_fleet_declaration(settings.fleet)
    with _service(settings, fleet, _read_parts(settings)) as service:
        _run(service, listeners, errand)


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return how to make the fastest event loop there is, if it is not the usual one."""
    try:
        import uvloop  # noqa: PLC0415 - not on Windows
    except ImportError:
        return None
    return uvloop.new_event_loop


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What the operator's files ask for, read and checked before anything is written."""

    notifications: Notifications
    gates: Mapping[str, KnownGate]


def _read_parts(settings: Settings) -> _Parts:
    return _Parts(
        notifications=read_notifications(settings.notifications),
        gates=read_gates(settings.gates, environment_with({})),
    )


@contextmanager
def _service(
    settings: Settings, fleet: FleetDeclaration | None, parts: _Parts
) -> Iterator[Service]:
    is_new = not settings.database_path.exists()
    store = open_sqlite(settings.database_path, migrate=settings.migrate)
    try:
        try:
            beginning = begin_as_declared(store, settings, fleet, SystemClock().now())
        except BaseException:
            store.close()
            if is_new:
                remove_files(settings.database_path)
            raise
        _give_up_orphans(store, parts.notifications)
        with closing(ReloadableWorkforce(settings, store, beginning.clock)) as workforce:
            made = assemble(settings, store, beginning, workforce, parts.notifications, parts.gates)
            yield replace(
                made,
                executor_problem=lambda: workforce.problem,
                reload_executors=workforce.reload,
            )
    finally:
        store.close()


def _give_up_orphans(store: Store, notifications: Notifications) -> None:
    now = SystemClock().now()
    number = store.write(lambda tx: give_up_orphans(tx, notifications.notifiers, now=now))
    if number:
        log.warning("notifications_given_up", number=number, problem="target not configured")


def _run(
    service: Service,
    listeners: Listeners,
    errand: Callable[[], Awaitable[None]],
    *,
    ready: Callable[[], None] | None = None,
) -> None:
    # A poll waits this long at most for a thread that has much to do.
    sys.setswitchinterval(_SWITCH_SECONDS)
    with (
        leave_address(service.settings, listeners.control[0]),
        asyncio.Runner(loop_factory=fastest_loop()) as runner,
    ):
        runner.run(_serve(service, listeners, errand, ready=ready))


async def _serve(
    service: Service,
    listeners: Listeners,
    errand: Callable[[], Awaitable[None]],
    *,
    ready: Callable[[], None] | None,
) -> None:
    """Serve until *errand* is done, then let everything finish; one that is alone obeys signals."""
    metadata = service.metadata_server(listeners.metadata)
    control = control_server(
        service, listeners.control, is_ready=lambda: metadata.started and not metadata.should_exit
    )
    loops = _loops(service)
    threads = [threading.Thread(target=loop.run, name=name) for name, loop in loops.items()]
    couriers = [
        # Daemons: who waits for a slow receiver must not keep the server from ending.
        threading.Thread(target=courier.run, name=f"courier-{courier.target}", daemon=True)
        for courier in service.couriers
    ]
    logger = threading.Thread(target=service.event_log.run, name="event-log")
    _begin(service, (*threads, *couriers, logger))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(metadata.run_until_stopped())
            group.create_task(control.serve())
            if ready is not None:
                _obey(group, service, (metadata, control), ready)
            try:
                await errand()
            finally:
                metadata.stop()
                control.should_exit = True
    finally:
        for loop in (*loops.values(), *service.couriers):
            loop.stop()
        await asyncio.to_thread(service.gates.close)
        for thread in threads:
            await asyncio.to_thread(thread.join)
        for thread in couriers:
            await asyncio.to_thread(thread.join, _COURIER_SECONDS)
        # Last, for all of these can still have changed an event.
        service.event_log.stop()
        await asyncio.to_thread(logger.join)
        log.info("stopped")


def _begin(service: Service, threads: Iterable[threading.Thread]) -> None:
    # What is there now stays. To look through it for garbage took 0.2 s, with everybody waiting.
    gc.freeze()
    for thread in threads:
        thread.start()
    log.info("serving", metadata=service.settings.metadata, control=service.settings.control)


class _Loop(Protocol):
    """A part with a thread of its own."""

    def run(self) -> None: ...

    def stop(self) -> None: ...


def _loops(service: Service) -> dict[str, _Loop]:
    loops: dict[str, _Loop] = {
        "scheduler": service.scheduler,
        "polls": service.polls,
        "showings": service.showings,
        "upkeep": service.upkeep,
    }
    if not isinstance(service.clock, VirtualClock):  # whose time is not that of the machine
        loops["clock-watch"] = service.clock_watch
    return loops


def _obey(
    group: asyncio.TaskGroup,
    service: Service,
    servers: tuple[MetadataServer, ControlServer],
    ready: Callable[[], None],
) -> None:
    """Tell whoever started this process when it is ready, and reload when told to."""
    metadata, control = servers
    group.create_task(_tell_ready(metadata, control, ready))
    if not hasattr(signal, "SIGHUP"):
        return
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGHUP, lambda: group.create_task(asyncio.to_thread(_reload, service, control))
    )


async def _tell_ready(
    metadata: MetadataServer, control: ControlServer, ready: Callable[[], None]
) -> None:
    """Tell *ready*, and systemd if it has asked for it, when everybody is answered."""
    notifier = Notifier(notify_socket(), None)
    while not (metadata.started and control.started):
        if metadata.should_exit:
            return
        await asyncio.sleep(_READY_SECONDS)
    notifier.tell("READY=1")
    ready()


def _reload(service: Service, control: ControlServer) -> None:
    """Read the files again that may change while the server runs; what is wrong stays as it was."""
    log.info("reloading")
    try:
        if control.renew_certificate():
            log.info("certificate_renewed")
    except ForewarnError as error:
        log.error("certificate_not_renewed", error=str(error))  # noqa: TRY400 - the sentence says it all
    try:
        service.reload_executors()
    except Exception:  # a server goes on without what cannot be reloaded
        log.exception("reload_failed")
    service.scheduler.wake()


async def _until_signalled() -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError):  # on Windows Ctrl-C arrives as an exception
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await stopping.wait()
