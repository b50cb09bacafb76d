"""What differs between two fleets, field by field, in the words of the fleet file."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TypeVar

from pydantic import JsonValue

from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.domain.topology import DeliveryScope, Host, ScopeKind, Topology, VirtualMachine
from forewarn.files.declarations import (
    DEFAULTS,
    SET_TABLES,
    Entry,
    declare_set,
    declare_vm,
    sets_of,
)
from forewarn.wording.differences import difference_line

T = TypeVar("T")


class Alteration(StrEnum):
    """What happened to an entry of the fleet."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDifference:
    """One key of an entry with its two values, None where it has none."""

    field: str
    before: JsonValue
    after: JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One entry that is added, changed or removed; *table* is where a fleet file declares it."""

    table: str
    name: str
    alteration: Alteration
    fields: tuple[FieldDifference, ...] = ()

    def __str__(self) -> str:
        fields = ((each.field, each.before, each.after) for each in self.fields)
        return difference_line(self.alteration, self.table, self.name, fields, arrow="->")


def find_differences(before: Topology, after: Topology) -> tuple[Difference, ...]:
    """Return how *after* differs: in its sets, then its virtual machines, then its hosts."""
    revision = after.revision_of(before)
    put, gone = revision.put, revision.gone
    scopes = (*put.scopes, *gone.scopes)
    # A set has its settings, not the machines in it; only a standalone machine has its own.
    alone = (
        _machine_of(topology.scopes.get(key)) for topology in (before, after) for key in scopes
    )
    vms = (*put.virtual_machines, *gone.virtual_machines, *filter(None, alone))
    hosts = (*put.hosts, *gone.hosts)
    return (
        *_compare(_sets(before, scopes), _sets(after, scopes), declare_set),
        *_compare(
            _machines(before, vms), _machines(after, vms), lambda machine: declare_vm(*machine)
        ),
        *_compare(
            _hosts(before, hosts), _hosts(after, hosts), lambda host: {"labels": dict(host.labels)}
        ),
    )


_Named = tuple[str, str]
"""A table and the name of an entry in it."""


def _machine_of(scope: DeliveryScope | None) -> VmName | None:
    is_alone = scope is not None and scope.kind is ScopeKind.VIRTUAL_MACHINE
    return VmName(scope.name) if scope is not None and is_alone else None


def _sets(topology: Topology, scope_ids: Iterable[ScopeId]) -> dict[_Named, DeliveryScope]:
    scopes = sets_of(topology, scope_ids)
    return {(SET_TABLES[scope.kind], scope.name): scope for scope in scopes}


def _machines(
    topology: Topology, names: Iterable[VmName]
) -> dict[_Named, tuple[VirtualMachine, DeliveryScope]]:
    known = topology.virtual_machines

    @cache
    def place(scope_id: ScopeId) -> DeliveryScope:
        scope = topology.scopes[scope_id]
        if scope.kind is ScopeKind.VIRTUAL_MACHINE:
            return scope
        group = scope.placement_group
        return DeliveryScope(kind=scope.kind, name=scope.name, placement_group=group)

    vms = (known[name] for name in names if name in known)
    return {("virtual_machine", vm.name): (vm, place(vm.scope_id)) for vm in vms}


def _hosts(topology: Topology, names: Iterable[HostName]) -> dict[_Named, Host]:
    known = topology.hosts
    return {("host", name): known[name] for name in names if name in known}


def _compare(
    old: Mapping[_Named, T], new: Mapping[_Named, T], declare: Callable[[T], Entry]
) -> Iterator[Difference]:
    yield from _listed((key for key in new if key not in old), Alteration.ADDED)
    for (table, name), after in new.items():
        before = old.get((table, name), after)
        if before != after:
            fields = tuple(_compare_fields(declare(before), declare(after)))
            yield Difference(table=table, name=name, alteration=Alteration.CHANGED, fields=fields)
    yield from _listed((key for key in old if key not in new), Alteration.REMOVED)


def _listed(keys: Iterable[_Named], alteration: Alteration) -> Iterator[Difference]:
    for table, name in keys:
        yield Difference(table=table, name=name, alteration=alteration)


def _compare_fields(before: Entry, after: Entry) -> Iterator[FieldDifference]:
    old, new = _flatten(before), _flatten(after)
    for field in {**old, **new}:
        if old.get(field) != new.get(field):
            # A setting that an entry leaves out is in force all the same.
            default = DEFAULTS.get(field)
            yield FieldDifference(
                field=field, before=old.get(field, default), after=new.get(field, default)
            )


def _flatten(entry: Entry) -> Entry:
    """Return *entry* with a key for each of its labels, tags and the like."""
    flat: Entry = {}
    for key, value in entry.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{name}": text for name, text in value.items()}
        else:
            flat[key] = value
    return flat
