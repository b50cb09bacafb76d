"""What is looked at in a database: is it sound, can this version use it, what is it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from forewarn.cli.examination.findings import is_open_to_others
from forewarn.domain.finding import Finding, doubtful, fine, wrong
from forewarn.settings import Settings
from forewarn.storage.administration import at_server
from forewarn.storage.backups import DatabaseState, examine
from forewarn.storage.errors import DatabaseError
from forewarn.storage.schema import HEAD, SchemaState

_RESTORE: Final = "try: forewarn db restore FILE, with a backup"


def examine_database(settings: Settings) -> Iterator[Finding]:
    """Look at the database of *settings*, all of it."""
    if settings.is_shared:
        yield from _examine_server(settings)
        return
    path = settings.database_path
    try:
        state = examine(path)
    except DatabaseError as error:
        yield wrong("integrity", str(error), f"check the path, or {_RESTORE}")
        return
    yield _integrity(path, state)
    yield _schema(settings, state.schema)
    yield _clock(settings, state.clock)
    yield _origin(settings, state.backup_taken_at)
    yield _privacy(path)


def _examine_server(settings: Settings) -> Iterator[Finding]:
    try:
        state = at_server(settings.database).examine()
    except DatabaseError as error:
        yield wrong("server", str(error), "try: forewarn config show --effective")
        return
    server = f"PostgreSQL {state.version}, encoding {state.encoding}"
    yield fine("server", f"Connected to {settings.database_name}: {server}.")
    if state.can_write:
        yield fine("permission", "The database user can write.")
    else:
        yield wrong(
            "permission",
            "The database user cannot write.",
            "make that user the owner of the database and its tables",
        )
    if state.schema.revision is None:
        yield fine("schema", "The database is empty; forewarn serve creates its tables.")
        return
    yield _schema(settings, state.schema)
    yield _clock(settings, state.clock)
    yield _origin(settings, state.backup_taken_at)


def _integrity(path: Path, state: DatabaseState) -> Finding:
    if state.damage:
        sentence = f"{path} is damaged ({state.damage[0]})."
        return wrong("integrity", sentence, _RESTORE)
    return fine("integrity", f"{path} is intact.")


def _schema(settings: Settings, schema: SchemaState) -> Finding:
    if schema.revision == HEAD:
        return fine("schema", "The schema matches this version.")
    if schema.is_current:
        return fine("schema", f"The schema is {schema.revision}, which this version can use.")
    if schema.is_unreleased:
        sentence = f"The schema is {schema.revision}, of an unreleased version."
        return wrong("schema", sentence, "export the fleet with that version; use a new database")
    if schema.is_too_new:
        sentence = f"The schema is {schema.revision}, which this version does not know."
        return wrong("schema", sentence, "use the version that created it, or a newer one")
    sentence = f"The schema is {schema.revision}; this version needs {HEAD}."
    return doubtful("schema", sentence, f"try: {upgrade_command(settings)}")


def upgrade_command(settings: Settings) -> str:
    """Return the command that upgrades the database, without a password."""
    if settings.is_shared:
        return "forewarn db upgrade"
    return f"forewarn db upgrade --database {settings.database}"


def _clock(settings: Settings, clock: str | None) -> Finding:
    if clock is None:
        return fine("clock", "No server has used this database yet.")
    if clock != settings.clock:
        sentence = f"The database uses the {clock} clock; the setting is {settings.clock}."
        return wrong("clock", sentence, f"try: forewarn serve --clock {clock}")
    return fine("clock", f"The database uses the {clock} clock.")


def _origin(settings: Settings, backup_taken_at: str | None) -> Finding:
    name = settings.database_name
    if backup_taken_at is None:
        return fine("origin", f"{name} is a server's database.")
    sentence = f"{name} is a backup from {backup_taken_at}; a server on it starts paused."
    return fine("origin", sentence)


def _privacy(path: Path) -> Finding:
    if is_open_to_others(path):
        sentence = f"Other users on this machine can read {path}."
        return doubtful("privacy", sentence, f"try: chmod 600 {path}*")
    return fine("privacy", f"Only its owner can read {path}.")
