"""An order: one thing to carry out at most once, in the words that scripts and webhooks get."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import is_meant
from forewarn.domain.task import TaskKey
from forewarn.domain.topology import Host
from forewarn.protocol.vocabulary import EventType

LONGEST: Final = timedelta(hours=1)
"""How long an order may take unless the operator says otherwise."""

PAUSED: Final = "it is waiting because the server is paused"
"""The last word on an order that came before the pause."""


class Order(Protocol):
    """One thing to carry out, at most once for its *key*."""

    @property
    def key(self) -> TaskKey:
        """Two orders with the same key are the same order."""

    @property
    def kind(self) -> "OrderKind":
        """What the order has in common with others of its kind."""

    @property
    def epoch(self) -> int:
        """The term of the leader that gave the order."""

    @property
    def status_url(self) -> str | None:
        """Where to ask how far it is, if the target of a webhook has accepted it."""

    @property
    def about(self) -> Mapping[str, str | None]:
        """What decides who carries it out. A record of the order has it, too."""

    def describe(self) -> dict[str, object]:
        """Return the order in words that JSON has."""

    def variables(self) -> Mapping[str, object]:
        """Return the order as variables of an environment."""

    def nobody(self, means: str) -> str:
        """Return the reason of an order for which the file of executors has no such *means*."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderKind:
    """What differs between orders about virtual machines and orders about hosts.

    *headers* carry the key to a webhook. *advice* tells the operator what to do when the end of an
    order is lost; *untold* says how the end is learned if a webhook has no place to ask.
    """

    headers: tuple[str, str]
    advice: str
    untold: str


class Permit(Protocol):
    """The right to begin one task, which only its owner gets, and only once."""

    def obtain(self) -> bool:
        """Commit that the task begins; tell whether it may."""

    def is_valid(self) -> bool:
        """Tell whether it still may now."""


class Runner(Protocol):
    """Carries out orders of this node, each at most once, also if the server dies in between.

    No method waits for a script or a target. A runner that *repeats* may be told to begin an order
    again of which it has no record, because the target recognizes it.
    """

    @property
    def repeats(self) -> bool: ...

    def begin(self, order: Order, permit: Permit) -> Impact | None:
        """Begin *order*, unless it was begun before; None while that is under way.

        Nothing outside is touched before the *permit* is obtained.
        """

    def inquire(self, order: Order) -> Impact:
        """Say how far *order* is; NOT_BEGUN if there is no record of it."""

    def close(self) -> None:
        """Wait until what is being begun has begun. What was begun is not stopped."""


def encode(order: Order) -> bytes:
    """Return *order* as JSON."""
    return json.dumps(order.describe(), separators=(",", ":")).encode()


def environment_of(order: Order) -> dict[str, str]:
    """Return *order* as variables that any environment can have.

    TASK_ID is the name by which operators know it, and targets can fence by.
    """
    variables = {"TASK_ID": "/".join(order.key), **order.variables()}
    return {name: _fit(str(value)) for name, value in variables.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """For which events and hosts something is meant; where nothing is named, for all.

    Hosts are named in any case, and may be patterns; they carry all of *labels*.
    """

    event_types: tuple[EventType, ...] = ()
    hosts: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    def fits(self, event_type: EventType, host: Host | None) -> bool:
        """Tell whether it is meant for an event of this type on this host."""
        is_type = not self.event_types or event_type in self.event_types
        return is_type and self.is_for_host(host)

    def is_for_host(self, host: Host | None) -> bool:
        """Tell whether it is meant for events on this host, of whatever type."""
        name, labels = (host.name, host.labels) if host else ("", {})
        return is_meant(name, self.hosts) and self.labels.items() <= labels.items()


class Means(Protocol):
    """What an operator has for some impacts: a command, a webhook, a pair of hands."""

    @property
    def selection(self) -> Selection:
        """For which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHand:
    """The operator does it, and says so with `forewarn event complete`."""

    selection: Selection = field(default_factory=Selection)


def begun_by_another(executor: str) -> Impact:
    """Say that an order is with an *executor* that cannot be asked."""
    reason = f"it was begun by the executor {executor!r}, which this server does not have"
    return Impact(status=ImpactStatus.UNKNOWN, reason=reason)


def next_second(now: datetime) -> datetime:
    """Return when to ask again: all that run at the same moment, in one turn of the loop."""
    return now.replace(microsecond=0) + timedelta(seconds=1)


def _fit(value: str) -> str:
    """Return *value* as an environment can have it: without NUL and halves of characters."""
    return value.replace("\0", "").encode(errors="replace").decode()
