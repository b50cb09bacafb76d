"""Keep the tasks that hosts fetch, and what they report."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0021"
down_revision: Final = "0020"


def upgrade() -> None:
    """Add a table, which is empty until a host has work to fetch."""
    moment = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "host_offers",
        sa.Column("operation_id", sa.String(), nullable=False),
        sa.Column("task", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("order", sa.JSON(), nullable=False),
        sa.Column("offered_at", moment, nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("ticket", sa.String(), nullable=False),
        sa.Column("heard_at", moment, nullable=True),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("moved_to", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("operation_id", "task", name="host_offers_key"),
    )
    op.create_index("host_offers_by_host_status", "host_offers", ["host", "status"])
