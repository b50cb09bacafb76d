"""Hypervisors as a source: the domains of all hosts, each in one place of the fleet."""

import json
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from forewarn.discovery.domains import FoundDomain
from forewarn.discovery.mapping import NO_PLACEMENT, Placement
from forewarn.discovery.programs import run_program
from forewarn.discovery.sources import SourceError
from forewarn.discovery.vocabulary import AddressPlace
from forewarn.domain.names import VmName, is_name, name_key
from forewarn.files.fleet import examine_fleet
from forewarn.operations.reconciling import Census

_AT_ONCE: Final = 8
"""How many hosts are asked at the same time."""
_MODULE: Final = "forewarn.discovery.libvirt_probe"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAnswer:
    """What a host has said: its name and its domains, or why it has not."""

    uri: str
    host: str = ""
    domains: tuple[FoundDomain, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What hosts have said together: the *content* of a fleet file, and what a census has."""

    content: Mapping[str, Sequence[Mapping[str, Any]]]
    trouble: str
    stopped: frozenset[VmName]
    claims: frozenset[VmName]
    left_out: frozenset[str]
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LibvirtSource:
    """Asks every host of *uris*, several at a time, each for *timeout* at most.

    A single one may be called *host*; others are called as they call themselves.
    """

    uris: tuple[str, ...]
    timeout: timedelta
    environment: Mapping[str, str]
    host: str = ""
    addresses: tuple[AddressPlace, ...] = (AddressPlace.LEASE,)
    placement: Placement = NO_PLACEMENT

    def count(self, stopping: threading.Event) -> Census:
        """Return the domains of all hosts; the census is partial if some hosts do not answer."""
        found = self.list(stopping)
        return Census(
            fleet=examine_fleet(found.content),
            trouble=found.trouble,
            stopped=found.stopped,
            claims=found.claims,
            left_out=found.left_out,
            remarks=found.remarks,
        )

    def list(self, stopping: threading.Event) -> Listing:
        """Return the domains of all hosts as a fleet file has them."""
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="hypervisor") as pool:
            asked = [pool.submit(self._ask, uri, stopping) for uri in self.uris]
            answers = [each.result() for each in asked]
        return make_listing(answers, self.placement)

    def _ask(self, uri: str, stopping: threading.Event) -> HostAnswer:
        words = (sys.executable, "-m", _MODULE, uri, ",".join(self.addresses))
        try:
            text = run_program(
                words,
                environment=self.environment,
                timeout=self.timeout.total_seconds(),
                stopping=stopping,
            )
        except SourceError as error:
            return HostAnswer(uri=uri, problem=f"{uri}: {error.reason or error}")
        answer = json.loads(text)
        domains = tuple(map(FoundDomain.decode, answer["domains"]))
        return HostAnswer(uri=uri, host=self.host or answer["hostname"], domains=domains)


def make_listing(answers: Sequence[HostAnswer], placement: Placement) -> Listing:
    """Return what the hosts have said together, or refuse if it makes no sense."""
    problems = tuple(each.problem for each in answers if each.problem)
    answered = [each for each in answers if not each.problem]
    if not answered:
        raise SourceError(" ".join(problems))
    _check_hosts(answered)
    chosen = list(_choose(answered))
    placed = list(_place(chosen, placement))
    entries, remarks = _declare(placed)
    others = {**placement.sets, "host": [{"name": each.host} for each in answered]}
    right, wrong = _sort_out(entries, others)
    declared = {each["vm_id"] for each in right}
    wrongly = [domain for _, domain, _ in placed if domain.uuid not in declared]
    return Listing(
        content={**others, "virtual_machine": right},
        trouble=" ".join(problems),
        stopped=frozenset(VmName(domain.name) for _, domain in chosen if not domain.rank),
        claims=frozenset(
            VmName(domain.name)
            for _, domain, keys in placed
            if domain.has_claimed and "addresses" not in keys
        ),
        left_out=frozenset(name for each in wrongly for name in (each.name, each.uuid)),
        remarks=(*remarks, *wrong),
    )


def _check_hosts(answered: Sequence[HostAnswer]) -> None:
    called: dict[str, HostAnswer] = {}
    for each in answered:
        other = called.setdefault(name_key(each.host), each)
        if other is not each:
            raise SourceError(
                f"{other.uri} and {each.uri} have the same host name, {each.host!r}; "
                "list them separately, each with its own `host`."
            )
        if not is_name(each.host):
            raise SourceError(
                f"{each.uri} has the host name {each.host!r}, which is not valid; "
                "set a valid `host` for it."
            )


def _choose(answered: Sequence[HostAnswer]) -> Iterator[tuple[str, FoundDomain]]:
    """Yield each domain with its host: the one where it runs, if several know it.

    Another host may keep its definition after a migration, or get it before.
    """
    chosen: dict[str, tuple[str, FoundDomain]] = {}
    for hypervisor in answered:
        # libvirt lists them in another order each time it is started.
        for domain in sorted(hypervisor.domains, key=lambda each: name_key(each.name)):
            known = chosen.get(domain.uuid)
            if known is None or domain.rank > known[1].rank:
                chosen[domain.uuid] = hypervisor.host, domain
    return iter(chosen.values())


def _place(
    chosen: Iterable[tuple[str, FoundDomain]], placement: Placement
) -> Iterator[tuple[str, FoundDomain, dict[str, Any]]]:
    """Yield the domains that are not ignored, with what is to be said of each."""
    for host, domain in chosen:
        keys = None if domain.is_ignored else placement.place(domain.name, host, domain.keys)
        if keys is not None:
            yield host, domain, keys


def _declare(
    placed: Iterable[tuple[str, FoundDomain, Mapping[str, Any]]],
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the domains as a fleet file has them, and those that it cannot have."""
    entries, remarks = [], []
    for host, domain, keys in placed:
        if not is_name(domain.name):
            remarks.append(
                f"{domain.name!r} on {host}: the name may contain only letters, digits, "
                "'.', '_' and '-'."
            )
            continue
        found = {"addresses": list(domain.addresses)} if domain.addresses else {}
        profile = {"profile": {"mac_address": domain.macs[0]}} if domain.macs else {}
        fixed = {"name": domain.name, "vm_id": domain.uuid, "host": host}
        entries.append({**fixed, **found, **profile, **keys, **fixed})
    return entries, remarks


def _sort_out(
    entries: Sequence[dict[str, Any]], others: Mapping[str, Sequence[Mapping[str, Any]]]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the entries that can be read, and what is wrong with the others."""
    fleet = examine_fleet({**others, "virtual_machine": entries})
    wrong = {each.index for each in fleet.mistakes if each.table == "virtual_machine"}
    right = [entry for number, entry in enumerate(entries) if number not in wrong]
    return right, list(map(str, fleet.mistakes))
