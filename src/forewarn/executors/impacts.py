"""Impacts on virtual machines as orders, and an executor that has contractors carry them out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, TypeVar

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName, VmName
from forewarn.domain.topology import Host
from forewarn.executors.manual import BY_HAND
from forewarn.executors.orders import Contractors, Means, Order, OrderKind
from forewarn.executors.records import OrderKey
from forewarn.executors.simulated import SimulatedExecutor
from forewarn.operations.views import describe_change
from forewarn.protocol.dates import write_date
from forewarn.protocol.versions import DateForm
from forewarn.protocol.vocabulary import EventId, EventType, ResourceType

EVENT_ID: Final = "Forewarn-Event-Id"
VIRTUAL_MACHINE: Final = "Forewarn-Virtual-Machine"

M = TypeVar("M", bound=Means)

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
        where = f"on host {self.host}" if self.host else "without a host"
        return f"the executor file has no {means} for a {self.event.event_type} {where}"


def find_among(
    those: Sequence[Means], kind: type[M], host_called: Callable[[HostName], Host]
) -> Callable[[Mapping[str, Any]], M | None]:
    """Return how to find the means of that *kind* for an impact, from what an order is about.

    The first of *those* that fits is for it, of whatever kind it is.
    """

    def find(about: Mapping[str, Any]) -> M | None:
        host = None if about["host"] is None else host_called(HostName(about["host"]))
        event_type = EventType(about["event_type"])
        found = next((each for each in those if each.selection.fits(event_type, host)), None)
        return found if isinstance(found, kind) else None

    return find


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedContractor:
    """Goes on with impacts that were simulated when the server was told to, and takes no others."""

    executor: SimulatedExecutor

    def takes(self, order: Order) -> bool:
        """Take nothing new."""
        del order
        return False

    def holds(self, key: OrderKey) -> bool:
        """Tell whether it was simulated."""
        return self.inquire(key).status is not ImpactStatus.NOT_BEGUN

    def begin(self, order: Order) -> Impact:
        """Say how far it is."""
        return self.inquire(order.key)

    def inquire(self, key: OrderKey) -> Impact:
        """Look up when it will be over, or was."""
        return self.executor.inquire(EventId(key[0]), VmName(key[1]))

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class ContractedExecutor:
    """Has contractors carry impacts out; what nobody is named for, an operator does by hand.

    *event_called* and *host_of* say what is known of an event and a virtual machine.
    """

    contractors: Contractors
    _: KW_ONLY
    event_called: Callable[[EventId], ScheduledEvent | None]
    host_of: Callable[[VmName], HostName | None]

    def begin(self, event: ScheduledEvent, vm: VmName, *, epoch: int) -> Impact:
        """Give the order, unless it was given before."""
        order = self._order(event, vm, epoch)
        contractor = self.contractors.choose(order)
        return BY_HAND if contractor is None else contractor.begin(order)

    def inquire(self, event_id: EventId, vm: VmName) -> Impact:
        """Ask who was given the order, or is to be."""
        event = self.event_called(event_id)
        if event is None:
            return Impact(status=ImpactStatus.UNKNOWN, reason="the event is not in the database")
        contractor = self.contractors.choose(self._order(event, vm, 0))
        return BY_HAND if contractor is None else contractor.inquire((event_id, vm))

    def close(self) -> None:
        """Close the contractors. Impacts that were begun are not stopped."""
        self.contractors.close()

    def _order(self, event: ScheduledEvent, vm: VmName, epoch: int) -> ImpactOrder:
        # An earlier event can have moved it away from the host that this one is about.
        return ImpactOrder(event=event, vm=vm, host=self.host_of(vm) or event.host, epoch=epoch)
