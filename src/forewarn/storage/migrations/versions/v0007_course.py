"""Keep how a Maintenance goes about it and when it began, and the longer notice of scopes."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0007"
down_revision: Final = "0006"

_WHOLE_NUMBER: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_CARRY_OVER: Final = """
UPDATE maintenances SET
    course = CASE WHEN hold_all THEN '{"hold_all": true}' ELSE '{}' END,
    started_at = coalesce((
        SELECT maintenance_time FROM audit
        WHERE action = 'maintenance start' AND subject = maintenance_id
    ), 0)
"""


def upgrade() -> None:
    """Add columns; what held all scopes goes on to do so."""
    for column in (
        sa.Column("course", sa.JSON(), server_default="{}", nullable=False),
        sa.Column("started_at", _WHOLE_NUMBER, server_default="0", nullable=False),
        sa.Column("resumed_at", _WHOLE_NUMBER, nullable=True),
    ):
        op.add_column("maintenances", column)
    op.execute(_CARRY_OVER)
    op.drop_column("maintenances", "hold_all")
    op.add_column("delivery_scopes", sa.Column("notice", _WHOLE_NUMBER, nullable=True))
