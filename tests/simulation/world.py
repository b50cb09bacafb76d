"""The simulated world: one clock, one queue of steps, chance from one seed, and a trace.

Everything that happens is a step of the queue. A step belongs to a process, or to nobody. Inside a
step, a process passes *points*: there it may die, or stand still while the rest of the world goes
on, as an operating system does to any process at any moment.
"""

import heapq
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final, TypeVar

T = TypeVar("T")

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
BEGINNING: Final = datetime(2026, 1, 5, 6, tzinfo=UTC)
LAST_LINES: Final = 50


class Crash(BaseException):
    """A process dies here. Nothing may catch it but the loop of the world."""


class Chance:
    """What is drawn from one stream of the seed; the same on every release of Python."""

    def __init__(self, seed: int, stream: str) -> None:
        self._random = Random(f"{seed}/{stream}")  # noqa: S311 - no secret

    def below(self, bound: int) -> int:
        """Return a whole number from 0 on, below *bound*."""
        return int(self._random.random() * bound)

    def between(self, low: int, high: int) -> int:
        """Return a whole number from *low* to *high*."""
        return low + self.below(high - low + 1)

    def happens(self, rate: float) -> bool:
        """Tell whether what happens with this probability does."""
        return rate > 0 and self._random.random() < rate

    def pick(self, choices: Sequence[T]) -> T:
        """Return one of *choices*."""
        return choices[self.below(len(choices))]

    def some(self, choices: Sequence[T], number: int) -> list[T]:
        """Return up to *number* of *choices*, in an order of chance."""
        left = list(choices)
        return [left.pop(self.below(len(left))) for _ in range(min(number, len(left)))]


@dataclass(slots=True, eq=False)
class Process:
    """Something that runs on a machine: it can die, stand still, and lose touch.

    *skew* is by how much its clock is ahead of the true time, in microseconds.
    """

    name: str
    is_alive: bool = True
    is_paused: bool = False
    is_cut_off: bool = False
    is_beginning: bool = False
    """Whether it is about to start a task."""
    skew: int = 0
    changed: Callable[[], None] = lambda: None
    """Called when one of these is about to change."""

    @property
    def is_well(self) -> bool:
        """Whether it runs and reaches the others."""
        return self.is_alive and not self.is_paused and not self.is_cut_off


@dataclass(slots=True, kw_only=True)
class Rates:
    """How often a point is fatal, or a pause, and how often messages and connections are lost."""

    crash: float = 0.0
    pause: float = 0.0
    longest_pause: int = 30 * SECOND
    uncertain: float = 0.0
    lost_notification: float = 0.0
    doubled_notification: float = 0.0


_Step = tuple[int, int, Callable[[], object], Process | None]
"""When it is due, its number, what it does, and whose it is."""


class World:
    """Time, chance and the order in which things happen."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = 0
        """Microseconds of true time since the beginning; the database's clock shows it."""
        self.faults = Chance(seed, "faults")
        self.timing = Chance(seed, "timing")
        self.rates = Rates()
        self.steps = 0
        self.injected: Counter[str] = Counter()
        self.lines: list[str] = []
        self.story: deque[str] = deque(maxlen=LAST_LINES)
        self.armed: dict[str, list[int]] = {}
        """By process: after how many more points of a write or an effect it stops."""
        self.aimed_at_begins: set[str] = set()
        """The processes that stand still for long while they are about to start the next task."""
        self.aimed_at_effects: set[str] = set()
        """The processes that die, or stand still, when they start the next task."""
        self.after_step: Callable[[Process | None], None] = lambda _: None
        """Called after a step, with whose it was."""
        self._queue: list[_Step] = []
        self._number = 0
        self._depth = 0

    @property
    def moment(self) -> datetime:
        """The true time."""
        return to_moment(self.now)

    def note(self, who: str, what: str) -> None:
        """Write a line of the trace."""
        line = f"{self.now:>12} {who} {what}"
        self.lines.append(line)
        self.story.append(
            f"{to_moment(self.now):%H:%M:%S}.{self.now // 1000 % 1000:03} {who} {what}"
        )

    def later(self, delay: int, work: Callable[[], object], owner: Process | None = None) -> None:
        """Have *work* done after *delay*; if its *owner* has died by then, never."""
        self._number += 1
        heapq.heappush(self._queue, (self.now + delay, self._number, work, owner))

    def run(self, until: int) -> None:
        """Do all steps up to *until*."""
        while self._queue and self._queue[0][0] <= until:
            self._do(heapq.heappop(self._queue))
        self.now = max(self.now, until)

    def crash_point(self, process: Process, name: str) -> None:
        """Let *process* pass the point *name*, where it may die."""
        if self.faults.happens(self.rates.crash) or self._is_hit(process, name, may_pause=False):
            self.injected[f"crash at {name}"] += 1
            self.note(process.name, f"dies at {name}")
            raise Crash

    def point(self, process: Process, name: str) -> None:
        """Let *process* pass the point *name*, where it may die or stand still."""
        self.crash_point(process, name)
        if self._depth < 2 and (
            self.faults.happens(self.rates.pause) or self._is_hit(process, name, may_pause=True)
        ):
            self.injected[f"pause at {name}"] += 1
            self.pause(process, name)

    def _is_hit(self, process: Process, name: str, *, may_pause: bool) -> bool:
        """Tell whether *process* was to stop at a point like this one, and this is it."""
        if may_pause and process.is_beginning and process.name in self.aimed_at_begins:
            return self.faults.happens(0.3)
        if name.startswith("effect") and process.name in self.aimed_at_effects:
            # At this point, or at the next one.
            is_hit = self.faults.happens(0.5)
            if is_hit:
                self.aimed_at_effects.discard(process.name)
            return is_hit
        armed = self.armed.get(process.name)
        if not armed or name in {"read", "lease"} or armed[0] != may_pause:
            return False
        armed[1] -= 1
        if armed[1] < 0:
            del self.armed[process.name]
        return armed[1] < 0

    def pause(self, process: Process, name: str) -> None:
        """Have *process* stand still for a while, in the middle of what it is doing."""
        if process.is_beginning and process.name in self.aimed_at_begins:
            self.aimed_at_begins.discard(process.name)
            lasts = self.faults.pick((15 * SECOND, MINUTE, 7 * MINUTE))
        else:
            lasts = 1 + self.faults.below(self.rates.longest_pause)
        self.note(process.name, f"stands still at {name} for {lasts // 1000} ms")
        process.changed()
        process.is_paused = True
        until = self.now + lasts
        self._depth += 1
        try:
            self.run(until)
        finally:
            self._depth -= 1
            process.changed()
            process.is_paused = False
        if not process.is_alive:
            raise Crash

    def _do(self, step: _Step) -> None:
        at, _, work, owner = step
        if owner is not None and not owner.is_alive:
            return
        if owner is not None and owner.is_paused:
            self.later(max(at - self.now, 0) + SECOND, work, owner)
            return
        self.now = max(self.now, at)
        self.steps += 1
        self.lines.append(f"{self.now:>12} {owner.name if owner else 'world'}")
        try:
            work()
        except Crash:
            if owner is None:
                raise
            owner.changed()
            owner.is_alive = False
        self.after_step(owner)


def to_moment(now: int) -> datetime:
    """Return the moment that is *now* microseconds after the beginning."""
    return BEGINNING + timedelta(microseconds=now)


def to_microseconds(moment: datetime) -> int:
    """Return how many microseconds *moment* is after the beginning."""
    return (moment - BEGINNING) // timedelta(microseconds=1)
