"""Who has polled: the first poll enables a scope, later ones keep it so."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from forewarn.domain.names import ScopeId
from forewarn.ports.store import Transaction

RENEW_AFTER: Final = timedelta(minutes=1)


def record_polls(tx: Transaction, polls: Mapping[ScopeId, datetime]) -> None:
    """Write down when scopes were polled, if that is not known closely enough already."""
    for scope_id, at in polls.items():
        known = tx.last_polled_at(scope_id)
        if known is None or at - known >= RENEW_AFTER:
            tx.put_polled_at(scope_id, at)
