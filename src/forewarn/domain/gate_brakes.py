"""What gates are asked before a step of a Maintenance, and how a shut one holds it back."""

from datetime import datetime

from forewarn.domain.blockers import Blocker, BlockerKind, Release
from forewarn.domain.brakes import Facts
from forewarn.domain.gate import Answer, GateStatus, Question
from forewarn.domain.maintenance import Step


def gate_questions(facts: Facts, step: Step) -> tuple[Question, ...]:
    """Return what the gates are asked before *step*. The first step of a Maintenance asks none."""
    if not (facts.own or facts.operations) or not facts.course.gates:
        return ()
    steps_done = sum(facts.steps_done[scope_id] for scope_id in step.scope_ids)
    return tuple(
        Question(
            gate=gate,
            maintenance_id=facts.maintenance.maintenance_id,
            scope_ids=tuple(sorted(step.scope_ids)),
            steps_done=steps_done,
            host=step.host,
        )
        for gate in facts.course.gates
    )


def awaited_question(facts: Facts, questions: tuple[Question, ...]) -> Question | None:
    """Return which of *questions* the step waits for: the first that is not answered well.

    When that is to be put again, so is first what was answered well before but has worn out. What
    wears out while a later gate thinks is not, or slow gates would never be open all at once.
    """
    answers = facts.snapshot.answers
    for number, question in enumerate(questions):
        answer = answers.get(question)
        if answer is None:
            return question
        if answer.status is GateStatus.OPEN:
            continue
        if answer.status is GateStatus.SHUT and answer.has_news(facts.now):
            before = questions[: 0 if _is_spent(facts, answer) else number]
            return next((each for each in before if answers[each].has_news(facts.now)), question)
        return question
    return None


def gate_brakes(facts: Facts, question: Question | None) -> tuple[Blocker, ...]:
    """Return what holds a step that waits for the answer to *question*."""
    if question is None:
        return ()
    answer = facts.snapshot.answers.get(question)
    kind, release, until = BlockerKind.GATE_ASKED, Release.BY_PROGRESS, None
    if answer is not None and answer.status is GateStatus.SHUT:
        kind, until = BlockerKind.GATE_SHUT, _patience_ends(facts, answer)
        if _is_spent(facts, answer):
            kind, release = BlockerKind.GATE_HOLDS, Release.BY_HAND
    said = " / ".join(answer.output.splitlines()) if answer else ""
    about = f"{question.gate} ({said})" if said else question.gate
    return (Blocker(kind=kind, release=release, until=until, about=about),)


def _patience_ends(facts: Facts, answer: Answer) -> datetime:
    """Return when a gate that stays shut holds its step until somebody resumes."""
    begun = filter(None, (answer.asked_since, facts.maintenance.resumed_at))
    return max(begun, default=facts.now) + facts.course.gate_patience


def _is_spent(facts: Facts, answer: Answer) -> bool:
    return answer.status is GateStatus.SHUT and facts.now >= _patience_ends(facts, answer)
