"""How the board of a server follows the store.

It listens before it first reads, so that it misses no commit; incarnations and the version of the
topology keep it from putting anything up twice. Whoever writes waits while it is told, so that it
reads a whole topology on its own thread.
"""

from contextlib import suppress
from threading import Lock
from typing import Final

from forewarn.domain.names import ScopeId
from forewarn.domain.topology import Topology
from forewarn.metadata.board import Board
from forewarn.ports.changes import ChangeListener, StoreChange
from forewarn.ports.store import Reading, Store, StoreUnavailableError
from forewarn.protocol.document import Document
from forewarn.rounds import Rounds


class StoreFeed:
    """Puts up on *board* what *store* has, and from `begin` on what it commits.

    *shown* is told of each change that is put up; of many at once, of the first of them.
    """

    def __init__(self, board: Board, store: Store, shown: ChangeListener = lambda _: None) -> None:
        self.board = board
        self._store = store
        self._shown = shown
        self._changing = Lock()
        self._behind: StoreChange | None = StoreChange()
        """The oldest change that is not put up yet."""
        self._has_documents = False
        """Whether all of them are up that were told of."""
        self._topology_version = 0
        self.rounds: Final = Rounds("board", self.catch_up, every=1, is_thorough=True)

    def begin(self) -> None:
        """Put up all that there is; what is committed from now on, before it is answered."""
        self._store.listen(self._follow)
        self._read_all()

    def catch_up(self) -> None:
        """Read what could not be read before, for there may be no other change for long."""
        if self._behind:
            self._read_all()

    def _follow(self, change: StoreChange) -> None:
        with suppress(StoreUnavailableError):  # the rounds say so, and try again soon
            self._note(change)

    def _read_all(self) -> None:
        self._note(StoreChange())
        if self._behind:
            # Nobody waits for this thread. Then the topology is at hand, and who is who in it.
            self._store.read(lambda reading: reading.topology().directory)
            self._note(StoreChange())

    def _note(self, change: StoreChange) -> None:
        with self._changing:
            # All documents are read at first, and again after some could not be.
            is_behind = not self._has_documents or change.is_gap
            # The oldest that is not shown yet: nothing recorded since then was served. The empty
            # change that is behind from the start gives way to the first real one.
            has_moved = self._behind is not None or change.is_gap
            if self._behind is None or self._behind.recorded_at is None:
                self._behind = change
            news = [
                scope
                for scope, number in change.incarnations.items()
                if self.board.is_news(scope, number)
            ]
            has_moved |= (change.topology_version or 0) > self._topology_version
            if news or has_moved or is_behind:
                self._has_documents = False
                is_whole = self._read(None if is_behind else news, has_moved=has_moved)
                self._has_documents = True
                if not is_whole:
                    self.rounds.wake()
                    return
            self._shown(self._behind)
            self._behind = None

    def _read(self, scope_ids: list[ScopeId] | None, *, has_moved: bool) -> bool:
        """Put up what the store has; tell whether the topology was at hand, if it *has_moved*."""

        def look(reading: Reading) -> tuple[dict[ScopeId, Document], tuple[int, Topology] | None]:
            documents = reading.documents(scope_ids)
            return documents, reading.topology_at_hand() if has_moved else None

        documents, moved = self._store.read(look)
        self.board.put_up(documents, moved and moved[1], is_everything=scope_ids is None)
        if moved is not None:
            self._topology_version, _ = moved
        return moved is not None or not has_moved
