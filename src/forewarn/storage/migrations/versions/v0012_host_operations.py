"""Keep host operations, what was decided about failures, and how Maintenances ended."""

import json
from typing import Any, Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0012"
down_revision: Final = "0011"

_WHOLE_NUMBER: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

# A host had one turn in a Maintenance, so the two name its operation.
_OPERATIONS: Final = """
INSERT INTO host_operations (operation_id, maintenance_id, event_type, host, created_at, phase,
    attempt, ended_at, outcome, reason)
SELECT maintenance_id || '/' || host, maintenance_id, min(event_type), host, min(created_at),
    CASE WHEN sum(event_status = 'Started') THEN 'impact'
         WHEN sum(event_status = 'Scheduled') THEN 'announced' ELSE 'over' END,
    1,
    CASE WHEN sum(event_status IN ('Scheduled', 'Started')) THEN NULL ELSE max(ended_at) END,
    CASE WHEN sum(event_status IN ('Scheduled', 'Started')) THEN NULL
         WHEN sum(outcome = 'failed') THEN 'failed'
         WHEN sum(event_status = 'Canceled') THEN 'canceled' ELSE 'succeeded' END,
    ''
FROM events WHERE maintenance_id IS NOT NULL AND host IS NOT NULL
GROUP BY maintenance_id, host ORDER BY min(sequence)
"""
_OF_OPERATIONS: Final = """
UPDATE events SET operation_id = maintenance_id || '/' || host
WHERE maintenance_id IS NOT NULL AND host IS NOT NULL
"""
_ENDED: Final = """
UPDATE maintenances SET outcome = CASE
    WHEN is_aborted THEN 'aborted'
    WHEN EXISTS (
        SELECT 1 FROM events WHERE events.maintenance_id = maintenances.maintenance_id
        AND (events.outcome = 'failed' OR events.event_status = 'Canceled')
    ) THEN 'incomplete'
    ELSE 'succeeded' END
WHERE finished_at IS NOT NULL
"""


def upgrade() -> None:
    """Add the table and columns; what was released from a failure stays passed over."""
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
    op.add_column("events", sa.Column("operation_id", sa.String(), nullable=True))
    for column in (
        sa.Column("resolutions", sa.JSON(), server_default="{}", nullable=False),
        sa.Column("outcome", sa.String(), nullable=True),
    ):
        op.add_column("maintenances", column)
    for statement in (_OPERATIONS, _OF_OPERATIONS, _ENDED):
        op.execute(statement)
    _carry_over_releases(op.get_bind())
    op.drop_column("maintenances", "released")


def _carry_over_releases(connection: sa.Connection) -> None:
    rows = connection.exec_driver_sql("SELECT maintenance_id, released FROM maintenances").all()
    for maintenance_id, released in rows:
        wanted: list[Any] = json.loads(released)
        if wanted:
            keys = connection.execute(
                sa.text(
                    "SELECT coalesce(operation_id, event_id) FROM events WHERE event_id IN :ids"
                ).bindparams(sa.bindparam("ids", expanding=True)),
                {"ids": wanted},
            ).scalars()
            connection.execute(
                sa.text("UPDATE maintenances SET resolutions = :kept WHERE maintenance_id = :id"),
                {"kept": json.dumps(dict.fromkeys(keys, "skip")), "id": maintenance_id},
            )
