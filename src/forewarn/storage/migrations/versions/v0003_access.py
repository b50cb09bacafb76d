"""Keep tokens, write down where callers come from, and let nobody rewrite the records."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: Final = "0003"
down_revision: Final = "0002"

_WHOLE_NUMBER: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_TRIGGERS: Final = {
    "sqlite": [
        f"CREATE TRIGGER {table}_refuses_{verb} BEFORE {verb} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        for table in ("ledger", "audit")
        for verb in ("update", "delete")
    ],
    "postgresql": [
        """CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE restrict_violation USING MESSAGE = TG_TABLE_NAME || ' is append-only';
        END $$""",
        *(
            f"CREATE TRIGGER {table}_refuses_change "
            f"BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} EXECUTE FUNCTION refuse_change()"
            for table in ("ledger", "audit")
        ),
    ],
}


def upgrade() -> None:
    """Add a table, two columns and triggers; what is stored stays as it is."""
    op.create_table(
        "tokens",
        sa.Column("sequence", _WHOLE_NUMBER, nullable=False),
        sa.Column("token_hash", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_at", _WHOLE_NUMBER, nullable=False),
        sa.Column("expires_at", _WHOLE_NUMBER, nullable=True),
        sa.Column("revoked_at", _WHOLE_NUMBER, nullable=True),
        sa.Column("last_used_at", _WHOLE_NUMBER, nullable=True),
        sa.PrimaryKeyConstraint("sequence", name="tokens_key"),
        sa.UniqueConstraint("token_hash", name="tokens_unique_token_hash"),
    )
    for table in ("ledger", "audit"):
        op.add_column(table, sa.Column("where", sa.String(), server_default="", nullable=False))
    for statement in _TRIGGERS[op.get_context().dialect.name]:
        op.execute(statement)
