"""Fleets of hypervisors, as `forewarn fleet import` gets them."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from forewarn.cli.errors import CommandError, ExitCode
from forewarn.cli.options import Given
from forewarn.discovery.libvirt import LibvirtSource, Listing
from forewarn.discovery.mapping import NO_PLACEMENT, read_placement
from forewarn.discovery.sources import SourceError
from forewarn.discovery.vocabulary import AddressPlace
from forewarn.domain.names import name_key
from forewarn.environment import environment_with
from forewarn.files.declarations import SET_TABLES
from forewarn.files.tables import TablesError
from forewarn.wording.durations import DurationError, parse_duration

Content = Mapping[str, Sequence[Mapping[str, Any]]]


def list_domains(uris: Sequence[str], given: Given) -> Listing:
    """Return all domains of *uris* as a fleet file has them, or refuse what is not all of them."""
    if find_spec("libvirt") is None:
        hint = "try: pip install 'forewarn[libvirt]'"
        raise CommandError("libvirt-python is not installed.", code=ExitCode.FAILED, hint=hint)
    if given.get("host") and len(uris) > 1:
        raise CommandError("--host needs a single URI.", code=ExitCode.USAGE)
    try:
        source = LibvirtSource(
            uris=tuple(uris),
            timeout=parse_duration(given["timeout"]),
            environment=environment_with({}),
            host=given.get("host", ""),
            addresses=tuple(given.get("addresses", [AddressPlace.LEASE])),
            placement=read_placement(given["mapping"]) if "mapping" in given else NO_PLACEMENT,
        )
    except (TablesError, DurationError) as error:
        raise CommandError(str(error), code=ExitCode.USAGE) from None
    try:
        found = source.list(threading.Event())
    except SourceError as error:
        raise CommandError(str(error), code=ExitCode.FAILED) from None
    if found.trouble:
        raise CommandError(found.trouble, code=ExitCode.FAILED)
    return replace(found, content=_with_sets(found.content))


def without_known_sets(content: Content, known: Content) -> Content:
    """Return *content* without the sets that the fleet has: their settings stay as they are."""
    names = {table: {each["name"] for each in known.get(table, ())} for table in content}
    return {
        table: [each for each in entries if table not in _SETS or each["name"] not in names[table]]
        for table, entries in content.items()
    }


def with_known_addresses(content: Content, known: Content) -> Content:
    """Return *content*, where machines that report no addresses have those of the fleet.

    A guest that is off has no address to report, and needs it when it is on again.
    """
    vms = [each for each in known.get("virtual_machine", ()) if "addresses" in each]
    by_name = {name_key(each["name"]): each["addresses"] for each in vms}
    by_vm_id = {name_key(each["vm_id"]): each["addresses"] for each in vms if "vm_id" in each}

    def keep(entry: Mapping[str, Any]) -> Mapping[str, Any]:
        had = by_vm_id.get(name_key(entry.get("vm_id", ""))) or by_name.get(name_key(entry["name"]))
        return {**entry, "addresses": had} if had and "addresses" not in entry else entry

    machines = [keep(entry) for entry in content["virtual_machine"]]
    return {**content, "virtual_machine": machines}


_SETS = frozenset(SET_TABLES.values())


def _with_sets(content: Content) -> Content:
    """Return *content* with every set that a machine is in: a fleet file has to declare it."""
    machines = content["virtual_machine"]
    sets = {}
    for table in SET_TABLES.values():
        declared = list(content.get(table, ()))
        names = dict.fromkeys(each[table] for each in machines if table in each)
        known = {each["name"] for each in declared}
        sets[table] = [*declared, *({"name": name} for name in names if name not in known)]
    others = {"virtual_machine": machines, "host": content["host"]}
    return {table: entries for table, entries in {**sets, **others}.items() if entries}
