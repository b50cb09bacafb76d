"""One handler in one situation: its server, its process, and the hooks that it is given."""

import errno
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from forewarn.clocks import SystemClock
from forewarn.conformance.observations import (
    HandlerHook,
    HookMark,
    MarkKind,
    Observation,
    ObservedEvent,
)
from forewarn.domain.errors import IllegalTransitionError
from forewarn.domain.fault import FaultKind
from forewarn.emulator.variables import METADATA_ADDRESS, endpoint_variables
from forewarn.environment import environment_with
from forewarn.protocol.errors import ForewarnError
from forewarn.testing import EmulatedEvent, Emulator, EventStatus, EventType

OWN_VM: Final = "web-0"
"""The virtual machine of the handler."""
NEIGHBOUR_VM: Final = "web-1"
FOLDER_VARIABLE: Final = "FOREWARN_CONFORMANCE_FOLDER"
_FLEET: Final = {
    "availability_set": [{"name": "web"}],
    "virtual_machine": [
        {"name": name, "availability_set": "web"} for name in (OWN_VM, NEIGHBOUR_VM)
    ],
}
_HOLD: Final = "hold"
_FAIL: Final = "fail"
_PREPARE_SCRIPT: Final = f"""\
mktemp {MarkKind.BEGUN}.XXXXXX > /dev/null
sleep 0.2
while [ -e {_HOLD} ]; do sleep 0.1; done
[ ! -e {_FAIL} ] || exit 1
mktemp {MarkKind.PREPARED}.XXXXXX > /dev/null
"""
_SCRIPTS: Final[Mapping[HandlerHook, str]] = {
    HandlerHook.PREPARE: _PREPARE_SCRIPT,
    HandlerHook.RECOVER: f"mktemp {MarkKind.RECOVERED}.XXXXXX > /dev/null\n",
}
"""What the hooks do. A file is a mark, and the time it was made at is the time of the mark."""
_TICK: Final = timedelta(milliseconds=1)
_NAP_SECONDS: Final = 0.05
_START_SECONDS: Final = 60.0
"""How long a handler may take to load, beside others that load at the same time."""
_END_SECONDS: Final = 3.0
_QUIET_SECONDS: Final = 2.0
"""How long a handler is watched that waits for a change, and so does not poll meanwhile."""
_SHORTEST_SECONDS: Final = 1.0
"""How long any handler is watched: one that polls far too often is done with its polls at once."""
_SHOWN_LINES: Final = 5
_SHOWN_BYTES: Final = 2000


class TrialOverError(Exception):
    """Nothing more can be learned: the handler does not do what it was waited for, or has ended."""


class HandlerStartError(ForewarnError):
    """A program that the operating system does not start."""

    def __init__(self, program: str, error: OSError) -> None:
        is_unreadable = error.errno == errno.ENOEXEC
        remedy = " A script needs a first line such as #!/bin/sh." if is_unreadable else ""
        super().__init__(f"Cannot start {program}: {error.strerror}.{remedy}")


class BatteryStoppedError(Exception):
    """The run is stopped: by a signal, or by an error in another situation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRules:
    """How every situation is gone through. *timeout* is how many seconds a handler has each time.

    With *is_apart*, 169.254.169.254 is the endpoint, in a network namespace of its own.
    """

    command: Sequence[str]
    event_type: EventType = EventType.REBOOT
    timeout: float = 15.0
    is_apart: bool = False
    hooks: frozenset[HandlerHook] = frozenset(HandlerHook)
    stopping: threading.Event = field(default_factory=threading.Event)


@contextmanager
def begin_trial(rules: TrialRules) -> Iterator["Trial"]:
    """Give a trial with a server and a folder of its own, until the end of the block."""
    with ExitStack() as closing:
        folder = Path(closing.enter_context(TemporaryDirectory(prefix="forewarn-conformance-")))
        emulator = Emulator(_FLEET, default_vm=OWN_VM)
        closing.callback(emulator.close)
        if rules.is_apart:
            from forewarn.emulator.netns import (  # noqa: PLC0415 - Linux only
                enter_network_namespace,
            )

            enter_network_namespace(OWN_VM)
            emulator.start((METADATA_ADDRESS, 80))
            variables = endpoint_variables(f"http://{METADATA_ADDRESS}")
        else:
            emulator.start()
            variables = endpoint_variables(f"http://{emulator.address}")
        variables |= {FOLDER_VARIABLE: str(folder / "own"), **_write_hooks(folder)}
        trial = Trial(rules, emulator, folder, variables)
        closing.callback(trial.stop_handler)
        yield trial


def _write_hooks(folder: Path) -> dict[str, str]:
    (folder / "marks").mkdir()
    (folder / "own").mkdir()
    for hook, script in _SCRIPTS.items():
        # Whoever is left over when the folder is gone ends there.
        head = f"#!/bin/sh\ncd {shlex.quote(str(folder / 'marks'))} || exit 70\n"
        (folder / hook).write_text(head + script, encoding="utf-8")
        (folder / hook).chmod(0o755)
    return {hook.variable: str(folder / hook) for hook in HandlerHook}


class Trial:
    """What can be done in a situation, and waited for."""

    def __init__(
        self, rules: TrialRules, emulator: Emulator, folder: Path, variables: Mapping[str, str]
    ) -> None:
        self._rules = rules
        self._emulator = emulator
        self._folder = folder
        self._variables = variables
        self._web = emulator.vm(OWN_VM)
        self._process: subprocess.Popen[bytes] | None = None
        self._events: dict[EmulatedEvent, ObservedEvent] = {}
        self._end = ""
        self._interruptions = 0
        self._started_at: list[datetime] = []
        self._has_faults = False

    def start_handler(self) -> None:
        """Start the handler, and wait until it has read its document."""
        since = _now()
        self._process = self._launch()
        self._require(
            lambda: self._count_polls(since) > 0, max(_START_SECONDS, self._rules.timeout)
        )
        self._started_at.append(_now())

    def _launch(self) -> "subprocess.Popen[bytes]":
        command = self._rules.command
        with (self._folder / "output").open("ab") as output:
            try:
                return subprocess.Popen(  # noqa: S603 - the command is the user's own
                    command,
                    env=environment_with(self._variables),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise HandlerStartError(command[0], error) from error

    def kill_handler(self) -> None:
        """End the handler as a crash would, with everything it has begun."""
        if self._is_preparing():
            self._interruptions += 1
        if self._process is not None:
            _signal(self._process, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop_handler(self) -> None:
        """End the handler in order, and whatever is left of it then."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
        _signal(process, signal.SIGKILL)
        process.wait()

    def announce(self, vm: str = OWN_VM, *, started: bool = False) -> EmulatedEvent:
        """Announce an event of *vm* that is Scheduled, or *started* from the beginning."""
        is_to_be_prepared = vm == OWN_VM and not started
        return self._announce(
            vm, started=started, is_to_be_prepared=is_to_be_prepared, is_unannounced=started
        )

    def announce_oddly(self, times_scheduled: int = 1) -> EmulatedEvent:
        """Announce an event that a fault changes, hides or shows as Scheduled several times."""
        return self._announce(
            OWN_VM, is_to_be_seen=False, is_to_be_prepared=False, times_scheduled=times_scheduled
        )

    def _announce(self, vm: str, *, started: bool = False, **expected: Any) -> EmulatedEvent:
        announced_at = _now()
        self._emulator.clock.advance(_TICK)  # a document lists the oldest event first
        (event,) = self._emulator.announce(self._rules.event_type, vm, started=started)
        self._events[event] = ObservedEvent(
            event_id=event.event_id,
            title=f"{self._rules.event_type} of {vm}",
            is_own=vm == OWN_VM,
            announced_at=announced_at,
            **expected,
        )
        return event

    def start_event(self, event: EmulatedEvent) -> None:
        """Have *event* start, unless it was approved and starts by itself.

        Time stands still meanwhile: if it passed, the impact could be over before anybody saw it.
        """
        if not event.approvals:
            self._events[event] = replace(self._events[event], started_at=_now())
            with suppress(IllegalTransitionError):  # it was approved just now
                event.start()
        self._until(lambda: event.event_status is not EventStatus.SCHEDULED)

    def end_event(self, event: EmulatedEvent) -> None:
        """Complete *event*, or cancel it if it has not started."""
        self._events[event] = replace(self._events[event], over_at=_now())
        with suppress(IllegalTransitionError):  # it was approved just now, and has started
            event.cancel()
        with suppress(IllegalTransitionError):  # it was canceled, or has completed
            event.complete()

    def hold_preparation(self) -> None:
        """Have preparations last until they are released."""
        self._marks_folder.joinpath(_HOLD).touch()

    def release_preparation(self) -> None:
        """Let preparations end."""
        self._marks_folder.joinpath(_HOLD).unlink(missing_ok=True)

    def fail_preparation(self) -> None:
        """Have preparations fail."""
        self._marks_folder.joinpath(_FAIL).touch()

    def set_fault(self, kind: FaultKind, parameters: Mapping[str, Any]) -> None:
        """Have the server misbehave towards the handler."""
        self._has_faults = True
        self._web.fault(kind, **parameters)

    def clear_faults(self) -> None:
        """Have the server behave well again."""
        self._web.clear_faults()

    def await_seen(self, event: EmulatedEvent) -> None:
        """Wait until the handler has read of *event*."""
        self._require(lambda: OWN_VM in event.seen_by)

    def await_preparation(self, event: EmulatedEvent) -> None:
        """Wait until the handler prepares for *event*, or approves it unprepared."""
        since = self._events[event].announced_at
        self._until(lambda: self._has_mark(MarkKind.BEGUN, since) or bool(event.approvals))

    def await_answer(self, event: EmulatedEvent) -> None:
        """Wait until the handler has approved *event*, or is not going to.

        One that has tried in vain has the time to try again.
        """
        since = self._events[event].announced_at
        if HandlerHook.PREPARE in self._rules.hooks:
            self.await_preparation(event)
            self._until(lambda: self._has_mark(MarkKind.PREPARED, since) or bool(event.approvals))
        self.watch(until=lambda: bool(event.approvals))
        if self.observe().failed_start_requests:
            self._until(lambda: bool(event.approvals))

    def await_recovery(self) -> None:
        """Wait until the handler has recovered, if it has to, and whether it does so again."""
        since = self.observe().recoverable_since
        if since is not None and HandlerHook.RECOVER in self._rules.hooks:
            self._until(lambda: self._has_mark(MarkKind.RECOVERED, since))
        self.watch()

    def watch(self, polls: int = 2, until: Callable[[], bool] = lambda: False) -> None:
        """Wait for a few more *polls*, which show what the handler does not do.

        One that is on its way is none of them: it tells nothing of what has happened just now.
        """
        since = _now()
        began = time.monotonic()

        def has_come() -> bool:
            seconds = time.monotonic() - began
            is_quiet = seconds > _QUIET_SECONDS and self._is_waiting()
            has_polled = seconds > _SHORTEST_SECONDS and self._count_polls(since) >= polls
            return is_quiet or has_polled or until()

        self._until(has_come)

    def observe(self) -> Observation:
        """Return everything that was seen so far."""
        return Observation(
            requests=self._web.requests,
            marks=tuple(self._marks()),
            events=tuple(self._events.values()),
            end=self._end,
            interruptions=self._interruptions,
            started_at=tuple(self._started_at),
            has_faults=self._has_faults,
            hooks=self._rules.hooks,
        )

    def last_lines(self) -> tuple[str, ...]:
        """Return the last that the handler has printed."""
        try:
            with (self._folder / "output").open("rb") as output:
                output.seek(max(0, output.seek(0, os.SEEK_END) - _SHOWN_BYTES))
                text = output.read(_SHOWN_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            return ()
        return tuple(text.splitlines()[-_SHOWN_LINES:])

    @property
    def _marks_folder(self) -> Path:
        return self._folder / "marks"

    def _marks(self) -> Iterator[HookMark]:
        with suppress(FileNotFoundError):  # a handler may remove what is not its own
            for path in self._marks_folder.iterdir():
                kind = path.name.partition(".")[0]
                if kind in set(MarkKind):
                    made_at = datetime.fromtimestamp(path.lstat().st_mtime, UTC)
                    yield HookMark(kind=MarkKind(kind), at=made_at)

    def _has_mark(self, kind: MarkKind, since: datetime) -> bool:
        return any(mark.kind is kind and mark.at >= since for mark in self._marks())

    def _is_preparing(self) -> bool:
        kinds = [mark.kind for mark in self._marks()]
        return kinds.count(MarkKind.BEGUN) > kinds.count(MarkKind.PREPARED)

    def _count_polls(self, since: datetime) -> int:
        """Return how many polls came *since* then and were answered, in whatever way."""
        return sum(
            entry.is_poll and entry.seconds is not None and entry.at >= since
            for entry in self._web.requests
        )

    def _is_waiting(self) -> bool:
        last = self._web.requests[-1:]
        return any(entry.is_poll and entry.seconds is None for entry in last)

    def _require(self, has_come: Callable[[], bool], seconds: float | None = None) -> None:
        if not self._until(has_come, seconds):
            raise TrialOverError

    def _until(self, has_come: Callable[[], bool], seconds: float | None = None) -> bool:
        deadline = time.monotonic() + (seconds or self._rules.timeout)
        while not has_come():
            self._check_running()
            if time.monotonic() > deadline:
                return False
            time.sleep(_NAP_SECONDS)
        return True

    def _check_running(self) -> None:
        if self._rules.stopping.is_set():
            raise BatteryStoppedError
        code = None if self._process is None else self._process.poll()
        if code is not None:
            how = f"exited with {code}" if code >= 0 else f"was ended by signal {-code}"
            self._end = f"{how} before it was stopped"
            raise TrialOverError


def _now() -> datetime:
    return SystemClock().now()


def _signal(process: "subprocess.Popen[bytes]", number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # nobody of its session is left
        os.killpg(process.pid, number)
