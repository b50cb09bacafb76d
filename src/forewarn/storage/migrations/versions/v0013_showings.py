"""Keep from when on changes were really served."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0013"
down_revision: Final = "0012"

_WHOLE_NUMBER: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add a table; what was served before is known as closely as it was."""
    op.create_table(
        "showings",
        sa.Column("recorded_at", _WHOLE_NUMBER, autoincrement=False, nullable=False),
        sa.Column("shown_at", _WHOLE_NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("recorded_at", name="showings_key"),
    )
