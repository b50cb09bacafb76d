"""Keep which host the token of a relay is for."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0020"
down_revision: Final = "0019"


def upgrade() -> None:
    """Add a column, which tokens of other roles leave empty."""
    op.add_column("tokens", sa.Column("host", sa.String(), nullable=True))
