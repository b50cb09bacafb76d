"""The agent: folds what happens into its cases, decides, records, and has it done.

What is begun was recorded first, so that a process that is killed at any moment does nothing twice.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final, Protocol, assert_never

from forewarn.agent.cases import (
    Case,
    Cases,
    follow,
    forget_failures,
    open_case,
    record_outcome,
    record_postponement,
    reopen,
    resume,
)
from forewarn.agent.decisions import (
    AgentAction,
    Approve,
    Circumstances,
    Close,
    Hooks,
    Mandate,
    Now,
    Postpone,
    Repeat,
    RunHook,
    StopHook,
    decide,
    find_time,
)
from forewarn.agent.errors import StateError
from forewarn.agent.log_lines import tell_ended, tell_of_others, tell_opened
from forewarn.agent.performer import Answered, HookEnded, Performer, Stoppable
from forewarn.agent.processes import GRACE_SECONDS
from forewarn.agent.rules import judge
from forewarn.agent.vocabulary import ENDS, Consent, HookOutcome, HookPhase, RuleVerdict
from forewarn.client import Change, ChangeKind
from forewarn.protocol.document import Event
from forewarn.protocol.vocabulary import EventId, EventType

MOST_HOOKS: Final = 4
"""How many run at a time, whatever number of events there is."""
LONGEST_SILENCE: Final = 3.0
"""How long a server that did not take an approval is left alone at most: a Preempt leaves 30."""
LONGEST_REST: Final = 300.0
"""How long a hook that fails to put things back is left alone at most."""

_log = logging.getLogger("forewarn.agent")

_TYPES = frozenset(EventType)
_OPENING = frozenset({ChangeKind.SCHEDULED, ChangeKind.STARTED})


@dataclass(frozen=True, slots=True)
class Looked:
    """The document was read, and all that had changed in it was told."""


class Memory(Protocol):
    """Where cases are kept."""

    def save(self, cases: Cases) -> None:
        """Keep *cases*, or raise StateError."""


@dataclass(slots=True, kw_only=True)
class _Run:
    """A hook that is running, and when it is to be ended, or killed if it was asked to end."""

    process: Stoppable | None
    phase: HookPhase
    begun: float
    deadline: float
    ending: HookOutcome | None = None
    """What has come of it whatever it ends with, because it was asked to end."""


@dataclass(slots=True, kw_only=True)
class Agent:
    """One agent. It is told what happens with `take`, and does what is due with `act`.

    Nothing is begun for an event that may be over by now: a new process has to look first.
    *find_hooks* says which hooks there are now.
    """

    mandate: Mandate
    find_hooks: Callable[[], Hooks]
    cases: Cases
    memory: Memory
    performer: Performer
    outcomes: Mapping[tuple[HookPhase, HookOutcome], int] = field(default_factory=dict)
    """How many hooks came to which end as yet."""
    has_failed: bool = False
    """Whether an approval was not taken, or the state not saved, at any time."""
    _runs: dict[EventId, _Run] = field(default_factory=dict)
    _asking: set[EventId] = field(default_factory=set)
    _moved: set[EventId] = field(default_factory=set)
    """Which events a later time was asked for since their last hook ended."""
    _rests: dict[EventId, float] = field(default_factory=dict)
    _repeats: dict[EventId, int] = field(default_factory=dict)
    """How often the hooks of an event's end have been run again."""
    _strangers: set[EventId] = field(default_factory=set)
    """Which events were said not to be ours."""
    _to_approve: list[Event] = field(default_factory=list)
    _is_saved: bool = True
    _has_looked: bool = False

    def __post_init__(self) -> None:
        for case in self.cases.values():
            self._warn_of_interrupted(case)
        self.cases = {event_id: resume(case) for event_id, case in self.cases.items()}

    @property
    def events(self) -> tuple[Event, ...]:
        """The events there are a case of and that are not gone, as they were told last."""
        return tuple(case.event for case in self.cases.values() if not case.is_over)

    @property
    def is_busy(self) -> bool:
        """Whether a hook is running, or the server being asked."""
        return bool(self._runs or self._asking)

    @property
    def is_running(self) -> bool:
        """Whether a hook is running."""
        return bool(self._runs)

    def take(self, news: Change | HookEnded | Answered | Looked, now: Now) -> None:
        """Fold *news* into the cases, and keep them if that changes them."""
        before = self.cases
        match news:
            case Change():
                self._take_change(news, now)
            case HookEnded():
                self._take_end(news, now)
            case Answered():
                self._take_answer(news, now)
            case Looked():
                self._has_looked = True
        if self.cases is not before or not self._is_saved:
            self._save()

    def act(self, now: Now, *, may_begin: bool = True) -> None:
        """Begin what is due, unless nothing may begin any more, and end what has had its time."""
        self._end_overdue(now)
        if self.cases:
            hooks = self.find_hooks()
            for case in tuple(self.cases.values()):
                if self._has_looked or case.is_over:
                    self._pursue(case, hooks, now, may_begin=may_begin)
        if self._to_approve:
            approved, self._to_approve = tuple(self._to_approve), []
            self.performer.approve(approved)

    def next_moment(self) -> float:
        """Return when `act` has something to do even if nothing happens, in steady seconds."""
        deadlines = (run.deadline for run in self._runs.values())
        return min((*deadlines, *self._rests.values()), default=inf)

    def _take_change(self, change: Change, now: Now) -> None:
        event, me = change.event, self.mandate.me
        is_open = change.kind in _OPENING and event.affects(me)
        case = self.cases.get(event.event_id)
        if case is not None and not (case.is_over and is_open):
            if change.kind in _OPENING and not is_open:  # it does not name us any more
                change = replace(change, kind=ChangeKind.GONE)
            followed = replace(follow(case, change), verdict=self._judge_again(case, event))
            if followed.phase is not case.phase:
                self._forget_rest(event.event_id)
                _log.info("event_moved event=%s phase=%s", event.event_id, followed.phase)
            self._put(followed)
            if followed.event.not_before != case.event.not_before:
                self._fit_deadline(followed, now)
        elif is_open:
            verdict = judge(event, me, self.mandate.rules)
            opened = reopen(case, change, verdict) if case else open_case(change, verdict)
            tell_opened(opened)
            self._forget_rest(event.event_id)
            self._put(opened)
        else:
            self._note_stranger(change)

    def _judge_again(self, case: Case, event: Event) -> RuleVerdict:
        """Return the verdict that *case* keeps, or the first for a type that is known only now."""
        is_known_now = case.event.event_type not in _TYPES and event.event_type in _TYPES
        if case.verdict is RuleVerdict.HANDLE or not is_known_now:
            return case.verdict
        return judge(event, self.mandate.me, self.mandate.rules)

    def _note_stranger(self, change: Change) -> None:
        """Say once of each event that it does not name this machine: its name may be wrong."""
        event_id = change.event.event_id
        if change.kind not in _OPENING:
            self._strangers.discard(event_id)
        elif event_id not in self._strangers:
            self._strangers.add(event_id)
            tell_of_others(change.event, self.mandate.me)

    def _take_end(self, ended: HookEnded, now: Now) -> None:
        run = self._runs.pop(ended.event_id)
        self._moved.discard(ended.event_id)
        outcome = run.ending or ended.outcome
        self._count(ended.phase, outcome)
        tell_ended(ended, outcome)
        if outcome is HookOutcome.NOT_YET:
            self._rests[ended.event_id] = now.steady + self.mandate.ask_again
        case = self.cases[ended.event_id]
        self._put(record_outcome(case, ended.phase, ended.hook, outcome))

    def _take_answer(self, answer: Answered, now: Now) -> None:
        self._asking.discard(answer.event_id)
        case = self.cases.get(answer.event_id)
        if case is None:
            return
        verb = "approve" if answer.not_before is None else "postpone"
        if answer.error is None:
            _log.info("request_granted request=%s event=%s", verb, answer.event_id)
        else:
            _log.warning(
                "request_failed request=%s event=%s error=%s", verb, answer.event_id, answer.error
            )
            self.has_failed |= answer.not_before is None
            # A hook that says "not yet" rests already, and in other phases it does not matter.
            if case.phase is HookPhase.SCHEDULED and answer.not_before is None:
                self._rests[answer.event_id] = now.steady + min(
                    self.mandate.ask_again, LONGEST_SILENCE
                )
        settled = _settle(case, answer)
        self._put(settled)
        if settled.event.not_before != case.event.not_before:
            self._fit_deadline(settled, now)

    def _pursue(self, case: Case, hooks: Hooks, now: Now, *, may_begin: bool) -> None:
        event_id = case.event.event_id
        circumstances = self._find_circumstances(case, now)
        action = decide(case, hooks, self.mandate, circumstances)
        if circumstances.is_rested:
            self._rests.pop(event_id, None)
        if may_begin or isinstance(action, StopHook):
            self._begin(case, action, now)

    def _find_circumstances(self, case: Case, now: Now) -> Circumstances:
        event_id = case.event.event_id
        others = (case for key, case in self.cases.items() if key != event_id)
        runs = (run for key, run in self._runs.items() if key != event_id)
        return Circumstances(
            now=now,
            resting_until=self._rests.get(event_id, -inf),
            may_postpone=event_id not in self._moved,
            is_out=any(other.is_open for other in others),
            is_returning=any(run.phase in ENDS for run in runs),
            # One that only notifies and hangs must not hold up what prepares for a Preempt.
            has_room=len(self._runs) < MOST_HOOKS - (case.verdict is RuleVerdict.NOTIFY),
        )

    def _begin(self, case: Case, action: AgentAction | None, now: Now) -> None:
        event_id = case.event.event_id
        match action:
            case RunHook():
                self._run_hook(case, action, now)
            case StopHook():
                self._stop(self._runs[event_id], HookOutcome.STOPPED, now)
            case Approve() | Postpone():
                if event_id not in self._asking:
                    self._ask(case.event, action)
            case Repeat():
                self._repeat(case, now)
            case Close():
                _log.info("event_closed event=%s", event_id)
                self._forget_rest(event_id)
                self._moved.discard(event_id)
                self.cases = {key: kept for key, kept in self.cases.items() if key != event_id}
                self._save()
            case None:
                pass
            case _:
                assert_never(action)

    def _run_hook(self, case: Case, action: RunHook, now: Now) -> None:
        event_id = case.event.event_id
        self._put(record_outcome(case, action.phase, action.hook.name, HookOutcome.RUNNING))
        if not self._save():
            self._put(case)
            self._rests[event_id] = now.steady + self.mandate.ask_again
            return
        _log.info(
            "hook_begins event=%s phase=%s hook=%r seconds=%d",
            event_id,
            action.phase,
            action.hook.name,
            action.seconds,
        )
        process = self.performer.run_hook(case.event, action)
        self._runs[event_id] = _Run(
            process=process,
            phase=action.phase,
            begun=now.steady,
            deadline=now.steady + action.seconds,
        )

    def _repeat(self, case: Case, now: Now) -> None:
        event_id = case.event.event_id
        times = self._repeats.get(event_id, 0)
        shortest = self.mandate.ask_again
        rest = min(shortest * 2 ** min(times, 10), max(shortest, LONGEST_REST))
        _log.warning("hooks_to_repeat event=%s phase=%s times=%d", event_id, case.phase, times + 1)
        self._repeats[event_id] = times + 1
        self._rests[event_id] = now.steady + rest
        self._put(forget_failures(case))
        self._save()

    def _forget_rest(self, event_id: EventId) -> None:
        self._rests.pop(event_id, None)
        self._repeats.pop(event_id, None)

    def _ask(self, event: Event, action: Approve | Postpone) -> None:
        self._asking.add(event.event_id)
        match action:
            case Approve():
                self._to_approve.append(event)
            case Postpone():
                self._moved.add(event.event_id)
                self.performer.postpone(event, action.not_before)

    def _fit_deadline(self, case: Case, now: Now) -> None:
        """Give the hook that prepares for an event as long as its NotBefore says by now."""
        run = self._runs.get(case.event.event_id)
        if (
            run is not None
            and run.phase is case.phase is HookPhase.SCHEDULED
            and run.ending is None
        ):
            seconds = find_time(case, run.phase, self.mandate, now)
            longest = run.begun + self.mandate.timeout.total_seconds()
            run.deadline = min(longest, now.steady + seconds)

    def _end_overdue(self, now: Now) -> None:
        for run in self._runs.values():
            if now.steady < run.deadline:
                continue
            if run.ending is not None and run.process is not None:
                run.process.kill()
                run.deadline = now.steady + GRACE_SECONDS
            self._stop(run, HookOutcome.TIMED_OUT, now)

    def _stop(self, run: _Run, ending: HookOutcome, now: Now) -> None:
        if run.ending is None and run.process is not None:
            run.deadline = now.steady + GRACE_SECONDS
            if run.process.terminate():
                run.ending = ending

    def _count(self, phase: HookPhase, outcome: HookOutcome) -> None:
        number = self.outcomes.get((phase, outcome), 0) + 1
        self.outcomes = {**self.outcomes, (phase, outcome): number}

    def _warn_of_interrupted(self, case: Case) -> None:
        for phase, outcomes in case.outcomes.items():
            for hook, outcome in outcomes.items():
                if outcome is HookOutcome.RUNNING:
                    event_id = case.event.event_id
                    _log.error("hook_interrupted event=%s phase=%s hook=%r", event_id, phase, hook)
                    self._count(phase, HookOutcome.INTERRUPTED)

    def _put(self, case: Case) -> None:
        self.cases = {**self.cases, case.event.event_id: case}

    def _save(self) -> bool:
        try:
            self.memory.save(self.cases)
        except StateError as error:
            _log.error("state_not_saved error=%s", error)
            self._is_saved = False
            self.has_failed = True
        else:
            self._is_saved = True
        return self._is_saved


def _settle(case: Case, answer: Answered) -> Case:
    if answer.not_before is not None:
        if answer.error is None:
            return record_postponement(case, answer.not_before)
        return replace(case, may_postpone=not answer.is_refused)
    if case.event.not_before != answer.event.not_before:
        return case  # it was postponed meanwhile, and has no approvals any more
    if answer.is_refused:
        return replace(case, consent=Consent.REFUSED)
    return case if answer.error else replace(case, consent=Consent.GIVEN)
