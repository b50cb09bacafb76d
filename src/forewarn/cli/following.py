"""Following what the control API says, across restarts of the server."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from forewarn.cli.errors import CommandError
from forewarn.cli.failures import ServerRefusedError
from forewarn.cli.output import print_line
from forewarn.cli.session import Session
from forewarn.cli.transport import TransportError

T = TypeVar("T")

_PAUSE: Final = 1.0


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
            trouble = "the server has ended the connection"
        except TransportError as error:
            trouble = f"the connection broke off ({error})"
    print_line(f"forewarn: {trouble}; waiting for it to come back", err=True)


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
                print_line(f"forewarn: {error} Waiting for it to come back.", err=True)
            is_away = True
            yield None
        else:
            is_known, is_away = True, False
            yield found


def is_final(error: CommandError) -> bool:
    """Tell whether asking again would not help."""
    # Anything else may come from a server that is being restarted, or a proxy in front of it.
    return isinstance(error, ServerRefusedError) and int(error.problem["status"]) < 500
