"""`forewarn db`: the database, with or without a server that uses it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from forewarn.cli.catalogue import noun
from forewarn.cli.errors import CommandError, ExitCode, reported_errors
from forewarn.cli.examination.findings import print_findings
from forewarn.cli.options import ConfigFile, argument, option, switch
from forewarn.cli.output import (
    Columns,
    Output,
    OutputOption,
    Row,
    print_answer,
    print_fields,
    print_line,
    print_table,
    wall_time_of,
)
from forewarn.cli.serve import warn_of_password
from forewarn.clocks import SystemClock
from forewarn.environment import SettingsError
from forewarn.settings_table import LogLevel

if TYPE_CHECKING:
    from forewarn.settings import Settings

app = noun("db")

DatabaseOption = Annotated[str | None, option("URL", "Database (default: from the settings).")]
CopyFrom = Annotated[str, argument("SOURCE", "A file, or postgresql://HOST/DB.")]
CopyTo = Annotated[str, argument("TARGET", "A new file, or an empty postgresql://HOST/DB.")]
_WATCHING: Final = (
    "The database lists replicas that were running moments ago. "
    "Waiting up to 10 s to see whether one is still running."
)
_PAUSED: Final = "The server will start paused; continue with: forewarn resume"


@app.command("backup")
def backup(
    file: Annotated[Path, argument("FILE", "File to write.")],
    *,
    overwrite: Annotated[bool, switch("Replace FILE if it exists.", "--overwrite")] = False,
    database: DatabaseOption = None,
    config: ConfigFile = None,
) -> None:
    """Copy the database to one file; the server may be running.

    Only its owner can read the copy. Restore it with: forewarn db restore FILE

    Example: forewarn db backup /var/backups/forewarn.db
    """
    with reported_errors("db backup"):
        from forewarn.storage import administration  # noqa: PLC0415 - needs the server install

        settings = _settings(database, config)
        at = SystemClock().now()
        with _shown_progress() as tell:
            administration.back_up(settings.location, file, at=at, overwrite=overwrite, tell=tell)
        print_line(f"Backed up {settings.database_name} to {file}")


@app.command("check")
def check(
    file: Annotated[
        Path | None, argument("FILE", "Database or backup (default: the database in the settings).")
    ] = None,
    *,
    output: OutputOption = Output.TABLE,
    database: DatabaseOption = None,
    config: ConfigFile = None,
) -> None:
    """Check the database for damage and an outdated schema.

    It changes nothing. If it finds a problem, it fails and says what to do.

    Example: forewarn db check /var/backups/forewarn.db
    """
    with reported_errors("db check"):
        from forewarn.cli.examination.database import (  # noqa: PLC0415 - needs the server install
            examine_database,
        )

        if file is not None and database is not None:
            raise CommandError(
                "FILE and --database cannot be used together.",
                code=ExitCode.USAGE,
                hint="try: forewarn db check FILE",
            )
        wanted = database if file is None else str(file)
        print_findings(examine_database(_settings(wanted, config)), output)


@app.command("copy")
def copy(source: CopyFrom, target: CopyTo) -> None:
    """Copy a database to another, on SQLite or PostgreSQL.

    To move a database, stop the server first. If it is running, the copy counts as a
    backup, and a server that uses the copy starts paused.

    Example: forewarn db copy forewarn.db postgresql://db.example/forewarn
    """
    with reported_errors("db copy"):
        from forewarn.storage import administration  # noqa: PLC0415 - needs the server install

        read, made = _named(source, "SOURCE"), _named(target, "TARGET")
        at = SystemClock().now()
        with _shown_progress() as tell:
            report = administration.copy(read.location, made.location, at=at, tell=tell)
        for table, rows in report.rows.items():
            if rows:
                print_line(f"{rows:>12,}  {table}")
        if report.is_backup:
            print_line(f"{made.database_name} is a backup of {read.database_name}")
            print_line(_PAUSED, err=True)
            return
        print_line(f"Moved {read.database_name} to {made.database_name}")
        print_line(
            f"Start the server with --database {made.database_name} and the state directory it had,"
            " and do not start one on the old database again.",
            err=True,
        )


@app.command("mark-restored")
def mark_restored(*, database: DatabaseOption = None, config: ConfigFile = None) -> None:
    """Mark a database that another tool has restored.

    Use it after pg_restore or a point-in-time recovery, before any server starts.
    The server then starts paused, and reuses no DocumentIncarnation.

    Example: forewarn db mark-restored --database postgresql://db.example/forewarn
    """
    with reported_errors("db mark-restored"):
        from forewarn.storage import administration  # noqa: PLC0415 - needs the server install

        settings = _settings(database, config)
        administration.mark_restored(
            settings.location,
            at=SystemClock().now(),
            wait=lambda: print_line(_WATCHING, err=True),
        )
        print_line(f"Marked {settings.database_name} as restored")
        print_line(_PAUSED, err=True)


@app.command("restore")
def restore(
    file: Annotated[Path, argument("FILE", "Backup to restore.")],
    *,
    database: DatabaseOption = None,
    config: ConfigFile = None,
) -> None:
    """Replace the database with a backup.

    Stop the server first. The old file is kept beside the new one; a PostgreSQL database
    must be empty. The server then starts paused, so that you can check it before
    anything starts.

    Example: forewarn db restore /var/backups/forewarn.db
    """
    with reported_errors("db restore"):
        from forewarn.storage import administration  # noqa: PLC0415 - needs the server install

        settings = _settings(database, config)
        with _shown_progress() as tell:
            at = SystemClock().now()
            aside = administration.restore(file, settings.location, at=at, tell=tell)
        print_line(f"Restored {settings.database_name} from {file}")
        if aside is not None:
            print_line(f"The old database is kept as {aside}")
        print_line(_PAUSED, err=True)


@app.command("size")
def size(
    *,
    output: OutputOption = Output.TABLE,
    database: DatabaseOption = None,
    config: ConfigFile = None,
) -> None:
    """Show how large the database is, by table.

    SIZE includes indexes. The server may be running.

    Example: forewarn db size --database forewarn.db
    """
    with reported_errors("db size"):
        from forewarn.storage import administration  # noqa: PLC0415 - needs the server install

        answer = asdict(administration.measure(_settings(database, config).location))
        print_answer(answer, output, _print_size)


@app.command("upgrade")
def upgrade(*, database: DatabaseOption = None, config: ConfigFile = None) -> None:
    """Upgrade the database to the schema of this version.

    Stop the server first if the database is a file; replicas on PostgreSQL can keep running.

    Example: forewarn db upgrade --database forewarn.db
    """
    with reported_errors("db upgrade"):
        from forewarn.storage import administration  # noqa: PLC0415 - needs the server install
        from forewarn.telemetry.logs import configure_logging  # noqa: PLC0415 - server install

        settings = _settings(database, config)
        configure_logging(settings.log_format, LogLevel.ERROR)
        administration.upgrade(settings.location)
        print_line(f"{settings.database_name} is up to date")


def _print_size(answer: Row) -> None:
    print_table(answer["tables"], _SIZES)
    print_line()
    print_fields(answer, {"total": _kibibytes, "free": lambda row: _kibibytes(row, "free")})


def _kibibytes(row: Row, name: str = "size") -> str:
    return "" if row[name] is None else f"{row[name] // 1024:,} KiB"


_SIZES: Final[Columns] = {
    "table": "table",
    "rows": lambda row: f"{row['rows']:,}",
    "size": _kibibytes,
    "oldest": lambda row: wall_time_of(row["oldest"]),
}


def _settings(database: str | None, config: Path | None) -> "Settings":
    from forewarn.settings import load_settings  # noqa: PLC0415 - slow to load

    warn_of_password(database)
    return load_settings({"database": database}, config)


def _named(database: str, metavar: str) -> "Settings":
    """Return the settings of a server that would use *database*, and nothing else."""
    from forewarn.settings import make_settings  # noqa: PLC0415 - slow to load

    warn_of_password(database)
    try:
        return make_settings({"database": database})
    except SettingsError:
        # Not repeated: there may be a password in it.
        message = f"{metavar} is not a valid database name."
        hint = "use PATH, sqlite:///PATH or postgresql://HOST/DB"
        raise CommandError(message, code=ExitCode.USAGE, hint=hint) from None


@contextmanager
def _shown_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Give what shows how far a copy is, on a terminal, and take it away at the end."""
    from rich.console import Console  # noqa: PLC0415 - slow to load, and not for scripts

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda *_: None
        return
    with console.status("copying") as status:
        yield lambda table, done, total: status.update(f"{table} {done:,} of {total:,}")
