"""The names of things, and what a name may look like."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Final, NewType

from forewarn.domain.errors import InvalidNameError

VmName = NewType("VmName", str)
HostName = NewType("HostName", str)
ScopeId = NewType("ScopeId", str)
MaintenanceId = NewType("MaintenanceId", str)
ScenarioRunId = NewType("ScenarioRunId", str)
OperationId = NewType("OperationId", str)
ScheduleName = NewType("ScheduleName", str)

# Names travel in URLs, shell commands, log lines and JSON; this alphabet needs no quoting in any.
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


def is_name(name: str) -> bool:
    """Tell whether *name* needs no quotes in a URL or a shell."""
    return _NAME.fullmatch(name) is not None


def check_name(name: str, noun: str) -> None:
    """Refuse a *name* that a URL or a shell would have to quote."""
    if not is_name(name):
        raise InvalidNameError(noun, name)


def names_place(name: str, place: HostName | ScopeId) -> bool:
    """Tell whether *name* is that of a host, or is the name or the id of a scope."""
    return name_key(name) in place_keys(place)


def place_keys(place: HostName | ScopeId) -> set[str]:
    """Return the keys of all names that a host or a scope has."""
    return {name_key(place), name_key(plain_name(place))}


def plain_name(place: HostName | ScopeId) -> str:
    """Return the name of a host, or that of a scope without its kind and placement group."""
    _, _, rest = place.partition("/")  # the name of a host has no slash
    return rest.partition("/")[0] or place


def name_key(name: str) -> str:
    """Return what two spellings of one name have in common: names are unique in any case."""
    return name.casefold()


def is_meant(name: str, patterns: Iterable[str]) -> bool:
    """Tell whether *name* is one of *patterns*, in any case; where there are none, any name is."""
    known = tuple(map(name_key, patterns))
    return not known or any(fnmatchcase(name_key(name), each) for each in known)


def nearest_names(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return which of *known* may have been meant by *name*, the nearest first."""
    names = {name_key(each): each for each in known}
    return tuple(names[key] for key in get_close_matches(name_key(name), names))
