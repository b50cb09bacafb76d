"""Keep everything that is done outside as tasks, each with one owner."""

from typing import Final

import sqlalchemy as sa
from alembic import op

from forewarn.storage.errors import UpgradeTooEarlyError

revision: Final = "0022"
down_revision: Final = "0021"


def upgrade() -> None:
    """Replace what was known of impacts and of work on hosts, of which nothing may be under way."""
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    started = "SELECT count(*) FROM events WHERE event_status = 'Started'"
    at_work = "SELECT count(*) FROM host_operations WHERE ended_at IS NULL AND phase <> 'announced'"
    under_way = sum(
        op.get_bind().execute(sa.text(each)).scalar_one() for each in (started, at_work)
    )
    if under_way:
        raise UpgradeTooEarlyError(under_way)
    for table in ("host_offers", "simulated_impacts", "knowledge"):
        op.drop_table(table)
    op.create_table(
        "tasks",
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("vm", sa.String(), nullable=True),
        sa.Column("host", sa.String(), nullable=True),
        sa.Column("runner", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("assignment", number, nullable=False),
        sa.Column("epoch", number, nullable=False),
        sa.Column("said", sa.JSON(), nullable=False),
        sa.Column("reserved_at", number, nullable=False),
        sa.Column("begun_at", number, nullable=True),
        sa.Column("heard_at", number, nullable=True),
        sa.Column("ended_at", number, nullable=True),
        sa.Column("closed_at", number, nullable=True),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("subject", "name", name="tasks_key"),
    )
    op.create_index("tasks_by_closed_at", "tasks", ["closed_at"])
    op.create_index("tasks_by_node_state", "tasks", ["node", "state"])
    op.create_table(
        "owners",
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("generation", number, nullable=False),
        sa.Column("heard_at", number, nullable=False),
        sa.PrimaryKeyConstraint("node", name="owners_key"),
    )
    op.create_table(
        "gate_answers",
        sa.Column("question", sa.String(), nullable=False),
        sa.Column("answer", sa.JSON(), nullable=False),
        sa.Column("epoch", number, nullable=False),
        sa.PrimaryKeyConstraint("question", name="gate_answers_key"),
    )
