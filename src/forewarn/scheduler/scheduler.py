"""The loop itself. It decides nothing; `domain.decisions` does."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

import structlog
from structlog.typing import FilteringBoundLogger

from forewarn.domain.actions import Decisions
from forewarn.domain.decisions import decide, next_deadline
from forewarn.domain.gate import Answer, GateStatus, Question, find_unwritten
from forewarn.domain.maintenance import MaintenanceOutcome
from forewarn.domain.scenario import FaultStep
from forewarn.domain.schedule import OccurrenceOutcome
from forewarn.domain.server_pause import ServerPause
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.standing import MaintenanceStatus
from forewarn.domain.walk import find_states
from forewarn.operations.context import Context
from forewarn.operations.snapshots import look
from forewarn.operations.telling import has_news
from forewarn.ports.changes import StoreChange
from forewarn.ports.clock import VIRTUAL_NOW
from forewarn.ports.faults import FaultControl
from forewarn.ports.gate import Gates
from forewarn.ports.metrics import Distribution
from forewarn.ports.runner import Assigner
from forewarn.ports.store import Store, Transaction
from forewarn.rounds import Rounds
from forewarn.scheduler.answers import GateAnswers
from forewarn.scheduler.reports import MaintenanceLog, TaskReports, report_steps
from forewarn.scheduler.tick import Turn, decide_and_record, look_and_tell

log: Final[FilteringBoundLogger] = structlog.get_logger()

_LOOK_SECONDS: Final = 1.0
_LATENESS_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)


@dataclass(frozen=True, slots=True)
class Lull:
    """What was seen when nothing was due, and when that was.

    The next deadline is counted from there: one that has passed since must not be slept through.
    """

    seen: Snapshot
    at: datetime
    questions: AbstractSet[Question]

    @property
    def ends_at(self) -> datetime | None:
        """When something is due next, if nothing changes."""
        return next_deadline(self.seen, self.at)

    @property
    def seconds_to_owners(self) -> float | None:
        """In how many seconds of real time to look again at the owners of tasks."""
        ownership = self.seen.ownership
        if ownership is None:
            return None
        moments = filter(None, map(ownership.look_again_at, self.seen.rows.values()))
        first = min(moments, default=None)
        return None if first is None else max((first - ownership.at).total_seconds(), _LOOK_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """How schedulers have done so far; it outlives each of them, for the metrics of a replica."""

    lateness: Distribution = field(default_factory=lambda: Distribution(_LATENESS_SECONDS))
    """By how many seconds of maintenance time deadlines were missed when they were met."""
    endings: Counter[MaintenanceOutcome] = field(default_factory=Counter)
    """How the Maintenances ended that they have finished."""
    occurrences: Counter[OccurrenceOutcome] = field(default_factory=Counter)
    """What became of the dates of schedules that came up under them."""


class Scheduler:
    """Does what is due: on a change, at the next deadline, or when time is moved."""

    def __init__(
        self,
        *,
        store: Store,
        assigner: Assigner,
        context: Callable[[], Context],
        epoch: int,
        gates: Gates | None = None,
        reports: FilteringBoundLogger = log,
        performance: Performance | None = None,
        faults: FaultControl | None = None,
    ) -> None:
        self._store = store
        self._assigner = assigner
        self._faults = faults
        self._context = context
        self.epoch: Final = epoch
        self.performance: Final = performance or Performance()
        self.deadline: datetime | None = None
        """When the loop goes on by itself, as far as it knows."""
        self._lull: Lull | None = None
        self._written: Mapping[Question, Answer] = store.read(
            lambda reading: reading.gate_answers()
        )
        self._answers = GateAnswers(gates, reports, self._written)
        self._tasks = TaskReports(reports)
        self._maintenances = MaintenanceLog(store, reports)
        self._pause: ServerPause | None = None
        self._turn = threading.RLock()
        self._reports = reports
        self.rounds: Final = Rounds("scheduler", lambda: self._seconds_to_wait(self.settle()))

    @property
    def shut_gates(self) -> int:
        """How many gates hold a Maintenance back, each counted once for each of these."""
        return len(
            {
                (question.maintenance_id, question.gate)
                for question, answer in list(self._answers.answers.items())
                if answer.status is GateStatus.SHUT
            }
        )

    def count_maintenances(self) -> Counter[MaintenanceStatus]:
        """Count the Maintenances that are not over by where they were when nothing was due."""
        lull = self._lull
        if lull is None:
            return Counter()
        return Counter(each.status for each in find_states(lull.seen, lull.at).values())

    def note(self, change: StoreChange) -> None:
        """Look again, if somebody else has recorded something."""
        if change.has_work:
            self.wake()

    def wake(self) -> None:
        """Look again: there is news from outside of the store."""
        self.rounds.wake()

    def finish_turn(self) -> None:
        """Return when nothing is done any more that was decided before the last commit."""
        with self._turn:
            return

    def settle(self) -> Lull:
        """Do everything that is due, and let everybody else know what was said."""
        with self._turn:
            lull = self._do_what_is_due()
            self._write_down(lull)
            return lull

    def advance(self, duration: timedelta, *, move_to: Callable[[datetime], None]) -> datetime:
        """Let virtual time pass, doing on the way what is due; return when all is done.

        The clock is moved inside a write, after a look at all that was written before: what is
        written meanwhile has its own deadlines met, whether it comes before the move or after it.
        """
        with self._turn:
            target = self._do_what_is_due().at + duration

            def move(tx: Transaction) -> Snapshot:
                context = self._context()
                seen = look(tx, context, self._known)
                if not decide(seen, context.now):
                    moment = next_deadline(seen, context.now)
                    moment = target if moment is None else min(moment, target)
                    # After a restart time goes on from here, and never back.
                    tx.put_setting(VIRTUAL_NOW, moment.isoformat())
                    move_to(moment)
                return seen

            while self._context().now < target:
                self._do_what_is_due(self._store.write(move))
            self.settle()
            return target

    def _do_what_is_due(self, seen: Snapshot | None = None) -> Lull:
        context = self._context()
        self._answers.expect_news(context.now)
        if seen is None:
            seen = self._store.read(lambda reading: look(reading, self._context(), self._known))
        self._note_pause(seen.server_pause)
        self._maintenances.follow(seen, context)
        self._tasks.follow(seen)
        now = self._context().now
        while due := self._decide(seen, now):
            seen = self._act(seen, due)
            context = self._context()
            self._maintenances.follow(seen, context)
            self._tasks.follow(seen)
            now = context.now
        self._tell(seen)
        self._lull = Lull(seen, now, due.questions)
        return self._lull

    def _tell(self, seen: Snapshot) -> None:
        # When nothing is due: only then is it plain that a Maintenance is held.
        if not seen.maintenances:
            return
        context, known = self._context(), self._known
        if self._store.read(lambda reading: has_news(reading, context, seen)):
            tidings = self._store.write(
                lambda tx: look_and_tell(tx, context, known, epoch=self.epoch)
            )
            self._maintenances.report_stops(tidings, context)

    def _decide(self, seen: Snapshot, now: datetime) -> Decisions:
        due = decide(seen, now)
        self._answers.keep(due.questions)
        return due

    def _act(self, seen: Snapshot, due: Decisions) -> Snapshot:
        # What is due is decided again on what is committed, so that *seen* may be a moment old.
        after = seen
        if due.actions or due.moves or due.occurrences:
            turn = self._store.write(
                lambda tx: decide_and_record(
                    tx, self._context(), self._known, self._assigner, epoch=self.epoch
                )
            )
            due, after = turn.decisions, turn.after
            self._note_lateness()
            report_steps(self._reports, turn)
            self._maintenances.report_endings(turn.finished, self._context())
            self.performance.endings.update(turn.endings)
            self.performance.occurrences.update(turn.outcomes)
            _log_occurrences(turn)
            self._misbehave(turn)
        for effect in due.effects:
            self._answers.ask(effect.question, self._context().now)
        return replace(after, answers=self._known)

    def _misbehave(self, turn: Turn) -> None:
        # Not before it is in the audit. Faults end with the process, so none is lost by a crash.
        if self._faults is not None:
            for vm, step in turn.fault_steps:
                if isinstance(step, FaultStep):
                    self._faults.put(vm, step.fault)
                else:
                    self._faults.remove(vm, step.kind)

    @property
    def _known(self) -> Mapping[Question, Answer]:
        """What gates last said."""
        return self._answers.answers

    def _write_down(self, lull: Lull) -> None:
        news = find_unwritten(self._known, self._written)
        over = [question for question in self._written if question not in lull.questions]
        if news or over:
            self._store.write(lambda tx: tx.put_gate_answers(news, forget=over, epoch=self.epoch))
            kept = {key: said for key, said in self._written.items() if key in lull.questions}
            self._written = {**kept, **news}

    def _note_pause(self, pause: ServerPause | None) -> None:
        if pause != self._pause:
            if pause is not None:
                log.warning("server_paused", who=pause.who, reason=pause.reason)
            else:
                log.info("server_resumed")
            self._pause = pause

    def _note_lateness(self) -> None:
        now = self._context().now
        if self.deadline is not None and self.deadline <= now:
            self.performance.lateness.observe((now - self.deadline).total_seconds())
            self.deadline = None

    def _seconds_to_wait(self, lull: Lull) -> float | None:
        self.deadline = moment = lull.ends_at
        wait = None if moment is None else (moment - self._context().now).total_seconds()
        waits = (wait, lull.seconds_to_owners)
        return min((each for each in waits if each is not None), default=None)


def _log_occurrences(turn: Turn) -> None:
    for action, met in turn.met:
        tell = log.info if met.maintenance_id else log.warning
        tell(
            f"schedule_{met.outcome}",
            schedule=action.name,
            opens_at=met.opens_at.isoformat(),
            maintenance_id=met.maintenance_id,
            reason=met.reason,
        )
