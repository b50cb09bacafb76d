"""Keep which hosts are closed, since when, by whom and why."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0011"
down_revision: Final = "0010"

_WHOLE_NUMBER: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add columns; every host is open."""
    for column in (
        sa.Column("closed_at", _WHOLE_NUMBER, nullable=True),
        sa.Column("closed_by", sa.String(), nullable=True),
        sa.Column("closed_reason", sa.String(), nullable=True),
    ):
        op.add_column("hosts", column)
