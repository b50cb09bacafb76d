"""The plan for one impact: all that its steward knows, in the file of the task."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from forewarn.protocol.vocabulary import EventId, EventType


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlace:
    """A host that guests can be on, and where its libvirt and its migrations are."""

    host: str
    uri: str
    migrate_uri: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpactPlan:
    """All that is to be known of one impact.

    *others* are the hosts that the guest may be moved to, *barred* those that it may not, and why.
    """

    event_id: EventId
    event_type: EventType
    epoch: int
    vm: str
    vm_id: str
    here: HostPlace
    duration: timedelta
    grace: timedelta
    timeout: timedelta
    connect_timeout: timedelta
    migrate: bool = False
    unsafe_migration: bool = False
    ephemeral: tuple[str, ...] = ()
    others: tuple[HostPlace, ...] = ()
    barred: Mapping[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        """The host it was on when the impact began."""
        return self.here.host

    @property
    def moves(self) -> bool:
        """Whether the guest goes to another host."""
        return is_move(self.event_type, migrate=self.migrate)

    @property
    def suspends(self) -> bool:
        """Whether the guest is suspended, and has to be resumed."""
        return self.event_type is EventType.FREEZE and not self.migrate

    @property
    def limit(self) -> timedelta:
        """How long all of it may take. A guest is never left suspended for want of time."""
        return max(self.timeout, self.duration + self.connect_timeout)


def is_move(event_type: EventType, *, migrate: bool) -> bool:
    """Tell whether an event moves guests to another host."""
    return event_type is EventType.REDEPLOY or (event_type is EventType.FREEZE and migrate)


def encode_plan(plan: ImpactPlan) -> dict[str, object]:
    """Return *plan* in words that JSON has."""
    words = asdict(plan)
    spans = {name: value for name, value in words.items() if isinstance(value, timedelta)}
    return words | {name: span.total_seconds() for name, span in spans.items()}


def read_plan(content: Mapping[str, Any]) -> ImpactPlan:
    """Return the plan that `encode_plan` has made *content* of."""
    spans = ("duration", "grace", "timeout", "connect_timeout")
    return ImpactPlan(
        **{
            **content,
            **{name: timedelta(seconds=content[name]) for name in spans},
            "event_type": EventType(content["event_type"]),
            "here": HostPlace(**content["here"]),
            "ephemeral": tuple(content["ephemeral"]),
            "others": tuple(HostPlace(**each) for each in content["others"]),
        }
    )
