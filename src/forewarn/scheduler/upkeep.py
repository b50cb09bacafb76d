"""What has to be tidied up now and then, out of everybody's way."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeVar

import structlog

from forewarn.operations.context import Context
from forewarn.operations.history import find_old, prune, settle_retention
from forewarn.operations.repeats import answers_kept_since
from forewarn.operations.seen import forget, kept_since
from forewarn.operations.sessions import sessions_kept_since
from forewarn.ports.archive import Archive
from forewarn.ports.entries import History
from forewarn.ports.store import Reading, Store, Transaction
from forewarn.rounds import Rounds

_log = structlog.get_logger(__name__)

T = TypeVar("T")

_EVERY: Final = 3600.0
_LOOK: Final = 10_000
_BATCH: Final = 200
_PAUSE: Final = 0.05


class Upkeep:
    """Forgets what is older than it is kept, in small batches with pauses between.

    It writes under the lease *epoch* only. *archives* are the records of tasks on disk. *retention*
    tells how long history is kept, if not forever.
    """

    def __init__(
        self,
        store: Store,
        context: Callable[[], Context],
        *,
        epoch: int,
        archives: Sequence[Archive] = (),
        retention: Callable[[], timedelta | None] = lambda: None,
    ) -> None:
        self._store = store
        self._archives = archives
        self._retention = retention
        self._epoch = epoch
        self._context = context
        self.rounds: Final = Rounds("upkeep", self.tidy_up, every=_EVERY)

    def tidy_up(self) -> None:
        """Forget all that is too old by now."""
        context = self._context()
        before = kept_since(context)
        self._forget(
            "documents",
            lambda reading: reading.superseded_documents(before, limit=_LOOK),
            lambda found, tx: forget(tx, documents=found, before=before),
        )
        self._forget(
            "memberships",
            lambda reading: reading.superseded_memberships(before, limit=_LOOK),
            lambda found, tx: forget(tx, memberships=found, before=before),
        )
        self._write(lambda tx: tx.prune_answers(before=answers_kept_since(context)))
        self._write(lambda tx: tx.prune_sessions(before=sessions_kept_since(context)))
        self._write(lambda tx: tx.prune_showings(before=before))
        self._write(lambda tx: tx.prune_tasks(before=before))
        for archive in self._archives:
            self._remove_records(archive, before)
        # Last: what refers to events is gone by then.
        self._prune_history()

    def _prune_history(self) -> None:
        retention = self._retention()
        before = self._write(lambda tx: settle_retention(tx, self._context(), retention))
        if before is None:
            return
        for kind in History:
            find = partial(find_old, kind=kind, before=before, limit=_LOOK)
            self._forget(kind, find, partial(prune, self._context, kind, before))

    def _remove_records(self, archive: Archive, before: datetime) -> None:
        try:
            removed = archive.remove_ended(before, pause=lambda: self.rounds.pause(_PAUSE))
        except OSError as error:
            _log.warning("records_not_removed", what=archive.name, error=error.strerror)
            return
        if removed:
            _log.info("history_forgotten", what=archive.name, number=removed)

    def _write(self, work: Callable[[Transaction], T]) -> T:
        def write(tx: Transaction) -> T:
            tx.check_epoch(self._epoch)
            return work(tx)

        return self._store.write(write)

    def _forget(
        self,
        what: str,
        find: Callable[[Reading], tuple[T, ...]],
        remove: Callable[[tuple[T, ...], Transaction], None],
    ) -> None:
        # Found by a reader, so that the writer is not held up while the history is looked through.
        while found := self._store.read(find):
            for begin in range(0, len(found), _BATCH):
                batch = found[begin : begin + _BATCH]
                self._write(partial(remove, batch))
                if self.rounds.pause(_PAUSE):
                    return
            _log.info("history_forgotten", what=what, number=len(found))
