"""Keep until when scopes are left alone after a step of a Maintenance."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0010"
down_revision: Final = "0009"

_WHOLE_NUMBER: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add a table; Maintenances under way know from their events what soaks."""
    op.create_table(
        "soaks",
        sa.Column("scope_id", sa.String(), nullable=False),
        sa.Column("until", _WHOLE_NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("scope_id", name="soaks_key"),
    )
