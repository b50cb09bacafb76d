"""The one thread that writes: everything that waits is committed together.

A commit costs what the disk needs to remember, much more than the statements before it. So the
writer takes all that is queued, runs each work in a savepoint of its own, and commits once.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Lock, Thread, current_thread
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import structlog
from sqlalchemy import Connection

from forewarn.ports.changes import StoreChange
from forewarn.ports.metrics import Distribution
from forewarn.ports.store import StoreUnavailableError, Transaction
from forewarn.storage.changes import ChangeListeners
from forewarn.storage.errors import StoreClosedError
from forewarn.storage.topology_cache import TopologyCache, TopologyNotReadError
from forewarn.storage.transaction import Changes, SqlTransaction

GROUP_LIMIT: Final = 256
"""How many works share one commit at most, so that the first need not wait for too many."""

_ATTEMPTS: Final = 3
"""How often a work is called at most, while the fleet changes quicker than it can be read."""
_GROUP_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128)

_log = structlog.get_logger(__name__)

T = TypeVar("T")
Work: TypeAlias = Callable[[Transaction], T]


class UncertainCommitError(Exception):
    """The database went away while it committed; what it did is not known. Its cause says why."""


@dataclass(slots=True)
class _Job:
    """A work, and what became of it before the commit."""

    work: Work[Any]
    future: Future[Any]
    result: Any = None
    error: BaseException | None = None
    attempts: int = 0

    def is_wanted(self) -> bool:
        """Tell whether nobody has canceled it; from then on nobody can."""
        return self.attempts > 0 or self.future.set_running_or_notify_cancel()

    def answer(self) -> None:
        """Tell whoever waits what became of it."""
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class WritingSession(Protocol):
    """The connection that the writer has to itself, and how its engine does what both can."""

    @property
    def sql(self) -> Connection:
        """What statements run on."""

    def begin(self) -> None:
        """Begin a transaction; nobody else writes until it ends."""

    def commit(self, changes: Changes) -> Sequence[StoreChange]:
        """Commit, and return what listeners may not know yet, the new changes last."""

    def roll_back(self) -> None:
        """Undo all of the transaction, if there still is one."""

    def set_mark(self) -> None:
        """Remember what was done so far, in place of what was remembered before."""

    def require_sound(self) -> None:
        """Raise if what was done since the mark cannot be committed."""

    def undo(self) -> None:
        """Take back what was done since the mark."""

    @property
    def total_changes(self) -> int:
        """How many rows were ever changed."""

    def outage(self, error: BaseException) -> str | None:
        """Say what is wrong with the database, if that is what *error* tells."""


class _LateWorks:
    """Works that need the topology, for as long as all of it is being read with *load*.

    Others are done meanwhile, if it *is_threaded*. These come back into the queue, with *again*.
    """

    def __init__(
        self, load: Callable[[], object], again: Callable[[_Job], None], *, is_threaded: bool
    ) -> None:
        self._load = load
        self._again = again
        self._is_threaded = is_threaded
        self._changing = Lock()
        self._jobs: list[_Job] = []
        self._thread: Thread | None = None

    def add(self, job: _Job) -> None:
        """Have *job* done when the topology is there."""
        with self._changing:
            self._jobs.append(job)
            if self._is_threaded and self._thread is None:
                self._thread = Thread(target=self._run, name="forewarn-topology", daemon=True)
                self._thread.start()
        if not self._is_threaded:
            self._run()

    def finish(self) -> None:
        """Wait until they are back in the queue."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._load()
        except Exception as problem:  # noqa: BLE001 - whatever it is, the callers are told
            error = problem
        with self._changing:
            for job in self._jobs:
                job.error = error
                if error is None:
                    self._again(job)
                else:
                    job.answer()
            self._jobs, self._thread = [], None


class Writer:
    """A thread with a connection, a queue and listeners; *database* is how people know it.

    *load* reads all of the topology into the *cache*. Unless it *is_threaded*, works are done on
    the thread of whoever submits them, before `submit` returns.
    """

    def __init__(
        self,
        database: str,
        session: WritingSession,
        cache: TopologyCache,
        listeners: ChangeListeners,
        *,
        load: Callable[[], object],
        is_threaded: bool = True,
    ) -> None:
        self._database = database
        self._session = session
        self._cache = cache
        self._listeners = listeners
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._late = _LateWorks(load, self._queue.put, is_threaded=is_threaded)
        self._closing = Lock()
        self._is_closed = False
        self.is_writable = True
        self.commits = Distribution(_GROUP_SIZES)
        self._is_draining = False
        # A daemon, so that a program that forgot to close can end; databases survive that.
        self._thread = Thread(target=self._run, name="forewarn-writer", daemon=True)
        self._is_threaded = is_threaded
        if is_threaded:
            self._thread.start()

    def submit(self, work: Work[T]) -> Future[T]:
        """Queue *work*."""
        future: Future[T] = Future()
        with self._closing:  # so that nothing is queued behind the None that ends the thread
            if self._is_closed:
                raise StoreClosedError
            self._queue.put(_Job(work, future))
        if not (self._is_threaded or self._is_draining):
            self._drain()
        return future

    def is_current_thread(self) -> bool:
        """Tell whether the caller is a work or a listener, for which nobody could do the work."""
        if not self._is_threaded:
            return self._is_draining
        return current_thread() in {self._thread, self._listeners.teller}

    def write(self, work: Work[T]) -> T:
        """Queue *work* and wait for it."""
        if self.is_current_thread():
            raise RuntimeError("write() waits for the thread it was called on; use submit().")
        return self.submit(work).result()

    def close(self) -> None:
        """Finish what was submitted and take no more."""
        with self._closing:
            if not self._is_closed:
                self._is_closed = True
                self._queue.put(None)
        if self._is_threaded:
            self._thread.join()

    def note_writable(self, reason: str | None) -> None:
        """Note *reason*, if the database cannot be written, and log it when that is news."""
        is_writable = reason is None
        if is_writable and not self.is_writable:
            _log.info("database_writable_again", database=self._database)
        elif not is_writable and self.is_writable:
            _log.error("database_not_writable", database=self._database, reason=reason)
        self.is_writable = is_writable

    def _run(self) -> None:
        is_open = True
        while is_open or self._has_late_works():
            jobs, is_open = self._next_jobs(is_open=is_open)
            # From here on nobody can cancel: what is in a commit is answered.
            jobs = [job for job in jobs if job.is_wanted()]
            if jobs:
                self._serve(jobs)

    def _drain(self) -> None:
        """Do all that is queued, also what is submitted meanwhile."""
        self._is_draining = True
        try:
            while not self._queue.empty():
                jobs, _ = self._next_jobs(is_open=True)
                self._serve(jobs)
        finally:
            self._is_draining = False

    def _has_late_works(self) -> bool:
        self._late.finish()
        return not self._queue.empty()

    def _next_jobs(self, *, is_open: bool) -> tuple[list[_Job], bool]:
        # Nobody waits for company: what is queued while one commit runs makes up the next.
        jobs: list[_Job] = []
        job = self._queue.get()
        while job is not None:
            jobs.append(job)
            if len(jobs) == GROUP_LIMIT:
                return jobs, is_open
            try:
                job = self._queue.get_nowait()
            except Empty:
                return jobs, is_open
        return jobs, False

    def _serve(self, jobs: Sequence[_Job]) -> None:
        try:
            news = self._commit(jobs)
        except Exception as error:  # noqa: BLE001 - the writer goes on, and the callers are told
            self._refuse(jobs, error)
            return
        # Listeners first: whoever is told that it is done finds it on the board already.
        self._listeners.tell(news)
        for job in jobs:
            if isinstance(job.error, TopologyNotReadError):
                self._postpone(job)
            else:
                job.answer()

    def _postpone(self, job: _Job) -> None:
        job.attempts += 1
        if job.attempts < _ATTEMPTS:
            self._late.add(job)
            return
        sentence = "Nothing was written, because the fleet changes faster than it can be read."
        job.error = StoreUnavailableError(f"{sentence} Try again.")
        job.answer()

    def _commit(self, jobs: Sequence[_Job]) -> Sequence[StoreChange]:
        changes = Changes()
        before = self._session.total_changes
        self._session.begin()
        for job in jobs:
            self._attempt(job, changes)
        with self._cache.keeping(changes.topology):
            news = self._session.commit(changes)
        self.commits.observe(len(jobs))
        # A commit without changes says nothing about the disk.
        if self._session.total_changes != before:
            self.note_writable(None)
        return news

    def _attempt(self, job: _Job, changes: Changes) -> None:
        # What fails takes back its own statements, and not those of its neighbours.
        self._session.set_mark()
        transaction = SqlTransaction(self._session.sql, self._cache, changes.topology)
        try:
            job.result = job.work(transaction)
            self._session.require_sound()
        except BaseException as error:  # whatever it is, it is the caller's, and not the writer's
            # With the disk full SQLite may have rolled back everything, neighbours included.
            if self._session.outage(error) is not None:
                raise
            job.error = error
            self._session.undo()
        else:
            changes.add(transaction.changes)

    def _refuse(self, jobs: Iterable[_Job], error: Exception) -> None:
        self._undo_all()
        reason = self._session.outage(error)
        if reason is None:
            _log.error("commit_failed", exc_info=error)
            reason = f"the transaction failed ({error})"
        self.note_writable(reason)
        sentence = f"Nothing was written, because {self._database} cannot be written now: {reason}."
        if isinstance(error, UncertainCommitError):
            sentence = (
                f"The change may have been stored: {self._database} failed during the commit, "
                f"because {reason}. Check before you retry."
            )
        for job in jobs:
            job.future.set_exception(StoreUnavailableError(sentence))

    def _undo_all(self) -> None:
        try:
            self._session.roll_back()
        except Exception:  # noqa: BLE001 - the callers have to be told, and the thread goes on
            _log.exception("rollback_failed", database=self._database)
