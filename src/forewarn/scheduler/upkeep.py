"""What has to be tidied up now and then, out of everybody's way."""

import threading
from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog

from forewarn.operations.context import Context
from forewarn.operations.seen import forget, kept_since
from forewarn.ports.store import DocumentKey, Store, StoreError

_log = structlog.get_logger(__name__)

_EVERY: Final = 3600.0
_LOOK: Final = 10_000
_BATCH: Final = 200
_PAUSE: Final = 0.05


class Upkeep:
    """Forgets documents that are older than they are kept, in small batches with pauses between."""

    def __init__(self, store: Store, context: Callable[[], Context]) -> None:
        self._store = store
        self._context = context
        self._stopping = threading.Event()

    def stop(self) -> None:
        """End after the batch it is at."""
        self._stopping.set()

    def run(self) -> None:
        """Tidy up every hour until stopped."""
        while not self._stopping.is_set():
            try:
                self.tidy_up()
            except StoreError as error:
                _log.warning("upkeep_failed", error=str(error))
            self._stopping.wait(_EVERY)

    def tidy_up(self) -> None:
        """Forget all that is too old by now."""
        before = kept_since(self._context())
        # Found by a reader, so that the writer is not held up while the history is looked through.
        while found := self._store.read(
            lambda reading: reading.superseded_documents(before, limit=_LOOK)
        ):
            for begin in range(0, len(found), _BATCH):
                self._forget(found[begin : begin + _BATCH], before)
                if self._stopping.wait(_PAUSE):
                    return
            _log.info("documents_forgotten", documents=len(found), before=before.isoformat())

    def _forget(self, documents: tuple[DocumentKey, ...], before: datetime) -> None:
        self._store.write(lambda tx: forget(tx, documents, before=before))
