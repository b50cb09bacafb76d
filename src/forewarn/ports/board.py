"""What is on the board, for those who tell others of it."""

from dataclasses import dataclass
from typing import Protocol

from forewarn.domain.names import ScopeId
from forewarn.domain.topology import Topology
from forewarn.protocol.document import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Posting:
    """What was put up: documents of *scope_ids*, fresh or gone, and the fleet as it is now."""

    scope_ids: tuple[ScopeId, ...] = ()
    topology: Topology


class BoardReading(Protocol):
    """What polls see at the moment."""

    @property
    def topology(self) -> Topology: ...

    def document_in(self, scope_id: ScopeId) -> Document:
        """Return the current document of the scope; `FIRST_DOCUMENT` if it has none."""
