"""Who is told what changed: in the order of commitment, each change once."""

from collections.abc import Iterable
from dataclasses import replace
from threading import Lock, Thread, current_thread
from typing import Any

import structlog

from forewarn.ports.changes import ChangeListener, StoreChange
from forewarn.storage.columns import HintColumn

_log = structlog.get_logger(__name__)


class ChangeListeners:
    """Listeners, and the number of the last change that they were told of."""

    def __init__(self, last: int = 0) -> None:
        self.last = last
        self._telling = Lock()
        self.teller: Thread | None = None
        """The thread that is telling them something now."""
        self._listeners: tuple[ChangeListener, ...] = ()

    def add(self, listener: ChangeListener) -> None:
        """Tell *listener* of every change from now on."""
        # A new tuple, for somebody may be in the middle of the old one.
        self._listeners = (*self._listeners, listener)

    def tell(self, changes: Iterable[StoreChange]) -> None:
        """Tell of those of *changes* that are news, as one."""
        with self._telling:
            self.teller = current_thread()
            try:
                self._tell(changes)
            finally:
                self.teller = None

    def _tell(self, changes: Iterable[StoreChange]) -> None:
        news = self._news(changes)
        if not news:
            return
        change = news[0] if len(news) == 1 else merge(news)
        self.last = change.sequence
        for listener in self._listeners:
            try:
                listener(change)
            except Exception:  # noqa: BLE001 - the commit stands; the next listener has to know
                _log.exception("listener_failed", listener=repr(listener))

    def _news(self, changes: Iterable[StoreChange]) -> list[StoreChange]:
        news: list[StoreChange] = []
        last = self.last
        for change in changes:
            # After a gap numbers may be smaller than before: the database may be an older one.
            if change.is_gap or change.sequence > last:
                news.append(change)
                last = change.sequence
        return news


def read_hint(kept: Any) -> StoreChange | None:
    """Return the hint that is *kept* in a database, or None if this release cannot read it."""
    try:
        return HintColumn.read(kept)
    except Exception:  # noqa: BLE001 - a newer release may write it in any other way
        return None


def merge(changes: Iterable[StoreChange]) -> StoreChange:
    """Return one hint at all that *changes* hint at, which are in their order."""
    merged = StoreChange()
    for each in changes:
        moments = [moment for moment in (merged.recorded_at, each.recorded_at) if moment]
        merged = replace(
            each,
            incarnations={**merged.incarnations, **each.incarnations},
            topology_version=each.topology_version or merged.topology_version,
            # Whoever wants to know reads it from the hints that are stored.
            revises=None,
            revision=None,
            has_work=merged.has_work or each.has_work,
            has_ledger_grown=merged.has_ledger_grown or each.has_ledger_grown,
            has_outbox_grown=merged.has_outbox_grown or each.has_outbox_grown,
            has_tasks=merged.has_tasks or each.has_tasks,
            recorded_at=min(moments, default=None),
            is_gap=merged.is_gap or each.is_gap,
        )
    return merged
