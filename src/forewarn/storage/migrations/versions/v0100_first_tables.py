"""Create every table of the first release, and let nobody rewrite the records."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0100"
down_revision: Final = None

_WHOLE_NUMBER: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_RECORDS: Final = ("ledger", "audit")
_APPEND_ONLY: Final = {
    "sqlite": tuple(
        f"CREATE TRIGGER {table}_refuses_{verb} BEFORE {verb} ON {table} {unless}"
        f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        for table in _RECORDS
        for verb, unless in (
            ("update", ""),
            (
                "delete",
                """WHEN NOT EXISTS (SELECT 1 FROM settings WHERE name = 'history_retention'
                AND CAST(value AS INTEGER) >= 86400 AND OLD.at <
                (CAST(strftime('%s', 'now') AS INTEGER) - CAST(value AS INTEGER)) * 1000000) """,
            ),
        )
    ),
    "postgresql": (
        """CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF TG_OP = 'DELETE' THEN
          IF EXISTS (SELECT FROM settings WHERE name = 'history_retention'
            AND nullif(value, '')::bigint >= 86400 AND OLD.at <
            (floor(extract(epoch FROM now()))::bigint - nullif(value, '')::bigint) * 1000000)
          THEN RETURN OLD; END IF;
        END IF;
        RAISE restrict_violation USING MESSAGE = TG_TABLE_NAME || ' is append-only';
        END $$""",
        *(
            f"CREATE TRIGGER {table}_refuses_{name} "
            f"BEFORE {verbs} ON {table} {each}EXECUTE FUNCTION refuse_change()"
            for table in _RECORDS
            for name, verbs, each in (
                ("change", "UPDATE OR TRUNCATE", ""),
                ("delete", "DELETE", "FOR EACH ROW "),
            )
        ),
    ),
}


def upgrade() -> None:
    """Create the tables, the row that writers lock, and the triggers."""
    _create_settings_and_fleet()
    _create_virtual_machines()
    _create_events()
    _create_documents()
    _create_records()
    _create_access()
    _create_maintenances()
    _create_tasks()
    _create_scenarios()
    _create_notifications()
    _create_replicas()
    for statement in _APPEND_ONLY[op.get_context().dialect.name]:
        op.execute(statement)


def _create_settings_and_fleet() -> None:
    op.create_table(
        "settings",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="settings_key"),
    )
    op.create_table(
        "delivery_scopes",
        sa.Column("scope_id", sa.String(), nullable=False),
        sa.Column("position", _WHOLE_NUMBER, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("placement_group", sa.String(), nullable=True),
        sa.Column("update_domains", sa.Integer(), nullable=False),
        sa.Column("fault_domains", sa.Integer(), nullable=False),
        sa.Column("approval", sa.String(), nullable=False),
        sa.Column("postpone_until", _WHOLE_NUMBER, nullable=False),
        sa.Column("auto_approve_user", sa.Boolean(), nullable=False),
        sa.Column("terminate_notice", _WHOLE_NUMBER, nullable=True),
        sa.Column("notice", _WHOLE_NUMBER, nullable=True),
        sa.PrimaryKeyConstraint("scope_id", name="delivery_scopes_key"),
    )
    op.create_table(
        "hosts",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("position", _WHOLE_NUMBER, nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("closed_at", _WHOLE_NUMBER, nullable=True),
        sa.Column("closed_by", sa.String(), nullable=True),
        sa.Column("closed_reason", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("name", name="hosts_key"),
    )


def _create_virtual_machines() -> None:
    op.create_table(
        "virtual_machines",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("position", _WHOLE_NUMBER, nullable=False),
        sa.Column("scope_id", sa.String(), nullable=False),
        sa.Column("update_domain", sa.Integer(), nullable=False),
        sa.Column("fault_domain", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(), nullable=True),
        sa.Column("addresses", sa.JSON(), nullable=False),
        sa.Column("vm_id", sa.String(), nullable=False),
        sa.Column("zone", sa.String(), nullable=False),
        sa.Column("location", sa.String(), nullable=False),
        sa.Column("resource_group", sa.String(), nullable=False),
        sa.Column("subscription_id", sa.String(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("profile", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("name", name="virtual_machines_key"),
        sa.ForeignKeyConstraint(
            ["scope_id"], ["delivery_scopes.scope_id"], name="virtual_machines_scope_id_exists"
        ),
        sa.ForeignKeyConstraint(["host"], ["hosts.name"], name="virtual_machines_host_exists"),
    )
    op.create_index("virtual_machines_by_host", "virtual_machines", ["host"])
    op.create_index("virtual_machines_by_scope_id", "virtual_machines", ["scope_id"])


def _create_events() -> None:
    op.create_table(
        "events",
        sa.Column("sequence", _WHOLE_NUMBER, nullable=False),
        sa.Column("event_id", sa.String(), nullable=False),
        sa.Column("event_type", sa.String(), nullable=False),
        sa.Column("event_source", sa.String(), nullable=False),
        sa.Column("event_status", sa.String(), nullable=False),
        sa.Column("scope_id", sa.String(), nullable=False),
        sa.Column("update_domain", sa.Integer(), nullable=False),
        sa.Column("resources", sa.JSON(), nullable=False),
        sa.Column("description", sa.String(), nullable=False),
        sa.Column("duration_in_seconds", _WHOLE_NUMBER, nullable=True),
        sa.Column("maintenance_id", sa.String(), nullable=True),
        sa.Column("host", sa.String(), nullable=True),
        sa.Column("created_at", _WHOLE_NUMBER, nullable=False),
        sa.Column("not_before", _WHOLE_NUMBER, nullable=False),
        sa.Column("first_not_before", _WHOLE_NUMBER, nullable=False),
        sa.Column("is_announced", sa.Boolean(), nullable=False),
        sa.Column("is_published", sa.Boolean(), nullable=False),
        sa.Column("approvals", sa.JSON(), nullable=False),
        sa.Column("started_at", _WHOLE_NUMBER, nullable=True),
        sa.Column("ended_at", _WHOLE_NUMBER, nullable=True),
        sa.Column("outcome", sa.String(), nullable=True),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("simulated_duration", _WHOLE_NUMBER, nullable=True),
        sa.Column("overdue_at", _WHOLE_NUMBER, nullable=True),
        sa.Column("operation_id", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("sequence", name="events_key"),
        sa.UniqueConstraint("event_id", name="events_unique_event_id"),
    )
    op.create_index("events_by_event_status_scope_id", "events", ["event_status", "scope_id"])
    op.create_index("events_by_maintenance_id", "events", ["maintenance_id"])


def _create_documents() -> None:
    op.create_table(
        "documents",
        sa.Column("scope_id", sa.String(), nullable=False),
        sa.Column("document_incarnation", _WHOLE_NUMBER, nullable=False),
        sa.Column("published_at", _WHOLE_NUMBER, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("scope_id", "document_incarnation", name="documents_key"),
    )
    op.create_table(
        "memberships",
        sa.Column("vm", sa.String(), nullable=False),
        sa.Column("since", _WHOLE_NUMBER, nullable=False),
        sa.Column("scope_id", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("vm", "since", name="memberships_key"),
    )
    op.create_table(
        "showings",
        sa.Column("recorded_at", _WHOLE_NUMBER, autoincrement=False, nullable=False),
        sa.Column("shown_at", _WHOLE_NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("recorded_at", name="showings_key"),
    )
    op.create_table(
        "polls",
        sa.Column("scope_id", sa.String(), nullable=False),
        sa.Column("last_polled_at", _WHOLE_NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("scope_id", name="polls_key"),
    )
    op.create_table(
        "vm_polls",
        sa.Column("vm", sa.String(), nullable=False),
        sa.Column("last_polled_at", _WHOLE_NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("vm", name="vm_polls_key"),
    )
    op.create_table(
        "soaks",
        sa.Column("scope_id", sa.String(), nullable=False),
        sa.Column("until", _WHOLE_NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("scope_id", name="soaks_key"),
    )


def _create_records() -> None:
    op.create_table(
        "ledger",
        sa.Column("sequence", _WHOLE_NUMBER, nullable=False),
        sa.Column("event_id", sa.String(), nullable=False),
        sa.Column("at", _WHOLE_NUMBER, nullable=False),
        sa.Column("what", sa.String(), nullable=False),
        sa.Column("who", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("where", sa.String(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="ledger_key"),
    )
    op.create_index("ledger_by_event_id", "ledger", ["event_id"])
    op.create_table(
        "audit",
        sa.Column("sequence", _WHOLE_NUMBER, nullable=False),
        sa.Column("at", _WHOLE_NUMBER, nullable=False),
        sa.Column("maintenance_time", _WHOLE_NUMBER, nullable=False),
        sa.Column("who", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("where", sa.String(), server_default="", nullable=False),
        sa.Column("actor", sa.String(), server_default="unknown", nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="audit_key"),
    )


def _create_access() -> None:
    op.create_table(
        "tokens",
        sa.Column("sequence", _WHOLE_NUMBER, nullable=False),
        sa.Column("token_hash", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_at", _WHOLE_NUMBER, nullable=False),
        sa.Column("expires_at", _WHOLE_NUMBER, nullable=True),
        sa.Column("revoked_at", _WHOLE_NUMBER, nullable=True),
        sa.Column("last_used_at", _WHOLE_NUMBER, nullable=True),
        sa.Column("host", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("sequence", name="tokens_key"),
        sa.UniqueConstraint("token_hash", name="tokens_unique_token_hash"),
    )
    op.create_table(
        "sessions",
        sa.Column("session_hash", sa.String(), nullable=False),
        sa.Column("token_hash", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("is_link", sa.Boolean(), nullable=False),
        sa.Column("created_at", _WHOLE_NUMBER, nullable=False),
        sa.Column("used_at", _WHOLE_NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("session_hash", name="sessions_key"),
    )
    op.create_index("sessions_by_used_at", "sessions", ["used_at"])
    op.create_table(
        "kept_answers",
        sa.Column("who", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("answered_at", _WHOLE_NUMBER, nullable=False),
        sa.Column("body", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("who", "key", name="kept_answers_key"),
    )
    op.create_index("kept_answers_by_answered_at", "kept_answers", ["answered_at"])


def _create_maintenances() -> None:
    op.create_table(
        "maintenances",
        sa.Column("sequence", _WHOLE_NUMBER, nullable=False),
        sa.Column("maintenance_id", sa.String(), nullable=False),
        sa.Column("event_type", sa.String(), nullable=False),
        sa.Column("description", sa.String(), nullable=False),
        sa.Column("duration_in_seconds", _WHOLE_NUMBER, nullable=True),
        sa.Column("resources", sa.JSON(), nullable=False),
        sa.Column("hosts", sa.JSON(), nullable=False),
        sa.Column("is_paused", sa.Boolean(), nullable=False),
        sa.Column("is_aborted", sa.Boolean(), nullable=False),
        sa.Column("finished_at", _WHOLE_NUMBER, nullable=True),
        sa.Column("course", sa.JSON(), server_default="{}", nullable=False),
        sa.Column("started_at", _WHOLE_NUMBER, server_default="0", nullable=False),
        sa.Column("resumed_at", _WHOLE_NUMBER, nullable=True),
        sa.Column("schedule", sa.String(), server_default="", nullable=False),
        sa.Column("resolutions", sa.JSON(), server_default="{}", nullable=False),
        sa.Column("outcome", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("sequence", name="maintenances_key"),
        sa.UniqueConstraint("maintenance_id", name="maintenances_unique_maintenance_id"),
    )
    op.create_index("maintenances_by_finished_at", "maintenances", ["finished_at"])
    op.create_table(
        "host_operations",
        sa.Column("sequence", _WHOLE_NUMBER, nullable=False),
        sa.Column("operation_id", sa.String(), nullable=False),
        sa.Column("maintenance_id", sa.String(), nullable=False),
        sa.Column("event_type", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("created_at", _WHOLE_NUMBER, nullable=False),
        sa.Column("phase", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("verify_at", _WHOLE_NUMBER, nullable=True),
        sa.Column("verify_by", _WHOLE_NUMBER, nullable=True),
        sa.Column("ended_at", _WHOLE_NUMBER, nullable=True),
        sa.Column("outcome", sa.String(), nullable=True),
        sa.Column("reason", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="host_operations_key"),
        sa.UniqueConstraint("operation_id", name="host_operations_unique_operation_id"),
    )
    op.create_index("host_operations_by_maintenance_id", "host_operations", ["maintenance_id"])
    op.create_table(
        "schedules",
        sa.Column("sequence", _WHOLE_NUMBER, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("order", sa.JSON(), nullable=False),
        sa.Column("every", sa.String(), nullable=False),
        sa.Column("from_date", sa.Date(), nullable=False),
        sa.Column("until_date", sa.Date(), nullable=True),
        sa.Column("created_at", _WHOLE_NUMBER, nullable=False),
        sa.Column("met_until", _WHOLE_NUMBER, nullable=False),
        sa.Column("is_paused", sa.Boolean(), nullable=False),
        sa.Column("maintenance_id", sa.String(), nullable=True),
        sa.Column("occurrences", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="schedules_key"),
        sa.UniqueConstraint("name", name="schedules_unique_name"),
    )


def _create_tasks() -> None:
    op.create_table(
        "tasks",
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("vm", sa.String(), nullable=True),
        sa.Column("host", sa.String(), nullable=True),
        sa.Column("runner", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("assignment", _WHOLE_NUMBER, nullable=False),
        sa.Column("epoch", _WHOLE_NUMBER, nullable=False),
        sa.Column("said", sa.JSON(), nullable=False),
        sa.Column("reserved_at", _WHOLE_NUMBER, nullable=False),
        sa.Column("begun_at", _WHOLE_NUMBER, nullable=True),
        sa.Column("heard_at", _WHOLE_NUMBER, nullable=True),
        sa.Column("ended_at", _WHOLE_NUMBER, nullable=True),
        sa.Column("closed_at", _WHOLE_NUMBER, nullable=True),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("subject", "name", name="tasks_key"),
    )
    op.create_index("tasks_by_closed_at", "tasks", ["closed_at"])
    op.create_index("tasks_by_node_state", "tasks", ["node", "state"])
    op.create_table(
        "owners",
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("generation", _WHOLE_NUMBER, nullable=False),
        sa.Column("heard_at", _WHOLE_NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("node", name="owners_key"),
    )
    op.create_table(
        "gate_answers",
        sa.Column("question", sa.String(), nullable=False),
        sa.Column("answer", sa.JSON(), nullable=False),
        sa.Column("epoch", _WHOLE_NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("question", name="gate_answers_key"),
    )


def _create_scenarios() -> None:
    op.create_table(
        "scenario_runs",
        sa.Column("sequence", _WHOLE_NUMBER, nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("resources", sa.JSON(), nullable=False),
        sa.Column("began_at", _WHOLE_NUMBER, nullable=False),
        sa.Column("speed", sa.Float(), nullable=False),
        sa.Column("steps", sa.JSON(), nullable=False),
        sa.Column("steps_done", sa.Integer(), nullable=False),
        sa.Column("events", sa.JSON(), nullable=False),
        sa.Column("is_stopped", sa.Boolean(), nullable=False),
        sa.Column("finished_at", _WHOLE_NUMBER, nullable=True),
        sa.PrimaryKeyConstraint("sequence", name="scenario_runs_key"),
        sa.UniqueConstraint("run_id", name="scenario_runs_unique_run_id"),
    )
    op.create_index("scenario_runs_by_finished_at", "scenario_runs", ["finished_at"])


def _create_notifications() -> None:
    op.create_table(
        "told",
        sa.Column("maintenance_id", sa.String(), nullable=False),
        sa.Column("stopped", sa.String(), nullable=True),
        sa.Column("gates", sa.JSON(), nullable=False),
        sa.Column("places", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("maintenance_id", name="told_key"),
    )
    op.create_table(
        "outbox",
        sa.Column("sequence", _WHOLE_NUMBER, nullable=False),
        sa.Column("notification_id", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("phase", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("created_at", _WHOLE_NUMBER, nullable=False),
        sa.Column("maintenance_time", _WHOLE_NUMBER, nullable=False),
        sa.Column("next_attempt_at", _WHOLE_NUMBER, nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("ended_at", _WHOLE_NUMBER, nullable=True),
        sa.Column("problem", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="outbox_key"),
        sa.UniqueConstraint("notification_id", name="outbox_unique_notification_id"),
    )
    op.create_index("outbox_by_status_ended_at", "outbox", ["status", "ended_at"])
    op.create_index("outbox_by_status_target_subject", "outbox", ["status", "target", "subject"])


def _create_replicas() -> None:
    op.create_table(
        "leases",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("epoch", _WHOLE_NUMBER, nullable=False),
        sa.Column("holder", sa.String(), server_default="", nullable=False),
        sa.Column("expires_at", _WHOLE_NUMBER, nullable=True),
        sa.PrimaryKeyConstraint("name", name="leases_key"),
    )
    lock = op.create_table(
        "write_lock",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("last_change", _WHOLE_NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("name", name="write_lock_key"),
    )
    op.bulk_insert(lock, [{"name": "writer", "last_change": 0}])
    op.create_table(
        "changes",
        sa.Column("number", _WHOLE_NUMBER, autoincrement=False, nullable=False),
        sa.Column("hint", sa.JSON(), nullable=False),
        sa.Column("changed_at", _WHOLE_NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("number", name="changes_key"),
    )
    op.create_table(
        "replicas",
        sa.Column("replica_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("started_at", _WHOLE_NUMBER, nullable=False),
        sa.Column("seen_at", _WHOLE_NUMBER, nullable=False),
        sa.Column("last_change", _WHOLE_NUMBER, nullable=False),
        sa.Column("findings", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("replica_id", name="replicas_key"),
    )
