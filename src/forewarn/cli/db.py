"""`forewarn db`: the database file, with or without a server that uses it."""

from pathlib import Path
from typing import Annotated

from forewarn.cli.catalogue import noun
from forewarn.cli.errors import CommandError, ExitCode, reported_errors
from forewarn.cli.examination.findings import print_findings
from forewarn.cli.options import ConfigFile, argument, option, switch
from forewarn.cli.output import Output, OutputOption, print_line
from forewarn.clocks import SystemClock

app = noun("db")

Database = Annotated[str | None, option("FILE", "The database (default: as set).")]


@app.command("backup")
def backup(
    file: Annotated[Path, argument("FILE", "File to write.")],
    *,
    overwrite: Annotated[bool, switch("Replace FILE if it exists.", "--overwrite")] = False,
    database: Database = None,
    config: ConfigFile = None,
) -> None:
    """Copy the database to one file, also while the server is running.

    Only its owner can read the copy. Put it back with: forewarn db restore FILE

    Example: forewarn db backup /var/backups/forewarn.db
    """
    with reported_errors("db backup"):
        from forewarn.settings import load_settings  # noqa: PLC0415 - slow to load
        from forewarn.storage import backups  # noqa: PLC0415 - needs the server install

        settings = load_settings({"database": database}, config)
        at = SystemClock().now()
        backups.back_up(settings.database_path, file, at=at, overwrite=overwrite)
        print_line(f"{settings.database_path} is backed up as {file}")


@app.command("check")
def check(
    file: Annotated[
        Path | None, argument("FILE", "A database or backup (default: as set).")
    ] = None,
    *,
    output: OutputOption = Output.TABLE,
    database: Database = None,
    config: ConfigFile = None,
) -> None:
    """Check the database for damage and for its version.

    It changes nothing, fails if something is wrong, and says what to do.

    Example: forewarn db check /var/backups/forewarn.db
    """
    with reported_errors("db check"):
        from forewarn.cli.examination.database import (  # noqa: PLC0415 - needs the server install
            examine_database,
        )
        from forewarn.settings import load_settings  # noqa: PLC0415 - slow to load

        if file is not None and database is not None:
            raise CommandError(
                "FILE and --database both name a database.",
                code=ExitCode.USAGE,
                hint="try: forewarn db check FILE",
            )
        wanted = database if file is None else str(file)
        print_findings(examine_database(load_settings({"database": wanted}, config)), output)


@app.command("restore")
def restore(
    file: Annotated[Path, argument("FILE", "A backup.")],
    *,
    database: Database = None,
    config: ConfigFile = None,
) -> None:
    """Replace the database with a backup.

    The server must not be running. The old database is kept beside it. The server starts
    paused afterwards, so that you can look before anything begins.

    Example: forewarn db restore /var/backups/forewarn.db
    """
    with reported_errors("db restore"):
        from forewarn.settings import load_settings  # noqa: PLC0415 - slow to load
        from forewarn.storage import backups  # noqa: PLC0415 - needs the server install

        path = load_settings({"database": database}, config).database_path
        aside = backups.restore(file, path, at=SystemClock().now())
        print_line(f"{path} is restored from {file}")
        if aside is not None:
            print_line(f"The old database is {aside}")
        print_line("The server will start paused; continue with: forewarn resume", err=True)


@app.command("upgrade")
def upgrade(*, database: Database = None, config: ConfigFile = None) -> None:
    """Upgrade the database to the schema of this version.

    The server must not be running.

    Example: forewarn db upgrade --database forewarn.db
    """
    with reported_errors("db upgrade"):
        from forewarn.settings import load_settings  # noqa: PLC0415 - slow to load
        from forewarn.storage import sqlite  # noqa: PLC0415 - needs the server install

        settings = load_settings({"database": database}, config)
        sqlite.upgrade(settings.database_path)
        print_line(f"{settings.database_path} is up to date")
