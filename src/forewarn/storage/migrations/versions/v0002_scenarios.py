"""Keep runs of scenarios, and how long the impact of their events is to take."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0002"
down_revision: Final = "0001"

_WHOLE_NUMBER: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add a table and a column; what is stored stays as it is."""
    op.create_table(
        "scenario_runs",
        sa.Column("sequence", _WHOLE_NUMBER, nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("resources", sa.JSON(), nullable=False),
        sa.Column("began_at", _WHOLE_NUMBER, nullable=False),
        sa.Column("speed", sa.Float(), nullable=False),
        sa.Column("steps", sa.JSON(), nullable=False),
        sa.Column("steps_done", sa.Integer(), nullable=False),
        sa.Column("events", sa.JSON(), nullable=False),
        sa.Column("is_stopped", sa.Boolean(), nullable=False),
        sa.Column("finished_at", _WHOLE_NUMBER, nullable=True),
        sa.PrimaryKeyConstraint("sequence", name="scenario_runs_key"),
        sa.UniqueConstraint("run_id", name="scenario_runs_unique_run_id"),
    )
    op.create_index("scenario_runs_by_finished_at", "scenario_runs", ["finished_at"])
    op.add_column("events", sa.Column("simulated_duration", _WHOLE_NUMBER, nullable=True))
