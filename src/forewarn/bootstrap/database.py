"""The database of a server: a file of its own, or one that it shares with other replicas."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

import structlog

from forewarn.bootstrap.node import find_node
from forewarn.clocks import SystemClock
from forewarn.ports.clock import WallClock
from forewarn.ports.leadership import Leadership
from forewarn.ports.replicas import ReplicaIdentity, Replicas, name_replica
from forewarn.ports.store import Store, StoreUnavailableError
from forewarn.settings import Settings
from forewarn.storage.errors import PostgresMissingError
from forewarn.storage.lock import FileLeadership, SoleReplica
from forewarn.storage.schema import remove_files
from forewarn.storage.sqlite import open_sqlite

log = structlog.get_logger()

T = TypeVar("T")

_RETRY_SECONDS: Final = 1.0
_SAY_AGAIN_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDatabase:
    """An open *store*, who leads on it, and who else serves it; *place* is how people know it.

    All who serve it measure real time by *wall*. This server is *node*; see `own`. *discard*
    forgets a file that was made in vain.
    """

    store: Store
    node: str
    leadership: Leadership
    replicas: Replicas
    place: str
    wall: WallClock = field(default_factory=SystemClock)
    discard: Callable[[], None] = lambda: None


@contextmanager
def open_database(settings: Settings, itself: ReplicaIdentity) -> Iterator[OpenDatabase]:
    """Open the database of *settings* for the replica *itself*, and close it in the end.

    One that several replicas share may be away: then this waits for it, and says so.
    """
    with ExitStack() as stack:
        yield (_open_shared if settings.is_shared else _open_file)(settings, itself, stack)


def _open_file(settings: Settings, itself: ReplicaIdentity, stack: ExitStack) -> OpenDatabase:
    path = settings.database_path
    is_new = not path.exists()
    store = open_sqlite(path, migrate=settings.migrate)
    stack.callback(store.close)

    def discard() -> None:
        store.close()
        if is_new:
            remove_files(path)

    leadership = FileLeadership(store)
    return OpenDatabase(
        store=store,
        node="",
        leadership=leadership,
        replicas=SoleReplica(store, itself, now=SystemClock().now, leads=leadership.holds),
        place=str(path),
        discard=discard,
    )


def _open_shared(settings: Settings, itself: ReplicaIdentity, stack: ExitStack) -> OpenDatabase:
    try:
        from forewarn.storage.lease import DatabaseLeadership  # noqa: PLC0415 - an extra
        from forewarn.storage.postgres import open_postgres  # noqa: PLC0415 - an extra
        from forewarn.storage.replicas import DatabaseReplicas  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise PostgresMissingError from error
    node = find_node(settings.state_directory)
    store = wait_for(lambda: open_postgres(settings.database, migrate=settings.migrate, node=node))
    stack.callback(store.close)
    itself = replace(itself, replica_id=name_replica(node, itself.replica_id))
    leadership = DatabaseLeadership(store.address, itself.replica_id, now=SystemClock().now)
    stack.callback(leadership.close)
    replicas = DatabaseReplicas(store, itself)
    stack.callback(replicas.leave)
    wait_for(replicas.report)
    return OpenDatabase(
        store=store,
        node=node,
        leadership=leadership,
        replicas=replicas,
        place=str(store.address),
        wall=replicas,
    )


def own(database: OpenDatabase, settings: Settings) -> OpenDatabase:
    """Return *database* with the node of this server.

    Where replicas share a database, each needs its node to open it. Where a server has a file to
    itself, it becomes a node only when nothing can be wrong with the file any more.
    """
    if settings.is_shared:
        return database
    node = find_node(settings.state_directory, is_shared=False)
    known = database.replicas.itself
    database.replicas.itself = replace(known, replica_id=name_replica(node, known.replica_id))
    return replace(database, node=node)


def wait_for(attempt: Callable[[], T]) -> T:
    """Return what *attempt* does, which is repeated while the database is away."""
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
