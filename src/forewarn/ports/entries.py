"""The lines and rows that a store keeps besides the things of the domain."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeAlias

from forewarn.domain.event import Happening, Outcome
from forewarn.domain.names import HostName, MaintenanceId, ScopeId, VmName
from forewarn.domain.notification import NotificationStatus
from forewarn.protocol.vocabulary import EventId, EventStatus, EventType

DONE: Final = "done"
REFUSED: Final = "refused"
"""The outcomes of an audit entry."""


class Actor(StrEnum):
    """What kind of actor is answerable; names alone do not tell, as a machine may be an `admin`."""

    OPERATOR = "operator"
    VIRTUAL_MACHINE = "vm"
    SERVER = "server"
    SCHEDULER = "scheduler"
    UNKNOWN = "unknown"


class History(StrEnum):
    """What is forgotten when it is older than `history_retention`, in this order.

    Events of a Maintenance go after it, with their lines of the ledger.
    """

    MAINTENANCES = "maintenances"
    EVENTS = "events"
    HOST_OPERATIONS = "host operations"
    SCENARIO_RUNS = "scenario runs"
    AUDIT = "audit"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One line in the life of an event."""

    event_id: EventId
    at: datetime
    what: Happening
    who: str
    where: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLine:
    """One line of the ledger of all events, with its place in it and the event it is about.

    *outcome* is how the event has ended by now, and None before that.
    """

    sequence: int
    event_id: EventId
    event_type: EventType
    scope_id: ScopeId
    resources: tuple[VmName, ...]
    maintenance_id: MaintenanceId | None
    host: HostName | None
    outcome: Outcome | None
    at: datetime
    what: Happening
    who: str
    where: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Whose document a virtual machine reads from a moment on; nobody's once it has left."""

    vm: VmName
    since: datetime
    scope_id: ScopeId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Showing:
    """What is recorded from a moment on was served from a later one on, as a commit takes time."""

    recorded_at: datetime
    shown_at: datetime


DocumentKey: TypeAlias = tuple[ScopeId, int]
"""A scope and a DocumentIncarnation."""

MembershipKey: TypeAlias = tuple[VmName, datetime]
"""A virtual machine and since when it reads somebody's document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One change, or one refusal, and who is answerable for it."""

    at: datetime
    maintenance_time: datetime
    who: str
    actor: Actor = Actor.UNKNOWN
    where: str = ""
    action: str
    subject: str
    outcome: str = DONE
    detail: str = ""
    sequence: int = field(default=0, compare=False)
    """Its place in the audit, once it is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAnswer:
    """What a request with an Idempotency-Key was answered, for when it comes again."""

    who: str
    key: str
    fingerprint: str
    answered_at: datetime
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How much there is of what may wait, and which lease epoch it is."""

    events_in_flight: Mapping[tuple[EventType, EventStatus], int]
    events_overdue: int
    notifications: Mapping[NotificationStatus, int]
    waiting_since: datetime | None
    """When the oldest message that waits was written."""
    epoch: int
