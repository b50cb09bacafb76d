"""The mapping file: which domains are in which set, where their metadata does not say it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from forewarn.domain.names import is_meant
from forewarn.files.declarations import SET_TABLES
from forewarn.files.fleet import FleetError, read_fleet
from forewarn.files.tables import Table, WrongKeyError, read_tables

_CHOICE: Final = ("names", "hosts", "ignore")
_MEMBERSHIPS: Final = (*SET_TABLES.values(), "placement_group", "update_domain", "fault_domain")

_TABLES: Final[tuple[str, ...]] = ("labels", "tags")


class MachineTable(Table):
    """What is to be said of the domains that have one of these names, on one of these hosts."""

    names: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    ignore: bool = False
    availability_set: str | None = None
    cloud_service: str | None = None
    scale_set: str | None = None
    placement_group: str | None = None
    update_domain: int | None = None
    fault_domain: int | None = None
    zone: str | None = None
    location: str | None = None
    resource_group: str | None = None
    subscription_id: str | None = None
    labels: Mapping[str, str] = {}
    tags: Mapping[str, str] = {}

    @property
    def keys(self) -> dict[str, Any]:
        """The keys of a fleet file that are given."""
        given = (key for key in type(self).model_fields if key in self.model_fields_set)
        return {key: getattr(self, key) for key in given if key not in _CHOICE}


class SetTable(Table):
    """A set that is made if the fleet does not have it."""

    name: str
    update_domains: int | None = Field(default=None, ge=1)
    fault_domains: int | None = Field(default=None, ge=1)


class MappingFile(Table):
    """All of the file."""

    virtual_machine: tuple[MachineTable, ...] = ()
    availability_set: tuple[SetTable, ...] = ()
    cloud_service: tuple[SetTable, ...] = ()
    scale_set: tuple[SetTable, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where machines belong: the first table that fits one is used, and the sets there are."""

    tables: tuple[MachineTable, ...] = ()
    sets: Mapping[str, Sequence[Mapping[str, Any]]]

    def place(self, name: str, host: str, keys: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what is to be said of a domain, or None if it is ignored.

        What its metadata says, *keys*, counts more.
        """
        table = next((each for each in self.tables if _fits(each, name, host)), None)
        if table is None:
            return dict(keys)
        if table.ignore:
            return None
        said = table.keys
        if any(key in keys for key in SET_TABLES.values()):
            said = {key: value for key, value in said.items() if key not in _MEMBERSHIPS}
        merged = {
            key: {**said.get(key, {}), **found}
            for key in _TABLES
            if isinstance(found := keys.get(key, {}), Mapping)  # or else it is wrong
        }
        return {**said, **keys, **{key: found for key, found in merged.items() if found}}


NO_PLACEMENT: Final = Placement(sets={})


def read_placement(path: Path) -> Placement:
    """Return what the file at *path* says, or refuse all mistakes."""
    file = read_tables(path, MappingFile)
    tables = file.build("virtual_machine", file.content.virtual_machine, _check)
    sets = {
        table: [each.model_dump(exclude_none=True) for each in getattr(file.content, table)]
        for table in SET_TABLES.values()
    }
    return Placement(tables=tables, sets={table: found for table, found in sets.items() if found})


def _check(table: MachineTable) -> MachineTable:
    """Return *table*, or refuse keys that no virtual machine can have together."""
    try:
        read_fleet({"virtual_machine": [{"name": "any", **table.keys}]})
    except FleetError as error:
        raise WrongKeyError(error.key or "", str(error.problem).partition(": ")[2]) from None
    return table


def _fits(table: MachineTable, name: str, host: str) -> bool:
    return is_meant(name, table.names) and is_meant(host, table.hosts)
