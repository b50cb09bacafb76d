"""Hosts carry orders out by themselves: they fetch each, and report how far it is.

The database has what was offered, so any replica can hand it out and take the report. The host
remembers what it has begun.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from forewarn.domain.host_offer import HostOffer, OfferStatus, withdraw
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName, OperationId
from forewarn.executors.orders import PAUSED, Order, next_second
from forewarn.executors.records import OrderKey
from forewarn.operations.pausing import find_pause, may_begin
from forewarn.ports.clock import Clock, WallClock
from forewarn.ports.store import Reading, Store, Transaction
from forewarn.wording.durations import format_duration

EXECUTOR: Final = "host"
FETCH_WITHIN: Final = timedelta(minutes=10)
"""How long a host may take to fetch an order unless the operator says otherwise."""

_ADVICE: Final = "check that forewarn host work is running there"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedByHost:
    """The host fetches it, at the latest *within* this time."""

    within: timedelta = FETCH_WITHIN


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class OfferContractor:
    """Offers each order to its host, and waits for what the host reports.

    *find* says how long the host has to fetch an order.
    """

    find: Callable[[Mapping[str, Any]], FetchedByHost | None] = field(kw_only=False)
    store: Store
    clock: Clock
    wall: WallClock

    def takes(self, order: Order) -> bool:
        """Tell whether the host is to fetch *order*."""
        return self.find(order.about) is not None

    def holds(self, key: OrderKey) -> bool:
        """Tell whether the order was offered."""
        return self._look(key) is not None

    def begin(self, order: Order) -> Impact:
        """Offer the order, unless it was offered before."""
        operation_id, task = OperationId(order.key[0]), order.key[1]
        offer = HostOffer(
            operation_id=operation_id,
            task=task,
            host=HostName(order.about["host"] or ""),
            order=order.describe(),
            offered_at=self.wall.now(),
        )

        def work(tx: Transaction) -> None:
            if may_begin(tx, order.epoch) and tx.host_offer(operation_id, task) is None:
                tx.put_offer(offer)

        self.store.write(work)
        return self.inquire(order.key)

    def inquire(self, key: OrderKey) -> Impact:
        """Say what the host last reported; withdraw what it has not fetched in time."""
        offer = self._look(key)
        if offer is None:
            return Impact(status=ImpactStatus.NOT_BEGUN)
        if offer.is_untaken:
            offer = self._wait_for_host(offer)
        impact = offer.progress(self.wall.now())
        if offer.is_untaken:
            is_paused = self.store.read(find_pause) is not None
            reason = PAUSED if is_paused else f"{impact.reason}; {_ADVICE}"
            impact = replace(impact, reason=reason)
        # A host that took it and is silent may be restarting: it can still report.
        is_open = offer.is_untaken or offer.status is OfferStatus.TAKEN
        return replace(impact, ask_again_at=next_second(self.clock.now())) if is_open else impact

    def close(self) -> None:
        """Leave everything to the hosts: there is nothing to release."""

    def _look(self, key: OrderKey) -> HostOffer | None:
        return self.store.read(lambda reading: _find(reading, key))

    def _wait_for_host(self, offer: HostOffer) -> HostOffer:
        """Return *offer*, withdrawn if its time is over and the host has not taken it by now."""
        kind = offer.order["task"]
        means = self.find({"host": offer.order["host"], "task": kind}) or FetchedByHost()
        if self.wall.now() < offer.offered_at + means.within:
            return offer
        limit = format_duration(means.within)
        reason = f"the host did not fetch it within {limit}; {_ADVICE}"

        def work(tx: Transaction) -> HostOffer:
            known = _find(tx, (offer.operation_id, offer.task)) or offer
            if find_pause(tx) is not None:
                return known
            after = withdraw(known, reason)
            if after != known:
                tx.put_offer(after)
            return after

        return self.store.write(work)


def _find(reading: Reading, key: OrderKey) -> HostOffer | None:
    return reading.host_offer(OperationId(key[0]), key[1])
