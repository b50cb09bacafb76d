"""Keep what requests with an Idempotency-Key were answered."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0006"
down_revision: Final = "0005"

_WHOLE_NUMBER: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add a table."""
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
