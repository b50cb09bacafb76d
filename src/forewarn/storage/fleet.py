"""The topology in the database: three tables, of which only the rows that differ are written."""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache, partial
from json import JSONDecoder
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    Select,
    String,
    Table,
    cast,
    select,
)

from forewarn.domain.policy import Policy
from forewarn.domain.profile import NO_PROFILE, Profile
from forewarn.domain.topology import (
    NO_FLEET,
    VM_FIELDS,
    Closure,
    DeliveryScope,
    FleetKeys,
    Host,
    Revision,
    Topology,
    VirtualMachine,
    is_in_order,
)
from forewarn.storage.columns import Kept
from forewarn.storage.rows import MOVE, PUT, REMOVE, key_of
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

    *ends* has, by table, a number that is higher than the position of any row.
    """

    version: int = 0
    topology: Topology = NO_FLEET
    ends: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyChange:
    """What has to be written so that *topology* is stored where *known* is, by table.

    *put* has the rows that differ, as the driver takes them, *gone* the keys of those that are no
    more, and *moved* the keys of all rows, in their order, where that is another one.
    """

    known: StoredTopology
    topology: Topology
    put: Mapping[str, Sequence[Sequence[object]]]
    gone: Mapping[str, Collection[str]]
    moved: Mapping[str, Collection[str]]

    def __bool__(self) -> bool:
        return any(any(each.values()) for each in (self.put, self.gone, self.moved))


def prepare_topology(topology: Topology, known: StoredTopology) -> TopologyChange:
    """Return what differs between *topology* and the *known* one."""
    revision = topology.revision_of(known.topology)
    old = known.topology
    return TopologyChange(
        known=known,
        topology=topology,
        put={
            part.name: part.rows(topology, part.keys(revision.put), known.ends.get(part.name, 0))
            for part in _PARTS
        },
        gone={part.name: part.keys(revision.gone) for part in _PARTS},
        moved={
            part.name: tuple(part.things(topology))
            for part in _PARTS
            if not revision.is_in_order and not is_in_order(part.things(old), part.things(topology))
        },
    )


def save_topology(connection: Connection, change: TopologyChange) -> StoredTopology:
    """Write *change*, and return the topology as it is stored now.

    Where nothing differs, the known one itself is returned.
    """
    if not change:
        return change.known
    # Virtual machines refer to scopes and hosts: those come first and go last.
    for part in _PARTS:
        PUT[part.table].run_many(connection, change.put[part.name])
    for part in reversed(_PARTS):
        if keys := change.gone[part.name]:
            connection.execute(REMOVE[part.table], [{part.key: key} for key in keys])
    for part in _PARTS:
        moved = enumerate(change.moved.get(part.name, ()))
        if places := [{"of": key, "to": place} for place, key in moved]:
            connection.execute(MOVE[part.table], places)
    version = change.known.version + 1
    PUT[settings].run(connection, TOPOLOGY_VERSION, str(version))
    ends = {
        part.name: max(
            change.known.ends.get(part.name, 0) + len(change.put[part.name]),
            len(change.moved.get(part.name, ())),
        )
        for part in _PARTS
    }
    return StoredTopology(version=version, topology=change.topology, ends=ends)


def reload_topology(
    connection: Connection, base: StoredTopology, revision: Revision, version: int
) -> StoredTopology:
    """Return the topology of *version*, made of *base* and the rows of *revision*."""
    loaded = {part.name: part.load(connection, part.keys(revision.put)) for part in _PARTS}
    things = {name: found.values() for name, (found, _) in loaded.items()}
    topology = base.topology.revise(
        virtual_machines=things[virtual_machines.name],
        scopes=things[delivery_scopes.name],
        hosts=things[hosts.name],
        gone=revision.gone,
    )
    ends = {name: max(end, base.ends.get(name, 0)) for name, (_, end) in loaded.items()}
    return StoredTopology(version=version, topology=topology, ends=ends)


def load_topology(connection: Connection, version: int) -> StoredTopology:
    """Return the topology of *version*, all of which is read."""
    loaded = {part.name: part.load(connection) for part in _PARTS}
    things = {name: found for name, (found, _) in loaded.items()}
    return StoredTopology(
        version=version,
        topology=Topology(
            virtual_machines=things[virtual_machines.name],
            scopes=things[delivery_scopes.name],
            hosts=things[hosts.name],
        ),
        ends={name: end for name, (_, end) in loaded.items()},
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
        field: str,
        *,
        write: Callable[[Any], dict[str, object]],
        read: Callable[[Mapping[str, Any]], Any],
    ) -> None:
        self.table = table
        self.name = table.name
        # A topology and the keys of its entries are made up alike.
        self.things: Callable[[Topology], Mapping[Any, Any]] = attrgetter(field)
        self.keys: Callable[[FleetKeys], tuple[str, ...]] = attrgetter(field)
        (self.key,) = key_of(table)
        self._key_column = table.c[self.key]
        self._put = PUT[table]
        self._write = write
        self._read = read
        columns = [column for column in table.columns if column.name != "position"]
        self._names = [column.name for column in columns]
        readers = ((place, _sharing_reader(column)) for place, column in enumerate(columns))
        self._readers = [(place, read) for place, read in readers if read]
        texts = (cast(each, String) if _is_json(each) else each for each in columns)
        self._select: Select[Any] = select(*texts, table.c.position).order_by(table.c.position)

    def rows(self, topology: Topology, keys: Iterable[str], end: int) -> list[list[object]]:
        """Return the rows of *keys* as they are written; those that are new come after *end*."""
        things = self.things(topology)
        return [
            self._put.prepare(self._values(key, place, self._write(things[key])))
            for place, key in enumerate(keys, end)
        ]

    def _values(self, key: str, position: int, fields: Mapping[str, object]) -> Iterator[object]:
        row = {self.key: key, "position": position, **fields}
        return (row[name] for name in self._put.names)

    def load(
        self, connection: Connection, keys: Collection[str] | None = None
    ) -> tuple[dict[Any, Any], int]:
        """Return what is in the table, or only these, by key, in fleet order, and where it ends."""
        things: dict[Any, Any] = {}
        end = 0
        # In chunks: a transaction that stands still for seconds would be taken for one that hangs.
        look = self._select if keys is None else self._select.where(self._key_column.in_(keys))
        found = connection.execute(look, execution_options={"yield_per": 1000})
        for *values, position in found:
            for place, read in self._readers:
                values[place] = read(values[place])
            row = dict(zip(self._names, values, strict=True))
            things[row[self.key]] = self._read(row)
            end = position + 1
        return things, end


_PARTS: Final = (
    _Part(delivery_scopes, "scopes", write=_scope_row, read=_read_scope),
    _Part(hosts, "hosts", write=_host_row, read=_read_host),
    _Part(virtual_machines, "virtual_machines", write=_vm_row, read=_read_vm),
)
