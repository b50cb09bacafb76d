"""Write down what kind of actor each line of the audit is about."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0016"
down_revision: Final = "0015"


def upgrade() -> None:
    """Add a column; of older lines nobody knows any more."""
    actor = sa.Column("actor", sa.String(), server_default="unknown", nullable=False)
    op.add_column("audit", actor)
