"""Impacts on virtual machines as orders, and an executor that has a contractor carry them out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.impact import Impact
from forewarn.domain.names import HostName, VmName
from forewarn.executors.orders import Contractor, OrderKind, S, choose
from forewarn.executors.records import OrderKey
from forewarn.operations.views import describe_change
from forewarn.protocol.dates import write_date
from forewarn.protocol.versions import DateForm
from forewarn.protocol.vocabulary import EventId, EventType, ResourceType

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

    @property
    def key(self) -> OrderKey:
        return self.event.event_id, self.vm

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
        where = f"host {self.host}" if self.host else "no known host"
        return f"there is no {means} for a {self.event.event_type} on {where}"


def find_among(those: Sequence[S]) -> Callable[[Mapping[str, Any]], S | None]:
    """Return how to find which of *those* is for an impact, from what an order is about."""
    return lambda about: choose(those, EventType(about["event_type"]), about["host"])


@dataclass(frozen=True, slots=True, eq=False)
class ContractedExecutor:
    """Has a contractor carry impacts out."""

    contractor: Contractor
    host_of: Callable[[VmName], HostName | None] = field(kw_only=True)

    def begin(self, event: ScheduledEvent, vm: VmName, *, epoch: int) -> Impact:
        """Give the order, unless it was given before."""
        host = event.host or self.host_of(vm)
        return self.contractor.begin(ImpactOrder(event=event, vm=vm, host=host, epoch=epoch))

    def inquire(self, event_id: EventId, vm: VmName) -> Impact:
        """Ask the contractor."""
        return self.contractor.inquire((event_id, vm))

    def close(self) -> None:
        """Close the contractor. Impacts that were begun are not stopped."""
        self.contractor.close()
