"""What is asked for and shown. The names are those of the domain, in snake_case."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_validator,
)

from forewarn.desk.shapes import Fields, fill, mirrors, with_fields
from forewarn.domain.event import Approval, Outcome, ScheduledEvent
from forewarn.domain.fault import Fault
from forewarn.domain.profile import Profile
from forewarn.domain.topology import ScopeKind, VirtualMachine
from forewarn.files.fleet import POLICY_KEYS, VM_KEYS, KeyTypes
from forewarn.operations.differences import Difference, FieldDifference
from forewarn.operations.inventory import FleetChange
from forewarn.operations.safeguards import SkippedEntry
from forewarn.ports.clock import ClockJump
from forewarn.ports.entries import LedgerEntry
from forewarn.protocol.vocabulary import EventType

Text = Annotated[StrictStr, Field(max_length=4096)]
Seconds = Annotated[StrictInt, Field(ge=0, le=31_536_000)]
"""A duration on the wire is a number of seconds, a year at most."""
Moment = Annotated[
    StrictStr,
    Field(
        max_length=64,
        description="20m (from now), 22:00 (the next, in GMT) or 2026-01-05T08:15:00Z.",
    ),
]
Names = Annotated[list[Text], Field(max_length=100_000, fail_fast=True)]
"""Only the first that is wrong is told: a hundred thousand errors take a second to list."""
Labels = Annotated[dict[Text, Text], Field(max_length=100)]
AS_IS: Final = "Record existing placements, even on hosts that are closed or in maintenance."


class RequestModel(BaseModel):
    """Whatever is asked for; it may have no other keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class View(BaseModel):
    """Whatever is answered; it can be made from what has the same attributes."""

    model_config = ConfigDict(from_attributes=True, frozen=True)


class EventOrderRequest(RequestModel):
    """Announce an event."""

    event_type: EventType
    resources: Annotated[Names, Field(min_length=1)]
    not_before: Moment | None = None
    duration_in_seconds: Seconds | None = None
    description: Text | None = None
    started: StrictBool = False

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.started and self.not_before is not None:
            raise ValueError("not_before cannot be used with started, which starts at once")
        return self


class PostponeRequest(RequestModel):
    """Move an event to a later time."""

    not_before: Moment


class CompleteRequest(RequestModel):
    """Complete an event with its outcome."""

    outcome: Outcome = Outcome.SUCCEEDED
    reason: Text = ""


class CancelRequest(RequestModel):
    """Cancel an event; events of a host operation can only be canceled together."""

    reason: Text = ""
    operation: StrictBool = False


class PauseRequest(RequestModel):
    """Pause the server."""

    reason: Text = ""


class CloseRequest(RequestModel):
    """Close a host to new virtual machines."""

    reason: Text = ""


class FleetRequest(RequestModel):
    """Declare the fleet, in the structure of the fleet file."""

    fleet: dict[str, JsonValue]
    prune: StrictBool = False
    skip_busy: Annotated[
        StrictBool,
        Field(description="Skip virtual machines that are in events or whose new host is closed."),
    ] = False
    allow_removals: Annotated[
        StrictInt,
        Field(ge=0, description="Maximum number of virtual machines that prune may remove."),
    ] = 0
    as_is: Annotated[StrictBool, Field(description=AS_IS)] = False
    dry_run: Annotated[StrictBool, Field(description="Only report what would change.")] = False


_ASKED: Final[Mapping[Any, Any]] = {
    int: StrictInt,
    bool: StrictBool,
    tuple[str, ...]: Names,
}
"""The types of the domain in a request, where they are not texts."""
_PAIRS: Final = (Mapping[str, str], Profile)


def _asked(keys: KeyTypes) -> Fields:
    """Return *keys* of a fleet file that are no tables, each of which may be left out."""
    return {
        key: (_ASKED.get(kind, Text) | None, None)
        for key, kind in keys.items()
        if key != "name" and kind not in _PAIRS
    }


def _pairs(asked: Any) -> Fields:
    return {key: (asked | None, None) for key, kind in VM_KEYS.items() if kind in _PAIRS}


@with_fields({**_asked(VM_KEYS), "name": (Text, ...), **_pairs(dict[Text, Text])})
class VirtualMachineRequest(RequestModel):
    """Declare one virtual machine; the keys are those of the fleet file."""


@with_fields({**_asked(VM_KEYS), **_pairs(dict[Text, Text | None])})
class VirtualMachinePatch(RequestModel):
    """Change the named fields of a virtual machine; null clears one (JSON merge patch)."""


class HostPatch(RequestModel):
    """Change the named labels of a host; null removes one (JSON merge patch)."""

    labels: dict[Text, Text | None] | None = None


@with_fields(_asked(POLICY_KEYS))
class ScopePatch(RequestModel):
    """Change the named settings of a scope; null resets one (JSON merge patch)."""


class AdvanceRequest(RequestModel):
    """Advance virtual time."""

    duration: Annotated[StrictStr, Field(max_length=64)]


class FaultRequest(RequestModel):
    """Set a fault for a virtual machine; the kind decides which other fields apply."""

    times: StrictInt | None = None
    seconds: StrictInt | StrictFloat | None = None
    status: StrictInt | None = None
    retry_after: StrictInt | None = None
    event_type: Text | None = None


@mirrors(Approval)
class ApprovalView(View):
    """An approval of an event."""


@mirrors(
    ScheduledEvent,
    "event_id event_type event_source event_status scope_id update_domain resources description "
    "duration_in_seconds maintenance_id host operation_id created_at not_before first_not_before "
    "is_announced is_published approvals started_at overdue_at ended_at outcome reason",
)
class EventView(View):
    """One event."""

    approvals: tuple[ApprovalView, ...]


@mirrors(LedgerEntry, "at what who where detail")
class LedgerView(View):
    """One line in the history of an event."""

    what: str


class EventDetailView(EventView):
    """One event with its history."""

    ledger: tuple[LedgerView, ...]


class EventsView(View):
    """Several events, in the order of their creation."""

    events: tuple[EventView, ...]


@mirrors(FieldDifference)
class FieldDifferenceView(View):
    """One key of an entry, before and after; null if not set."""


@mirrors(Difference)
class DifferenceView(View):
    """One entry that is added, changed or removed, as in the fleet file."""

    fields: tuple[FieldDifferenceView, ...]


@mirrors(SkippedEntry)
class SkippedEntryView(View):
    """A virtual machine or host that was left unchanged, and why."""


@mirrors(FleetChange, "added changed_scopes changed removed skipped")
class FleetChangeView(View):
    """What a declaration changed, and the virtual machines it added, changed and removed."""

    skipped: tuple[SkippedEntryView, ...]
    needed_removals: Annotated[
        int, Field(description="Minimum value of allow_removals; 0 if not needed.")
    ]
    undeclared_hosts: Annotated[
        tuple[str, ...],
        Field(description="New hosts that the fleet does not declare."),
    ]
    differences: tuple[DifferenceView, ...]


@mirrors(
    VirtualMachine,
    "name scope_id scope_kind scope_name placement_group update_domain fault_domain host addresses "
    "vm_id role zone location resource_group subscription_id tags labels profile",
)
class VirtualMachineView(View):
    """One virtual machine and its place in the fleet."""

    scope_kind: ScopeKind
    scope_name: str
    placement_group: str | None
    profile: Mapping[str, str]
    last_polled_at: datetime | None


@mirrors(ClockJump)
class ClockJumpView(View):
    """A jump of the server's clock: forward, or back if *seconds* is negative."""


class ClockView(View):
    """Maintenance time, and the last jumps of the real clock since the server started."""

    kind: str
    now: datetime
    jumps: tuple[ClockJumpView, ...] = ()


@mirrors(Fault, "vm kind times seconds status retry_after event_type")
class FaultView(View):
    """One fault of a virtual machine, and how often it still applies."""

    vm: str


class FaultsView(View):
    """Several faults, by virtual machine."""

    faults: tuple[FaultView, ...]


class HealthView(View):
    """The health of the server."""

    status: str


class ReadinessView(HealthView):
    """Whether the server serves polls, and which of its loops failed and await a restart."""

    failing: tuple[str, ...]


class ProblemDocument(BaseModel):
    """A refusal (RFC 9457); some types have additional members."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    instance: str


def event_view(event: ScheduledEvent) -> EventView:
    """Return *event* as the API shows it."""
    return EventView.model_validate(event)


def events_view(events: tuple[ScheduledEvent, ...]) -> EventsView:
    """Return *events* as the API shows them."""
    return EventsView.model_validate({"events": events})


def event_detail_view(event: ScheduledEvent, ledger: tuple[LedgerEntry, ...]) -> EventDetailView:
    """Return *event* with its *ledger*."""
    return fill(EventDetailView, event, ledger=ledger)
