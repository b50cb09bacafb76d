"""Which metadata server a client without an endpoint talks to.

What the environment says is taken as it is. Else the address that every virtual machine of Azure
has is asked, then those that DHCP option 245 has named in a lease or in the registry, then the one
that a DHCP server offers; the first that answers like a metadata server is it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address
from itertools import chain
from math import inf
from typing import Final

from forewarn.client._endpoints import Endpoint
from forewarn.client._environment import read_environment
from forewarn.client._errors import UnavailableError
from forewarn.client._messages import Conversation, NoAnswer, Request, Response, ask
from forewarn.client._retrying import Conduct
from forewarn.protocol.document import decode_document
from forewarn.protocol.errors import MalformedDocumentError
from forewarn.protocol.versions import NEWEST

WELL_KNOWN: Final = IPv4Address("169.254.169.254")
PROBE_SECONDS: Final = 2.0
DHCP_SECONDS: Final = 60.0
"""How long nobody is bothered with another broadcast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Who knows of endpoints; none is asked before it is needed, the last for so many seconds."""

    read_environment: Callable[[], Endpoint | None]
    find_addresses: Callable[[], Iterator[IPv4Address]]
    ask_for_address: Callable[[float], Conversation[IPv4Address | None]]


def _find_addresses() -> Iterator[IPv4Address]:
    # Most never get as far as here or below, and are spared what it takes to import.
    from forewarn.client._leases import find_leases, read_registry

    yield from find_leases()
    registered = read_registry()
    if registered is not None:
        yield registered


def _ask_for_address(seconds: float) -> Conversation[IPv4Address | None]:
    from forewarn.client._dhcp import ask_for_address, find_interfaces

    return ask_for_address(find_interfaces(), seconds)


SYSTEM: Final = Sources(
    read_environment=read_environment,
    find_addresses=_find_addresses,
    ask_for_address=_ask_for_address,
)
"""This machine."""


class Search:
    """Looks for the endpoint of this machine, and knows what came of it the last time.

    Neither a candidate nor the DHCP request takes longer than a request of the client.
    """

    def __init__(self, conduct: Conduct, sources: Sources = SYSTEM) -> None:
        self._conduct = conduct
        self._sources = sources
        self._probe_seconds = PROBE_SECONDS
        self._offered: IPv4Address | None = None
        self._offer_expires = -inf

    def find_endpoint(self) -> Conversation[Endpoint]:
        """Return the first endpoint that is told or answers.

        If there is none, that is trouble like any other, and looking again later may help.
        """
        told = self._sources.read_environment()
        if told is not None:
            return told
        timeout = min(self._probe_seconds, self._conduct.timeout)
        self._probe_seconds *= 2  # a server may just be slow
        flaws: dict[IPv4Address, str] = {}
        for address in chain((WELL_KNOWN,), self._sources.find_addresses()):
            if (yield from _probe(address, timeout, flaws)):
                return Endpoint(host=str(address))
        offered = yield from self._find_offered()
        if offered is not None and (yield from _probe(offered, timeout, flaws)):
            return Endpoint(host=str(offered))
        others = [f"{address}: {flaw}" for address, flaw in flaws.items() if address != WELL_KNOWN]
        raise UnavailableError(
            str(Endpoint(host=str(WELL_KNOWN))), "; ".join((flaws[WELL_KNOWN], *others))
        )

    def _find_offered(self) -> Conversation[IPv4Address | None]:
        now = self._conduct.monotonic()
        if now >= self._offer_expires:
            self._offer_expires = now + DHCP_SECONDS
            self._offered = yield from self._sources.ask_for_address(self._conduct.timeout)
        return self._offered


def find_flaw(answer: Response | NoAnswer) -> str | None:
    """Return why *answer* is not of a metadata server, or None if it is."""
    match answer:
        case Response(status=200, body=body):
            try:
                decode_document(body)
            except MalformedDocumentError:
                return "its answer is not a Scheduled Events document"
            return None
        case Response(status=status) if status in {410, 429} or status >= 500:
            return None
        case Response(status=status):
            return f"it answered {status}"
        case NoAnswer(reason=reason):
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
