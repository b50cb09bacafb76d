"""Keep what people were told of Maintenances, and messages about these beside those of events."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0014"
down_revision: Final = "0013"


def upgrade() -> None:
    """Add a table, and call the id that a message is about by its new name."""
    op.create_table(
        "told",
        sa.Column("maintenance_id", sa.String(), nullable=False),
        sa.Column("stopped", sa.String(), nullable=True),
        sa.Column("gates", sa.JSON(), nullable=False),
        sa.Column("places", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("maintenance_id", name="told_key"),
    )
    op.drop_index("outbox_by_status_target_event_id", "outbox")
    op.execute("ALTER TABLE outbox RENAME COLUMN event_id TO subject")
    op.create_index("outbox_by_status_target_subject", "outbox", ["status", "target", "subject"])
