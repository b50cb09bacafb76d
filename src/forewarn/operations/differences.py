"""What differs between two fleets, field by field, in the words of the fleet file."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from pydantic import JsonValue

from forewarn.domain.topology import DeliveryScope, Host, ScopeKind, Topology, VirtualMachine
from forewarn.files.declarations import (
    DEFAULTS,
    SET_TABLES,
    Entry,
    declare_set,
    declare_vm,
    sets_of,
)

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


def find_differences(before: Topology, after: Topology) -> tuple[Difference, ...]:
    """Return how *after* differs: in its sets, then its virtual machines, then its hosts."""
    return (
        *_compare(_sets(before), _sets(after), declare_set),
        *_compare(_machines(before), _machines(after), lambda machine: declare_vm(*machine)),
        *_compare(_hosts(before), _hosts(after), lambda host: {"labels": dict(host.labels)}),
    )


_Named = tuple[str, str]
"""A table and the name of an entry in it."""


def _sets(topology: Topology) -> dict[_Named, DeliveryScope]:
    return {(SET_TABLES[scope.kind], scope.name): scope for scope in sets_of(topology)}


def _machines(topology: Topology) -> dict[_Named, tuple[VirtualMachine, DeliveryScope]]:
    # A set has its settings, not the machines in it; only a standalone machine has its own.
    places = {
        scope_id: scope
        if scope.kind is ScopeKind.VIRTUAL_MACHINE
        else DeliveryScope(kind=scope.kind, name=scope.name, placement_group=scope.placement_group)
        for scope_id, scope in topology.scopes.items()
    }
    vms = topology.virtual_machines.values()
    return {("virtual_machine", vm.name): (vm, places[vm.scope_id]) for vm in vms}


def _hosts(topology: Topology) -> dict[_Named, Host]:
    return {("host", host.name): host for host in topology.hosts.values()}


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
