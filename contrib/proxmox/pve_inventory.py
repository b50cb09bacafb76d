#!/usr/bin/env python3
"""Print the virtual machines and nodes of a Proxmox VE cluster as a fleet file of forewarn.

It prints all of the fleet, or nothing and a sentence on standard error. Tags say what Proxmox VE
has no place for: set.NAME the availability set, ud.N and fd.N the update and the fault domain.
"""

import argparse
import ipaddress
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pve
from pve import Guest, ProxmoxError, Session

_SET: Final = "set."
_DOMAINS: Final[Mapping[str, str]] = {"ud.": "update_domain", "fd.": "fault_domain"}
_USUAL_DOMAINS: Final[Mapping[str, int]] = {"update_domain": 5, "fault_domain": 2}
_UUID: Final = re.compile(r"(?:^|,)uuid=([0-9a-fA-F-]{36})(?:,|$)")
_MOST_REPORTED: Final = 16
_ADDRESS: Final = re.compile(r"(?:^|,)ip6?=([0-9a-fA-F.:]+)/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A guest as the fleet file is to declare it."""

    guest: Guest
    vm_id: str
    availability_set: str
    domains: Mapping[str, int]
    addresses: tuple[str, ...]
    labels: Mapping[str, str]
    claims: tuple[str, ...] = field(default=())
    """Addresses that the guest itself reports."""


def read_machines(session: Session, tag: str, *, trust_agent: bool) -> list[Machine]:
    """Return the guests that have *tag*, or all of them."""
    machines = []
    for guest in pve.list_guests(session):
        config = session.get(f"{guest.path}/config")
        if tag and tag not in split_tags(config):
            continue
        machine = read_machine(guest, config)
        # With addresses of both kinds, it would give up the reported ones whenever it is off.
        if trust_agent and has_agent(config) and not machine.addresses:
            machine = replace(machine, claims=ask_agent(session, guest))
        machines.append(machine)
    if not machines:
        what = f'no virtual machine with the tag "{tag}"' if tag else "no virtual machine"
        raise ProxmoxError(f"the token sees {what}; it needs VM.Audit on /vms")
    refuse_same_names(machines)
    return settle_claims(machines)


def read_machine(guest: Guest, config: Mapping[str, Any]) -> Machine:
    """Return what the configuration of *guest* says about it."""
    sets, domains, labels = [], {}, {}
    for tag in split_tags(config):
        key = _DOMAINS.get(tag[:3])
        if tag.startswith(_SET):
            sets.append(tag.removeprefix(_SET))
        elif key is None:
            labels[tag] = "yes"
        elif tag[3:].isdecimal() and key not in domains:
            domains[key] = int(tag[3:])
        else:
            raise ProxmoxError(f'"{guest.name}" has the tag "{tag}" besides another, or no number')
    if len(sets) > 1 or (domains and not sets):
        raise ProxmoxError(f'"{guest.name}" needs one tag {_SET}NAME, and has {len(sets)}')
    uuid = _UUID.search(str(config.get("smbios1", "")))
    return Machine(
        guest=guest,
        vm_id=uuid[1].lower() if uuid else "",
        availability_set="".join(sets),
        domains=domains,
        addresses=tuple(read_static_addresses(config)),
        labels={**labels, "vmid": str(guest.vmid)},
    )


def split_tags(config: Mapping[str, Any]) -> list[str]:
    return [tag for tag in re.split(r"[;, ]+", str(config.get("tags", ""))) if tag]


def read_static_addresses(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the addresses that cloud-init gives the guest."""
    for key in sorted(config):
        if re.fullmatch(r"ipconfig\d+", key):
            yield from only_usable(_ADDRESS.findall(str(config[key])))


def has_agent(config: Mapping[str, Any]) -> bool:
    return str(config.get("agent", "")).partition(",")[0] in {"1", "enabled=1"}


def ask_agent(session: Session, guest: Guest) -> tuple[str, ...]:
    """Return the addresses that the guest reports; none if it does not answer."""
    if not pve.look_at(session, guest).is_running:
        return ()
    try:
        found = session.get(f"{guest.path}/agent/network-get-interfaces")["result"]
    except pve.RefusedError as error:
        warn(f"{guest.name} reports no addresses: {error}")
        return ()
    reported = [*only_usable(read_reported(found))]
    if len(reported) > _MOST_REPORTED:
        warn(f"{guest.name} reports {len(reported)} addresses; the first {_MOST_REPORTED} count")
    return tuple(reported[:_MOST_REPORTED])


def read_reported(found: object) -> Iterator[str]:
    """Yield the addresses in an agent's answer, whatever shape the guest gave it."""
    for interface in found if isinstance(found, list) else ():
        addresses = interface.get("ip-addresses") if isinstance(interface, dict) else None
        for address in addresses if isinstance(addresses, list) else ():
            if isinstance(address, dict):
                yield str(address.get("ip-address"))


def only_usable(texts: Iterable[str]) -> Iterator[str]:
    """Yield the addresses that can tell one machine from another."""
    for text in texts:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped  # as forewarn compares them
        # Several machines can have the same of these.
        is_shared = address.is_loopback or address.is_link_local or address.is_multicast
        if not (is_shared or address.is_unspecified or "%" in text):
            yield str(address)


def settle_claims(machines: list[Machine]) -> list[Machine]:
    """Add what guests report, except addresses that another guest has or reports as well.

    A guest can report whatever it likes, and whoever has an address reads its events.
    """
    configured = {each for machine in machines for each in machine.addresses}
    claimed = Counter(each for machine in machines for each in set(machine.claims))
    settled = []
    for machine in machines:
        granted = list(machine.addresses)
        for address in machine.claims:
            if address in configured or claimed[address] > 1:
                if address not in machine.addresses:
                    warn(f"{machine.guest.name} reports {address}, which is not only its own")
            elif address not in granted:
                granted.append(address)
        settled.append(replace(machine, addresses=tuple(granted)))
    return settled


def refuse_same_names(machines: list[Machine]) -> None:
    """Refuse two guests of one name: forewarn could not tell them apart."""
    counted = Counter(machine.guest.name.casefold() for machine in machines)
    for machine in machines:
        if counted[machine.guest.name.casefold()] > 1:
            raise ProxmoxError(
                f'several virtual machines are named "{machine.guest.name}"; rename all but one'
            )


def declare(machines: list[Machine], nodes: Iterable[str]) -> str:
    """Return the fleet file."""
    tables = [
        table("availability_set", {"name": name, **count_domains(machines, name)})
        for name in sorted({each.availability_set for each in machines} - {""})
    ]
    tables += [table("host", {"name": node}) for node in sorted(nodes)]
    for machine in sorted(machines, key=lambda each: each.guest.vmid):
        keys = {
            "name": machine.guest.name,
            "availability_set": machine.availability_set,
            **machine.domains,
            "host": machine.guest.node,
            "addresses": machine.addresses,
            "vm_id": machine.vm_id,
            "labels": machine.labels,
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
    """Return the fleet file of the whole cluster."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    pve.add_options(parser)
    parser.add_argument("--tag", default="", help="only machines with this tag")
    parser.add_argument(
        "--trust-agent",
        action="store_true",
        help="get addresses that cloud-init lacks from guest agents",
    )
    options = parser.parse_args()
    session = pve.open_session(options)
    machines = read_machines(session, options.tag, trust_agent=options.trust_agent)
    nodes = [str(node["node"]) for node in session.get("/cluster/resources", type="node")]
    return declare(machines, nodes)


if __name__ == "__main__":
    pve.run(main)
