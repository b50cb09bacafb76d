"""What is asked between two steps, and what was answered."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
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


def find_unwritten(
    known: Mapping[Question, Answer], written: Mapping[Question, Answer]
) -> dict[Question, Answer]:
    """Return which of the *known* answers are not *written* down, or otherwise.

    When a gate is asked again is not news: it would have to be written with each question. Until
    it has answered, what it said before is its last word.
    """
    return {
        question: answer
        for question, answer in known.items()
        if question not in written or _is_news(answer, written[question])
    }


def _is_news(answer: Answer, before: Answer) -> bool:
    if answer is before or answer.status is GateStatus.ASKING:
        return False
    if (answer.ask_again_at is None) is not (before.ask_again_at is None):
        return True
    return replace(answer, ask_again_at=before.ask_again_at) != before
