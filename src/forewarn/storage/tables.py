"""Every table, declared once. The columns are the fields of the domain, under the same names."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

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
from forewarn.domain.topology import ScopeKind
from forewarn.ports.entries import Actor
from forewarn.protocol.versions import PreviewWire
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


def _key(name: str, kind: Any = String) -> Column[Any]:
    """Return a column that is in the primary key; the database numbers only sequences."""
    numbering: Any = "auto" if name == "sequence" else False
    return Column(name, kind, primary_key=True, autoincrement=numbering)


def _numbered(key: str) -> Iterator[Column[Any]]:
    """Yield the columns that keep rows in the order of creation, each with a *key* of its own."""
    yield _key("sequence", WholeNumber)
    yield Column(key, String, nullable=False, unique=True)


def _required(kind: Any, names: str) -> Iterator[Column[Any]]:
    """Yield the columns of *names*, in which every row has something."""
    return (Column(name, kind, nullable=False) for name in names.split())


def _optional(kind: Any, names: str) -> Iterator[Column[Any]]:
    """Yield the columns of *names*, in which a row may have nothing."""
    return (Column(name, kind) for name in names.split())


settings: Final = Table("settings", metadata, _key("name"), *_required(String, "value"))

delivery_scopes: Final = Table(
    "delivery_scopes",
    metadata,
    _key("scope_id"),
    *_required(WholeNumber, "position"),
    *_required(Word(ScopeKind), "kind"),
    *_required(String, "name"),
    *_optional(String, "placement_group"),
    *_required(Integer, "update_domains fault_domains"),
    *_required(Word(ApprovalPolicy), "approval"),
    *_required(Duration, "postpone_until"),
    *_required(Boolean, "auto_approve_user"),
    *_optional(Duration, "terminate_notice notice"),
)

hosts: Final = Table(
    "hosts",
    metadata,
    _key("name"),
    *_required(WholeNumber, "position"),
    *_required(Labels, "labels"),
    *_optional(MomentColumn, "closed_at"),
    *_optional(String, "closed_by closed_reason"),
)

virtual_machines: Final = Table(
    "virtual_machines",
    metadata,
    _key("name"),
    *_required(WholeNumber, "position"),
    Column("scope_id", ForeignKey(delivery_scopes.c.scope_id), nullable=False, index=True),
    *_required(Integer, "update_domain fault_domain"),
    Column("host", ForeignKey(hosts.c.name), index=True),
    *_required(Names, "addresses"),
    *_required(String, "vm_id zone location resource_group subscription_id"),
    *_required(Labels, "tags labels"),
    *_optional(Labels, "profile"),
)

# History outlives the fleet: an event keeps the names of scopes and machines that are gone.
events: Final = Table(
    "events",
    metadata,
    *_numbered("event_id"),
    *_required(Word(EventType), "event_type"),
    *_required(Word(EventSource), "event_source"),
    *_required(Word(EventStatus), "event_status"),
    *_required(String, "scope_id"),
    *_required(Integer, "update_domain"),
    *_required(Names, "resources"),
    *_required(String, "description"),
    *_optional(WholeNumber, "duration_in_seconds"),
    Column("maintenance_id", String, index=True),
    *_optional(String, "host"),
    *_required(MomentColumn, "created_at not_before first_not_before"),
    *_required(Boolean, "is_announced is_published"),
    *_required(Approvals, "approvals"),
    *_optional(MomentColumn, "started_at ended_at"),
    *_optional(Word(Outcome), "outcome"),
    *_required(String, "reason"),
    *_optional(Duration, "simulated_duration"),
    *_optional(MomentColumn, "overdue_at"),
    *_optional(String, "operation_id"),
    Index(None, "event_status", "scope_id"),
)

# Every document that was ever shown; a scope's newest is its current one. Rows stay when a scope
# is removed, so that a scope of the same name goes on above the last incarnation.
documents: Final = Table(
    "documents",
    metadata,
    _key("scope_id"),
    _key("document_incarnation", WholeNumber),
    *_required(MomentColumn, "published_at"),
    *_required(Published, "body"),
)

# Who read which documents, and how the oldest api-version was written: what it takes to tell what
# a virtual machine could read at a moment. Names are kept as they compare, in any case.
memberships: Final = Table(
    "memberships",
    metadata,
    _key("vm"),
    _key("since", MomentColumn),
    *_optional(String, "scope_id"),
)

preview_wires: Final = Table(
    "preview_wires",
    metadata,
    _key("since", MomentColumn),
    *_required(Word(PreviewWire), "preview_wire"),
)

# From when on it was really served: a commit takes a while after the moment it is stamped with.
showings: Final = Table(
    "showings", metadata, _key("recorded_at", MomentColumn), *_required(MomentColumn, "shown_at")
)

polls: Final = Table(
    "polls", metadata, _key("scope_id"), *_required(MomentColumn, "last_polled_at")
)

# The same for each virtual machine, by its name as it compares: who listens, for people.
vm_polls: Final = Table(
    "vm_polls", metadata, _key("vm"), *_required(MomentColumn, "last_polled_at")
)

soaks: Final = Table("soaks", metadata, _key("scope_id"), *_required(MomentColumn, "until"))

ledger: Final = Table(
    "ledger",
    metadata,
    _key("sequence", WholeNumber),
    Column("event_id", String, nullable=False, index=True),
    *_required(MomentColumn, "at"),
    *_required(Word(Happening), "what"),
    *_required(String, "who detail"),
    Column("where", String, nullable=False, server_default=""),
)

audit: Final = Table(
    "audit",
    metadata,
    _key("sequence", WholeNumber),
    *_required(MomentColumn, "at maintenance_time"),
    *_required(String, "who action subject outcome detail"),
    Column("where", String, nullable=False, server_default=""),
    Column("actor", Word(Actor), nullable=False, server_default=Actor.UNKNOWN.value),
)

APPEND_ONLY: Final[Mapping[str, tuple[str, ...]]] = {
    "sqlite": tuple(
        f"CREATE TRIGGER {table.name}_refuses_{verb} BEFORE {verb} ON {table.name} "
        f"BEGIN SELECT RAISE(ABORT, '{table.name} is append-only'); END"
        for table in (ledger, audit)
        for verb in ("update", "delete")
    ),
    "postgresql": (
        """CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE restrict_violation USING MESSAGE = TG_TABLE_NAME || ' is append-only';
        END $$""",
        *(
            f"CREATE TRIGGER {table.name}_refuses_change "
            f"BEFORE UPDATE OR DELETE OR TRUNCATE ON {table.name} EXECUTE FUNCTION refuse_change()"
            for table in (ledger, audit)
        ),
    ),
}
"""What keeps the records as they were written, whoever has the database open, by engine."""

# A token that was revoked or has expired stays, so that whoever shows it is told which.
tokens: Final = Table(
    "tokens",
    metadata,
    *_numbered("token_hash"),
    *_required(String, "name"),
    *_required(Word(Role), "role"),
    *_required(Names, "scopes"),
    *_required(MomentColumn, "created_at"),
    *_optional(MomentColumn, "expires_at revoked_at last_used_at"),
)

kept_answers: Final = Table(
    "kept_answers",
    metadata,
    _key("who"),
    _key("key"),
    *_required(String, "fingerprint"),
    Column("answered_at", MomentColumn, nullable=False, index=True),
    *_required(String, "body"),
)

maintenances: Final = Table(
    "maintenances",
    metadata,
    *_numbered("maintenance_id"),
    *_required(Word(EventType), "event_type"),
    *_required(String, "description"),
    *_optional(WholeNumber, "duration_in_seconds"),
    *_required(Names, "resources hosts"),
    *_required(Boolean, "is_paused is_aborted"),
    Column("finished_at", MomentColumn, index=True),
    Column("course", CourseColumn, nullable=False, server_default="{}"),
    Column("started_at", MomentColumn, nullable=False, server_default="0"),
    *_optional(MomentColumn, "resumed_at"),
    Column("schedule", String, nullable=False, server_default=""),
    Column("resolutions", Resolutions, nullable=False, server_default="{}"),
    *_optional(Word(MaintenanceOutcome), "outcome"),
)

host_operations: Final = Table(
    "host_operations",
    metadata,
    *_numbered("operation_id"),
    Column("maintenance_id", String, nullable=False, index=True),
    *_required(Word(EventType), "event_type"),
    *_required(String, "host"),
    *_required(MomentColumn, "created_at"),
    *_required(Word(HostPhase), "phase"),
    *_required(Integer, "attempt"),
    *_optional(MomentColumn, "verify_at verify_by ended_at"),
    *_optional(Word(OperationOutcome), "outcome"),
    *_required(String, "reason"),
)

scenario_runs: Final = Table(
    "scenario_runs",
    metadata,
    *_numbered("run_id"),
    *_required(String, "name"),
    *_required(Names, "resources"),
    *_required(MomentColumn, "began_at"),
    *_required(Float, "speed"),
    *_required(Timeline, "steps"),
    *_required(Integer, "steps_done"),
    *_required(EventGroups, "events"),
    *_required(Boolean, "is_stopped"),
    Column("finished_at", MomentColumn, index=True),
)

schedules: Final = Table(
    "schedules",
    metadata,
    *_numbered("name"),
    *_required(OrderColumn, "order"),
    *_required(RecurrenceColumn, "every"),
    *_required(Date, "from_date"),
    *_optional(Date, "until_date"),
    *_required(MomentColumn, "created_at met_until"),
    *_required(Boolean, "is_paused"),
    *_optional(String, "maintenance_id"),
    *_required(Occurrences, "occurrences"),
)

# What people know of a Maintenance, so that they are told once.
told: Final = Table(
    "told",
    metadata,
    _key("maintenance_id"),
    *_optional(Word(Phase), "stopped"),
    *_required(Names, "gates places"),
)

# Messages that wait, and for a while those that do not.
outbox: Final = Table(
    "outbox",
    metadata,
    *_numbered("notification_id"),
    *_required(String, "subject"),
    *_required(Word(Phase), "phase"),
    *_required(String, "target"),
    *_required(JSON, "data"),
    *_required(MomentColumn, "created_at maintenance_time next_attempt_at"),
    *_required(Word(NotificationStatus), "status"),
    *_required(Integer, "attempts"),
    *_optional(MomentColumn, "ended_at"),
    *_required(String, "problem"),
    Index(None, "status", "target", "subject"),
    Index(None, "status", "ended_at"),
)

# The key is what keeps an impact from beginning twice.
simulated_impacts: Final = Table(
    "simulated_impacts",
    metadata,
    _key("event_id"),
    _key("vm"),
    *_required(MomentColumn, "ends_at"),
    *_required(String, "failure"),
)

# What the leader was last told, in words of the domain; *kind* is the field of `Knowledge`. What
# may have begun was reserved on *node*, where whoever led then has its files: an empty name if it
# shares the database with nobody, and none if it was not reserved.
knowledge: Final = Table(
    "knowledge",
    metadata,
    _key("kind"),
    _key("about"),
    *_required(JSON, "said"),
    *_required(WholeNumber, "epoch"),
    Column("node", String, server_default=""),
)

# Who leads, and until when by the clock of the database, where replicas share one. *holder* is
# empty where a file lock says so.
leases: Final = Table(
    "leases",
    metadata,
    _key("name"),
    *_required(WholeNumber, "epoch"),
    Column("holder", String, nullable=False, server_default=""),
    *_optional(MomentColumn, "expires_at"),
)

# Where replicas share a database: the one row that whoever writes has locked, and the number of
# the last change; the last changes, for those who did not make them; and who is there. All times
# are by the clock of the database.
write_lock: Final = Table(
    "write_lock", metadata, _key("name"), *_required(WholeNumber, "last_change")
)

changes: Final = Table(
    "changes",
    metadata,
    _key("number", WholeNumber),
    *_required(HintColumn, "hint"),
    *_required(MomentColumn, "changed_at"),
)

replicas: Final = Table(
    "replicas",
    metadata,
    _key("replica_id"),
    *_required(String, "name address version"),
    *_required(JSON, "settings"),
    *_required(MomentColumn, "started_at seen_at"),
    *_required(WholeNumber, "last_change"),
)
