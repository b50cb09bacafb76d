"""Keep how a Maintenance goes about it and when it began, and the longer notice of scopes."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0007"
down_revision: Final = "0006"

_WHOLE_NUMBER: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_MAINTENANCES: Final = sa.table(
    "maintenances",
    sa.column("maintenance_id"),
    sa.column("hold_all", sa.Boolean()),
    sa.column("course", sa.JSON()),
    sa.column("started_at", _WHOLE_NUMBER),
)
_AUDIT: Final = sa.table(
    "audit", *map(sa.column, ("sequence", "maintenance_time", "action", "subject"))
)
_BEGAN: Final = (
    sa.select(_AUDIT.c.maintenance_time)
    .where(_AUDIT.c.action == "maintenance start")
    .where(_AUDIT.c.subject == _MAINTENANCES.c.maintenance_id)
    .order_by(_AUDIT.c.sequence)
    .limit(1)
    .scalar_subquery()
)
_CARRY_OVER: Final = _MAINTENANCES.update().values(
    course=sa.case(
        (_MAINTENANCES.c.hold_all, sa.literal({"hold_all": True}, sa.JSON())),
        else_=sa.literal({}, sa.JSON()),
    ),
    started_at=sa.func.coalesce(_BEGAN, 0),
)


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
