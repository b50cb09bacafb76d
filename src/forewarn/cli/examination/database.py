"""What is looked at in a database file: is it sound, can this version use it, what is it."""

from collections.abc import Iterator
from pathlib import Path

from forewarn.cli.examination.findings import Finding, doubtful, fine, is_open_to_others, wrong
from forewarn.settings import Settings
from forewarn.storage.backups import DatabaseState, examine
from forewarn.storage.errors import DatabaseError
from forewarn.storage.schema import HEAD


def examine_database(settings: Settings) -> Iterator[Finding]:
    """Look at the database of *settings*, all of it."""
    path = settings.database_path
    try:
        state = examine(path)
    except DatabaseError as error:
        yield wrong("integrity", str(error), "try: forewarn db restore FILE, with a backup")
        return
    yield _integrity(path, state)
    yield _schema(settings, state)
    yield _clock(settings, state)
    yield _origin(path, state)
    yield _privacy(path)


def _integrity(path: Path, state: DatabaseState) -> Finding:
    if state.damage:
        sentence = f"{path} is damaged ({state.damage[0]})."
        return wrong("integrity", sentence, "try: forewarn db restore FILE, with a backup")
    return fine("integrity", f"{path} is sound.")


def _schema(settings: Settings, state: DatabaseState) -> Finding:
    schema = state.schema
    if schema.revision == HEAD:
        return fine("schema", "It has the schema of this version.")
    if schema.is_current:
        return fine("schema", f"It has schema {schema.revision}, which this version can use.")
    if schema.is_too_new:
        sentence = f"It has schema {schema.revision}, which this version does not know."
        return wrong("schema", sentence, "use the version that made it, or a newer one")
    sentence = f"It has schema {schema.revision}; this version has {HEAD}."
    return doubtful("schema", sentence, f"try: forewarn db upgrade --database {settings.database}")


def _clock(settings: Settings, state: DatabaseState) -> Finding:
    if state.clock is None:
        return fine("clock", "No server has been started on it.")
    if state.clock != settings.clock:
        sentence = f"It belongs to the {state.clock} clock; the setting is {settings.clock}."
        return wrong("clock", sentence, f"serve it with --clock {state.clock}")
    return fine("clock", f"It belongs to the {state.clock} clock.")


def _origin(path: Path, state: DatabaseState) -> Finding:
    if state.backup_taken_at is None:
        return fine("origin", f"{path} is the database of a server.")
    sentence = f"{path} is a backup of {state.backup_taken_at}; a server starts paused on it."
    return fine("origin", sentence)


def _privacy(path: Path) -> Finding:
    if is_open_to_others(path):
        sentence = "Others on this machine can read it."
        return doubtful("privacy", sentence, f"try: chmod 600 {path}*")
    return fine("privacy", "Only its owner can read it.")
