"""Waits for what a command has begun, and follows it, across restarts of the server.

Whoever stops waiting stops nothing else.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from forewarn.cli.errors import CommandError, ExitCode
from forewarn.cli.failures import ServerRefusedError
from forewarn.cli.output import Row, print_line
from forewarn.cli.session import Session
from forewarn.transport.requests import TransportError
from forewarn.wording.durations import parse_duration

T = TypeVar("T")

ASK_EVERY: Final = 0.5
_PAUSE: Final = 1.0


def wait_for_events(session: Session, events: Sequence[Row]) -> list[Row]:
    """Return *events* as they are when all have ended."""
    patience = Patience(session, f"forewarn event explain {events[0]['event_id']}")
    return [_wait_for_event(session, event, patience) for event in events]


def require_success(events: Sequence[Row]) -> None:
    """Fail if any of *events*, which have been waited for, did not do what it was for."""
    for event in filter(_has_gone_wrong, events):
        hint = f"try: forewarn event show {event['event_id']}"
        raise CommandError(_say_what(event), code=ExitCode.FAILED, hint=hint)


def _has_gone_wrong(event: Row) -> bool:
    from forewarn.domain.event import Outcome  # noqa: PLC0415 - slow to load, not for help

    return event["ended_at"] is not None and event["outcome"] != Outcome.SUCCEEDED


def _say_what(event: Row) -> str:
    ended = "failed" if event["outcome"] else "was canceled"
    return f"{event['event_type']} of {', '.join(event['resources'])} {ended}{say_because(event)}."


def say_because(ended: Row) -> str:
    """Return the reason that *ended* has, as it stands behind what it is a reason for."""
    return f": {ended['reason']}".rstrip(".") if ended["reason"] else ""


def say_wait(session: Session, event: Row) -> str:
    """Say which other events have to end before *event* continues, if nothing else holds it."""
    from forewarn.domain.why import OF_OTHERS  # noqa: PLC0415 - slow to load, not for help

    if event["ended_at"] is not None:
        return ""
    reasons = session.get("events", event["event_id"], "explain")["reasons"]
    holding = [reason for reason in reasons if reason["holds"]]
    if not holding or any(reason["kind"] not in OF_OTHERS for reason in holding):
        return ""
    others = dict.fromkeys(other for reason in holding for other in reason["event_ids"])
    return f"waits for {', '.join(others)} to end"


def _wait_for_event(session: Session, event: Row, patience: "Patience") -> Row:
    name: str = event["event_id"]

    def ask() -> Row:
        row = session.get("events", name)
        return {"event": row, "waits": say_wait(session, row)}

    def describe(seen: Row) -> str:
        said = f"{seen['event']['event_type']} {name}: {seen['event']['event_status']}"
        return ", ".join(filter(None, (said, seen["waits"])))

    seen = patience.wait(ask, lambda seen: seen["event"]["ended_at"] is not None, describe)
    ended: Row = seen["event"]
    return ended


class Patience:
    """How long to wait, in real time, and what to say to whoever will not."""

    def __init__(self, session: Session, next_command: str) -> None:
        self._session = session
        self._has_told_clock = False
        timeout = session.timeout
        seconds = None if timeout is None else parse_duration(timeout).total_seconds()
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._hint = f"try: {next_command}"

    def wait(
        self,
        ask: Callable[[], Row],
        is_over: Callable[[Row], bool],
        describe: Callable[[Row], str],
        tell: Callable[[Row], None] | None = None,
    ) -> Row:
        """Ask until it is over, and tell each time that something is different."""
        told = ""
        row: Row = {}
        try:
            for found in persist(ask):
                row = found or row
                if found and is_over(found):
                    break
                if found and tell is not None:
                    tell(found)
                elif found and (said := describe(found)) != told:
                    print_line(said, err=True)
                    told = said
                self._tell_clock()
                self._pause()
        except KeyboardInterrupt:
            raise CommandError(
                "Stopped waiting; the work is still in progress.",
                code=ExitCode.INTERRUPTED,
                hint=self._hint,
            ) from None
        print_line(describe(row), err=True)
        return row

    def _tell_clock(self) -> None:
        if self._has_told_clock:
            return
        self._has_told_clock = True
        # Whether the server is still there is found out by asking for what is waited for.
        with suppress(CommandError):
            if self._session.get("clock")["kind"] == "virtual":
                print_line(
                    "The clock is virtual and stands still; advance it in another terminal "
                    "with: forewarn clock advance 15m",
                    err=True,
                )

    def _pause(self) -> None:
        left = ASK_EVERY if self._deadline is None else self._deadline - time.monotonic()
        if left <= 0:
            message = f"Timed out after {self._session.timeout}; the work is still in progress."
            raise CommandError(message, code=ExitCode.TIMED_OUT, hint=self._hint)
        time.sleep(min(left, ASK_EVERY))


def follow(session: Session, *path: str, **query: str | int) -> Iterator[Any]:
    """Yield what the stream at *path* has, and go on where it broke off, until interrupted.

    A server that is not there to begin with is an error.
    """
    place: int | None = None
    while True:
        again = {} if place is None else {"after": place}
        try:
            for seen, data in _follow_once(session, path, {**query, **again}):
                place = seen
                if data:
                    yield json.loads(data)
        except CommandError as error:
            if place is None or is_final(error):
                raise
        time.sleep(_PAUSE)


def read_events(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the id and the data of each server-sent event; without data it is a heart-beat."""
    place: int | None = None
    data = ""
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "id":
            place = int(value)
        elif name == "data":
            data = value
        elif not line and place is not None:
            yield place, data
            data = ""


def _follow_once(
    session: Session, path: tuple[str, ...], query: Mapping[str, str | int]
) -> Iterator[tuple[int, str]]:
    with session.stream(*path, **query) as lines:
        try:
            yield from read_events(lines)
            trouble = "the server closed the connection"
        except TransportError as error:
            trouble = f"lost the connection ({error})"
    print_line(f"forewarn: {trouble}; reconnecting", err=True)


def persist(ask: Callable[[], T]) -> Iterator[T | None]:
    """Yield the answers, asking whenever another one is wanted.

    A server that has answered once may be away for a while: then None, which is said once.
    """
    is_known = is_away = False
    while True:
        try:
            found = ask()
        except CommandError as error:
            if not is_known or is_final(error):
                raise
            if not is_away:
                print_line(f"forewarn: {error} Reconnecting.", err=True)
            is_away = True
            yield None
        else:
            is_known, is_away = True, False
            yield found


def is_final(error: CommandError) -> bool:
    """Tell whether asking again would not help."""
    # Anything else may come from a server that is being restarted or busy, or a proxy before it.
    return isinstance(error, ServerRefusedError) and (
        int(error.problem["status"]) not in {429, *range(500, 600)}
    )
