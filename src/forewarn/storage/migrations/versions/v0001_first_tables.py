"""Create the tables of the first release."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0001"
down_revision: Final = None

_WHOLE_NUMBER: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create them."""
    _create_settings_and_leases()
    _create_fleet()
    _create_events()
    _create_documents()
    _create_records()
    _create_maintenances()


def _create_settings_and_leases() -> None:
    op.create_table(
        "settings",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="settings_key"),
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("epoch", _WHOLE_NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("name", name="leases_key"),
    )


def _create_fleet() -> None:
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
        sa.PrimaryKeyConstraint("scope_id", name="delivery_scopes_key"),
    )
    op.create_table(
        "hosts",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("position", _WHOLE_NUMBER, nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="hosts_key"),
    )
    _create_virtual_machines()


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
        sa.PrimaryKeyConstraint("name", name="virtual_machines_key"),
        sa.ForeignKeyConstraint(
            ["scope_id"], ["delivery_scopes.scope_id"], name="virtual_machines_scope_id_exists"
        ),
        sa.ForeignKeyConstraint(["host"], ["hosts.name"], name="virtual_machines_host_exists"),
    )
    op.create_index("virtual_machines_by_scope_id", "virtual_machines", ["scope_id"])
    op.create_index("virtual_machines_by_host", "virtual_machines", ["host"])


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
        sa.PrimaryKeyConstraint("sequence", name="events_key"),
        sa.UniqueConstraint("event_id", name="events_unique_event_id"),
    )
    op.create_index("events_by_maintenance_id", "events", ["maintenance_id"])
    op.create_index("events_by_event_status_scope_id", "events", ["event_status", "scope_id"])


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
        "polls",
        sa.Column("scope_id", sa.String(), nullable=False),
        sa.Column("last_polled_at", _WHOLE_NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("scope_id", name="polls_key"),
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
        sa.PrimaryKeyConstraint("sequence", name="audit_key"),
    )


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
        sa.Column("hold_all", sa.Boolean(), nullable=False),
        sa.Column("is_paused", sa.Boolean(), nullable=False),
        sa.Column("is_aborted", sa.Boolean(), nullable=False),
        sa.Column("released", sa.JSON(), nullable=False),
        sa.Column("finished_at", _WHOLE_NUMBER, nullable=True),
        sa.PrimaryKeyConstraint("sequence", name="maintenances_key"),
        sa.UniqueConstraint("maintenance_id", name="maintenances_unique_maintenance_id"),
    )
    op.create_index("maintenances_by_finished_at", "maintenances", ["finished_at"])
    op.create_table(
        "simulated_impacts",
        sa.Column("event_id", sa.String(), nullable=False),
        sa.Column("vm", sa.String(), nullable=False),
        sa.Column("ends_at", _WHOLE_NUMBER, nullable=False),
        sa.Column("failure", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("event_id", "vm", name="simulated_impacts_key"),
    )
