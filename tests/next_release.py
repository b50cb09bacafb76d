"""The release after this one: it has one migration more."""

import shutil
from pathlib import Path
from typing import Final

import pytest

from forewarn.storage import migrations, schema
from forewarn.storage.schema import HEAD, REVISIONS

NEXT_REVISION: Final = f"{int(HEAD) + 1:04}"

# It only adds. Tables that old replicas read and write get columns that those do not know.
MIGRATION: Final = f"""
import sqlalchemy as sa
from alembic import op

revision = "{NEXT_REVISION}"
down_revision = "{HEAD}"


def upgrade():
    for table in ("events", "leases", "write_lock", "changes", "replicas", "documents", "settings"):
        op.add_column(table, sa.Column("news", sa.String(), server_default="", nullable=False))
    op.create_table("news", sa.Column("name", sa.String(), primary_key=True))
"""


def add_migration(scripts: Path) -> None:
    """Add the migration to a copy of the migrations of this release."""
    (scripts / "versions" / f"v{NEXT_REVISION}_news.py").write_text(MIGRATION, encoding="utf-8")


def become_next_release(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Have this process upgrade databases as the next release does, with scripts in *folder*."""
    scripts = folder / "migrations"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(migrations.__file__).parent, scripts, ignore=ignored)
    add_migration(scripts)
    monkeypatch.setattr(schema, "SCRIPTS", str(scripts))
    monkeypatch.setattr(schema, "REVISIONS", (*REVISIONS, NEXT_REVISION))
    monkeypatch.setattr(schema, "HEAD", NEXT_REVISION)
