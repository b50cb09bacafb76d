"""Make room for several replicas on one database."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0018"
down_revision: Final = "0017"

_WHOLE_NUMBER: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Say whose the lease is and until when, who writes, what changed last, and who is there."""
    op.add_column("knowledge", sa.Column("node", sa.String(), server_default="", nullable=True))
    op.add_column("leases", sa.Column("holder", sa.String(), server_default="", nullable=False))
    op.add_column("leases", sa.Column("expires_at", _WHOLE_NUMBER, nullable=True))
    lock = op.create_table(
        "write_lock",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("last_change", _WHOLE_NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("name", name="write_lock_key"),
    )
    op.bulk_insert(lock, [{"name": "writer", "last_change": 0}])
    op.create_table(
        "changes",
        sa.Column("number", _WHOLE_NUMBER, autoincrement=False, nullable=False),
        sa.Column("hint", sa.JSON(), nullable=False),
        sa.Column("changed_at", _WHOLE_NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("number", name="changes_key"),
    )
    op.create_table(
        "replicas",
        sa.Column("replica_id", sa.String(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("name", "address", "version")),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("started_at", _WHOLE_NUMBER, nullable=False),
        sa.Column("seen_at", _WHOLE_NUMBER, nullable=False),
        sa.Column("last_change", _WHOLE_NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("replica_id", name="replicas_key"),
    )
