"""Keep schedules, and which of them began a Maintenance."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0008"
down_revision: Final = "0007"

_WHOLE_NUMBER: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add a table and a column; what is stored stays as it is."""
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
    column = sa.Column("schedule", sa.String(), server_default="", nullable=False)
    op.add_column("maintenances", column)
