"""Keep when each virtual machine last polled."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0009"
down_revision: Final = "0008"

_WHOLE_NUMBER: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add a table; what is not known yet is learnt with the next poll."""
    op.create_table(
        "vm_polls",
        sa.Column("vm", sa.String(), nullable=False),
        sa.Column("last_polled_at", _WHOLE_NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("vm", name="vm_polls_key"),
    )
