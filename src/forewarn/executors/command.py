"""Scripts of the operator carry orders out, one process for each.

What keeps it to one is the file of the order, which is there before the script is. It is handed to
the attendant of the script, locked: whoever finds the file without an ending and without the lock
knows that the script was begun, or was just about to be, and that nobody can tell how it ended.
"""

import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.executors import attendant
from forewarn.executors.orders import (
    LONGEST,
    PAUSED,
    Order,
    OrderKind,
    Selection,
    environment_of,
    next_second,
)
from forewarn.executors.records import OrderKey, Records
from forewarn.ports.clock import Clock
from forewarn.ports.store import LeaseLostError
from forewarn.wording.durations import format_duration

EXECUTOR: Final = "command"
PLACES: Final = 64
"""How many scripts of one server run at once: each has a process of its own to look after it."""

_CLOSING_SECONDS: Final = 10.0
_NO_HOST: Final = "it is to run on the host, and the virtual machine has none in the fleet"
_LOST: Final = "it was begun, but the process running it stopped before the result was known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program and its arguments, for which events it is meant, and how long it may take.

    With *ssh*, words that end in a destination in which `{host}` stands for the name of a host, it
    runs there and not on this machine.
    """

    run: tuple[str, ...]
    selection: Selection = field(default_factory=Selection)
    timeout: timedelta = LONGEST
    ssh: tuple[str, ...] = ()

    def words_for(self, order: Order) -> tuple[str, ...]:
        """Return what to run here for *order*."""
        if not self.ssh:
            return self.run
        *program, destination = self.ssh
        place = destination.replace("{host}", order.about["host"] or "")
        # sshd hands one text to a shell, and passes no variables on.
        variables = (f"{name}={value}" for name, value in environment_of(order).items())
        return (*program, "--", place, shlex.join(("env", *variables, *self.run)))


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class ScriptContractor:
    """Starts the command that *find* says an order is for, and attends to it from then on.

    The script survives the server, and the next server finds it again. Scripts are started by
    threads: `begin` and `inquire` wait for none. While all *places* are taken an order waits, and
    goes when it is asked about, so that nothing is begun that nobody waits for any more.
    """

    find: Callable[[Mapping[str, Any]], Command | None] = field(kw_only=False)
    kind: OrderKind
    records: Records
    environment: Mapping[str, str]
    clock: Clock
    places: int = PLACES
    _free: threading.Semaphore = field(init=False)
    _waiting: dict[OrderKey, Order] = field(init=False, default_factory=dict)
    _starting: dict[OrderKey, threading.Event] = field(init=False, default_factory=dict)
    _troubles: dict[OrderKey, Exception] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._free = threading.Semaphore(self.places)

    def takes(self, order: Order) -> bool:
        """Tell whether there is a command for *order*."""
        return self.find(order.about) is not None

    def holds(self, key: OrderKey) -> bool:
        """Tell whether the script waits, is being started, or was begun."""
        known = (self._waiting, self._starting, self._troubles)
        return any(key in each for each in known) or self.records.is_of(EXECUTOR, key)

    def begin(self, order: Order) -> Impact:
        """Have the script started, unless it was begun before."""
        self.records.check_epoch(order.epoch)
        if order.key not in self._starting and not self.records.has(order.key):
            self._waiting[order.key] = order
        return self.inquire(order.key)

    def inquire(self, key: OrderKey) -> Impact:
        """Look whether the script runs or how it ended; what it printed last comes with it."""
        self._send_out(key)
        if key in self._waiting:
            crowded = f"it waits until one of {self.places} places is free"
            return self._running(crowded if self.records.may_begin() else PAUSED)
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
        if begun["executor"] != EXECUTOR:
            reason = f"it was begun by the executor {begun['executor']}, which this server lacks"
            return Impact(status=ImpactStatus.UNKNOWN, reason=reason)
        if self.records.is_attended(key):
            return self._running(self.records.last_word(key))
        # It may have ended between the two looks.
        lost = Impact(status=ImpactStatus.UNKNOWN, reason=f"{_LOST}; {self.kind.advice}")
        return self.records.ended(key) or lost

    def _running(self, reason: str) -> Impact:
        return Impact(
            status=ImpactStatus.RUNNING,
            reason=reason,
            ask_again_at=next_second(self.clock.now()),
        )

    def _send_out(self, key: OrderKey) -> None:
        """Let the order go if it waits and there is a place."""
        if key not in self._waiting or not self.records.may_begin():
            return
        if not self._free.acquire(blocking=False):
            return
        order, self._starting[key] = self._waiting[key], threading.Event()
        # A daemon: the script may take hours, and the server may end before.
        thread = threading.Thread(target=self._carry_out, args=(order,), daemon=True)
        try:
            thread.start()
        except RuntimeError:  # there can be no more threads for now
            del self._starting[key]
            self._free.release()
            raise
        del self._waiting[key]

    def _carry_out(self, order: Order) -> None:
        process: subprocess.Popen[bytes] | None = None
        try:
            process = self._begin(order)
        except LeaseLostError:
            pass  # whoever leads next is told that it has not begun
        except Exception as error:  # noqa: BLE001 - whoever asks next gets it
            self._troubles[order.key] = error
        finally:
            self._starting.pop(order.key).set()
        if process is not None:
            # Somebody has to, or it stays in the list of processes after its end.
            process.wait()
        self._free.release()

    def _begin(self, order: Order) -> "subprocess.Popen[bytes] | None":
        command = self.find(order.about)
        if command is None:
            self.records.end(order.key, ImpactStatus.FAILED, order.nobody(EXECUTOR))
            return None
        if command.ssh and not order.about["host"]:
            self.records.end(order.key, ImpactStatus.FAILED, _NO_HOST)
            return None
        if not self.records.permit(order.epoch):
            return None  # paused since the look: it is given anew after the pause
        file = self.records.claim(order.key, _content(order, command))
        if file is None:
            return None
        try:
            return self._start(order, file)
        except OSError as error:
            reason = f"it could not be started: {error.strerror}"
            self.records.end(order.key, ImpactStatus.FAILED, reason)
            return None
        finally:
            os.close(file)

    def _start(self, order: Order, file: int) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(  # noqa: S603 - our own
            [
                sys.executable,
                "-I",  # what is in the environment is meant for the script
                "-S",
                attendant.__file__,
                str(self.records.order_path(order.key).absolute()),
            ],
            env={**self.environment, **environment_of(order)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(file,),
        )


def _content(order: Order, command: Command) -> dict[str, object]:
    return {
        "executor": EXECUTOR,
        "command": command.words_for(order),
        "timeout": format_duration(command.timeout),
        "timeout_seconds": command.timeout.total_seconds(),
        "input": order.describe(),
    }
