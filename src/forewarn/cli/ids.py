"""Ids that are typed short: the server is asked which one is meant."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from forewarn.cli.errors import CommandError, ExitCode
from forewarn.protocol.vocabulary import EventStatus

_BEGINNING: Final = re.compile(r"[0-9A-Fa-f][0-9A-Fa-f-]{0,34}")
_MOST: Final = 1000
_NAMED: Final = 5
_LISTS: Final[Mapping[str, tuple[str, Mapping[str, object]]]] = {
    "events": ("event_id", {"status": [*EventStatus]}),
    "maintenances": ("maintenance_id", {}),
    "scenario-runs": ("run_id", {}),
    "notifications": ("notification_id", {}),
}
"""What has ids: their key, and how to list all of them."""


def complete_path(get: Callable[..., Any], path: tuple[str, ...]) -> tuple[str, ...]:
    """Return *path*, with the whole id where it has the beginning of one."""
    match path:
        case (noun, typed, *rest) if noun in _LISTS and _BEGINNING.fullmatch(typed):
            return (noun, complete_id(get, noun, typed), *rest)
        case _:
            return path


def complete_id(get: Callable[..., Any], noun: str, typed: str) -> str:
    """Return the one id that begins as *typed*; if there is none, what was typed.

    The newest are looked at; if they are not all there is, none of them means little. Else the
    server says what is unknown.
    """
    if not _BEGINNING.fullmatch(typed):
        return typed
    key, query = _LISTS[noun]
    rows = get(noun, limit=_MOST, **query)[noun.replace("-", "_")]
    found = [row[key] for row in rows if row[key].lower().startswith(typed.lower())]
    if len(found) > 1:
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        raise CommandError(
            f"{typed!r} is ambiguous; it matches {', '.join(found[:_NAMED])}{more}.",
            code=ExitCode.USAGE,
            hint="type more characters of the id",
        )
    if not found and len(rows) >= _MOST:
        raise CommandError(
            f"No id of the newest {_MOST} {noun.replace('-', ' ')} begins with {typed!r}.",
            code=ExitCode.NOT_FOUND,
            hint="type the full id to find older ones",
        )
    return found[0] if found else typed
