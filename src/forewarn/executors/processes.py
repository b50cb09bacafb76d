"""Processes that carry tasks out, one for each, and outlive the server.

What keeps it to one is the file of the task, which is there before the process is. It is handed to
the process, locked. A file that has no ending and is not locked shows that the task was begun, or
was just about to be, and that no process is left that can tell how it ended.
"""

import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, TypeAlias, TypeVar

from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.task import TaskKey
from forewarn.executors.attendant import elapsed_seconds
from forewarn.executors.task_input import Permit, TaskInput, begun_by_another, next_second
from forewarn.executors.task_log import TaskLog
from forewarn.ports.clock import Clock
from forewarn.protocol.errors import ForewarnError

PLACES: Final = 64
"""How many processes of one runner run at once."""
PLACES_OF_HOST: Final = 32
"""How many of them are about one host: one that hangs leaves the other half to the others."""

_CLOSING_SECONDS: Final = 10.0
PERMIT_SECONDS: Final = 10.0
"""How long a permit may take to arrive without being looked at once more."""
_MOST_SUCCESSORS: Final = 3
_LOST: Final = "it was begun, but the process running it stopped before the result was known"
_TOO_LATE: Final = "it was not begun, because its records took too long to be written"

M = TypeVar("M")
_Process: TypeAlias = subprocess.Popen[bytes]
_Start: TypeAlias = Callable[[], _Process | None]


def _start_daemon(work: Callable[[], None]) -> None:
    # A daemon: the process may take hours, and the server may end before.
    threading.Thread(target=work, daemon=True).start()


class ImpossibleTaskError(ForewarnError):
    """A task that cannot be carried out. Nothing was begun; the message is its reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessProgram(Generic[M]):
    """What a process runs: the *name* of the executor, and the *words* of the command line.

    *describe* says what the program finds in the file of its task, or refuses with an
    `ImpossibleTaskError`. A program that *has_successors* can be started again for a task whose
    process was lost: it finds out what was done, and does none of it twice.
    """

    name: str
    words: tuple[str, ...]
    describe: Callable[[TaskInput, M], Mapping[str, object]]
    has_successors: bool = False


class _Places:
    """Places for processes: so many in all, and so many about one host."""

    def __init__(self, in_all: int, of_host: int) -> None:
        self._in_all = in_all
        self._of_host = of_host
        self._taken: Counter[str | None] = Counter()
        self._changing = threading.Lock()

    def take(self, host: str | None) -> bool:
        """Take a place if there is one."""
        with self._changing:
            is_free = self._taken.total() < self._in_all and not self._is_crowded(host)
            self._taken[host] += is_free
            return is_free

    def release(self, host: str | None) -> None:
        """Give a place back."""
        with self._changing:
            self._taken[host] -= 1

    def say(self, host: str | None) -> str:
        """Say what a task waits for."""
        if self._is_crowded(host):
            return f"it is waiting: at most {self._of_host} run at once for host {host}"
        return f"it is waiting: at most {self._in_all} run at once"

    def _is_crowded(self, host: str | None) -> bool:
        return host is not None and self._taken[host] >= self._of_host


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class ProcessRunner(Generic[M]):
    """Starts a process for each task that *find* has something for, and knows it from then on.

    The process survives the server, and the next server finds it again. Processes are started by
    threads: `begin` and `inquire` wait for none. While all *places*, or those of a host, are taken,
    a task stays where it is.
    """

    find: Callable[[TaskInput], M | None] = field(kw_only=False)
    program: ProcessProgram[M] = field(kw_only=False)
    log: TaskLog
    environment: Mapping[str, str]
    clock: Clock
    places: int = PLACES
    places_of_host: int = PLACES_OF_HOST
    permit_seconds: float = PERMIT_SECONDS
    elapsed: Callable[[], float] = elapsed_seconds
    start_thread: Callable[[Callable[[], None]], None] = _start_daemon
    start_process: Callable[..., _Process] = subprocess.Popen
    _free: _Places = field(init=False)
    _troubles: dict[TaskKey, Exception] = field(init=False, default_factory=dict)
    _successors: Counter[TaskKey] = field(init=False, default_factory=Counter)

    def __post_init__(self) -> None:
        self._free = _Places(self.places, self.places_of_host)

    @property
    def repeats(self) -> bool:
        return self.program.has_successors

    def begin(self, task: TaskInput, permit: Permit) -> Impact | None:
        """Have the process started if there is a place, unless it was begun before."""
        key = task.key
        if key in self.log.starting:
            return None
        self._raise_trouble(key)
        if self.log.has(key):
            return self._look(task)
        host = task.host
        if not self._start_thread(key, host, partial(self._begin, task, permit)):
            return Impact(status=ImpactStatus.NOT_BEGUN, reason=self._free.say(host))
        return None

    def inquire(self, task: TaskInput) -> Impact:
        """Look whether the process runs or how it ended; what it said last comes with it."""
        if task.key in self.log.starting:
            return self._running("")
        self._raise_trouble(task.key)
        return self._look(task)

    def close(self) -> None:
        """Wait until what is being started is, so that its end is known."""
        deadline = time.monotonic() + _CLOSING_SECONDS
        for started in list(self.log.starting.values()):
            started.wait(max(0.0, deadline - time.monotonic()))

    def _raise_trouble(self, key: TaskKey) -> None:
        if trouble := self._troubles.pop(key, None):
            raise trouble

    def _look(self, task: TaskInput) -> Impact:
        key = task.key
        begun = self.log.begun(key)
        if ended := self.log.ended(key):
            return ended
        if begun is None:
            return Impact(status=ImpactStatus.NOT_BEGUN)
        if begun["executor"] != self.program.name:
            return begun_by_another(begun["executor"])
        if self.log.is_attended(key):
            return self._running(self.log.last_word(key))
        # It may have ended between the two looks.
        return self.log.ended(key) or self._find_successor(task, begun.get("host"))

    def _find_successor(self, task: TaskInput, host: str | None) -> Impact:
        key = task.key
        continues = self.program.has_successors and not task.is_settled
        if not continues or self._successors[key] >= _MOST_SUCCESSORS:
            return Impact(status=ImpactStatus.UNKNOWN, reason=f"{_LOST}; {task.advice}")
        if not self._start_thread(key, host, partial(self._succeed, key)):
            return self._running(self._free.say(host))
        self._successors[key] += 1
        return self._running("")

    def _running(self, reason: str) -> Impact:
        return Impact(
            status=ImpactStatus.RUNNING,
            reason=reason,
            ask_again_at=next_second(self.clock.now()),
        )

    def _start_thread(self, key: TaskKey, host: str | None, start: _Start) -> bool:
        """Have *start* called by a thread if there is a place; tell whether there is."""
        if not self._free.take(host):
            return False
        self.log.starting[key] = threading.Event()
        try:
            self.start_thread(partial(self._carry_out, key, host, start))
        except RuntimeError:  # there can be no more threads for now
            del self.log.starting[key]
            self._free.release(host)
            raise
        return True

    def _carry_out(self, key: TaskKey, host: str | None, start: _Start) -> None:
        process: _Process | None = None
        try:
            process = start()
        except Exception as error:  # noqa: BLE001 - whoever asks next gets it
            self._troubles[key] = error
        finally:
            self.log.starting.pop(key).set()
        if process is not None:
            # Otherwise it stays in the list of processes after its end.
            process.wait()
        self._free.release(host)

    def _begin(self, task: TaskInput, permit: Permit) -> _Process | None:
        content = self._prepare(task, permit)
        if content is None:
            return None
        self.log.intend(task.key)
        since = self.elapsed()
        if not permit.obtain():
            self.log.forget_intent(task.key)
            return None  # paused, or another owner's by now
        if self._is_late(since, permit):
            return None
        file = self.log.claim(task.key, {"executor": self.program.name, **content})
        if file is None:
            return None
        if self._may_still_start(since, permit):
            return self._start(task.key, file, task.environment())
        try:
            self.log.end(task.key, ImpactStatus.FAILED, _TOO_LATE)
        finally:
            os.close(file)  # while it is open, the task is taken to be running
        return None

    def _may_still_start(self, since: float, permit: Permit) -> bool:
        """Tell whether the disk has kept the claim waiting too long; if that is unknown, it has."""
        try:
            return not self._is_late(since, permit)
        except Exception:  # noqa: BLE001 - the database is away, for example
            return False

    def _is_late(self, since: float, permit: Permit) -> bool:
        return self.elapsed() - since > self.permit_seconds and not permit.is_valid()

    def _prepare(self, task: TaskInput, permit: Permit) -> Mapping[str, object] | None:
        """Return what the program finds in the file of *task*; None if there is nothing to run."""
        found, reason = self.find(task), task.unassigned(self.program.name)
        if found is not None:
            try:
                return self.program.describe(task, found)
            except ImpossibleTaskError as error:
                reason = str(error)
        self.log.end(task.key, permit.refusal, reason)
        return None

    def _succeed(self, key: TaskKey) -> _Process | None:
        file = self.log.take_over(key)
        return None if file is None else self._start(key, file, {})

    def _start(self, key: TaskKey, file: int, variables: Mapping[str, str]) -> _Process | None:
        try:
            return self.start_process(
                [*self.program.words, str(self.log.claim_path(key).absolute())],
                env={**self.environment, **variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(file,),
            )
        except OSError as error:
            reason = f"it could not be started: {error.strerror}"
            self.log.end(key, ImpactStatus.FAILED, reason)
            return None
        finally:
            os.close(file)
