"""The one place where the parts are put together, and the life of a server from start to stop."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack

from forewarn.bootstrap.service import Service, assemble
from forewarn.bootstrap.starting import begin, open_listeners, read_fleet_declaration
from forewarn.clocks import SystemClock
from forewarn.settings import Settings
from forewarn.storage.schema import remove_files
from forewarn.storage.sqlite import open_sqlite
from forewarn.telemetry import configure_logging

__all__ = ["Service", "fastest_loop", "serve"]


def serve(settings: Settings) -> None:
    """Run a server until it is told to stop.

    Whatever can be wrong is found before anything is written, or written in one transaction.
    """
    configure_logging(settings.log_format)
    fleet = read_fleet_declaration(settings.fleet)
    with ExitStack() as closing:
        listeners = open_listeners(settings, closing)
        is_new = not settings.database_path.exists()
        store = open_sqlite(settings.database_path, migrate=settings.migrate)
        closing.callback(store.close)
        try:
            beginning = begin(store, settings, fleet, SystemClock().now())
        except BaseException:
            store.close()
            if is_new:
                remove_files(settings.database_path)
            raise
        service = assemble(settings, store, beginning, listeners)
        with asyncio.Runner(loop_factory=fastest_loop()) as runner:
            runner.run(service.run())


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return how to make the fastest event loop there is, if it is not the usual one."""
    try:
        import uvloop  # noqa: PLC0415 - not on Windows
    except ImportError:
        return None
    return uvloop.new_event_loop
