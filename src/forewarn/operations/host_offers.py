"""Tasks that hosts fetch: what a host is offered, takes, and reports."""

from forewarn.domain.host_offer import (
    HostOffer,
    OfferRefusedError,
    OfferStatus,
    UnknownOfferError,
    report,
    take,
)
from forewarn.domain.host_work import HostTaskKind
from forewarn.domain.impact import Impact
from forewarn.domain.names import HostName, OperationId, name_key
from forewarn.operations.context import Context
from forewarn.operations.pausing import find_pause
from forewarn.operations.recording import record_audit
from forewarn.ports.store import Reading, Transaction


def find_offers(reading: Reading, host: HostName) -> tuple[HostOffer, ...]:
    """Return what *host* can take now, and what it has taken and not ended."""
    is_paused = find_pause(reading) is not None
    offers = reading.open_offers(host)
    return tuple(offer for offer in offers if not (is_paused and offer.is_untaken))


def take_offer(
    tx: Transaction, context: Context, host: HostName, offered: tuple[OperationId, str], ticket: str
) -> None:
    """Have *host* take a task that was *offered* to it, or refuse."""
    offer = _find(tx, host, offered)
    hindrance = _hindrance(tx, offer) if offer.is_untaken else ""
    if hindrance:
        raise OfferRefusedError(*offered, hindrance)
    taken = take(offer, ticket, now=context.at)
    if taken != offer:
        tx.put_offer(taken)
        _audit(tx, context, "host work take", taken)


def report_offer(
    tx: Transaction,
    context: Context,
    host: HostName,
    offered: tuple[OperationId, str],
    said: Impact,
) -> None:
    """Write down what *host* says of a task that it took; what it says after its end is ignored."""
    offer = _find(tx, host, offered)
    after = report(offer, said, now=context.at)
    if after == offer:
        return
    tx.put_offer(after)
    if after.status is not OfferStatus.TAKEN:
        _audit(tx, context, f"host work {after.status}", after)


def _find(reading: Reading, host: HostName, offered: tuple[OperationId, str]) -> HostOffer:
    """Return what was *offered*; for a host, what others were offered does not exist."""
    offer = reading.host_offer(*offered)
    if offer is None or offer.host != name_key(host):
        raise UnknownOfferError(*offered)
    return offer


def _hindrance(reading: Reading, offer: HostOffer) -> str:
    """Return why nobody may begin it now, if so."""
    if find_pause(reading) is not None:
        return "the server is paused"
    operation = reading.host_operation(offer.operation_id)
    # An operator may have skipped the host meanwhile.
    return "its operation is over" if operation is None or operation.is_over else ""


def _audit(tx: Transaction, context: Context, action: str, offer: HostOffer) -> None:
    if offer.order["task"] == HostTaskKind.VERIFY:
        return  # it changes nothing, and is tried again and again
    said = f": {offer.reason}" if offer.reason else ""
    detail = f"{offer.task} of operation {offer.operation_id}{said}"
    record_audit(tx, context, action, str(offer.order["host"]), detail=detail)
