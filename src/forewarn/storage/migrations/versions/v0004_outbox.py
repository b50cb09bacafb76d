"""Keep messages to people until they are delivered, and note which events are overdue."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0004"
down_revision: Final = "0003"

_WHOLE_NUMBER: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add a table and a column; what is stored stays as it is."""
    op.create_table(
        "outbox",
        sa.Column("sequence", _WHOLE_NUMBER, nullable=False),
        sa.Column("notification_id", sa.String(), nullable=False),
        sa.Column("event_id", sa.String(), nullable=False),
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
    op.create_index("outbox_by_status_target_event_id", "outbox", ["status", "target", "event_id"])
    op.create_index("outbox_by_status_ended_at", "outbox", ["status", "ended_at"])
    op.add_column("events", sa.Column("overdue_at", _WHOLE_NUMBER, nullable=True))
