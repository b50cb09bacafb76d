"""Which metadata server a client without an endpoint talks to.

What the environment says is taken as it is. Else the address that every virtual machine of Azure
has is asked, then those that DHCP option 245 has named in a lease or in the registry, then the one
that a DHCP server offers now; the first that answers like a metadata server is it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address
from itertools import chain
from typing import Final

from forewarn.client._dhcp import ask_for_address, find_interfaces
from forewarn.client._endpoints import Endpoint
from forewarn.client._environment import read_environment
from forewarn.client._errors import UnavailableError
from forewarn.client._leases import find_leases
from forewarn.client._messages import Conversation, Failure, Request, Response, ask
from forewarn.client._registry import read_registry
from forewarn.protocol.document import decode_document
from forewarn.protocol.errors import MalformedDocumentError
from forewarn.protocol.versions import NEWEST

WELL_KNOWN: Final = IPv4Address("169.254.169.254")
PROBE_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Who knows of endpoints. None is asked before it is needed."""

    read_environment: Callable[[], Endpoint | None]
    find_addresses: Callable[[], Iterator[IPv4Address]]
    ask_for_address: Callable[[], Conversation[IPv4Address | None]]


def _find_addresses() -> Iterator[IPv4Address]:
    yield from find_leases()
    registered = read_registry()
    if registered is not None:
        yield registered


SYSTEM: Final = Sources(
    read_environment=read_environment,
    find_addresses=_find_addresses,
    ask_for_address=lambda: ask_for_address(find_interfaces()),
)
"""This machine."""


def find_endpoint(
    timeout: float = PROBE_SECONDS, sources: Sources = SYSTEM
) -> Conversation[Endpoint]:
    """Return the endpoint of this machine, each candidate having *timeout* seconds to answer.

    If nobody does, that is trouble like any other, and looking again later may help.
    """
    told = sources.read_environment()
    if told is not None:
        return told
    flaws: dict[IPv4Address, str] = {}
    for address in chain((WELL_KNOWN,), sources.find_addresses()):
        if (yield from _probe(address, timeout, flaws)):
            return Endpoint(host=str(address))
    offered = yield from sources.ask_for_address()
    if offered is not None and (yield from _probe(offered, timeout, flaws)):
        return Endpoint(host=str(offered))
    others = [f"{address}: {flaw}" for address, flaw in flaws.items() if address != WELL_KNOWN]
    raise UnavailableError(
        str(Endpoint(host=str(WELL_KNOWN))), "; ".join((flaws[WELL_KNOWN], *others))
    )


def find_flaw(answer: Response | Failure) -> str | None:
    """Return why *answer* is not of a metadata server, or None if it is."""
    match answer:
        case Response(status=200, body=body):
            try:
                decode_document(body)
            except MalformedDocumentError:
                return "it answers with something else than scheduled events"
            return None
        case Response(status=status) if status in {410, 429} or status >= 500:
            return None
        case Response(status=status):
            return f"it answers {status}"
        case Failure(reason=reason):
            return reason


def _probe(
    address: IPv4Address, timeout: float, flaws: dict[IPv4Address, str]
) -> Conversation[bool]:
    if address in flaws:
        return False
    request = Request(
        endpoint=Endpoint(host=str(address)),
        path=f"/metadata/scheduledevents?api-version={NEWEST.name}",
        headers={"Metadata": "true"},
        timeout=timeout,
    )
    answer = yield from ask(request)
    flaw = find_flaw(answer)
    if flaw is None:
        return True
    flaws[address] = flaw
    return False
