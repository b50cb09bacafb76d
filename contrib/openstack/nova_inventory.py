#!/usr/bin/env python3
"""Print the servers and compute hosts of an OpenStack cloud as a fleet file of forewarn.

It prints all of the fleet, or nothing and a sentence on standard error. Metadata of a server says
what Nova has no place for: availability_set, update_domain and fault_domain; the rest of it
becomes labels.
"""

import argparse
import ipaddress
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import nova
from keystone import OpenStackError
from nova import Server, Session

_SET: Final = "availability_set"
_USUAL_DOMAINS: Final[Mapping[str, int]] = {"update_domain": 5, "fault_domain": 2}
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,90}")
"""What forewarn takes as a name, with room for the id of a project before it."""
_GONE: Final = frozenset({"DELETED", "SOFT_DELETED"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A server as the fleet file is to declare it."""

    server: Server
    name: str
    availability_set: str
    domains: Mapping[str, int]
    addresses: tuple[str, ...]
    zone: str
    flavor: str
    labels: Mapping[str, str]


def read_machines(session: Session, options: argparse.Namespace) -> list[Machine]:
    """Return all servers that the user sees."""
    query = {"all_tenants": "1"} if options.all_projects else {}
    machines = [
        read_machine(found, options)
        for found in nova.list_servers(session, **query)
        if found["status"] not in _GONE
    ]
    if not machines:
        raise OpenStackError("the user sees no server; check the project, or use --all-projects")
    refuse_twice("name", ((machine.name, machine) for machine in machines))
    refuse_twice("address", ((each, machine) for machine in machines for each in machine.addresses))
    return machines


def read_machine(found: Mapping[str, Any], options: argparse.Namespace) -> Machine:
    """Return what Nova says about one server.

    Owners choose names and metadata, so what one of them got wrong is left out with a warning.
    """
    server = nova.read_server(found)
    metadata = {str(key): str(value) for key, value in found.get("metadata", {}).items()}
    project = str(found["tenant_id"])
    group = metadata.pop(_SET, "")
    if group and not _NAME.fullmatch(group):
        warn(f'server {server.id} is standalone: {_SET} "{group}" is not a valid name')
        group = ""
    domains = read_domains(server, metadata) if group else {}
    others = {key: value for key, value in metadata.items() if key not in _USUAL_DOMAINS}
    is_nameable = options.names == "name" and _NAME.fullmatch(server.name)
    return Machine(
        server=server,
        name=server.name if is_nameable else server.id,
        # Sets of two projects are two sets, whatever their names.
        availability_set=f"{project}.{group}" if group and options.all_projects else group,
        domains=domains,
        addresses=tuple(read_addresses(found, options.network)),
        zone=str(found.get("OS-EXT-AZ:availability_zone") or ""),
        flavor=str((found.get("flavor") or {}).get("original_name", "")),
        labels={**others, "project": project, "server": server.id},
    )


def read_domains(server: Server, metadata: Mapping[str, str]) -> dict[str, int]:
    """Return the domains that the metadata names; forewarn chooses the others."""
    domains = {}
    for key in _USUAL_DOMAINS:
        number = metadata.get(key, "")
        if re.fullmatch(r"[0-9]{1,2}", number):
            domains[key] = int(number)
        elif number:
            warn(f'server {server.id}: {key} "{number}" is not a number from 0 to 99')
    return domains


def read_addresses(found: Mapping[str, Any], networks: list[str]) -> list[str]:
    """Return the fixed addresses of the ports, on certain networks if any are named."""
    return [
        str(port["addr"])
        for network, ports in found.get("addresses", {}).items()
        for port in ports
        if (not networks or network in networks)
        and port.get("OS-EXT-IPS:type", "fixed") == "fixed"
        and not ipaddress.ip_address(port["addr"]).is_link_local
    ]


def refuse_twice(noun: str, pairs: Iterable[tuple[str, Machine]]) -> None:
    """Refuse two servers that forewarn could not tell apart."""
    known = [(value, machine.server.id) for value, machine in pairs]
    counted = Counter(value.casefold() for value, _ in known)
    for value, _ in known:
        if counted[value.casefold()] > 1:
            ids = ", ".join(each for other, each in known if other.casefold() == value.casefold())
            hint = "--names id" if noun == "name" else "--network"
            raise OpenStackError(f'several servers have the {noun} "{value}": {ids}; see {hint}')


def list_hosts(session: Session) -> list[str]:
    services = session.get("/os-services", binary="nova-compute")["services"]
    return sorted({str(service["host"]) for service in services})


def declare(machines: list[Machine], hosts: list[str]) -> str:
    """Return the fleet file."""
    tables = [
        table(_SET, {"name": name, **count_domains(machines, name)})
        for name in sorted({each.availability_set for each in machines} - {""})
    ]
    tables += [table("host", {"name": host}) for host in hosts]
    for machine in sorted(machines, key=lambda each: (each.name, each.server.id)):
        keys = {
            "name": machine.name,
            _SET: machine.availability_set,
            **machine.domains,
            "host": machine.server.host,
            "addresses": machine.addresses,
            "vm_id": machine.server.id,
            "zone": machine.zone,
            "labels": machine.labels,
            "profile": {"vm_size": machine.flavor} if machine.flavor else "",
        }
        tables.append(table("virtual_machine", keys))
    return "\n".join(tables)


def count_domains(machines: list[Machine], name: str) -> dict[str, int]:
    """Return how many domains the set has to have where the default is not enough."""
    counts = {}
    for key, usual in _USUAL_DOMAINS.items():
        highest = max(
            each.domains.get(key, 0) for each in machines if each.availability_set == name
        )
        if highest >= usual:
            counts[f"{key}s"] = highest + 1
    return counts


def table(name: str, keys: Mapping[str, object]) -> str:
    """Return a [[table]] of TOML with those *keys* that have a value."""
    lines = (f"{key} = {encode(value)}\n" for key, value in keys.items() if value not in ("", ()))
    return f"[[{name}]]\n{''.join(lines)}"


def encode(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{encode(key)} = {encode(value[key])}' for key in value)} }}"
    # Text, numbers and lists are written as in JSON, except one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def warn(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> str:
    """Return the fleet file of the project, or of the whole cloud."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    nova.add_options(parser)
    parser.add_argument(
        "--network", action="append", default=[], help="only addresses of this network; repeatable"
    )
    parser.add_argument("--names", choices=("name", "id"), default="name", help="names of machines")
    options = parser.parse_args()
    session = nova.open_session(options)
    machines = read_machines(session, options)
    return declare(machines, list_hosts(session) if options.all_projects else [])


if __name__ == "__main__":
    nova.run(main)
