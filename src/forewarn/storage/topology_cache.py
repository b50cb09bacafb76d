"""The one copy of the topology in memory.

A fleet may have a million virtual machines, so it is read once and kept. A counter in the database
tells whether the copy still holds. Of what others have written, only the rows that differ are read:
the hints at their changes say which those are. Where they do not, all of it is read again, and
nobody who writes waits for that.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from threading import Lock
from typing import Final

from sqlalchemy import JSON, Connection, bindparam, select, type_coerce

from forewarn.domain.topology import FleetKeys, Revision
from forewarn.ports.changes import StoreChange
from forewarn.storage.changes import read_hint
from forewarn.storage.fleet import (
    TOPOLOGY_VERSION,
    StoredTopology,
    load_topology,
    reload_topology,
)
from forewarn.storage.statements import SETTING
from forewarn.storage.tables import changes

MOST_KEYS: Final = 1000
"""How many entries a hint at a change of the topology tells of at most."""
MOST_KEYS_AT_ONCE: Final = 10_000
"""How many entries are read one by one at most, before it is quicker to read all."""
# As a text: a later release may write something else there, which is no number.
_VERSION: Final = type_coerce(changes.c.hint, JSON)[TOPOLOGY_VERSION].as_string()
_TOPOLOGY_HINTS: Final = (
    select(type_coerce(changes.c.hint, JSON))
    .where(_VERSION.in_(bindparam("versions", expanding=True)))
    .order_by(changes.c.number)
)
_UNKNOWN: Final = StoredTopology(version=-1)


class TopologyNotReadError(Exception):
    """A work needs the topology, all of which has to be read first. It is called again then."""


class TopologyCache:
    """The copy of the topology that all transactions share. It only ever holds committed ones."""

    def __init__(self) -> None:
        self._changing = Lock()
        """For as long as it takes to commit a topology, or to read a few rows of one."""
        self._loading = Lock()
        """For as long as it takes to read all of one."""
        self.latest = StoredTopology()
        """The newest that is known."""

    def look(self, connection: Connection, before: StoredTopology) -> StoredTopology:
        """Return the topology that *connection* sees, which is not older than the one *before*."""
        found = self.find(connection, before)
        if found is not None:
            return found
        # Whoever comes while it is being read waits for it instead of reading it again.
        with self._loading:
            found = self.find(connection, before)
            if found is None:
                found = load_topology(connection, _read_version(connection))
                with self._changing:
                    self._take(found)
            return found

    def find(self, connection: Connection, before: StoredTopology) -> StoredTopology | None:
        """Return the same as `look`; None if all of it would have to be read."""
        version = _read_version(connection)
        for known in (before, self.latest):
            if known.version == version:
                return known
        # It may just have been committed, or somebody may be reading what differs.
        with self._changing:
            if self.latest.version == version:
                return self.latest
            base = self.latest if self.latest.version < version else before
            found = _read_revision(connection, base, version)
            if found is not None:
                self._take(found)
            return found

    def note(self, change: StoreChange) -> None:
        """Give the copy up if nobody knows any more what changed: its number says nothing then."""
        if change.is_gap:
            self.latest = _UNKNOWN

    @contextmanager
    def keeping(self, stored: StoredTopology | None) -> Iterator[None]:
        """Take over *stored*, if there is one, which is committed in the block."""
        if stored is None:
            yield
            return
        with self._changing:
            yield
            self.latest = stored

    def _take(self, stored: StoredTopology) -> None:
        # A reader whose snapshot is old must not take back what has been kept since.
        if stored.version > self.latest.version:
            self.latest = stored


def _read_version(connection: Connection) -> int:
    return int(connection.execute(SETTING, {"name": TOPOLOGY_VERSION}).scalar() or 0)


def join_revisions(revisions: Iterable[Revision], most: int) -> Revision | None:
    """Return all of *revisions* as one; None if they have more than *most* keys, or an order.

    What is gone in one of them may be back in a later one, and is in both then.
    """
    parts = tuple(revisions)
    has_order = not all(each.is_in_order for each in parts)
    if has_order or sum(len(each.put) + len(each.gone) for each in parts) > most:
        return None
    put, gone = (each.put for each in parts), (each.gone for each in parts)
    return Revision(put=_join_keys(put), gone=_join_keys(gone))


def _join_keys(keys: Iterable[FleetKeys]) -> FleetKeys:
    parts = tuple(keys)
    vms = chain.from_iterable(each.virtual_machines for each in parts)
    scopes = chain.from_iterable(each.scopes for each in parts)
    hosts = chain.from_iterable(each.hosts for each in parts)
    return FleetKeys(
        virtual_machines=tuple(dict.fromkeys(vms)),
        scopes=tuple(dict.fromkeys(scopes)),
        hosts=tuple(dict.fromkeys(hosts)),
    )


def _read_revision(
    connection: Connection, base: StoredTopology, version: int
) -> StoredTopology | None:
    """Return *base* with what has changed up to *version*; None if the hints do not say what."""
    versions = range(base.version + 1, version + 1)
    if len(versions) > MOST_KEYS_AT_ONCE:  # there is an entry at least that each has otherwise
        return None
    revisions: list[Revision] = []
    reached = base.version
    look = connection.execute(_TOPOLOGY_HINTS, {"versions": [*map(str, versions)]})
    for hint in map(read_hint, look.scalars()):
        if hint is None or hint.revision is None or hint.revises != reached:
            return None
        revisions.append(hint.revision)
        reached = hint.topology_version or 0
    revision = join_revisions(revisions, MOST_KEYS_AT_ONCE)
    if reached != version or revision is None:
        return None
    return reload_topology(connection, base, revision, version)
