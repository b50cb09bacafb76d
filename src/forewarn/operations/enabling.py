"""Who has polled: the first poll enables a scope, later ones keep it so. Who listens is told."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from forewarn.domain.names import ScopeId, VmName
from forewarn.domain.notice import is_enabled
from forewarn.ports.store import Reading, Transaction

RENEW_AFTER: Final = timedelta(minutes=1)


def record_polls(tx: Transaction, polls: Mapping[ScopeId, datetime]) -> None:
    """Write down when scopes were polled, if that is not known closely enough already."""
    for scope_id, at in polls.items():
        known = tx.last_polled_at(scope_id)
        if known is None or at - known >= RENEW_AFTER:
            tx.put_polled_at(scope_id, at)


def find_unpolled(reading: Reading, vms: Iterable[VmName], now: datetime) -> tuple[VmName, ...]:
    """Return those of *vms* that have not polled lately, or never: nobody there hears of events."""
    wanted = tuple(vms)
    polls = reading.last_polls(wanted)
    return tuple(vm for vm in wanted if not is_enabled(polls.get(vm), now))
