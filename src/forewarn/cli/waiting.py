"""Waiting for what a command has begun. Whoever stops waiting stops nothing else."""

import time
from collections.abc import Callable, Sequence
from typing import Annotated, Final

import typer

from forewarn.cli.errors import CommandError, ExitCode
from forewarn.cli.output import Row
from forewarn.cli.session import Session
from forewarn.operations.durations import DurationError, parse_duration


def _check_duration(text: str | None) -> str | None:
    try:
        if text is not None:
            parse_duration(text)
    except DurationError as error:
        raise typer.BadParameter(str(error)) from error
    return text


Wait = Annotated[bool, typer.Option("--wait", help="Return when it has ended.")]
Timeout = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Wait no longer; it goes on all the same.",
        callback=_check_duration,
    ),
]

_ASK_EVERY: Final = 0.5


def wait_for_events(session: Session, events: Sequence[Row], timeout: str | None) -> list[Row]:
    """Return *events* as they are when all have ended."""
    patience = _Patience(timeout, f"forewarn event explain {events[0]['event_id']}")
    return [_wait_for_event(session, event, patience) for event in events]


def wait_for_maintenance(session: Session, maintenance: Row, timeout: str | None) -> Row:
    """Return *maintenance* as it is when it is over."""
    name: str = maintenance["maintenance_id"]
    patience = _Patience(timeout, f"forewarn maintenance status {name}")
    return patience.wait(
        lambda: session.get("maintenances", name),
        is_over=lambda row: row["finished_at"] is not None,
        describe=lambda row: (
            f"Maintenance {name}: {row['status']}, {row['events_ended']} events ended, "
            f"{row['steps_remaining']} steps left"
        ),
    )


def _wait_for_event(session: Session, event: Row, patience: "_Patience") -> Row:
    name: str = event["event_id"]
    return patience.wait(
        lambda: session.get("events", name),
        is_over=lambda row: row["ended_at"] is not None,
        describe=lambda row: f"{row['event_type']} {name}: {row['event_status']}",
    )


class _Patience:
    """How long to wait, in real time, and what to say to whoever will not."""

    def __init__(self, timeout: str | None, next_command: str) -> None:
        seconds = None if timeout is None else parse_duration(timeout).total_seconds()
        self._timeout = timeout
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._hint = f"try: {next_command}"

    def wait(
        self, ask: Callable[[], Row], is_over: Callable[[Row], bool], describe: Callable[[Row], str]
    ) -> Row:
        """Ask until it is over, and tell each time that something is different."""
        told = ""
        try:
            while not is_over(row := ask()):
                if (said := describe(row)) != told:
                    typer.echo(said, err=True)
                    told = said
                self._pause()
        except KeyboardInterrupt:
            raise CommandError("It goes on.", code=ExitCode.INTERRUPTED, hint=self._hint) from None
        typer.echo(describe(row), err=True)
        return row

    def _pause(self) -> None:
        left = _ASK_EVERY if self._deadline is None else self._deadline - time.monotonic()
        if left <= 0:
            message = f"It has not ended within {self._timeout}; it goes on."
            raise CommandError(message, code=ExitCode.TIMED_OUT, hint=self._hint)
        time.sleep(min(left, _ASK_EVERY))
