"""The life of a server process from start to stop."""

import asyncio
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import structlog

from forewarn.bootstrap.operators import control_server
from forewarn.bootstrap.service import Service, assemble
from forewarn.bootstrap.starting import (
    FleetDeclaration,
    Listeners,
    begin_as_declared,
    open_listeners,
    read_fleet_declaration,
)
from forewarn.clocks import SystemClock
from forewarn.settings import Settings
from forewarn.storage.schema import remove_files
from forewarn.storage.sqlite import open_sqlite
from forewarn.telemetry import configure_logging

log = structlog.get_logger()


def serve(settings: Settings) -> None:
    """Run a server until it is told to stop.

    Whatever can be wrong is found before anything is written, or written in one transaction.
    """
    configure_logging(settings.log_format)
    fleet = read_fleet_declaration(settings.fleet)
    with ExitStack() as closing:
        listeners = open_listeners(settings, closing)
        service = closing.enter_context(_service(settings, fleet))
        _run(service, listeners, _until_signalled)


def serve_during(
    settings: Settings, listeners: Listeners, errand: Callable[[], Awaitable[None]]
) -> None:
    """Run a server on *listeners* as long as *errand* takes, which has the terminal to itself."""
    configure_logging(settings.log_format, level=logging.WARNING)
    fleet = read_fleet_declaration(settings.fleet)
    with _service(settings, fleet) as service:
        _run(service, listeners, errand)


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return how to make the fastest event loop there is, if it is not the usual one."""
    try:
        import uvloop  # noqa: PLC0415 - not on Windows
    except ImportError:
        return None
    return uvloop.new_event_loop


@contextmanager
def _service(settings: Settings, fleet: FleetDeclaration | None) -> Iterator[Service]:
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
        yield assemble(settings, store, beginning)
    finally:
        store.close()


def _run(service: Service, listeners: Listeners, errand: Callable[[], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        runner.run(_serve(service, listeners, errand))


async def _serve(
    service: Service, listeners: Listeners, errand: Callable[[], Awaitable[None]]
) -> None:
    """Serve until *errand* is done, then let everything finish."""
    metadata = service.metadata_server(listeners.metadata)
    control = control_server(
        service, listeners.control, is_ready=lambda: metadata.started and not metadata.should_exit
    )
    threads = [
        threading.Thread(target=service.scheduler.run, name="scheduler"),
        threading.Thread(target=service.polls.run, name="polls"),
        threading.Thread(target=service.upkeep.run, name="upkeep"),
    ]
    for thread in threads:
        thread.start()
    log.info("serving", metadata=service.settings.metadata, control=service.settings.control)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(metadata.run_until_stopped())
            group.create_task(control.serve())
            try:
                await errand()
            finally:
                metadata.stop()
                control.should_exit = True
    finally:
        service.scheduler.stop()
        service.polls.stop()
        service.upkeep.stop()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        log.info("stopped")


async def _until_signalled() -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError):  # on Windows Ctrl-C arrives as an exception
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await stopping.wait()
