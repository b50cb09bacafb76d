"""The executors of a server, made from their file; a wrong file stops them, not the server."""

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Final

import structlog

from forewarn.bootstrap.executing import Workforce, choose_workforce
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.host_work import HostTask, HostWorkRule
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import VmName
from forewarn.ports.clock import Clock
from forewarn.ports.executor import Executor
from forewarn.ports.host_worker import HostWorker
from forewarn.ports.store import Store
from forewarn.protocol.errors import ForewarnError
from forewarn.protocol.vocabulary import EventId
from forewarn.settings import Settings

log = structlog.get_logger()

_ASK_AGAIN_AFTER: Final = timedelta(seconds=10)


class ReloadableWorkforce:
    """Executors that are made anew when their file is read again.

    While the file is wrong, everything they are asked about is unknown, with what is wrong as the
    reason. A file that becomes wrong while a server runs changes nothing.
    """

    def __init__(self, settings: Settings, store: Store, clock: Clock) -> None:
        self._settings = settings
        self._store = store
        self._clock = clock
        self._turn = threading.Lock()
        self._closing = ExitStack()
        self._current: Workforce | None = None
        self.problem = ""
        """What is wrong with the file; nothing while the executors work."""
        self.executor: Executor = _Executor(self)
        self.host_worker: HostWorker = _HostWorker(self)
        self.reload()

    def reload(self) -> None:
        """Read the file, and make the executors anew unless it is wrong."""
        try:
            make = choose_workforce(self._settings)
        except ForewarnError as error:
            if self._current is None:
                self.problem = str(error)
            log.error("executor_file_wrong", error=str(error), works=self._current is not None)  # noqa: TRY400 - the sentence says it all
            return
        opened = ExitStack()
        current = opened.enter_context(make(self._store, self._clock))
        with self._turn:
            former, self._closing, self._current = self._closing, opened, current
            self.problem = ""
        # Whoever still asks the former executors does no harm: what was begun is on disk.
        former.close()

    def close(self) -> None:
        """Close the executors. What was begun is not stopped."""
        with self._turn:
            self._closing.close()

    @property
    def current(self) -> Workforce | None:
        """The executors, unless their file is wrong."""
        with self._turn:
            return self._current

    def unknown(self) -> Impact:
        """Say that nothing can be known while the file is wrong."""
        again = self._clock.now() + _ASK_AGAIN_AFTER
        return Impact(
            status=ImpactStatus.UNKNOWN,
            reason=self.problem,
            ask_again_at=again,
            has_no_executor=True,
        )


class _Executor:
    def __init__(self, workforce: ReloadableWorkforce) -> None:
        self._workforce = workforce

    def begin(self, event: ScheduledEvent, vm: VmName, *, epoch: int) -> Impact:
        current = self._workforce.current
        if current is None:
            return self._workforce.unknown()
        return current.executor.begin(event, vm, epoch=epoch)

    def inquire(self, event_id: EventId, vm: VmName) -> Impact:
        current = self._workforce.current
        if current is None:
            return self._workforce.unknown()
        return current.executor.inquire(event_id, vm)


class _HostWorker:
    def __init__(self, workforce: ReloadableWorkforce) -> None:
        self._workforce = workforce

    @property
    def rules(self) -> Sequence[HostWorkRule]:
        current = self._workforce.current
        if current is None:
            # Any host may have work. Without the file nobody knows, and none is taken for done.
            return (HostWorkRule(),)
        return current.host_worker.rules if current.host_worker else ()

    def begin(self, task: HostTask, *, epoch: int) -> Impact:
        worker = self._worker()
        return worker.begin(task, epoch=epoch) if worker else self._unknown()

    def inquire(self, task: HostTask) -> Impact:
        worker = self._worker()
        return worker.inquire(task) if worker else self._unknown()

    def _worker(self) -> HostWorker | None:
        current = self._workforce.current
        return current.host_worker if current else None

    def _unknown(self) -> Impact:
        if self._workforce.problem:
            return self._workforce.unknown()
        reason = "the executor file no longer has [[host_work]] for the host"
        return Impact(status=ImpactStatus.UNKNOWN, reason=reason)
