"""Keep host operations, what was decided about failures, and how Maintenances ended."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0012"
down_revision: Final = "0011"

_WHOLE_NUMBER: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

# A host had one turn in a Maintenance, so the two name its operation.
_OPERATIONS: Final = """
INSERT INTO host_operations (operation_id, maintenance_id, event_type, host, created_at, phase,
    attempt, ended_at, outcome, reason)
SELECT maintenance_id || '/' || host, maintenance_id, event_type, host, created_at,
    CASE WHEN started > 0 THEN 'impact' WHEN scheduled > 0 THEN 'announced' ELSE 'over' END,
    1,
    CASE WHEN started + scheduled = 0 THEN ended_at END,
    CASE WHEN started + scheduled > 0 THEN NULL
         WHEN failed > 0 THEN 'failed' WHEN canceled > 0 THEN 'canceled' ELSE 'succeeded' END,
    ''
FROM (
    SELECT maintenance_id, host, min(event_type) AS event_type, min(sequence) AS first,
        min(created_at) AS created_at, max(ended_at) AS ended_at,
        count(*) FILTER (WHERE event_status = 'Scheduled') AS scheduled,
        count(*) FILTER (WHERE event_status = 'Started') AS started,
        count(*) FILTER (WHERE event_status = 'Canceled') AS canceled,
        count(*) FILTER (WHERE outcome = 'failed') AS failed
    FROM events WHERE maintenance_id IS NOT NULL AND host IS NOT NULL
    GROUP BY maintenance_id, host
) AS turns ORDER BY first
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
_MAINTENANCES: Final = sa.table(
    "maintenances",
    sa.column("maintenance_id", sa.String()),
    sa.column("released", sa.JSON()),
    sa.column("resolutions", sa.JSON()),
)
_RELEASED: Final = sa.select(_MAINTENANCES.c.maintenance_id, _MAINTENANCES.c.released)
_EVENTS: Final = sa.table("events", *map(sa.column, ("operation_id", "event_id")))


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
    key = sa.func.coalesce(_EVENTS.c.operation_id, _EVENTS.c.event_id)
    for maintenance_id, released in connection.execute(_RELEASED).all():
        if released:
            wanted = sa.select(key).where(_EVENTS.c.event_id.in_(released))
            kept = dict.fromkeys(connection.scalars(wanted), "skip")
            own = _MAINTENANCES.c.maintenance_id == maintenance_id
            connection.execute(_MAINTENANCES.update().where(own).values(resolutions=kept))
