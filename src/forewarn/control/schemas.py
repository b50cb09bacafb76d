"""What travels over the control API. The names are those of the domain, in snake_case."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, Self

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

from forewarn.domain.event import Approver, Outcome, ScheduledEvent
from forewarn.domain.topology import ScopeKind
from forewarn.operations.differences import Alteration
from forewarn.ports.entries import LedgerEntry
from forewarn.ports.faults import FaultKind
from forewarn.protocol.vocabulary import EventSource, EventStatus, EventType

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
Names = Annotated[list[Text], Field(max_length=100_000)]
Labels = Annotated[dict[Text, Text], Field(max_length=100)]
AS_IS: Final = "State facts: place virtual machines also on hosts that are closed or worked on."


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class View(BaseModel):
    """Whatever is answered; it can be made from what has the same attributes."""

    model_config = ConfigDict(from_attributes=True, frozen=True)


class EventOrderRequest(_Request):
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
            raise ValueError("started is at once, so leave out not_before")
        return self


class PostponeRequest(_Request):
    """Move an event to a later time."""

    not_before: Moment


class CompleteRequest(_Request):
    """Say how an event ended."""

    outcome: Outcome = Outcome.SUCCEEDED
    reason: Text = ""


class CancelRequest(_Request):
    """Withdraw an event; of a host operation, only with all others of it."""

    reason: Text = ""
    operation: StrictBool = False


class PauseRequest(_Request):
    """Pause the server."""

    reason: Text = ""


class CloseRequest(_Request):
    """Have a host take no more virtual machines."""

    reason: Text = ""


class FleetRequest(_Request):
    """Declare the fleet, in the structure of the fleet file."""

    fleet: dict[str, JsonValue]
    prune: StrictBool = False
    skip_busy: Annotated[
        StrictBool,
        Field(description="Skip virtual machines in events, or whose new host refuses them."),
    ] = False
    allow_removals: Annotated[
        StrictInt,
        Field(ge=0, description="How many virtual machines prune may remove."),
    ] = 0
    as_is: Annotated[StrictBool, Field(description=AS_IS)] = False
    dry_run: Annotated[StrictBool, Field(description="Tell what would change.")] = False


class _PolicyFields(_Request):
    approval: Text | None = None
    postpone_until: Text | None = None
    auto_approve_user: StrictBool | None = None
    terminate_notice: Text | None = None
    notice: Text | None = None


class _VirtualMachineFields(_PolicyFields):
    availability_set: Text | None = None
    cloud_service: Text | None = None
    scale_set: Text | None = None
    placement_group: Text | None = None
    update_domain: StrictInt | None = None
    fault_domain: StrictInt | None = None
    host: Text | None = None
    role: Text | None = None
    addresses: list[Text] | None = None
    vm_id: Text | None = None
    zone: Text | None = None
    location: Text | None = None
    resource_group: Text | None = None
    subscription_id: Text | None = None


class VirtualMachineRequest(_VirtualMachineFields):
    """Declare one virtual machine; the keys are those of the fleet file."""

    name: Text
    tags: dict[Text, Text] | None = None
    labels: dict[Text, Text] | None = None
    profile: dict[Text, Text] | None = None


class VirtualMachinePatch(_VirtualMachineFields):
    """Change the named fields of a virtual machine; null clears one (JSON merge patch)."""

    tags: dict[Text, Text | None] | None = None
    labels: dict[Text, Text | None] | None = None
    profile: dict[Text, Text | None] | None = None


class HostPatch(_Request):
    """Change the named labels of a host; null removes one (JSON merge patch)."""

    labels: dict[Text, Text | None] | None = None


class ScopePatch(_PolicyFields):
    """Change the named settings of a scope; null resets one (JSON merge patch)."""


class AdvanceRequest(_Request):
    """Let time pass."""

    duration: Annotated[StrictStr, Field(max_length=64)]


class FaultRequest(_Request):
    """Misbehave towards a virtual machine; which of these belong to which kind is documented."""

    times: StrictInt | None = None
    seconds: StrictInt | StrictFloat | None = None
    status: StrictInt | None = None
    retry_after: StrictInt | None = None
    event_type: Text | None = None


class ApprovalView(View):
    """Somebody's word that an event may start."""

    approver: Approver
    name: str
    approved_at: datetime


class EventView(View):
    """One event."""

    event_id: str
    event_type: EventType
    event_source: EventSource
    event_status: EventStatus
    scope_id: str
    update_domain: int
    resources: tuple[str, ...]
    description: str
    duration_in_seconds: int | None
    maintenance_id: str | None
    host: str | None
    operation_id: str | None
    created_at: datetime
    not_before: datetime
    first_not_before: datetime
    is_announced: bool
    is_published: bool
    approvals: tuple[ApprovalView, ...]
    started_at: datetime | None
    overdue_at: datetime | None
    ended_at: datetime | None
    outcome: Outcome | None
    reason: str


class LedgerView(View):
    """One line in the life of an event."""

    at: datetime
    what: str
    who: str
    where: str
    detail: str


class EventDetailView(EventView):
    """One event with its life so far."""

    ledger: tuple[LedgerView, ...]


class EventsView(View):
    """Several events, in the order of their creation."""

    events: tuple[EventView, ...]


class FieldDifferenceView(View):
    """One key of an entry with its values; null where it has none."""

    field: str
    before: JsonValue
    after: JsonValue


class DifferenceView(View):
    """One entry that is added, changed or removed, in the words of the fleet file."""

    table: str
    name: str
    alteration: Alteration
    fields: tuple[FieldDifferenceView, ...]


class SkippedEntryView(View):
    """A virtual machine or a host that was left as it is, and why."""

    vm: str | None
    host: str | None
    reason: str
    event_ids: tuple[str, ...]


class FleetChangeView(View):
    """What a declaration changed, and the virtual machines it added, changed and removed."""

    added: tuple[str, ...]
    changed_scopes: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    skipped: tuple[SkippedEntryView, ...]
    needed_removals: Annotated[
        int, Field(description="The minimum for allow_removals; 0 if it is not needed.")
    ]
    undeclared_hosts: Annotated[
        tuple[str, ...],
        Field(description="New hosts that are not among the hosts that the fleet declares."),
    ]
    differences: tuple[DifferenceView, ...]


class VirtualMachineView(View):
    """One virtual machine and its place in the fleet."""

    name: str
    scope_id: str
    scope_kind: ScopeKind
    scope_name: str
    placement_group: str | None
    update_domain: int
    fault_domain: int
    host: str | None
    addresses: tuple[str, ...]
    vm_id: str
    role: str | None
    zone: str
    location: str
    resource_group: str
    subscription_id: str
    tags: Mapping[str, str]
    labels: Mapping[str, str]
    profile: Mapping[str, str]
    last_polled_at: datetime | None


class VirtualMachinesView(View):
    """Every virtual machine, in fleet order."""

    virtual_machines: tuple[VirtualMachineView, ...]


class ClockJumpView(View):
    """A jump of the server's clock: forward, or back if *seconds* is negative."""

    at: datetime
    seconds: float


class ClockView(View):
    """Maintenance time, and the last jumps of the real clock since the server started."""

    kind: str
    now: datetime
    jumps: tuple[ClockJumpView, ...] = ()


class FaultView(View):
    """One fault of a virtual machine, with the times it has left."""

    vm: str
    kind: FaultKind
    times: int | None
    seconds: float | None
    status: int | None
    retry_after: int | None
    event_type: str | None


class FaultsView(View):
    """Several faults, by virtual machine."""

    faults: tuple[FaultView, ...]


class HealthView(View):
    """How the server is."""

    status: str


class ReadinessView(HealthView):
    """Whether the server answers polls, and which of its loops have died and wait for a restart."""

    failing: tuple[str, ...]


class ProblemDocument(BaseModel):
    """A refusal (RFC 9457); some have further members that say what it is about."""

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
    return EventsView(events=tuple(map(event_view, events)))


def event_detail_view(event: ScheduledEvent, ledger: tuple[LedgerEntry, ...]) -> EventDetailView:
    """Return *event* with its *ledger*."""
    return EventDetailView(
        **event_view(event).model_dump(),
        ledger=tuple(map(LedgerView.model_validate, ledger)),
    )
