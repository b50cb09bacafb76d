"""A process that asks one hypervisor about its domains, and prints what it says as JSON.

It is a process of its own because libvirt waits as long as it likes: a process can be ended.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

import libvirt

from forewarn.discovery.domains import (
    FoundDomain,
    claimed_addresses,
    read_domain,
    usable_addresses,
)

_RANKS: Final = {libvirt.VIR_DOMAIN_RUNNING: 2, libvirt.VIR_DOMAIN_BLOCKED: 2}
_OFF: Final = frozenset({libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_CRASHED})
_NEIGHBOURS: Final = ("ip", "-j", "neigh", "show")
_UNREACHABLE: Final = "FAILED"
_CLAIMS: Final = frozenset({"agent", "arp"})
"""Where it is the guest that says which addresses it has."""


class Probe:
    """One hypervisor at *uri*; addresses are looked for in *places*, until one has some."""

    def __init__(self, uri: str, places: Sequence[str]) -> None:
        self._uri = uri
        self._finders: Mapping[str, Callable[[Any, FoundDomain], Iterator[str]]] = {
            "lease": self._find_leased,
            "agent": self._ask_agent,
            "arp": self._find_neighbours,
        }
        self._places = places
        # To ask the agent of a guest is to send it a command, which a reader may not.
        opened = libvirt.open if "agent" in places else libvirt.openReadOnly
        self._connection = opened(uri)

    def ask(self) -> dict[str, Any]:
        """Return the name of the host and its domains."""
        return {
            "hostname": self._connection.getHostname(),
            "domains": [domain.encode() for domain in self._domains()],
        }

    def _domains(self) -> Iterator[FoundDomain]:
        for domain in self._connection.listAllDomains(0):
            try:
                state, _ = domain.state()
                rank = 0 if state in _OFF else _RANKS.get(state, 1)
                found = read_domain(domain.XMLDesc(0), rank=rank)
            except libvirt.libvirtError as error:
                if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
                    continue  # it has ended since it was listed
                raise
            yield self._with_addresses(domain, found) if rank else found

    def _with_addresses(self, domain: Any, found: FoundDomain) -> FoundDomain:
        for place in self._places:
            with suppress(libvirt.libvirtError):  # no network of libvirt, no agent, no answer
                has_claimed = place in _CLAIMS
                find = claimed_addresses if has_claimed else usable_addresses
                if addresses := find(self._finders[place](domain, found)):
                    return replace(found, addresses=addresses, has_claimed=has_claimed)
        return found

    def _find_leased(self, domain: Any, found: FoundDomain) -> Iterator[str]:
        return _of_interfaces(domain, libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_LEASE, found)

    def _ask_agent(self, domain: Any, found: FoundDomain) -> Iterator[str]:
        return _of_interfaces(domain, libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT, found)

    def _find_neighbours(self, _domain: Any, found: FoundDomain) -> Iterator[str]:
        # Not from libvirt, which (9.0) does not understand what newer kernels answer.
        return (address for mac in found.macs for address in self._neighbours.get(mac, ()))

    @cached_property
    def _neighbours(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for entry in _list_neighbours(self._uri):
            if "lladdr" in entry and _UNREACHABLE not in entry.get("state", ()):
                found.setdefault(entry["lladdr"].lower(), []).append(entry["dst"])
        return found


def _of_interfaces(domain: Any, source: int, found: FoundDomain) -> Iterator[str]:
    """Yield the addresses of interfaces that the domain has, not of those a guest has made."""
    for interface in (domain.interfaceAddresses(source) or {}).values():
        if str(interface.get("hwaddr", "")).lower() in found.macs:
            for each in interface.get("addrs") or ():
                with suppress(ValueError):
                    yield str(ip_address(each["addr"]))


def _list_neighbours(uri: str) -> list[dict[str, Any]]:
    """Return the neighbours that the kernel of the host knows, here or by ssh."""
    words = neighbour_command(uri)
    if words is None:
        return []
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=True)  # noqa: S603
        found: list[dict[str, Any]] = json.loads(done.stdout or b"[]")
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        sys.exit(f"{' '.join(words)} failed: {error}")
    return found


def neighbour_command(uri: str) -> tuple[str, ...] | None:
    """Return what lists the neighbours of the host of *uri*; None if nobody can be asked."""
    parts = urlsplit(uri)
    if not parts.hostname:
        return _NEIGHBOURS
    if not parts.scheme.endswith("+ssh"):
        return None
    port = ("-p", str(parts.port)) if parts.port else ()
    target = f"{parts.username}@{parts.hostname}" if parts.username else parts.hostname
    return ("ssh", "-o", "BatchMode=yes", *port, "--", target, *_NEIGHBOURS)


def main() -> None:
    """Ask the hypervisor that the command line names."""
    uri, places = sys.argv[1:]
    libvirt.registerErrorHandler(lambda *_: None, None)  # it would print every error by itself
    try:
        answer = Probe(uri, places.split(",") if places else ()).ask()
    except libvirt.libvirtError as error:
        sys.exit(str(error))
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
