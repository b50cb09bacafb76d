"""What gates are asked, and what they last said."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

import structlog
from structlog.typing import FilteringBoundLogger

from forewarn.domain.gate import Answer, GateStatus, Question
from forewarn.ports.gate import Gates
from forewarn.scheduler.reports import report_answer

log = structlog.get_logger()

_ASK_AGAIN_AFTER_FAILURE: Final = timedelta(seconds=10)
_SOONEST: Final = timedelta(seconds=1)
"""No gate is asked more often, or the loop would not come to its other work."""


class GateAnswers:
    """Puts questions to gates, and keeps the answers while the questions matter."""

    def __init__(
        self,
        gates: Gates | None,
        reports: FilteringBoundLogger,
        earlier: Mapping[Question, Answer],
    ) -> None:
        self._gates = gates
        self._reports = reports
        self._answers: dict[Question, Answer] = {}
        # Whoever leads asks anew, but no gate gets more time by that.
        self._asked_since = {
            (question.maintenance_id, question.gate): answer.asked_since
            for question, answer in earlier.items()
            if answer.asked_since is not None and answer.status is not GateStatus.OPEN
        }
        self._reported: dict[Question, GateStatus] = {}

    @property
    def answers(self) -> Mapping[Question, Answer]:
        """What the gates last said; to be looked up in, from any thread."""
        return MappingProxyType(self._answers)

    def ask(self, question: Question, now: datetime) -> None:
        """Put *question*, and keep what is said.

        A gate that was shut for others of its Maintenance has been asked for as long as by them.
        """
        known = self._answers.get(question)
        place = (question.maintenance_id, question.gate)
        since = self._asked_since.setdefault(place, now)
        answer = self._ask(question, known, now)
        again = answer.ask_again_at
        if answer.status is not GateStatus.ASKING:
            report_answer(self._reports, question, self._reported.get(question), answer)
            self._reported[question] = answer.status
        if answer.status is GateStatus.OPEN:
            del self._asked_since[place]
        self._answers[question] = replace(
            answer,
            ask_again_at=None if again is None else max(again, now + _SOONEST),
            asked_since=known.asked_since if known else since,
        )

    def keep(self, questions: AbstractSet[Question]) -> None:
        """Forget what was said to any other question: it is asked anew when it matters again."""
        if not self._answers.keys() <= questions:
            self._answers = {
                question: answer
                for question, answer in self._answers.items()
                if question in questions
            }
            self._reported = {
                question: status
                for question, status in self._reported.items()
                if question in questions
            }
            asked = {question.maintenance_id for question in self._answers}
            self._asked_since = {
                place: since for place, since in self._asked_since.items() if place[0] in asked
            }

    def expect_news(self, now: datetime) -> None:
        """Ask again whoever has not said anything yet."""
        for question, answer in self._answers.items():
            if answer.status is GateStatus.ASKING:
                self._answers[question] = replace(answer, ask_again_at=now)

    def _ask(self, question: Question, known: Answer | None, now: datetime) -> Answer:
        again = now + _ASK_AGAIN_AFTER_FAILURE
        if self._gates is None:
            said = f"Unknown gate {question.gate!r} on this server."
            return Answer(status=GateStatus.SHUT, output=said, ask_again_at=again)
        try:
            return self._gates.ask(question)
        except Exception as error:
            # One gate in trouble must not keep the loop from its other work.
            if known is None or known.output != str(error):
                log.exception("gate_failed", gate=question.gate)
            return Answer(status=GateStatus.SHUT, output=str(error), ask_again_at=again)
