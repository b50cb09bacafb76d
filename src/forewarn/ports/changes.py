"""The wake-ups inside the server: what a committed transaction changed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from forewarn.domain.names import ScopeId
from forewarn.domain.topology import Topology
from forewarn.protocol.document import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreChange:
    """What a commit changed for those who read from memory, watch, or carry messages."""

    documents: Mapping[ScopeId, Document] = field(default_factory=dict)
    topology: Topology | None = None
    has_ledger_grown: bool = False
    has_outbox_changed: bool = False
    recorded_at: datetime | None = field(default=None, compare=False)
    """The moment from which on its documents are recorded as shown, and who reads them."""


class ChangeListener(Protocol):
    """Somebody who wants to know. Called after the commit and before it is acknowledged."""

    def __call__(self, change: StoreChange) -> None:
        """Take note of *change*; called on the thread that committed, so be quick."""
        ...
