"""Copies of a database: made while a server uses it, looked at, and put back."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from sqlalchemy.exc import DBAPIError

from forewarn.operations.restoring import BACKUP_TAKEN_AT
from forewarn.private_files import give_to_owner_of
from forewarn.storage.connections import Connector
from forewarn.storage.errors import (
    BackupRefusedError,
    DatabaseDamagedError,
    DatabaseUnusableError,
)
from forewarn.storage.lock import DatabaseLock
from forewarn.storage.schema import (
    SchemaState,
    check_file,
    explain_failure,
    find_schema,
    require_database,
)

_SUFFIXES: Final = ("-wal", "-shm", "-journal", "")
"""The files of a database: what SQLite keeps beside it is moved before the file itself."""
_MARK: Final = "INSERT OR IGNORE INTO settings (name, value) VALUES (?, ?)"
_UNMARK: Final = "DELETE FROM settings WHERE name = ? AND value = ''"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseState:
    """What a database says of itself. *damage* is what an examination of every page found."""

    damage: tuple[str, ...]
    schema: SchemaState
    clock: str | None
    backup_taken_at: str | None


def back_up(source: Path, target: Path, *, at: datetime, overwrite: bool = False) -> None:
    """Copy the database *source*, as it is at one moment, to a new file that only its owner reads.

    A server may be using it. The copy says that it is one, so that the server that is started on
    it knows.
    """
    require_database(source)
    if target.exists() and target.samefile(source):
        raise BackupRefusedError(target, "is the database itself; choose another name")
    refuse_existing(target, overwrite=overwrite)
    with drafting(target) as draft:
        _copy(source, draft, at)
        draft.replace(target)
    sync_folder(target.parent)


def refuse_existing(target: Path, *, overwrite: bool) -> None:
    """Refuse to replace a file that is there, unless that is asked for."""
    if target.exists() and not overwrite:
        raise BackupRefusedError(target, "already exists; choose another name, or add --overwrite")


def examine(path: Path) -> DatabaseState:
    """Look at every page of the database; refuse what is not one."""
    require_database(path)
    try:
        schema = find_schema(path)
        with closing(Connector(path, mode="ro").connect()) as connection:
            driver = connection.driver
            found = [str(row[0]) for row in driver.execute("PRAGMA integrity_check(10)")]
            broken = len(driver.execute("PRAGMA foreign_key_check").fetchall())
            told = dict(driver.execute("SELECT name, value FROM settings").fetchall())
    except (sqlite3.Error, DBAPIError) as error:
        raise explain_failure(path, error) from error
    if broken:
        found.append(f"{broken} rows refer to rows that do not exist")
    return DatabaseState(
        damage=tuple(each for each in found if each != "ok"),
        schema=schema,
        clock=told.get("clock"),
        backup_taken_at=told.get(BACKUP_TAKEN_AT) or None,
    )


def restore(backup: Path, target: Path, *, at: datetime) -> Path | None:
    """Put *backup* in the place of *target*, and return where the old file is kept, if any.

    Refused, with nothing changed, if the backup is damaged or not a database that this release can
    use or upgrade, or if a server uses the target.
    """
    state = examine(backup)
    if state.damage:
        raise DatabaseDamagedError(backup, state.damage[0])
    state.schema.require_usable(backup)
    if target.exists() and target.samefile(backup):
        raise BackupRefusedError(backup, "is the database itself; name a backup")
    _check_place(target)
    lock = DatabaseLock(target)
    try:
        with drafting(target) as draft:
            _copy(backup, draft, at)
            aside = _set_aside(target, at)
            draft.replace(target)
        sync_folder(target.parent)
    finally:
        lock.release()
    return aside


def _check_place(target: Path) -> None:
    # What is there may be damaged: that is why it is replaced.
    if not target.exists():
        check_file(target)
    elif not target.is_file():
        raise DatabaseUnusableError(target, "it is not a regular file")


@contextmanager
def drafting(target: Path) -> Iterator[Path]:
    """Give a new file beside *target* that only its owner can read, and that is gone afterwards."""
    draft = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        yield draft
    except OSError as error:
        raise DatabaseUnusableError(target, f"it cannot be written ({error.strerror})") from error
    finally:
        draft.unlink(missing_ok=True)


def _copy(source: Path, draft: Path, at: datetime) -> None:
    """Copy a database that may be in use into *draft*, mark it as a copy, and verify it."""
    try:
        with (
            closing(Connector(source, mode="ro").connect()) as reading,
            closing(sqlite3.connect(draft, isolation_level=None)) as copy,
        ):
            # In one go: a copy in several goes would begin anew with each write in between.
            reading.driver.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # all of it is in one file
            copy.execute(_UNMARK, [BACKUP_TAKEN_AT])
            copy.execute(_MARK, [BACKUP_TAKEN_AT, at.isoformat()])
            (finding,) = copy.execute("PRAGMA integrity_check(1)").fetchone()
    except (sqlite3.Error, DBAPIError) as error:
        raise explain_failure(source, error) from error
    if finding != "ok":
        raise DatabaseDamagedError(source, str(finding))
    finish_draft(draft)


def finish_draft(draft: Path) -> None:
    """Have all of *draft* on the disk, for whoever has the place it is for."""
    give_to_owner_of(draft.parent, draft)
    with draft.open("rb") as file:
        os.fsync(file.fileno())


def _set_aside(target: Path, at: datetime) -> Path | None:
    if not target.exists():
        return None
    aside = target.with_name(f"{target.name}.before-restore-{at:%Y%m%dT%H%M%S.%fZ}")
    for suffix in _SUFFIXES:
        file = target.with_name(target.name + suffix)
        if file.exists():
            file.rename(aside.with_name(aside.name + suffix))
    return aside


def sync_folder(directory: Path) -> None:
    """Have the names of files in *directory* on the disk."""
    if os.name == "posix":
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
