"""The topology in the database, and the one copy of it in memory.

A fleet may have a hundred thousand virtual machines, so it is read once and kept. A counter in the
database tells whether the copy still holds; what is written are the rows that differ.
"""

import sys
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache, partial
from json import JSONDecoder
from threading import Lock
from typing import Any, Final

from sqlalchemy import JSON, Column, Connection, Select, String, Table, cast, select

from forewarn.domain.policy import Policy
from forewarn.domain.profile import NO_PROFILE, Profile
from forewarn.domain.topology import (
    VM_FIELDS,
    Closure,
    DeliveryScope,
    Host,
    Topology,
    VirtualMachine,
)
from forewarn.ports.changes import StoreChange
from forewarn.storage.columns import Kept
from forewarn.storage.rows import PUT, REMOVE, key_of
from forewarn.storage.statements import SETTING
from forewarn.storage.tables import delivery_scopes, hosts, settings, virtual_machines

TOPOLOGY_VERSION: Final = "topology_version"
"""The setting that counts the changes of the topology."""
_CLOSURE: Final = tuple(each.name for each in fields(Closure))
_POLICY: Final = tuple(each.name for each in fields(Policy))
_decode: Final = JSONDecoder().raw_decode
"""What reads JSON without a look for blanks around it, where there are none."""
_OWN: Final = frozenset({"vm_id"})
"""What no two rows have in common, apart from their keys."""
_SCOPE: Final = tuple(each.name for each in fields(DeliveryScope) if each.name != "policy")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTopology:
    """A topology as the database has it, with the number of its change.

    *positions* has the place of each row in the fleet order, by table, in that order: a mapping by
    key would need a tenth of all the memory.
    """

    version: int = 0
    topology: Topology = field(
        default_factory=lambda: Topology(virtual_machines={}, scopes={}, hosts={})
    )
    positions: Mapping[str, Sequence[int]] = field(default_factory=dict)


_UNKNOWN: Final = StoredTopology(version=-1)


class TopologyCache:
    """The copy of the topology that all transactions share. It only ever holds committed ones."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._stored = StoredTopology()

    def look(self, connection: Connection) -> StoredTopology:
        """Return the topology that *connection* sees."""
        version = int(connection.execute(SETTING, {"name": TOPOLOGY_VERSION}).scalar() or 0)
        stored = self._stored
        if stored.version == version:
            return stored
        # Whoever comes while it is being read waits for it instead of reading it again.
        with self._lock:
            if self._stored.version == version:
                return self._stored
            stored = _load(connection, version)
            # A reader whose snapshot is old must not take back what has been kept since.
            if version > self._stored.version:
                self._stored = stored
            return stored

    def note(self, change: StoreChange) -> None:
        """Give the copy up if nobody knows any more what changed: its number says nothing then."""
        if change.is_gap:
            self._stored = _UNKNOWN

    def keep(self, stored: StoredTopology) -> None:
        """Take over *stored*, which has just been committed."""
        with self._lock:
            self._stored = stored


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyChange:
    """What has to be written so that *topology* is stored where *known* is.

    *changed* has the rows that differ, as the driver takes them, and *gone* the keys of those that
    are no more, by table.
    """

    known: StoredTopology
    topology: Topology
    positions: Mapping[str, Sequence[int]]
    changed: Mapping[str, Sequence[Sequence[object]]]
    gone: Mapping[str, Collection[str]]


def prepare_topology(topology: Topology, known: StoredTopology) -> TopologyChange:
    """Return what differs between *topology* and the *known* one; it takes longer than writing."""
    known_places = {part.table.name: part.places(known) for part in _PARTS}
    places = {
        part.table.name: _place(part.things(topology), known_places[part.table.name])
        for part in _PARTS
    }
    return TopologyChange(
        known=known,
        topology=topology,
        positions={name: array("q", each.values()) for name, each in places.items()},
        changed={
            name: part.changed_rows(topology, places[name], known.topology, known_places[name])
            for name, part in ((part.table.name, part) for part in _PARTS)
        },
        gone={
            part.table.name: part.things(known.topology).keys() - part.things(topology).keys()
            for part in _PARTS
        },
    )


def save_topology(connection: Connection, change: TopologyChange) -> StoredTopology:
    """Write *change*, and return the topology as it is stored now.

    Where nothing differs, the known one itself is returned.
    """
    if not any(change.changed.values()) and not any(change.gone.values()):
        return change.known
    # Virtual machines refer to scopes and hosts: those come first and go last.
    for part in _PARTS:
        PUT[part.table].run_many(connection, change.changed[part.table.name])
    for part in reversed(_PARTS):
        keys = change.gone[part.table.name]
        if keys:
            connection.execute(REMOVE[part.table], [{part.key: key} for key in keys])
    version = change.known.version + 1
    PUT[settings].run(connection, TOPOLOGY_VERSION, str(version))
    return StoredTopology(version=version, topology=change.topology, positions=change.positions)


def _place(keys: Iterable[str], known: Mapping[str, int]) -> dict[str, int]:
    # Rows keep their numbers as long as they ascend: one machine more or less is one row written.
    positions: dict[str, int] = {}
    last = -1
    for key in keys:
        last = max(known.get(key, -1), last + 1)
        positions[key] = last
    return positions


def _load(connection: Connection, version: int) -> StoredTopology:
    loaded = {part.table.name: part.load(connection) for part in _PARTS}
    things = {name: found for name, (found, _) in loaded.items()}
    return StoredTopology(
        version=version,
        topology=Topology(
            virtual_machines=things[virtual_machines.name],
            scopes=things[delivery_scopes.name],
            hosts=things[hosts.name],
        ),
        positions={name: places for name, (_, places) in loaded.items()},
    )


def _scope_row(scope: DeliveryScope) -> dict[str, object]:
    return {
        **{name: getattr(scope, name) for name in _SCOPE},
        **{name: getattr(scope.policy, name) for name in _POLICY},
    }


def _read_scope(row: Mapping[str, Any]) -> DeliveryScope:
    policy = Policy(**{name: row[name] for name in _POLICY})
    return DeliveryScope(policy=policy, **{name: row[name] for name in _SCOPE})


def _host_row(host: Host) -> dict[str, object]:
    closure = host.closure
    return {
        "labels": host.labels,
        **{name: None if closure is None else getattr(closure, name) for name in _CLOSURE},
    }


def _read_host(row: Mapping[str, Any]) -> Host:
    closure = {name: row[name] for name in _CLOSURE}
    is_open = closure["closed_at"] is None
    return Host(
        name=row["name"],
        labels=row["labels"],
        closure=None if is_open else Closure(**closure),
    )


def _vm_row(vm: VirtualMachine) -> dict[str, object]:
    return {name: getattr(vm, name) for name in VM_FIELDS} | {"profile": vm.profile.known}


def _read_vm(row: Mapping[str, Any]) -> VirtualMachine:
    known = row["profile"]
    return VirtualMachine(**{**row, "profile": Profile(**known) if known else NO_PROFILE})


def _is_json(column: Column[Any]) -> bool:
    return isinstance(column.type, Kept) and isinstance(column.type.kind, JSON)


def _sharing_reader(column: Column[Any]) -> Callable[[Any], Any] | None:
    """Return what reads a value so that what many rows have in common is in memory only once."""
    kind = column.type
    if isinstance(kind, Kept) and _is_json(column):
        return lru_cache(maxsize=1000)(partial(_read_json, kind))
    is_own = column.primary_key or column.name in _OWN
    return None if is_own or not isinstance(kind, String) else _share


def _read_json(kind: Kept[Any], text: str | None) -> Any:
    value = None if text is None else _decode(text)[0]
    return None if value is None else kind.read(value)


def _share(text: str | None) -> str | None:
    return None if text is None else sys.intern(text)


class _Part:
    """One of the three tables that make up a topology."""

    def __init__(
        self,
        table: Table,
        *,
        things: Callable[[Topology], Mapping[Any, Any]],
        write: Callable[[Any], dict[str, object]],
        read: Callable[[Mapping[str, Any]], Any],
    ) -> None:
        self.table = table
        self.things = things
        (self.key,) = key_of(table)
        self._put = PUT[table]
        self._write = write
        self._read = read
        columns = [column for column in table.columns if column.name != "position"]
        self._names = [column.name for column in columns]
        readers = ((place, _sharing_reader(column)) for place, column in enumerate(columns))
        self._readers = [(place, read) for place, read in readers if read]
        texts = (cast(each, String) if _is_json(each) else each for each in columns)
        self._select: Select[Any] = select(*texts, table.c.position).order_by(table.c.position)

    def places(self, known: StoredTopology) -> dict[str, int]:
        """Return the place of each of these in the fleet order, by key."""
        positions = known.positions.get(self.table.name, ())
        return dict(zip(self.things(known.topology), positions, strict=True))

    def changed_rows(
        self,
        topology: Topology,
        places: Mapping[str, int],
        known: Topology,
        known_places: Mapping[str, int],
    ) -> list[list[object]]:
        """Return the rows of *topology* that are not the same in *known*, as they are written."""
        known_things = self.things(known)
        return [
            self._put.prepare(self._values(key, places[key], self._write(thing)))
            for key, thing in self.things(topology).items()
            if known_places.get(key) != places[key]
            or (known_things[key] is not thing and known_things[key] != thing)
        ]

    def _values(self, key: str, position: int, fields: Mapping[str, object]) -> Iterator[object]:
        row = {self.key: key, "position": position, **fields}
        return (row[name] for name in self._put.names)

    def load(self, connection: Connection) -> tuple[dict[Any, Any], Sequence[int]]:
        """Return everything in the table by key, and its places, in fleet order."""
        things: dict[Any, Any] = {}
        places = array("q")
        # In chunks: a transaction that stands still for seconds would be taken for one that hangs.
        found = connection.execute(self._select, execution_options={"yield_per": 1000})
        for *values, position in found:
            for place, read in self._readers:
                values[place] = read(values[place])
            row = dict(zip(self._names, values, strict=True))
            things[row[self.key]] = self._read(row)
            places.append(position)
        return things, places


_SCOPES: Final = _Part(
    delivery_scopes,
    things=lambda topology: topology.scopes,
    write=_scope_row,
    read=_read_scope,
)
_HOSTS: Final = _Part(
    hosts, things=lambda topology: topology.hosts, write=_host_row, read=_read_host
)
_VIRTUAL_MACHINES: Final = _Part(
    virtual_machines,
    things=lambda topology: topology.virtual_machines,
    write=_vm_row,
    read=_read_vm,
)
_PARTS: Final = (_SCOPES, _HOSTS, _VIRTUAL_MACHINES)
