"""Who has polled, from the hot path to the store."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Final

from forewarn.domain.names import ScopeId, VmName
from forewarn.metadata.board import Board
from forewarn.operations.enabling import RENEW_AFTER, record_polls
from forewarn.ports.clock import Clock
from forewarn.ports.store import Store, StoreUnavailableError, Transaction
from forewarn.rounds import Rounds

_AT_ONCE: Final = 2_000
"""How many machines' polls are written in a second: whoever else writes must not wait for them."""


class Polls:
    """Notes who polls. The first poll of a scope is committed within a second, others seldom.

    If it *is_eager*, that is before the poll is answered: in virtual time nothing waits.
    """

    def __init__(self, store: Store, board: Board, clock: Clock, *, is_eager: bool = False) -> None:
        self._store = store
        self._board = board
        self._clock = clock
        self._is_eager = is_eager
        self._polled: set[VmName] = set()
        self._committed: dict[ScopeId, datetime] = {}
        self._heard: dict[VmName, datetime] = {}
        self._to_tell: dict[VmName, datetime] = {}
        self.rounds: Final = Rounds("polls", self.commit, every=1, is_thorough=True)

    def note(self, vm: VmName) -> None:
        """Remember that *vm* has polled; called for every poll."""
        self._polled.add(vm)
        if self._is_eager:
            # A poll is answered all the same; what was not written is when it polls again.
            with suppress(StoreUnavailableError):
                self.commit()

    def note_all(self, vms: Iterable[VmName]) -> None:
        """Remember that *vms* have polled a relay; the first poll of one is committed at once."""
        self._polled.update(vms)
        if self._is_eager:
            with suppress(StoreUnavailableError):
                self.commit()
        else:
            self.rounds.wake()

    def commit(self) -> None:
        """Write down who has polled for the first time or after a while."""
        polled, self._polled = self._polled, set()
        now = self._clock.now()
        scopes = {vm.scope_id for name in polled if (vm := self._board.vm_named(name))}
        news = {
            scope_id: now
            for scope_id in scopes
            if scope_id not in self._committed or now - self._committed[scope_id] >= RENEW_AFTER
        }
        told = self._machines(polled, now)
        # After an outage this is also how the store learns that it can be written again.
        if not news and not told and self._store.is_writable():
            return

        def write(tx: Transaction) -> None:
            record_polls(tx, news)
            tx.put_polls(told)
            tx.put_setting("last_upkeep", now.isoformat())

        self._store.write(write)
        self._committed |= news
        self._heard |= told

    def _machines(self, polled: Iterable[VmName], now: datetime) -> dict[VmName, datetime]:
        """Return whose polls are to be written in this turn; the others are in one to come."""
        self._to_tell |= {
            vm: now
            for vm in polled
            if vm not in self._heard or now - self._heard[vm] >= RENEW_AFTER
        }
        return {vm: self._to_tell.pop(vm) for vm in tuple(islice(self._to_tell, _AT_ONCE))}
