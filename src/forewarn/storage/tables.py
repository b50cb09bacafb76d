"""Every table, declared once. The columns are the fields of the domain, under the same names."""

from typing import Final

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Date,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
)

from forewarn.domain.event import Happening, Outcome
from forewarn.domain.host_operation import HostPhase, OperationOutcome
from forewarn.domain.maintenance import MaintenanceOutcome
from forewarn.domain.notification import NotificationStatus, Phase
from forewarn.domain.policy import ApprovalPolicy
from forewarn.domain.roles import Role
from forewarn.domain.topology import ScopeKind
from forewarn.ports.entries import Actor
from forewarn.protocol.versions import PreviewWire
from forewarn.protocol.vocabulary import EventSource, EventStatus, EventType
from forewarn.storage.columns import (
    Approvals,
    CourseColumn,
    Duration,
    EventGroups,
    Labels,
    MomentColumn,
    Names,
    Occurrences,
    OrderColumn,
    Published,
    RecurrenceColumn,
    Resolutions,
    Timeline,
    WholeNumber,
    Word,
)

# Constraints have names of their own, so that a later migration can address them.
metadata: Final = MetaData(
    naming_convention={
        "ix": "%(table_name)s_by_%(column_0_N_name)s",
        "uq": "%(table_name)s_unique_%(column_0_N_name)s",
        "fk": "%(table_name)s_%(column_0_N_name)s_exists",
        "pk": "%(table_name)s_key",
    }
)

settings: Final = Table(
    "settings",
    metadata,
    Column("name", String, primary_key=True),
    Column("value", String, nullable=False),
)

delivery_scopes: Final = Table(
    "delivery_scopes",
    metadata,
    Column("scope_id", String, primary_key=True),
    Column("position", WholeNumber, nullable=False),
    Column("kind", Word(ScopeKind), nullable=False),
    Column("name", String, nullable=False),
    Column("placement_group", String),
    Column("update_domains", Integer, nullable=False),
    Column("fault_domains", Integer, nullable=False),
    Column("approval", Word(ApprovalPolicy), nullable=False),
    Column("postpone_until", Duration, nullable=False),
    Column("auto_approve_user", Boolean, nullable=False),
    Column("terminate_notice", Duration),
    Column("notice", Duration),
)

hosts: Final = Table(
    "hosts",
    metadata,
    Column("name", String, primary_key=True),
    Column("position", WholeNumber, nullable=False),
    Column("labels", Labels, nullable=False),
    Column("closed_at", MomentColumn),
    Column("closed_by", String),
    Column("closed_reason", String),
)

virtual_machines: Final = Table(
    "virtual_machines",
    metadata,
    Column("name", String, primary_key=True),
    Column("position", WholeNumber, nullable=False),
    Column("scope_id", ForeignKey(delivery_scopes.c.scope_id), nullable=False, index=True),
    Column("update_domain", Integer, nullable=False),
    Column("fault_domain", Integer, nullable=False),
    Column("host", ForeignKey(hosts.c.name), index=True),
    Column("addresses", Names, nullable=False),
    Column("vm_id", String, nullable=False),
    Column("zone", String, nullable=False),
    Column("location", String, nullable=False),
    Column("resource_group", String, nullable=False),
    Column("subscription_id", String, nullable=False),
    Column("tags", Labels, nullable=False),
    Column("labels", Labels, nullable=False),
    Column("profile", Labels),
)

# History outlives the fleet: an event keeps the names of scopes and machines that are gone.
events: Final = Table(
    "events",
    metadata,
    Column("sequence", WholeNumber, primary_key=True),
    Column("event_id", String, nullable=False, unique=True),
    Column("event_type", Word(EventType), nullable=False),
    Column("event_source", Word(EventSource), nullable=False),
    Column("event_status", Word(EventStatus), nullable=False),
    Column("scope_id", String, nullable=False),
    Column("update_domain", Integer, nullable=False),
    Column("resources", Names, nullable=False),
    Column("description", String, nullable=False),
    Column("duration_in_seconds", WholeNumber),
    Column("maintenance_id", String, index=True),
    Column("host", String),
    Column("created_at", MomentColumn, nullable=False),
    Column("not_before", MomentColumn, nullable=False),
    Column("first_not_before", MomentColumn, nullable=False),
    Column("is_announced", Boolean, nullable=False),
    Column("is_published", Boolean, nullable=False),
    Column("approvals", Approvals, nullable=False),
    Column("started_at", MomentColumn),
    Column("ended_at", MomentColumn),
    Column("outcome", Word(Outcome)),
    Column("reason", String, nullable=False),
    Column("simulated_duration", Duration),
    Column("overdue_at", MomentColumn),
    Column("operation_id", String),
    Index(None, "event_status", "scope_id"),
)

# Every document that was ever shown; a scope's newest is its current one. Rows stay when a scope
# is removed, so that a scope of the same name goes on above the last incarnation.
documents: Final = Table(
    "documents",
    metadata,
    Column("scope_id", String, nullable=False),
    Column("document_incarnation", WholeNumber, nullable=False),
    Column("published_at", MomentColumn, nullable=False),
    Column("body", Published, nullable=False),
    PrimaryKeyConstraint("scope_id", "document_incarnation"),
)

# Who read which documents, and how the oldest api-version was written: what it takes to tell what
# a virtual machine could read at a moment. Names are kept as they compare, in any case.
memberships: Final = Table(
    "memberships",
    metadata,
    Column("vm", String, nullable=False),
    Column("since", MomentColumn, nullable=False),
    Column("scope_id", String),
    PrimaryKeyConstraint("vm", "since"),
)

preview_wires: Final = Table(
    "preview_wires",
    metadata,
    Column("since", MomentColumn, primary_key=True),
    Column("preview_wire", Word(PreviewWire), nullable=False),
)

# From when on it was really served: a commit takes a while after the moment it is stamped with.
showings: Final = Table(
    "showings",
    metadata,
    Column("recorded_at", MomentColumn, primary_key=True),
    Column("shown_at", MomentColumn, nullable=False),
)

polls: Final = Table(
    "polls",
    metadata,
    Column("scope_id", String, primary_key=True),
    Column("last_polled_at", MomentColumn, nullable=False),
)

# The same for each virtual machine, by its name as it compares: who listens, for people.
vm_polls: Final = Table(
    "vm_polls",
    metadata,
    Column("vm", String, primary_key=True),
    Column("last_polled_at", MomentColumn, nullable=False),
)

soaks: Final = Table(
    "soaks",
    metadata,
    Column("scope_id", String, primary_key=True),
    Column("until", MomentColumn, nullable=False),
)

ledger: Final = Table(
    "ledger",
    metadata,
    Column("sequence", WholeNumber, primary_key=True),
    Column("event_id", String, nullable=False, index=True),
    Column("at", MomentColumn, nullable=False),
    Column("what", Word(Happening), nullable=False),
    Column("who", String, nullable=False),
    Column("detail", String, nullable=False),
    Column("where", String, nullable=False, server_default=""),
)

audit: Final = Table(
    "audit",
    metadata,
    Column("sequence", WholeNumber, primary_key=True),
    Column("at", MomentColumn, nullable=False),
    Column("maintenance_time", MomentColumn, nullable=False),
    Column("who", String, nullable=False),
    Column("action", String, nullable=False),
    Column("subject", String, nullable=False),
    Column("outcome", String, nullable=False),
    Column("detail", String, nullable=False),
    Column("where", String, nullable=False, server_default=""),
    Column("actor", Word(Actor), nullable=False, server_default=Actor.UNKNOWN.value),
)

APPEND_ONLY: Final = tuple(
    f"CREATE TRIGGER {table.name}_refuses_{verb} BEFORE {verb} ON {table.name} "
    f"BEGIN SELECT RAISE(ABORT, '{table.name} is append-only'); END"
    for table in (ledger, audit)
    for verb in ("update", "delete")
)
"""What keeps the records as they were written, whoever has the database open."""

# A token that was revoked or has expired stays, so that whoever shows it is told which.
tokens: Final = Table(
    "tokens",
    metadata,
    Column("sequence", WholeNumber, primary_key=True),
    Column("token_hash", String, nullable=False, unique=True),
    Column("name", String, nullable=False),
    Column("role", Word(Role), nullable=False),
    Column("scopes", Names, nullable=False),
    Column("created_at", MomentColumn, nullable=False),
    Column("expires_at", MomentColumn),
    Column("revoked_at", MomentColumn),
    Column("last_used_at", MomentColumn),
)

kept_answers: Final = Table(
    "kept_answers",
    metadata,
    Column("who", String, nullable=False),
    Column("key", String, nullable=False),
    Column("fingerprint", String, nullable=False),
    Column("answered_at", MomentColumn, nullable=False, index=True),
    Column("body", String, nullable=False),
    PrimaryKeyConstraint("who", "key"),
)

maintenances: Final = Table(
    "maintenances",
    metadata,
    Column("sequence", WholeNumber, primary_key=True),
    Column("maintenance_id", String, nullable=False, unique=True),
    Column("event_type", Word(EventType), nullable=False),
    Column("description", String, nullable=False),
    Column("duration_in_seconds", WholeNumber),
    Column("resources", Names, nullable=False),
    Column("hosts", Names, nullable=False),
    Column("is_paused", Boolean, nullable=False),
    Column("is_aborted", Boolean, nullable=False),
    Column("finished_at", MomentColumn, index=True),
    Column("course", CourseColumn, nullable=False, server_default="{}"),
    Column("started_at", MomentColumn, nullable=False, server_default="0"),
    Column("resumed_at", MomentColumn),
    Column("schedule", String, nullable=False, server_default=""),
    Column("resolutions", Resolutions, nullable=False, server_default="{}"),
    Column("outcome", Word(MaintenanceOutcome)),
)

host_operations: Final = Table(
    "host_operations",
    metadata,
    Column("sequence", WholeNumber, primary_key=True),
    Column("operation_id", String, nullable=False, unique=True),
    Column("maintenance_id", String, nullable=False, index=True),
    Column("event_type", Word(EventType), nullable=False),
    Column("host", String, nullable=False),
    Column("created_at", MomentColumn, nullable=False),
    Column("phase", Word(HostPhase), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("verify_at", MomentColumn),
    Column("verify_by", MomentColumn),
    Column("ended_at", MomentColumn),
    Column("outcome", Word(OperationOutcome)),
    Column("reason", String, nullable=False),
)

scenario_runs: Final = Table(
    "scenario_runs",
    metadata,
    Column("sequence", WholeNumber, primary_key=True),
    Column("run_id", String, nullable=False, unique=True),
    Column("name", String, nullable=False),
    Column("resources", Names, nullable=False),
    Column("began_at", MomentColumn, nullable=False),
    Column("speed", Float, nullable=False),
    Column("steps", Timeline, nullable=False),
    Column("steps_done", Integer, nullable=False),
    Column("events", EventGroups, nullable=False),
    Column("is_stopped", Boolean, nullable=False),
    Column("finished_at", MomentColumn, index=True),
)

schedules: Final = Table(
    "schedules",
    metadata,
    Column("sequence", WholeNumber, primary_key=True),
    Column("name", String, nullable=False, unique=True),
    Column("order", OrderColumn, nullable=False),
    Column("every", RecurrenceColumn, nullable=False),
    Column("from_date", Date, nullable=False),
    Column("until_date", Date),
    Column("created_at", MomentColumn, nullable=False),
    Column("met_until", MomentColumn, nullable=False),
    Column("is_paused", Boolean, nullable=False),
    Column("maintenance_id", String),
    Column("occurrences", Occurrences, nullable=False),
)

# What people know of a Maintenance, so that they are told once.
told: Final = Table(
    "told",
    metadata,
    Column("maintenance_id", String, primary_key=True),
    Column("stopped", Word(Phase)),
    Column("gates", Names, nullable=False),
    Column("places", Names, nullable=False),
)

# Messages that wait, and for a while those that do not.
outbox: Final = Table(
    "outbox",
    metadata,
    Column("sequence", WholeNumber, primary_key=True),
    Column("notification_id", String, nullable=False, unique=True),
    Column("subject", String, nullable=False),
    Column("phase", Word(Phase), nullable=False),
    Column("target", String, nullable=False),
    Column("data", JSON, nullable=False),
    Column("created_at", MomentColumn, nullable=False),
    Column("maintenance_time", MomentColumn, nullable=False),
    Column("next_attempt_at", MomentColumn, nullable=False),
    Column("status", Word(NotificationStatus), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("ended_at", MomentColumn),
    Column("problem", String, nullable=False),
    Index(None, "status", "target", "subject"),
    Index(None, "status", "ended_at"),
)

# The key is what keeps an impact from beginning twice.
simulated_impacts: Final = Table(
    "simulated_impacts",
    metadata,
    Column("event_id", String, nullable=False),
    Column("vm", String, nullable=False),
    Column("ends_at", MomentColumn, nullable=False),
    Column("failure", String, nullable=False),
    PrimaryKeyConstraint("event_id", "vm"),
)

# What the leader was last told, in words of the domain; *kind* is the field of `Knowledge`. A row
# of what has not begun reserves it for the leader of that epoch.
knowledge: Final = Table(
    "knowledge",
    metadata,
    Column("kind", String, nullable=False),
    Column("about", String, nullable=False),
    Column("said", JSON, nullable=False),
    Column("epoch", WholeNumber, nullable=False),
    PrimaryKeyConstraint("kind", "about"),
)

leases: Final = Table(
    "leases",
    metadata,
    Column("name", String, primary_key=True),
    Column("epoch", WholeNumber, nullable=False),
)
