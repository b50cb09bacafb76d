"""Keep which browsers are signed in to the console."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0019"
down_revision: Final = "0018"

_WHOLE_NUMBER: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add a table."""
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
