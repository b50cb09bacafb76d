"""What an executor is to do, in the words that scripts and webhooks get, and who of them does."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Final, Protocol, TypeVar

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.names import HostName, VmName, name_key
from forewarn.executors.records import ImpactKey
from forewarn.operations.views import describe_change
from forewarn.protocol.dates import write_date
from forewarn.protocol.versions import DateForm
from forewarn.protocol.vocabulary import EventType, ResourceType

LONGEST: Final = timedelta(hours=1)
"""How long an impact may take unless the operator says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One impact to carry out, on behalf of the leader of *epoch*."""

    event: ScheduledEvent
    vm: VmName
    host: HostName | None
    epoch: int

    @property
    def key(self) -> ImpactKey:
        return self.event.event_id, self.vm

    def describe(self) -> dict[str, object]:
        """Return the order in words that JSON has."""
        known = describe_change(self.event)
        return {**known, "vm": self.vm, "host": self.host, "epoch": self.epoch}

    def encode(self) -> bytes:
        """Return the order as JSON."""
        return json.dumps(self.describe(), separators=(",", ":")).encode()

    def environment(self) -> dict[str, str]:
        """Return the order as variables."""
        return {name: _fit(str(value)) for name, value in self._variables().items()}

    def _variables(self) -> Mapping[str, object]:
        event = self.event
        duration = event.duration_in_seconds
        return {
            "EVENT_ID": event.event_id,
            "EVENT_TYPE": event.event_type,
            "EVENT_STATUS": event.event_status,
            "EVENT_SOURCE": event.event_source,
            "EVENT_RESOURCETYPE": ResourceType.VIRTUAL_MACHINE,
            "EVENT_RESOURCES": " ".join(event.resources),
            "EVENT_NOTBEFORE": write_date(event.not_before, DateForm.RFC_1123),
            "EVENT_DURATION": -1 if duration is None else duration,
            "EVENT_DESCRIPTION": event.description,
            "EVENT_VM": self.vm,
            "EVENT_HOST": self.host or "",
            "EVENT_EPOCH": self.epoch,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """For which events and hosts something is meant; where nothing is named, for all.

    Hosts are named in any case, and may be patterns.
    """

    event_types: tuple[EventType, ...] = ()
    hosts: tuple[str, ...] = ()

    def fits(self, event_type: EventType, host: str | None) -> bool:
        """Tell whether it is meant for an event of this type on this host."""
        if self.event_types and event_type not in self.event_types:
            return False
        known = name_key(host or "")
        return not self.hosts or any(fnmatchcase(known, name_key(name)) for name in self.hosts)


class Selective(Protocol):
    """Something that is meant for some events and hosts."""

    @property
    def selection(self) -> Selection:
        """For which."""
        ...


S = TypeVar("S", bound=Selective)


def choose(those: Iterable[S], event_type: EventType, host: str | None) -> S | None:
    """Return the first of *those* that is meant for an event of this type on this host."""
    return next((each for each in those if each.selection.fits(event_type, host)), None)


def nobody_for(order: Order, executor: str) -> str:
    """Return the reason of an impact that the file of executors has nobody for."""
    where = f"host {order.host}" if order.host else "no known host"
    return f"there is no {executor} for a {order.event.event_type} on {where}"


def next_second(now: datetime) -> datetime:
    """Return when to ask again: all that run at the same moment, in one turn of the loop."""
    return now.replace(microsecond=0) + timedelta(seconds=1)


def _fit(value: str) -> str:
    """Return *value* as an environment can have it: without NUL and halves of characters."""
    return value.replace("\0", "").encode(errors="replace").decode()
