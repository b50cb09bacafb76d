"""The one thread that writes: everything that waits is committed together.

A commit costs what the disk needs to remember, much more than the statements before it. So the
writer takes all that is queued, runs each work in a savepoint of its own, and commits once.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Lock, Thread, current_thread
from typing import Any, Final, TypeAlias, TypeVar

import structlog

from forewarn.ports.changes import ChangeListener, StoreChange
from forewarn.ports.metrics import Distribution
from forewarn.ports.store import StoreUnavailableError, Transaction
from forewarn.storage.connections import OpenedFile, SqliteConnection, outage
from forewarn.storage.errors import StoreClosedError
from forewarn.storage.fleet import TopologyCache
from forewarn.storage.transaction import Changes, SqlTransaction

GROUP_LIMIT: Final = 256
"""How many works share one commit at most, so that the first need not wait for too many."""

_GROUP_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128)

_log = structlog.get_logger(__name__)

T = TypeVar("T")
Work: TypeAlias = Callable[[Transaction], T]


@dataclass(slots=True)
class _Job:
    """A work, and what became of it before the commit."""

    work: Work[Any]
    future: Future[Any]
    result: Any = None
    error: BaseException | None = None


class Writer:
    """A thread with a connection, a queue and listeners."""

    def __init__(
        self, file: OpenedFile, connection: SqliteConnection, cache: TopologyCache
    ) -> None:
        self._file = file
        self._sql = connection.sql
        self._driver = connection.driver
        self._cache = cache
        self._listeners: tuple[ChangeListener, ...] = ()
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._closing = Lock()
        self._is_closed = False
        self._told = 0
        self.is_writable = True
        self.commits = Distribution(_GROUP_SIZES)
        # A daemon, so that a program that forgot to close can end; SQLite survives that.
        self._thread = Thread(target=self._run, name="forewarn-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Work[T]) -> Future[T]:
        """Queue *work*."""
        future: Future[T] = Future()
        with self._closing:  # so that nothing is queued behind the None that ends the thread
            if self._is_closed:
                raise StoreClosedError
            self._queue.put(_Job(work, future))
        return future

    def is_current_thread(self) -> bool:
        """Tell whether the caller is a work or a listener, for which nobody could do the work."""
        return current_thread() is self._thread

    def listen(self, listener: ChangeListener) -> None:
        """Call *listener* after each commit that changed any of what a `StoreChange` tells."""
        with self._closing:  # a new tuple, for the thread may be at the middle of the old one
            self._listeners = (*self._listeners, listener)

    def close(self) -> None:
        """Finish what was submitted and take no more."""
        with self._closing:
            if not self._is_closed:
                self._is_closed = True
                self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open:
            jobs, is_open = self._next_jobs()
            # From here on nobody can cancel: what is in a commit is answered.
            jobs = [job for job in jobs if job.future.set_running_or_notify_cancel()]
            if jobs:
                self._serve(jobs)

    def _next_jobs(self) -> tuple[list[_Job], bool]:
        # Nobody waits for company: what is queued while one commit runs makes up the next.
        jobs: list[_Job] = []
        job = self._queue.get()
        while job is not None:
            jobs.append(job)
            if len(jobs) == GROUP_LIMIT:
                return jobs, True
            try:
                job = self._queue.get_nowait()
            except Empty:
                return jobs, True
        return jobs, False

    def _serve(self, jobs: Sequence[_Job]) -> None:
        try:
            change = self._commit(jobs)
        except Exception as error:  # noqa: BLE001 - the writer goes on, and the callers are told
            self._refuse(jobs, error)
            return
        # Listeners first: whoever is told that it is done finds it on the board already.
        if change is not None:
            self._told = change.sequence
            self._tell(change)
        for job in jobs:
            if job.error is None:
                job.future.set_result(job.result)
            else:
                job.future.set_exception(job.error)

    def _commit(self, jobs: Sequence[_Job]) -> StoreChange | None:
        self._file.check()
        changes = Changes()
        before = self._driver.total_changes
        # IMMEDIATE, or a work that reads first could find at its first write that it may not.
        self._driver.execute("BEGIN IMMEDIATE")
        for job in jobs:
            self._attempt(job, changes)
        self._driver.execute("COMMIT")
        self.commits.observe(len(jobs))
        if changes.topology is not None:
            self._cache.keep(changes.topology)
        # A commit without changes says nothing about the disk.
        if self._driver.total_changes != before:
            self._note_writable(None)
        return changes.hint(self._told + 1)

    def _attempt(self, job: _Job, changes: Changes) -> None:
        # What fails takes back its own statements, and not those of its neighbours.
        self._driver.execute("SAVEPOINT work")
        transaction = SqlTransaction(self._sql, self._cache, changes.topology)
        try:
            job.result = job.work(transaction)
        except BaseException as error:  # whatever it is, it is the caller's, and not the writer's
            # With the disk full SQLite may have rolled back everything, neighbours included.
            if outage(error) is not None:
                raise
            job.error = error
            self._driver.execute("ROLLBACK TO work")
        else:
            changes.add(transaction.changes)
        self._driver.execute("RELEASE work")

    def _refuse(self, jobs: Iterable[_Job], error: Exception) -> None:
        if self._driver.in_transaction:
            self._driver.rollback()
        reason = outage(error)
        if reason is None:
            _log.error("commit_failed", exc_info=error)
            reason = f"the transaction failed ({error})"
        self._note_writable(reason)
        sentence = (
            f"Nothing was written, because {self._file.path} cannot be written now: {reason}."
        )
        for job in jobs:
            job.future.set_exception(StoreUnavailableError(sentence))

    def _tell(self, change: StoreChange) -> None:
        for listener in self._listeners:
            try:
                listener(change)
            except Exception:  # noqa: BLE001 - the commit stands; the next listener has to know
                _log.exception("listener_failed", listener=repr(listener))

    def _note_writable(self, reason: str | None) -> None:
        is_writable = reason is None
        if is_writable and not self.is_writable:
            _log.info("database_writable_again", database=str(self._file.path))
        elif not is_writable and self.is_writable:
            _log.error("database_not_writable", database=str(self._file.path), reason=reason)
        self.is_writable = is_writable
