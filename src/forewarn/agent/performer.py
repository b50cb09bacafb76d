"""Carry out what was decided: each action in the background, its result handed to a queue."""

import errno
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol, TypeAlias

from forewarn.agent.decisions import RunHook
from forewarn.agent.hooks import NOT_YET, describe, read_status, write_input
from forewarn.agent.processes import HookProcess
from forewarn.agent.vocabulary import HookOutcome, HookPhase
from forewarn.client import Client, ClientError, RefusedError
from forewarn.protocol.document import Event
from forewarn.protocol.vocabulary import EventId

_UNRUNNABLE: Final = 127
_LACKING: Final = {errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC}
_PASSING: Final = frozenset({*_LACKING, errno.ETXTBSY})
"""What a system lacks for a while, or the hook is being written: it is asked again."""

_log = logging.getLogger("forewarn.agent")


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEnded:
    """A hook came to its end; a *status* below 0 is that of a signal."""

    event_id: EventId
    phase: HookPhase
    hook: str
    status: int

    @property
    def outcome(self) -> HookOutcome:
        """What the status means."""
        return read_status(self.status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The server was asked for the start of an event, or for a later *not_before*.

    *event* is as it was when that was asked, and *error* None if it was granted.
    """

    event: Event
    not_before: datetime | None = None
    error: ClientError | None = None

    @property
    def event_id(self) -> EventId:
        """Which event it was about."""
        return self.event.event_id

    @property
    def is_refused(self) -> bool:
        """Whether asking again would not help."""
        return isinstance(self.error, RefusedError)


Result: TypeAlias = HookEnded | Answered
Report: TypeAlias = Callable[[Result], None]


class Stoppable(Protocol):
    """Something that runs until it is ended."""

    def terminate(self) -> bool:
        """Ask it to end, and return whether it had not ended before."""

    def kill(self) -> None:
        """End it, if it has not ended."""


class Performer(Protocol):
    """Whoever does things to the machine and the server; each call returns at once."""

    def run_hook(self, event: Event, action: RunHook) -> Stoppable | None:
        """Begin a hook, and report how it ended; None if it had ended before it began."""

    def approve(self, events: tuple[Event, ...]) -> None:
        """Request the start of *events*, and report the answer for each."""

    def postpone(self, event: Event, not_before: datetime) -> None:
        """Ask for a later NotBefore, and report the answer."""


@dataclass(frozen=True, slots=True, eq=False)
class RealPerformer:
    """Runs hooks with *variables*, and asks the server, each time with a client of its own.

    So a question that is not answered holds up no other.
    """

    connect: Callable[[], Client]
    variables: Mapping[str, str]
    report: Report

    def run_hook(self, event: Event, action: RunHook) -> Stoppable | None:
        """Begin a hook, and report how it ended."""

        def report(status: int) -> None:
            self.report(_ended(event, action, status))

        try:
            return HookProcess(
                action,
                event_id=event.event_id,
                variables={**self.variables, **describe(event, action.phase)},
                standard_input=write_input(event),
                on_exit=report,
            )
        except (OSError, ValueError, RuntimeError) as error:
            _log.error(
                "hook_unstartable event=%s phase=%s hook=%r error=%s",
                event.event_id,
                action.phase,
                action.hook.name,
                error,
            )
            is_passing = isinstance(error, OSError) and error.errno in _PASSING
            report(NOT_YET if is_passing else _UNRUNNABLE)
            return None

    def approve(self, events: tuple[Event, ...]) -> None:
        """Request the start of *events* in one, and report the answer for each."""

        def ask() -> None:
            error = self._try(lambda client: client.approve(*events))
            if isinstance(error, RefusedError) and len(events) > 1:
                for event in events:  # it may be about one of them
                    self.approve((event,))
                return
            for event in events:
                self.report(Answered(event=event, error=error))

        threading.Thread(target=ask, daemon=True).start()

    def postpone(self, event: Event, not_before: datetime) -> None:
        """Ask for a later NotBefore, and report the answer."""

        def ask() -> None:
            error = self._try(lambda client: client.postpone(event, not_before))
            self.report(Answered(event=event, not_before=not_before, error=error))

        threading.Thread(target=ask, daemon=True).start()

    def _try(self, call: Callable[[Client], None]) -> ClientError | None:
        try:
            with self.connect() as client:
                call(client)
        except ClientError as error:
            return error
        except Exception as error:  # noqa: BLE001 - or nobody would ever ask again
            _log.exception("request_broken")
            return ClientError(f"Internal error in the agent: {error!r}.")
        return None


class DryPerformer:
    """Only says what it would do, as if all that can be run went well."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def run_hook(self, event: Event, action: RunHook) -> Stoppable | None:
        """Say which hook would be run."""
        _log.info(
            "would_run event=%s phase=%s hook=%r", event.event_id, action.phase, action.hook.name
        )
        self._report(_ended(event, action, 0 if action.hook.is_runnable else _UNRUNNABLE))
        return None

    def approve(self, events: tuple[Event, ...]) -> None:
        """Say that the start would be requested."""
        for event in events:
            _log.info("would_approve event=%s", event.event_id)
            self._report(Answered(event=event))

    def postpone(self, event: Event, not_before: datetime) -> None:
        """Say that a later time would be asked for."""
        _log.info("would_postpone event=%s not_before=%s", event.event_id, not_before)
        self._report(Answered(event=event, not_before=not_before))


def _ended(event: Event, action: RunHook, status: int) -> HookEnded:
    return HookEnded(
        event_id=event.event_id, phase=action.phase, hook=action.hook.name, status=status
    )
