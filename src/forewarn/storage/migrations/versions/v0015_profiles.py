"""Keep what virtual machines read about themselves in their instance metadata."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0015"
down_revision: Final = "0014"


def upgrade() -> None:
    """Add a column; nothing is known of any virtual machine."""
    op.add_column("virtual_machines", sa.Column("profile", sa.JSON(), nullable=True))
