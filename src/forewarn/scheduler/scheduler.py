"""The loop itself. It decides nothing; `domain.decisions` does."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Final, assert_never

import structlog
from structlog.typing import FilteringBoundLogger

from forewarn.domain.actions import (
    AskGate,
    BeginImpact,
    BeginTask,
    Decisions,
    Effect,
    InquireImpact,
    InquireTask,
)
from forewarn.domain.decisions import decide, next_deadline
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.gate import GateStatus, Question
from forewarn.domain.impact import Impact
from forewarn.domain.knowledge import NOTHING, Knowledge, find_obsolete, find_unwritten
from forewarn.domain.maintenance import MaintenanceOutcome
from forewarn.domain.names import VmName
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
from forewarn.ports.executor import Executor
from forewarn.ports.faults import FaultControl
from forewarn.ports.gate import Gates
from forewarn.ports.host_worker import HostWorker
from forewarn.ports.metrics import Distribution
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventId
from forewarn.rounds import Rounds
from forewarn.scheduler.answers import GateAnswers, hear
from forewarn.scheduler.host_tasks import HostTasks
from forewarn.scheduler.reports import MaintenanceLog, report_impact, report_steps
from forewarn.scheduler.tick import Turn, decide_and_record, look_and_tell

log: Final[FilteringBoundLogger] = structlog.get_logger()

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

    def __init__(  # noqa: PLR0913 - what it works with
        self,
        *,
        store: Store,
        executor: Executor,
        context: Callable[[], Context],
        epoch: int,
        gates: Gates | None = None,
        reports: FilteringBoundLogger = log,
        host_worker: HostWorker | None = None,
        performance: Performance | None = None,
        faults: FaultControl | None = None,
    ) -> None:
        self._store = store
        self._executor = executor
        self._faults = faults
        self._context = context
        self.epoch: Final = epoch
        self.performance: Final = performance or Performance()
        self.deadline: datetime | None = None
        """When the loop goes on by itself, as far as it knows."""
        self._lull: Lull | None = None
        self._written = store.read(lambda reading: reading.knowledge())
        # What is over stays so. Nobody is asked again: the fleet has followed where it was moved.
        # What an operator does by hand stays so, too: an executor of today would do it once more.
        self._impacts: dict[tuple[EventId, VmName], Impact] = {
            key: said
            for key, said in self._written.impacts.items()
            if said.is_over or said.is_by_hand
        }
        self._reserved = NOTHING
        self._answers = GateAnswers(gates, reports, self._written.answers)
        self._hosts = HostTasks(host_worker, reports, epoch=epoch)
        self._hosts.note({task: x for task, x in self._written.tasks.items() if x.is_over})
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
        """Let virtual time pass, doing on the way what is due; return when all is done."""
        with self._turn:
            lull = self._do_what_is_due()
            target = lull.at + duration
            while (moment := lull.ends_at) is not None and moment <= target:
                move_to(moment)
                lull = self._do_what_is_due()
            move_to(target)
            self.settle()
            return target

    def _do_what_is_due(self) -> Lull:
        context = self._context()
        self._reserved = NOTHING  # whatever begins is reserved in the turn it begins in
        self._answers.expect_news(context.now)
        self._hosts.follow(context.rules.host_works)
        seen = self._store.read(lambda reading: look(reading, self._context(), self._known))
        self._note_pause(seen.server_pause)
        self._maintenances.follow(seen, context)
        now = self._context().now
        while due := self._decide(seen, now):
            seen = self._act(seen, due)
            context = self._context()
            self._maintenances.follow(seen, context)
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
        events, after = seen.events, seen
        if due.actions or due.moves or due.occurrences or not self._may_begin(due.effects):
            turn = self._store.write(
                lambda tx: decide_and_record(tx, self._context(), self._known, epoch=self.epoch)
            )
            events, due, after = turn.before.events, turn.decisions, turn.after
            self._note_lateness()
            report_steps(self._reports, turn)
            self._maintenances.report_endings(turn.finished, self._context())
            self.performance.endings.update(turn.endings)
            self.performance.occurrences.update(turn.outcomes)
            self._reserved |= turn.reserved
            self._written |= turn.reserved | turn.followed
            self._impacts |= {**turn.reserved.impacts, **turn.followed.impacts}
            self._hosts.note(turn.followed.tasks)
            _log_occurrences(turn)
            self._misbehave(turn)
        self._impacts = {
            key: said
            for key, said in self._impacts.items()
            if (event := after.events.get(key[0])) and event.is_in_flight
        }
        self._hosts.keep(after.operations)
        for effect in due.effects:
            self._perform(effect, events)
        known = self._known
        return replace(after, impacts=known.impacts, tasks=known.tasks, answers=known.answers)

    def _misbehave(self, turn: Turn) -> None:
        # Not before it is in the audit. Faults end with the process, so none is lost by a crash.
        if self._faults is not None:
            for vm, step in turn.fault_steps:
                if isinstance(step, FaultStep):
                    self._faults.put(vm, step.fault)
                else:
                    self._faults.remove(vm, step.kind)

    @property
    def _known(self) -> Knowledge:
        """What executors, gates and hosts last said."""
        return Knowledge(
            impacts=MappingProxyType(self._impacts),
            tasks=self._hosts.tasks,
            answers=self._answers.answers,
        )

    def _may_begin(self, effects: Iterable[Effect]) -> bool:
        """Tell whether whatever *effects* begin is reserved in the store, under this lease."""
        return all(
            (effect.event_id, effect.vm) in self._reserved.impacts
            if isinstance(effect, BeginImpact)
            else effect.task in self._reserved.tasks
            for effect in effects
            if isinstance(effect, BeginImpact | BeginTask)
        )

    def _write_down(self, lull: Lull) -> None:
        news = find_unwritten(self._known, self._written)
        over = find_obsolete(self._written, lull.seen, lull.questions)
        if news or over:
            self._store.write(lambda tx: tx.put_knowledge(news, forget=over, epoch=self.epoch))
            self._written = self._written - over | news

    def _perform(self, effect: Effect, events: Mapping[EventId, ScheduledEvent]) -> None:
        match effect:
            case AskGate():
                self._answers.ask(effect.question, self._context().now)
            case InquireTask() | BeginTask():
                self._hosts.perform(effect, self._context())
            case InquireImpact() | BeginImpact():
                self._perform_impact(effect, events[effect.event_id])
            case _:
                assert_never(effect)

    def _perform_impact(self, effect: InquireImpact | BeginImpact, event: ScheduledEvent) -> None:
        key = (effect.event_id, effect.vm)
        known = self._impacts.get(key)
        about = {"event_id": effect.event_id, "vm": effect.vm}
        ask = (
            partial(self._executor.begin, event, effect.vm, epoch=self.epoch)
            if isinstance(effect, BeginImpact)
            else partial(self._executor.inquire, *key)
        )

        def complain() -> None:
            log.error("executor_failed", exc_info=True, **about)  # noqa: LOG014 - called by one

        self._impacts[key] = said = hear(ask, known, self._context().now, complain)
        report_impact(self._reports, "impact_changed", known, said, **about)

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
        return None if moment is None else (moment - self._context().now).total_seconds()


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
