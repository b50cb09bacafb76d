"""Keep who read which documents, from now on, and how 2017-03-01 was written."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0005"
down_revision: Final = "0004"

_WHOLE_NUMBER: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_VIRTUAL_NOW: Final = "(SELECT value FROM settings WHERE name = 'virtual_now')"
_SECONDS: Final = {
    "sqlite": f"CAST(strftime('%s', coalesce({_VIRTUAL_NOW}, 'now')) AS INTEGER)",
    "postgresql": (
        "CAST(floor(extract(epoch FROM "
        f"coalesce(CAST({_VIRTUAL_NOW} AS timestamptz), clock_timestamp()))) AS bigint)"
    ),
}
"""Maintenance time, which is the virtual one where there is one, as seconds since 1970."""

# Where machines were before this is not known, and cannot be told from the documents. SQLite folds
# the case of ASCII, which names are.
_FIRST_MEMBERSHIPS: Final = """
INSERT INTO memberships (vm, since, scope_id)
SELECT lower(name), 1000000 * {seconds}, scope_id FROM virtual_machines
"""
_FIRST_PREVIEW_WIRE: Final = """
INSERT INTO preview_wires (since, preview_wire)
SELECT 0, value FROM settings WHERE name = 'preview_wire'
"""


def upgrade() -> None:
    """Add two tables, and what is known today."""
    op.create_table(
        "memberships",
        sa.Column("vm", sa.String(), nullable=False),
        sa.Column("since", _WHOLE_NUMBER, nullable=False),
        sa.Column("scope_id", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("vm", "since", name="memberships_key"),
    )
    op.create_table(
        "preview_wires",
        sa.Column("since", _WHOLE_NUMBER, autoincrement=False, nullable=False),
        sa.Column("preview_wire", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("since", name="preview_wires_key"),
    )
    seconds = _SECONDS[op.get_context().dialect.name]
    op.execute(_FIRST_MEMBERSHIPS.format(seconds=seconds))
    op.execute(_FIRST_PREVIEW_WIRE)
