"""How a server can be told to misbehave towards one virtual machine: docs/reference/faults.md."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from http import HTTPStatus
from typing import Final, Protocol

from forewarn.domain.errors import InvalidError
from forewarn.domain.names import VmName
from forewarn.protocol.document import Document
from forewarn.protocol.vocabulary import EventType

UNKNOWN_TYPE: Final = "Hibernate"
"""The EventType that `unknown-type` shows unless it is given another."""


class FaultKind(StrEnum):
    """What goes wrong."""

    SLOW = "slow"
    RESET = "reset"
    STATUS = "status"
    EMPTY_BODY = "empty-body"
    UNKNOWN_TYPE = "unknown-type"
    INCARNATION_RESET = "incarnation-reset"
    PUBLISH_DELAY = "publish-delay"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What a fault of some kind must say, and what it may say."""

    needed: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()


PARAMETERS: Final[Mapping[FaultKind, Parameters]] = {
    FaultKind.SLOW: Parameters(needed=frozenset({"seconds"}), optional=frozenset({"times"})),
    FaultKind.RESET: Parameters(optional=frozenset({"times"})),
    FaultKind.STATUS: Parameters(
        needed=frozenset({"status"}), optional=frozenset({"retry_after", "times"})
    ),
    FaultKind.EMPTY_BODY: Parameters(optional=frozenset({"times"})),
    FaultKind.UNKNOWN_TYPE: Parameters(optional=frozenset({"event_type", "times"})),
    FaultKind.INCARNATION_RESET: Parameters(),
    FaultKind.PUBLISH_DELAY: Parameters(needed=frozenset({"seconds"})),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, as far as it is not used up: the next *times* requests, or all until removed.

    *seconds* are of real time when slow, of maintenance time when publishing is delayed.
    """

    kind: FaultKind
    times: int | None = None
    seconds: float | None = None
    status: int | None = None
    retry_after: int | None = None
    event_type: str | None = None

    def __post_init__(self) -> None:
        given = self.parameters()
        known = PARAMETERS[self.kind]
        for name in sorted(known.needed - given.keys()):
            raise FaultError(f"A fault of kind {self.kind} needs {name}.")
        for name in sorted(given.keys() - known.needed - known.optional):
            raise FaultError(f"A fault of kind {self.kind} has no {name}.")
        for name, value in given.items():
            is_right, wanted = _VALUES[name]
            if not is_right(value):
                raise FaultError(f"{name} must be {wanted}, not {value!r}.")

    def parameters(self) -> dict[str, float | str]:
        """Return what it says besides its kind."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: value for name, value in values.items() if name != "kind" and value is not None
        }


class FaultError(InvalidError):
    """A fault that says too little, too much, or nothing that can be."""


class Faults(Protocol):
    """The faults there are, as the metadata endpoint asks for them; from any thread."""

    def __contains__(self, vm: object) -> bool:
        """Tell whether the virtual machine of this name has any; asked for every poll."""

    def take(self, vm: VmName, kind: FaultKind) -> Fault | None:
        """Return *vm*'s fault of *kind*, if there is one, for one request: that uses it up."""

    def show(self, vm: VmName, document: Document) -> Document:
        """Return what *vm* sees instead of *document*, the current one of its scope."""


def _is_whole(value: float | str, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


_VALUES: Final[Mapping[str, tuple[Callable[[float | str], bool], str]]] = {
    "times": (lambda value: _is_whole(value, 1, 1_000_000), "a number from 1 to 1000000"),
    "seconds": (
        lambda value: type(value) in {int, float} and 0 < float(value) <= 3600,
        "more than 0 and at most 3600",
    ),
    "status": (
        lambda value: _is_whole(value, 400, 599) and value in set(HTTPStatus),
        "an HTTP error such as 404, 410, 429, 500 or 503",
    ),
    "retry_after": (lambda value: _is_whole(value, 0, 86_400), "a number from 0 to 86400"),
    "event_type": (
        lambda value: (
            re.fullmatch(r"[A-Za-z][A-Za-z0-9]{0,63}", str(value)) is not None
            and value not in set(EventType)
        ),
        "a word of letters and digits that is not an EventType",
    ),
}
"""What each parameter can be, and how to say so."""
