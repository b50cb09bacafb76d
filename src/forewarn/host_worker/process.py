"""The process of `forewarn host work`."""

import fcntl
import os
import random
import secrets
import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import structlog

from forewarn.clocks import SystemClock
from forewarn.environment import environment_with
from forewarn.executors.processes import ProcessRunner
from forewarn.executors.task_log import TaskLog
from forewarn.front.upstreams import open_upstream
from forewarn.host_worker.fetcher import Exchange, WorkFetcher
from forewarn.host_worker.restarts import BOOT_ID, scripts_of_boot
from forewarn.host_worker.settings import HostWorkSettings
from forewarn.private_files import is_trusted
from forewarn.protocol.errors import ForewarnError

KEPT: Final = timedelta(days=90)
"""How long the records of an operation are kept. Servers keep theirs for a shorter time."""

_log = structlog.get_logger(__name__)


class StateDirectoryError(ForewarnError):
    """A directory of records that cannot be used."""


def do_host_work(settings: HostWorkSettings) -> None:
    """Fetch and do the work of this host until SIGTERM or SIGINT."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    boot_id = BOOT_ID.read_text(encoding="ascii").strip()
    with held(settings.state_dir):
        records = TaskLog(settings.state_dir / "host-work")
        remove_old(records, settings.state_dir / "host-work", SystemClock().now())
        runner = ProcessRunner(
            settings.find,
            scripts_of_boot(boot_id, restarts_host=settings.restarts_host),
            log=records,
            environment=environment_with({}),
            clock=SystemClock(),
        )
        upstream = open_upstream(settings.server, settings.token_file, settings.ca_file)
        fetcher = WorkFetcher(
            exchange=Exchange(server=upstream, ticket=secrets.token_hex(16)),
            runner=runner,
            records=records,
            boot_id=boot_id,
            chance=random.random,
        )
        tasks = [kind.value for kind in settings.commands]
        _log.info("fetching_host_work", server=settings.server, tasks=tasks)
        with closing(runner):
            fetcher.run(stopping)
        _log.info("stopped")


def remove_old(records: TaskLog, directory: Path, now: datetime) -> None:
    """Remove the records of operations that nobody asks about any more."""
    for subject in tuple(records.subjects()):
        changed = datetime.fromtimestamp((directory / subject).stat().st_mtime, UTC)
        if changed + KEPT < now:
            records.remove(subject)


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Keep the state *directory* to this process: two would take each other for lost."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_trusted(directory):
            problem = f"Other users can change the state directory {directory}; run: chown root"
            raise StateDirectoryError(f"{problem} {directory}; chmod 700 {directory}")
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError as error:
        problem = f"The state directory {directory} cannot be used: {error.strerror}."
        raise StateDirectoryError(problem) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise StateDirectoryError(
            f"Another forewarn host work uses {directory}; stop it first."
        ) from None
    finally:
        os.close(descriptor)
