"""Who has polled, from the hot path to the store."""

import threading
from datetime import datetime

import structlog

from forewarn.domain.names import ScopeId, VmName
from forewarn.metadata.board import Board
from forewarn.operations.enabling import RENEW_AFTER, record_polls
from forewarn.ports.clock import Clock
from forewarn.ports.store import Store, StoreError

_log = structlog.get_logger(__name__)


class Polls:
    """Notes who polls. The first poll of a scope is committed within a second, others seldom."""

    def __init__(self, store: Store, board: Board, clock: Clock) -> None:
        self._store = store
        self._board = board
        self._clock = clock
        self._polled: set[VmName] = set()
        self._committed: dict[ScopeId, datetime] = {}
        self._stopping = threading.Event()

    def note(self, vm: VmName) -> None:
        """Remember that *vm* has polled; called for every poll."""
        self._polled.add(vm)

    def stop(self) -> None:
        """Commit what is left and end."""
        self._stopping.set()

    def run(self) -> None:
        """Commit what was noted, once a second."""
        while not self._stopping.wait(1):
            self._commit()
        self._commit()

    def _commit(self) -> None:
        polled, self._polled = self._polled, set()
        now = self._clock.now()
        scopes = {vm.scope_id for name in polled if (vm := self._board.vm_named(name))}
        news = {
            scope_id: now
            for scope_id in scopes
            if scope_id not in self._committed or now - self._committed[scope_id] >= RENEW_AFTER
        }
        if not news:
            return
        try:
            self._store.write(lambda tx: record_polls(tx, news))
            self._committed |= news
        except StoreError as error:
            _log.warning("polls_not_recorded", error=str(error))
