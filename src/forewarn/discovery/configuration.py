"""The file of sources: who is asked which virtual machines there are, and how often.

A source runs what the file says with the rights of the server, so none is taken from the API.
"""

from collections.abc import Mapping
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import Field

from forewarn.discovery.command import CommandSource
from forewarn.discovery.libvirt import LibvirtSource
from forewarn.discovery.mapping import NO_PLACEMENT, read_placement
from forewarn.discovery.sources import KnownSource, MachineSource
from forewarn.discovery.vocabulary import AddressPlace
from forewarn.domain.names import is_name
from forewarn.files.tables import (
    NamedTable,
    Table,
    TablesError,
    Words,
    WrongKeyError,
    duration,
    find_command,
    read_tables,
)
from forewarn.operations.reconciling import Terms

LONGEST_TIMEOUT: Final = timedelta(minutes=10)
LONGEST_EVERY: Final = timedelta(days=1)
_OF_LIBVIRT: Final = ("host", "mapping", "addresses")
_USUAL: Final = Terms(source="")


class DiscoveryTable(NamedTable):
    """A source: hypervisors, or a program."""

    noun: ClassVar = "source"
    libvirt: Words | None = None
    run: Words | None = None
    host: str | None = None
    mapping: Path | None = None
    addresses: tuple[AddressPlace, ...] = (AddressPlace.LEASE,)
    every: Annotated[timedelta, duration(LONGEST_EVERY)] = timedelta(seconds=30)
    timeout: Annotated[timedelta, duration(LONGEST_TIMEOUT)] = timedelta(seconds=30)
    remove_after: int = Field(default=_USUAL.remove_after, ge=1, le=1000)
    most_missing: int = Field(default=_USUAL.most_missing, ge=1, le=100)


class DiscoveryFile(Table):
    """All of the file."""

    discovery: tuple[DiscoveryTable, ...] = ()


def read_sources(path: Path | None, environment: Mapping[str, str]) -> tuple[KnownSource, ...]:
    """Return the sources of the file at *path*, or refuse all mistakes.

    Programs are found on the PATH of *environment*, and run in it.
    """
    if path is None:
        return ()
    file = read_tables(path, DiscoveryFile)

    def make(table: DiscoveryTable) -> KnownSource:
        _check(table)
        source = (
            _command(table, file.folder, environment)
            if table.run
            else _libvirt(table, file.folder, environment)
        )
        return KnownSource(
            name=table.name,
            kind="run" if table.run else "libvirt",
            source=source,
            every=table.every,
            terms=Terms(
                source=table.name,
                remove_after=table.remove_after,
                most_missing=table.most_missing,
            ),
        )

    return file.build("discovery", file.content.discovery, make)


def _check(table: DiscoveryTable) -> None:
    if (table.libvirt is None) == (table.run is None):
        raise WrongKeyError("name", "write either libvirt or run")
    for key in _OF_LIBVIRT if table.run else ():
        if key in table.model_fields_set:
            raise WrongKeyError(key, "it cannot be used together with run")
    if table.host is not None and not is_name(table.host):
        raise WrongKeyError("host", f"{table.host!r} is not a valid host name")
    if table.host is not None and table.libvirt is not None and len(table.libvirt) > 1:
        raise WrongKeyError("host", "it can only be used with a single URI")
    if table.libvirt is not None and find_spec("libvirt") is None:
        needed = "libvirt-python is not installed; run: pip install 'forewarn[libvirt]'"
        raise WrongKeyError("libvirt", needed)


def _command(table: DiscoveryTable, folder: Path, environment: Mapping[str, str]) -> MachineSource:
    run = find_command(table.run or (), folder, environment.get("PATH", ""))
    return CommandSource(run=run, timeout=table.timeout, environment=environment, folder=folder)


def _libvirt(table: DiscoveryTable, folder: Path, environment: Mapping[str, str]) -> MachineSource:
    placement = NO_PLACEMENT
    if table.mapping is not None:
        try:
            placement = read_placement(folder / table.mapping)
        except TablesError as error:
            raise WrongKeyError("mapping", str(error)) from None
    return LibvirtSource(
        uris=table.libvirt or (),
        timeout=table.timeout,
        environment=environment,
        host=table.host or "",
        addresses=table.addresses,
        placement=placement,
    )
