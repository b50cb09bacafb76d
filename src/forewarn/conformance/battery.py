"""Runs situations side by side, and collects the grades."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from forewarn.conformance.grades import (
    Grade,
    GradeOutcome,
    GradeRemedy,
    GradeResult,
    assess,
    without_hook,
)
from forewarn.conformance.situations import Situation
from forewarn.conformance.trial import TrialOverError, TrialRules, begin_trial


@dataclass(frozen=True, slots=True, kw_only=True)
class SituationReport:
    """The grades of one situation. *last_lines* is the end of what the handler printed."""

    name: str
    description: str
    results: Mapping[Grade, GradeResult]
    seconds: float = 0.0
    last_lines: tuple[str, ...] = ()

    @property
    def failures(self) -> Mapping[Grade, str]:
        """Why, for each grade that failed."""
        return {
            grade: result.reason
            for grade, result in self.results.items()
            if result.outcome is GradeOutcome.FAILED
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeFinding:
    """What a handler does wrong, the situations that show it, and the *reason* in the first."""

    grade: Grade
    reason: str
    remedy: GradeRemedy
    situations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConformanceReport:
    """The grades of all situations."""

    situations: Sequence[SituationReport]

    def count(self, outcome: GradeOutcome, grade: Grade | None = None) -> int:
        """Return how many checks had that *outcome*, of one *grade* or of all."""
        return sum(
            result.outcome is outcome
            for situation in self.situations
            for checked, result in situation.results.items()
            if grade is None or checked is grade
        )

    @property
    def highest_score(self) -> int:
        """The most that it can score: half, if it acts on events of other virtual machines."""
        return 50 if self.count(GradeOutcome.FAILED, Grade.OWN) else 100

    @property
    def score(self) -> float:
        """How many percent of the checks passed; those that were skipped do not count."""
        passed, failed = self.count(GradeOutcome.PASSED), self.count(GradeOutcome.FAILED)
        score = 100 * passed / (passed + failed) if passed + failed else 0.0
        return min(score, self.highest_score)

    @property
    def findings(self) -> Sequence[GradeFinding]:
        """The failed checks of a grade that one remedy mends, as one; worst harm first."""
        failed: dict[tuple[GradeRemedy, Grade], list[SituationReport]] = {}
        for situation in self.situations:
            for grade, result in situation.results.items():
                if result.remedy is not None:
                    failed.setdefault((result.remedy, grade), []).append(situation)
        return [
            GradeFinding(
                grade=grade,
                reason=found[0].results[grade].reason,
                remedy=remedy,
                situations=tuple(situation.name for situation in found),
            )
            for remedy in GradeRemedy
            for grade in Grade
            if (found := failed.get((remedy, grade)))
        ]


def run_battery(
    situations: Sequence[Situation],
    rules: TrialRules,
    *,
    jobs: int,
    tell: Callable[[SituationReport], None] = lambda _: None,
) -> ConformanceReport:
    """Take the handler through *situations*, so many *jobs* at a time, and *tell* of each."""

    def run(situation: Situation) -> SituationReport:
        report = _run(situation, rules)
        tell(report)
        return report

    with ThreadPoolExecutor(jobs) as pool:
        try:
            return ConformanceReport(tuple(pool.map(run, situations)))
        except BaseException:
            rules.stopping.set()
            pool.shutdown(cancel_futures=True)
            raise


def _run(situation: Situation, rules: TrialRules) -> SituationReport:
    lacking = situation.needs - rules.hooks
    if lacking:
        skipped = without_hook(min(lacking))
        return _report(situation, dict.fromkeys(situation.grades, skipped))
    began = time.monotonic()
    with begin_trial(rules) as trial:
        with suppress(TrialOverError):
            situation.play(trial)
        seen = trial.observe()
        results = assess(seen, situation.grades)
        lines = trial.last_lines()
    return _report(situation, results, seconds=time.monotonic() - began, last_lines=lines)


def _report(
    situation: Situation,
    results: Mapping[Grade, GradeResult],
    *,
    seconds: float = 0.0,
    last_lines: Iterable[str] = (),
) -> SituationReport:
    return SituationReport(
        name=situation.name,
        description=situation.description,
        results=results,
        seconds=seconds,
        last_lines=tuple(last_lines),
    )
