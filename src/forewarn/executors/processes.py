"""Processes that carry orders out, one for each, and outlive the server.

What keeps it to one is the file of the order, which is there before the process is. It is handed to
the process, locked: whoever finds the file without an ending and without the lock knows that the
order was begun, or was just about to be, and that nobody is left who can tell how it ended.
"""

import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.executors.orders import (
    PAUSED,
    Order,
    OrderKind,
    begun_by_another,
    environment_of,
    next_second,
)
from forewarn.executors.records import OrderKey, Records
from forewarn.ports.clock import Clock
from forewarn.ports.store import LeaseLostError
from forewarn.protocol.errors import ForewarnError

PLACES: Final = 64
"""How many processes of one contractor run at once."""
PLACES_OF_HOST: Final = 32
"""How many of them are about one host: one that hangs leaves the other half to the others."""

_CLOSING_SECONDS: Final = 10.0
_MOST_SUCCESSORS: Final = 3
_LOST: Final = "it was begun, but the process running it stopped before the result was known"

M = TypeVar("M")
_Process: TypeAlias = subprocess.Popen[bytes]
_Start: TypeAlias = Callable[[], _Process | None]


class ImpossibleOrderError(ForewarnError):
    """An order that cannot be carried out. Nothing was begun; the message is its reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trade(Generic[M]):
    """One way to carry orders out: the *name* of the executor, and the *program* of a process.

    *describe* says what the program finds in the file of its order, or refuses with an
    `ImpossibleOrderError`. A program that *has_successors* can be started again for an order whose
    process was lost: it finds out what was done, and does none of it twice.
    """

    name: str
    program: tuple[str, ...]
    describe: Callable[[Order, M], Mapping[str, object]]
    has_successors: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """A process that is to be started, about *host*. A successor begins nothing new."""

    host: str | None
    start: _Start
    is_successor: bool = False


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
        """Say what an order waits for."""
        if self._is_crowded(host):
            return f"it is waiting: at most {self._of_host} run at once for host {host}"
        return f"it is waiting: at most {self._in_all} run at once"

    def _is_crowded(self, host: str | None) -> bool:
        return host is not None and self._taken[host] >= self._of_host


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class ProcessContractor(Generic[M]):
    """Starts a process for each order that *find* has the means for, and knows it from then on.

    The process survives the server, and the next server finds it again. Processes are started by
    threads: `begin` and `inquire` wait for none. While all *places*, or those of a host, are taken
    an order waits, and goes when it is asked about, so that nothing is begun that nobody waits for
    any more.
    """

    find: Callable[[Mapping[str, Any]], M | None] = field(kw_only=False)
    trade: Trade[M] = field(kw_only=False)
    kind: OrderKind
    records: Records
    environment: Mapping[str, str]
    clock: Clock
    places: int = PLACES
    places_of_host: int = PLACES_OF_HOST
    _free: _Places = field(init=False)
    _waiting: dict[OrderKey, _Waiting] = field(init=False, default_factory=dict)
    _starting: dict[OrderKey, threading.Event] = field(init=False, default_factory=dict)
    _troubles: dict[OrderKey, Exception] = field(init=False, default_factory=dict)
    _successors: Counter[OrderKey] = field(init=False, default_factory=Counter)

    def __post_init__(self) -> None:
        self._free = _Places(self.places, self.places_of_host)

    def takes(self, order: Order) -> bool:
        """Tell whether there are means for *order*."""
        return self.find(order.about) is not None

    def holds(self, key: OrderKey) -> bool:
        """Tell whether the process waits, is being started, or was begun."""
        known = (self._waiting, self._starting, self._troubles)
        return any(key in each for each in known) or self.records.is_of(self.trade.name, key)

    def begin(self, order: Order) -> Impact:
        """Have the process started, unless it was begun before."""
        self.records.check_epoch(order.epoch)
        if order.key not in self._starting and not self.records.has(order.key):
            start = partial(self._begin, order)
            self._waiting[order.key] = _Waiting(host=order.about["host"], start=start)
        return self.inquire(order.key)

    def inquire(self, key: OrderKey) -> Impact:
        """Look whether the process runs or how it ended; what it said last comes with it."""
        self._send_out(key)
        if waiting := self._waiting.get(key):
            is_paused = not (waiting.is_successor or self.records.may_begin())
            return self._running(PAUSED if is_paused else self._free.say(waiting.host))
        if key in self._starting:
            return self._running("")
        if trouble := self._troubles.pop(key, None):
            raise trouble
        return self._look(key)

    def close(self) -> None:
        """Wait until what is being started is, so that its end is known. The rest is not begun."""
        self._waiting.clear()
        deadline = time.monotonic() + _CLOSING_SECONDS
        for started in list(self._starting.values()):
            started.wait(max(0.0, deadline - time.monotonic()))

    def _look(self, key: OrderKey) -> Impact:
        begun = self.records.begun(key)
        if ended := self.records.ended(key):
            return ended
        if begun is None:
            return self.records.without(key, self.kind.advice)
        if begun["executor"] != self.trade.name:
            return begun_by_another(begun["executor"])
        if self.records.is_attended(key):
            return self._running(self.records.last_word(key))
        # It may have ended between the two looks.
        return self.records.ended(key) or self._find_successor(key, begun)

    def _find_successor(self, key: OrderKey, begun: Mapping[str, Any]) -> Impact:
        if not self.trade.has_successors or self._successors[key] >= _MOST_SUCCESSORS:
            reason = f"{_LOST}; {self.kind.advice}"
            return Impact(status=ImpactStatus.UNKNOWN, reason=reason)
        self._successors[key] += 1
        start = partial(self._succeed, key)
        self._waiting[key] = _Waiting(host=begun.get("host"), start=start, is_successor=True)
        return self.inquire(key)

    def _running(self, reason: str) -> Impact:
        return Impact(
            status=ImpactStatus.RUNNING,
            reason=reason,
            ask_again_at=next_second(self.clock.now()),
        )

    def _send_out(self, key: OrderKey) -> None:
        """Let the order go if it waits and there is a place."""
        waiting = self._waiting.get(key)
        if waiting is None or not (waiting.is_successor or self.records.may_begin()):
            return
        if not self._free.take(waiting.host):
            return
        self._starting[key] = threading.Event()
        # A daemon: the process may take hours, and the server may end before.
        thread = threading.Thread(target=self._carry_out, args=(key, waiting), daemon=True)
        try:
            thread.start()
        except RuntimeError:  # there can be no more threads for now
            del self._starting[key]
            self._free.release(waiting.host)
            raise
        del self._waiting[key]

    def _carry_out(self, key: OrderKey, waiting: _Waiting) -> None:
        process: _Process | None = None
        try:
            process = waiting.start()
        except LeaseLostError:
            pass  # whoever leads next is told that it has not begun
        except Exception as error:  # noqa: BLE001 - whoever asks next gets it
            self._troubles[key] = error
        finally:
            self._starting.pop(key).set()
        if process is not None:
            # Somebody has to, or it stays in the list of processes after its end.
            process.wait()
        self._free.release(waiting.host)

    def _begin(self, order: Order) -> _Process | None:
        means = self.find(order.about)
        if means is None:
            self.records.end(order.key, ImpactStatus.FAILED, order.nobody(self.trade.name))
            return None
        if not self.records.permit(order.epoch):
            return None  # paused since the look: it is given anew after the pause
        try:
            content = self.trade.describe(order, means)
        except ImpossibleOrderError as error:
            self.records.end(order.key, ImpactStatus.FAILED, str(error))
            return None
        file = self.records.claim(order.key, {"executor": self.trade.name, **content})
        return None if file is None else self._start(order.key, file, environment_of(order))

    def _succeed(self, key: OrderKey) -> _Process | None:
        file = self.records.take_over(key)
        return None if file is None else self._start(key, file, {})

    def _start(self, key: OrderKey, file: int, variables: Mapping[str, str]) -> _Process | None:
        try:
            return subprocess.Popen(  # noqa: S603 - our own
                [*self.trade.program, str(self.records.order_path(key).absolute())],
                env={**self.environment, **variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(file,),
            )
        except OSError as error:
            reason = f"it could not be started: {error.strerror}"
            self.records.end(key, ImpactStatus.FAILED, reason)
            return None
        finally:
            os.close(file)
