"""What virtual machines ask to be done or told, whoever does it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from forewarn.domain.names import ScopeId, VmName
from forewarn.protocol.vocabulary import EventId


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """That something was stored: whoever reads this document, or a later one, sees it."""

    scope_id: ScopeId
    document_incarnation: int


class Verbs(Protocol):
    """What a virtual machine can ask to be done or told; errors are those of the domain."""

    async def request_start(
        self, vm: VmName, event_ids: tuple[EventId, ...], *, where: str
    ) -> Receipt:
        """Take *vm*'s StartRequests from *where*: all of them, or UnknownEventError and none."""

    async def describe_event(self, vm: VmName, event_id: EventId) -> Mapping[str, object]:
        """Return status, outcome and ledger of an event of *vm*'s scope, as JSON can."""

    async def postpone(
        self, vm: VmName, event_id: EventId, not_before: datetime, *, where: str
    ) -> Mapping[str, object]:
        """Move an event of *vm*'s scope to a later date and return its description."""
