"""What is asked between two steps, and what was answered."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from forewarn.domain.names import HostName, MaintenanceId, ScopeId


class GateStatus(StrEnum):
    """What a gate says."""

    OPEN = "open"
    SHUT = "shut"
    ASKING = "asking"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Whether *gate* lets *maintenance_id* go on with its next step in *scope_ids*, on *host*.

    Two steps never share a question: *steps_done* of that Maintenance in those scopes tells them
    apart, so an answer is good for one step and not for the next.
    """

    gate: str
    maintenance_id: MaintenanceId
    scope_ids: tuple[ScopeId, ...]
    steps_done: int
    host: HostName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was said to a question: *output* is what it said last, for people.

    *ask_again_at* is in maintenance time; then also a good answer has worn out. *asked_since* is
    since when the gate has been asked without being open, which whoever asks keeps.
    """

    status: GateStatus
    output: str = ""
    ask_again_at: datetime | None = None
    asked_since: datetime | None = None

    def has_news(self, now: datetime) -> bool:
        return self.ask_again_at is not None and self.ask_again_at <= now
