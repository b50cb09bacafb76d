"""`forewarn db`: the database file, without a server."""

from pathlib import Path
from typing import Annotated

import typer

from forewarn.cli.errors import reported_errors
from forewarn.cli.session import noun
from forewarn.settings import load_settings

app = noun("db", "Look after the database.")


@app.callback()
def _group() -> None:
    """Look after the database."""


@app.command("upgrade")
def upgrade(
    *,
    database: Annotated[str | None, typer.Option(metavar="URL", help="sqlite:///PATH.")] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings; else forewarn.toml.")
    ] = None,
) -> None:
    """Bring the database up to the schema of this version; the server must not be running.

    Example: forewarn db upgrade --database sqlite:///forewarn.db
    """
    with reported_errors("db upgrade"):
        from forewarn.storage import sqlite  # noqa: PLC0415 - needs the server install

        settings = load_settings({"database": database}, config)
        sqlite.upgrade(settings.database_path)
        typer.echo(f"{settings.database_path} is up to date")
