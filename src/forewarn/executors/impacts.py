"""Impacts on virtual machines as orders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.names import HostName, VmName
from forewarn.domain.task import TaskKey
from forewarn.domain.topology import Host
from forewarn.executors.orders import Means, OrderKind
from forewarn.operations.views import describe_change
from forewarn.protocol.dates import write_date
from forewarn.protocol.versions import DateForm
from forewarn.protocol.vocabulary import EventType, ResourceType

EVENT_ID: Final = "Forewarn-Event-Id"
VIRTUAL_MACHINE: Final = "Forewarn-Virtual-Machine"

IMPACTS: Final = OrderKind(
    headers=(EVENT_ID, VIRTUAL_MACHINE),
    advice="check the virtual machine, then complete the event",
    untold="complete the event when it has ended",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpactOrder:
    """The impact of *event* on *vm*, which runs on *host*."""

    event: ScheduledEvent
    vm: VmName
    host: HostName | None
    epoch: int
    status_url: str | None = None

    @property
    def key(self) -> TaskKey:
        return self.event.event_id, self.vm

    @property
    def kind(self) -> OrderKind:
        return IMPACTS

    @property
    def about(self) -> Mapping[str, str | None]:
        return {"event_type": self.event.event_type, "host": self.host}

    def describe(self) -> dict[str, object]:
        known = describe_change(self.event)
        return {**known, "vm": self.vm, "host": self.host, "epoch": self.epoch}

    def variables(self) -> Mapping[str, object]:
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

    def nobody(self, means: str) -> str:
        where = f"on host {self.host}" if self.host else "without a host"
        return f"the executor file has no {means} for a {self.event.event_type} {where}"


def find_means(those: Sequence[Means], event_type: EventType, host: Host | None) -> Means | None:
    """Return the first of *those* that is meant for such an event on *host*."""
    return next((each for each in those if each.selection.fits(event_type, host)), None)
