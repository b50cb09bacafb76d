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
    String,
    Table,
)

from forewarn.domain.event import Happening, Outcome
from forewarn.domain.host_operation import HostPhase, OperationOutcome
from forewarn.domain.maintenance import MaintenanceOutcome
from forewarn.domain.notification import NotificationStatus, Phase
from forewarn.domain.policy import ApprovalPolicy
from forewarn.domain.roles import Role
from forewarn.domain.task import TaskState
from forewarn.domain.topology import ScopeKind
from forewarn.ports.entries import Actor
from forewarn.protocol.vocabulary import EventSource, EventStatus, EventType
from forewarn.storage.columns import (
    Approvals,
    CourseColumn,
    Duration,
    EventGroups,
    HintColumn,
    Labels,
    MomentColumn,
    Names,
    Occurrences,
    OrderColumn,
    Published,
    RecurrenceColumn,
    Resolutions,
    Said,
    Timeline,
    WholeNumber,
    Word,
    key,
    numbered,
    optional,
    required,
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

settings: Final = Table("settings", metadata, key("name"), *required(String, "value"))

delivery_scopes: Final = Table(
    "delivery_scopes",
    metadata,
    key("scope_id"),
    *required(WholeNumber, "position"),
    *required(Word(ScopeKind), "kind"),
    *required(String, "name"),
    *optional(String, "placement_group"),
    *required(Integer, "update_domains fault_domains"),
    *required(Word(ApprovalPolicy), "approval"),
    *required(Duration, "postpone_until"),
    *required(Boolean, "auto_approve_user"),
    *optional(Duration, "terminate_notice notice"),
)

hosts: Final = Table(
    "hosts",
    metadata,
    key("name"),
    *required(WholeNumber, "position"),
    *required(Labels, "labels"),
    *optional(MomentColumn, "closed_at"),
    *optional(String, "closed_by closed_reason"),
)

virtual_machines: Final = Table(
    "virtual_machines",
    metadata,
    key("name"),
    *required(WholeNumber, "position"),
    Column("scope_id", ForeignKey(delivery_scopes.c.scope_id), nullable=False, index=True),
    *required(Integer, "update_domain fault_domain"),
    Column("host", ForeignKey(hosts.c.name), index=True),
    *required(Names, "addresses"),
    *required(String, "vm_id zone location resource_group subscription_id"),
    *required(Labels, "tags labels"),
    *optional(Labels, "profile"),
)

# History outlives the fleet: an event keeps the names of scopes and machines that are gone.
events: Final = Table(
    "events",
    metadata,
    *numbered("event_id"),
    *required(Word(EventType), "event_type"),
    *required(Word(EventSource), "event_source"),
    *required(Word(EventStatus), "event_status"),
    *required(String, "scope_id"),
    *required(Integer, "update_domain"),
    *required(Names, "resources"),
    *required(String, "description"),
    *optional(WholeNumber, "duration_in_seconds"),
    Column("maintenance_id", String, index=True),
    *optional(String, "host"),
    *required(MomentColumn, "created_at not_before first_not_before"),
    *required(Boolean, "is_announced is_published"),
    *required(Approvals, "approvals"),
    *optional(MomentColumn, "started_at ended_at"),
    *optional(Word(Outcome), "outcome"),
    *required(String, "reason"),
    *optional(Duration, "simulated_duration"),
    *optional(MomentColumn, "overdue_at"),
    *optional(String, "operation_id"),
    Index(None, "event_status", "scope_id"),
)

# Every document that was ever shown; a scope's newest is its current one. Rows stay when a scope
# is removed, so that a scope of the same name goes on above the last incarnation.
documents: Final = Table(
    "documents",
    metadata,
    key("scope_id"),
    key("document_incarnation", WholeNumber),
    *required(MomentColumn, "published_at"),
    *required(Published, "body"),
)

# Who read which documents: what it takes to tell what a virtual machine could read at a moment.
# Names are kept as they compare, in any case.
memberships: Final = Table(
    "memberships",
    metadata,
    key("vm"),
    key("since", MomentColumn),
    *optional(String, "scope_id"),
)

# From when on it was really served: a commit takes a while after the moment it is stamped with.
showings: Final = Table(
    "showings", metadata, key("recorded_at", MomentColumn), *required(MomentColumn, "shown_at")
)

polls: Final = Table("polls", metadata, key("scope_id"), *required(MomentColumn, "last_polled_at"))

# The same for each virtual machine, by its name as it compares: who listens, for people.
vm_polls: Final = Table("vm_polls", metadata, key("vm"), *required(MomentColumn, "last_polled_at"))

soaks: Final = Table("soaks", metadata, key("scope_id"), *required(MomentColumn, "until"))

ledger: Final = Table(
    "ledger",
    metadata,
    key("sequence", WholeNumber),
    Column("event_id", String, nullable=False, index=True),
    *required(MomentColumn, "at"),
    *required(Word(Happening), "what"),
    *required(String, "who detail"),
    Column("where", String, nullable=False, server_default=""),
)

audit: Final = Table(
    "audit",
    metadata,
    key("sequence", WholeNumber),
    *required(MomentColumn, "at maintenance_time"),
    *required(String, "who action subject outcome detail"),
    Column("where", String, nullable=False, server_default=""),
    Column("actor", Word(Actor), nullable=False, server_default=Actor.UNKNOWN.value),
)

# A token that was revoked or has expired stays, so that whoever shows it is told which.
tokens: Final = Table(
    "tokens",
    metadata,
    *numbered("token_hash"),
    *required(String, "name"),
    *required(Word(Role), "role"),
    *required(Names, "scopes"),
    *required(MomentColumn, "created_at"),
    *optional(MomentColumn, "expires_at revoked_at last_used_at"),
    *optional(String, "host"),
)

# Browsers that are signed in to the console, and links that sign one in.
sessions: Final = Table(
    "sessions",
    metadata,
    key("session_hash"),
    *required(String, "token_hash name"),
    *required(Boolean, "is_link"),
    *required(MomentColumn, "created_at"),
    Column("used_at", MomentColumn, nullable=False, index=True),
)

kept_answers: Final = Table(
    "kept_answers",
    metadata,
    key("who"),
    key("key"),
    *required(String, "fingerprint"),
    Column("answered_at", MomentColumn, nullable=False, index=True),
    *required(String, "body"),
)

maintenances: Final = Table(
    "maintenances",
    metadata,
    *numbered("maintenance_id"),
    *required(Word(EventType), "event_type"),
    *required(String, "description"),
    *optional(WholeNumber, "duration_in_seconds"),
    *required(Names, "resources hosts"),
    *required(Boolean, "is_paused is_aborted"),
    Column("finished_at", MomentColumn, index=True),
    Column("course", CourseColumn, nullable=False, server_default="{}"),
    Column("started_at", MomentColumn, nullable=False, server_default="0"),
    *optional(MomentColumn, "resumed_at"),
    Column("schedule", String, nullable=False, server_default=""),
    Column("resolutions", Resolutions, nullable=False, server_default="{}"),
    *optional(Word(MaintenanceOutcome), "outcome"),
)

host_operations: Final = Table(
    "host_operations",
    metadata,
    *numbered("operation_id"),
    Column("maintenance_id", String, nullable=False, index=True),
    *required(Word(EventType), "event_type"),
    *required(String, "host"),
    *required(MomentColumn, "created_at"),
    *required(Word(HostPhase), "phase"),
    *required(Integer, "attempt"),
    *optional(MomentColumn, "verify_at verify_by ended_at"),
    *optional(Word(OperationOutcome), "outcome"),
    *required(String, "reason"),
)

# What is done outside, and how far it is. The key is what keeps a task from beginning twice.
tasks: Final = Table(
    "tasks",
    metadata,
    key("subject"),
    key("name"),
    *optional(String, "vm host"),
    *required(String, "runner"),
    *required(Word(TaskState), "state"),
    *required(String, "node"),
    *required(WholeNumber, "assignment epoch"),
    *required(Said, "said"),
    *required(MomentColumn, "reserved_at"),
    *optional(MomentColumn, "begun_at heard_at ended_at closed_at"),
    *required(JSON, "details"),
    Index(None, "closed_at"),
    Index(None, "node", "state"),
)

# The state directories of servers, which own tasks, each with the number of its last start.
owners: Final = Table(
    "owners",
    metadata,
    key("node"),
    *required(String, "name"),
    *required(WholeNumber, "generation"),
    *required(MomentColumn, "heard_at"),
)

scenario_runs: Final = Table(
    "scenario_runs",
    metadata,
    *numbered("run_id"),
    *required(String, "name"),
    *required(Names, "resources"),
    *required(MomentColumn, "began_at"),
    *required(Float, "speed"),
    *required(Timeline, "steps"),
    *required(Integer, "steps_done"),
    *required(EventGroups, "events"),
    *required(Boolean, "is_stopped"),
    Column("finished_at", MomentColumn, index=True),
)

schedules: Final = Table(
    "schedules",
    metadata,
    *numbered("name"),
    *required(OrderColumn, "order"),
    *required(RecurrenceColumn, "every"),
    *required(Date, "from_date"),
    *optional(Date, "until_date"),
    *required(MomentColumn, "created_at met_until"),
    *required(Boolean, "is_paused"),
    *optional(String, "maintenance_id"),
    *required(Occurrences, "occurrences"),
)

# What people know of a Maintenance, so that they are told once.
told: Final = Table(
    "told",
    metadata,
    key("maintenance_id"),
    *optional(Word(Phase), "stopped"),
    *required(Names, "gates places"),
)

# Messages that wait, and for a while those that do not.
outbox: Final = Table(
    "outbox",
    metadata,
    *numbered("notification_id"),
    *required(String, "subject"),
    *required(Word(Phase), "phase"),
    *required(String, "target"),
    *required(JSON, "data"),
    *required(MomentColumn, "created_at maintenance_time next_attempt_at"),
    *required(Word(NotificationStatus), "status"),
    *required(Integer, "attempts"),
    *optional(MomentColumn, "ended_at"),
    *required(String, "problem"),
    Index(None, "status", "target", "subject"),
    Index(None, "status", "ended_at"),
)

# What the gates were asked by the leader, and last said, in words of the domain.
gate_answers: Final = Table(
    "gate_answers",
    metadata,
    key("question"),
    *required(JSON, "answer"),
    *required(WholeNumber, "epoch"),
)

# Who leads, and until when by the clock of the database, where replicas share one. *holder* is
# empty where a file lock says so.
leases: Final = Table(
    "leases",
    metadata,
    key("name"),
    *required(WholeNumber, "epoch"),
    Column("holder", String, nullable=False, server_default=""),
    *optional(MomentColumn, "expires_at"),
)

# Where replicas share a database: the one row that whoever writes has locked, and the number of
# the last change; the last changes, for those who did not make them; and who is there. All times
# are by the clock of the database.
write_lock: Final = Table(
    "write_lock", metadata, key("name"), *required(WholeNumber, "last_change")
)

LOCK_ROW: Final = "writer"
"""The name of that row."""

changes: Final = Table(
    "changes",
    metadata,
    key("number", WholeNumber),
    *required(HintColumn, "hint"),
    *required(MomentColumn, "changed_at"),
)

replicas: Final = Table(
    "replicas",
    metadata,
    key("replica_id"),
    *required(String, "name address version"),
    *required(JSON, "settings"),
    *required(MomentColumn, "started_at seen_at"),
    *required(WholeNumber, "last_change"),
    *required(JSON, "findings"),
)
