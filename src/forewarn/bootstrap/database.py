"""The database of a server: a file of its own, or one that it shares with other replicas."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog

from forewarn.bootstrap.node import find_node
from forewarn.ports.leadership import Leadership
from forewarn.ports.store import Store, StoreUnavailableError
from forewarn.settings import Settings
from forewarn.storage.errors import PostgresMissingError
from forewarn.storage.lock import FileLeadership
from forewarn.storage.schema import remove_files
from forewarn.storage.sqlite import open_sqlite

log = structlog.get_logger()

S = TypeVar("S", bound=Store)

_RETRY_SECONDS: Final = 1.0
_SAY_AGAIN_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """An open *store*, and who leads on it; *discard* forgets a file that was made in vain."""

    store: Store
    leadership: Leadership
    discard: Callable[[], None] = lambda: None


@contextmanager
def open_database(settings: Settings, replica_id: str) -> Iterator[Database]:
    """Open the database of *settings*, and close it in the end.

    One that several replicas share may be away: then this waits for it, and says so.
    """
    database = _open_shared(settings, replica_id) if settings.is_shared else _open_file(settings)
    try:
        yield database
    finally:
        database.store.close()


def _open_file(settings: Settings) -> Database:
    path = settings.database_path
    is_new = not path.exists()
    store = open_sqlite(path, migrate=settings.migrate)

    def discard() -> None:
        store.close()
        if is_new:
            remove_files(path)

    return Database(store=store, leadership=FileLeadership(store), discard=discard)


def _open_shared(settings: Settings, replica_id: str) -> Database:
    try:
        from forewarn.storage.lease import DatabaseLeadership  # noqa: PLC0415 - an extra
        from forewarn.storage.postgres import open_postgres  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise PostgresMissingError from error
    node = find_node(settings.state_directory)
    store = _wait_for(lambda: open_postgres(settings.database, migrate=settings.migrate, node=node))
    return Database(store=store, leadership=DatabaseLeadership(store.address, replica_id))


def _wait_for(attempt: Callable[[], S]) -> S:
    trouble, said_at = "", 0.0
    while True:
        try:
            return attempt()
        except StoreUnavailableError as error:
            now = time.monotonic()
            if str(error) != trouble or now - said_at >= _SAY_AGAIN_SECONDS:
                log.warning("waiting_for_database", problem=str(error))
                trouble, said_at = str(error), now
        time.sleep(_RETRY_SECONDS)
