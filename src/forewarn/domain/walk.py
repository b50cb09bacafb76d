"""Which steps of a Maintenance may begin, and what holds back the others.

A step that no brake holds may begin. The brakes are tried in the order in which the steps come, for
what comes first holds what comes later: a step behind another one of its scope waits for that, and
for nothing else yet. Unless the steps are to be taken in order, one that cannot have its scopes now
gives way to later ones that can. The gates come last: a question is put only when nothing else
holds the step, so that the answer is fresh when it counts.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from forewarn.domain.blockers import Blocker, BlockerKind, BrakeKind, Release, kinds_of
from forewarn.domain.brakes import (
    Facts,
    earlier_step,
    find_blockers,
    keeps_its_place,
    taken_places,
)
from forewarn.domain.errors import WindowTooShortError
from forewarn.domain.failures import find_failures
from forewarn.domain.gate import Answer, GateStatus, Question
from forewarn.domain.maintenance import (
    Maintenance,
    MaintenanceOutcome,
    Step,
    is_canary,
    own_events,
    own_operations,
    remaining_steps,
)
from forewarn.domain.names import HostName, MaintenanceId, ScopeId
from forewarn.domain.openings import (
    SHORTEST_IMPACT,
    expected_impact,
    longest_notice,
    next_beginning,
)
from forewarn.domain.phrases import count_of
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.standing import MaintenanceState, MaintenanceStatus
from forewarn.domain.windows import ALWAYS, describe, longest_opening
from forewarn.protocol.vocabulary import EventId, EventStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class BrakeSummary:
    """All blockers that a brake yields for a step, in short.

    BY_TIME it is released at *until*, whatever happens; BY_PROGRESS, when something has ended that
    is under way, comes first or is asked for again at *until*; BY_HAND, only when somebody acts.
    """

    kind: BrakeKind
    release: Release
    until: datetime | None = None
    scope_ids: tuple[ScopeId, ...] = ()
    event_ids: tuple[EventId, ...] = ()
    gate: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A step that remains, with what holds it back and what its gates are asked.

    Of *questions* it waits for that to be answered well which is *awaited*, and has this *answer*
    so far.
    """

    step: Step
    blockers: tuple[Blocker, ...] = ()
    questions: tuple[Question, ...] = ()
    awaited: Question | None = None
    answer: Answer | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether it never begins unless somebody acts."""
        return any(blocker.release is Release.BY_HAND for blocker in self.blockers)

    def begins_at(self, now: datetime) -> datetime | None:
        """Return when it begins, if only time holds it back."""
        if any(blocker.release is not Release.BY_TIME for blocker in self.blockers):
            return None
        return max((blocker.until for blocker in self.blockers if blocker.until), default=now)

    @property
    def moments(self) -> Iterator[datetime]:
        """When something that holds it may let go, as far as that is known."""
        if self.awaited is None:
            return (blocker.until for blocker in self.blockers if blocker.until)
        return iter(filter(None, [self._asked_again_at]))

    @property
    def brakes(self) -> tuple[BrakeSummary, ...]:
        """What holds it back in short, each kind once."""
        alike: dict[BrakeKind, list[Blocker]] = {}
        for blocker in self.blockers:
            alike.setdefault(blocker.brake, []).append(blocker)
        return tuple(self._brake(kind, found) for kind, found in alike.items())

    @property
    def _asked_again_at(self) -> datetime | None:
        return self.answer.ask_again_at if self.answer and not self.is_stuck else None

    def _brake(self, kind: BrakeKind, found: Sequence[Blocker]) -> BrakeSummary:
        release = max(found, key=lambda each: each.release is Release.BY_HAND).release
        if kind is BrakeKind.GATE and self.awaited is not None:
            return BrakeSummary(
                kind=kind,
                release=release,
                until=self._asked_again_at,
                gate=self.awaited.gate,
                detail=self.answer.output if self.answer else "",
            )
        if kind is BrakeKind.SHARED_HOST:
            return BrakeSummary(kind=kind, release=release, detail=self.step.host or "")
        says_more = found[0].kind in _SAYING_MORE
        return BrakeSummary(
            kind=kind,
            release=release,
            until=found[0].until,
            scope_ids=tuple(sorted({each for blocker in found for each in blocker.scope_ids})),
            event_ids=tuple(each for blocker in found for each in blocker.event_ids),
            detail=found[0].about if says_more else "",
        )


_SAYING_MORE = frozenset(
    {BlockerKind.SERVER_PAUSED, BlockerKind.CAPACITY, BlockerKind.CAPACITY_NEVER}
)
"""What is about more than its kind tells, also in short."""


Walks: TypeAlias = Mapping[MaintenanceId, tuple[Stage, ...]]
"""What remains of each Maintenance."""


def walk_all(snapshot: Snapshot, now: datetime) -> Walks:
    """Return what remains of every Maintenance; of two that want a scope, the older one gets it."""
    begins: dict[ScopeId | HostName, datetime] = {}
    walks = {}
    for maintenance in snapshot.maintenances.values():
        taken = {place for place, moment in begins.items() if moment <= now}
        stages = tuple(
            _behind_others(stage, begins, now)
            for stage in walk(maintenance, snapshot, now, taken=taken)
        )
        for stage in stages:
            if moment := stage.begins_at(now):
                for place in {*stage.step.scope_ids, stage.step.place}:
                    begins[place] = min(moment, begins.get(place, moment))
        walks[maintenance.maintenance_id] = stages
    return walks


def _behind_others(
    stage: Stage, begins: Mapping[ScopeId | HostName, datetime], now: datetime
) -> Stage:
    """Return *stage*, which also waits for older Maintenances that begin no later in its places."""
    moment = stage.begins_at(now)
    if not stage.blockers or moment is None:
        return stage
    taken = {place for place, sooner in begins.items() if sooner <= moment}
    return replace(stage, blockers=(*stage.blockers, *taken_places(stage.step, taken)))


def walk(
    maintenance: Maintenance,
    snapshot: Snapshot,
    now: datetime,
    *,
    taken: Collection[ScopeId | HostName] = (),
) -> tuple[Stage, ...]:
    """Return every step that remains, in order, each with all that holds it back.

    *taken* are the scopes and hosts in which other Maintenances are just about to begin a step.
    """
    if maintenance.is_aborted or maintenance.finished_at:
        return ()
    facts = Facts(maintenance, snapshot, now, taken)
    steps = remaining_steps(maintenance, snapshot.topology, facts.own, facts.operations)
    return tuple(_reach(facts, step) for step in steps)


def calendar_errors(
    maintenance: Maintenance, steps: Iterable[Step], snapshot: Snapshot, now: datetime
) -> Iterator[WindowTooShortError]:
    """Yield what is wrong with what would never begin, for it fits into no window.

    That is *steps*, and events that are announced already, which need no more notice.
    """
    course, calendar = maintenance.course, maintenance.course.calendar
    if calendar == ALWAYS:
        return
    impact = max(expected_impact(maintenance, snapshot), SHORTEST_IMPACT)
    notices: dict[timedelta, ScopeId | HostName] = {
        timedelta(0): event.host or event.scope_id
        for event in own_events(maintenance, snapshot.events.values())
        if event.event_status is EventStatus.SCHEDULED
    }
    for step in steps:
        notices.setdefault(longest_notice(maintenance, step, snapshot), step.place)
    for notice, place in notices.items():
        if next_beginning(course, now, notice=notice, impact=impact) is None:
            yield WindowTooShortError(
                place,
                notice=None if course.notice_outside or not notice else notice,
                impact=impact,
                longest=longest_opening(calendar, now),
                windows=[describe(window) for window in calendar.windows],
            )


def find_states(snapshot: Snapshot, now: datetime) -> dict[MaintenanceId, MaintenanceState]:
    """Return the state of every Maintenance of *snapshot*."""
    walks = walk_all(snapshot, now)
    return {
        key: find_state(maintenance, snapshot, now, walks)
        for key, maintenance in snapshot.maintenances.items()
    }


def find_state(
    maintenance: Maintenance, snapshot: Snapshot, now: datetime, walks: Walks | None = None
) -> MaintenanceState:
    """Return the state of *maintenance*, from the same facts that the walk goes by.

    *walks* is the result of `walk_all`; pass it to ask for many Maintenances.

    It is STUCK as soon as one of its tasks is, whatever becomes of the others: it never ends unless
    an operator acts. Otherwise it is WAITING when nothing of it is in flight and a step will begin
    by itself, later; HELD when none ever will unless an operator acts, and when no step is left but
    something has failed. While it runs, it is AWAY if the replica that carries out one of its tasks
    is.
    """
    if maintenance.outcome is not None:
        return MaintenanceState(status=_OVER[maintenance.outcome])
    if stuck := find_stuck(maintenance, snapshot):
        return stuck
    status = _find_status(maintenance, snapshot, now, walks)
    owners = (said.away for _, said in snapshot.in_doubt.get(maintenance.maintenance_id, ()))
    away = min(filter(None, owners), key=lambda each: (each.pages_at, each.name), default=None)
    if away is None or status is not MaintenanceStatus.RUNNING:
        return MaintenanceState(status=status)
    since, until = f"{away.since:%H:%M:%S}", f"{away.pages_at:%H:%M:%S}"
    detail = f"{away.name} (away since {since}, pages at {until} GMT)"
    return MaintenanceState(status=MaintenanceStatus.AWAY, detail=detail)


def find_stuck(maintenance: Maintenance, snapshot: Snapshot) -> MaintenanceState | None:
    """Return the state of *maintenance* if it is STUCK."""
    in_doubt = snapshot.in_doubt.get(maintenance.maintenance_id, ())
    lost = sorted(name for name, said in in_doubt if said.is_stuck)
    if not lost:
        return None
    more = f" and of {count_of(len(lost) - 1, 'more task')}" if len(lost) > 1 else ""
    detail = f"the state of {lost[0]}{more} is unknown"
    return MaintenanceState(status=MaintenanceStatus.STUCK, detail=detail)


def _find_status(
    maintenance: Maintenance, snapshot: Snapshot, now: datetime, walks: Walks | None
) -> MaintenanceStatus:
    if maintenance.is_aborted:
        return MaintenanceStatus.ABORTING
    found = (walk_all(snapshot, now) if walks is None else walks).get(maintenance.maintenance_id)
    stages = walk(maintenance, snapshot, now) if found is None else found
    # When it is through, its outcome is about to be recorded; it is not over before.
    in_flight = is_under_way(maintenance, snapshot) or is_through(maintenance, snapshot, stages)
    if maintenance.is_paused and stages:
        return MaintenanceStatus.PAUSED
    if in_flight or not all(stage.blockers for stage in stages):
        return MaintenanceStatus.RUNNING
    is_held = all(stage.is_stuck for stage in stages)
    return MaintenanceStatus.HELD if is_held else MaintenanceStatus.WAITING


_OVER: Final = {
    MaintenanceOutcome.SUCCEEDED: MaintenanceStatus.COMPLETED,
    MaintenanceOutcome.INCOMPLETE: MaintenanceStatus.INCOMPLETE,
    MaintenanceOutcome.ABORTED: MaintenanceStatus.ABORTED,
}


def is_through(maintenance: Maintenance, snapshot: Snapshot, stages: Sequence[Stage]) -> bool:
    """Tell whether nothing is left to do: no step of *stages*, and no failure to decide about."""
    if stages or is_under_way(maintenance, snapshot):
        return False
    events, operations = snapshot.events.values(), snapshot.operations.values()
    return maintenance.is_aborted or not find_failures(maintenance, events, operations)


def is_under_way(maintenance: Maintenance, snapshot: Snapshot) -> bool:
    """Tell whether anything of *maintenance* is: an event, a host operation, or a task of these."""
    own = own_events(maintenance, snapshot.events.values())
    operations = own_operations(maintenance, snapshot.operations.values())
    return any(event.is_in_flight or event.event_id in snapshot.open_of for event in own) or any(
        not each.is_over or each.operation_id in snapshot.open_of for each in operations
    )


def _reach(facts: Facts, step: Step) -> Stage:
    earlier = tuple(earlier_step(facts, step)) if facts.ahead else ()
    blockers = facts.server_pause + (earlier or _step_blockers(facts, step))
    questions = () if blockers else _gate_questions(facts, step)
    awaited = _awaited_question(facts, questions)
    stage = Stage(
        step=step,
        blockers=blockers or _gate_blockers(facts, awaited),
        questions=questions,
        awaited=awaited,
        answer=facts.snapshot.answers.get(awaited) if awaited else None,
    )
    if keeps_its_place(facts.course, stage.blockers):
        for scope_id in step.scope_ids:
            facts.ahead[scope_id] = facts.ahead.get(scope_id, False) or stage.is_stuck
    if is_canary(facts.course, step):
        facts.canaries_ahead.append(stage.is_stuck)
    if not stage.blockers or (awaited and not stage.is_stuck):
        # Whoever asks a gate has a place, or the answer would be old when there is one.
        facts.places += 1
    return stage


_OF_SCOPES: Final = kinds_of(BrakeKind.FAILURE, BrakeKind.BUSY, BrakeKind.SOAK)
"""What holds every step in the same scopes."""


def _step_blockers(facts: Facts, step: Step) -> tuple[Blocker, ...]:
    if step.host is None and step.scope_ids in facts.held:
        # Asked once for each scope: there may be many steps, and many scopes.
        return facts.held[step.scope_ids]
    found = find_blockers(facts, step)
    held = tuple(each for each in found if each.kind in _OF_SCOPES)
    if step.host is None and held:
        facts.held[step.scope_ids] = held
    return found


def _gate_questions(facts: Facts, step: Step) -> tuple[Question, ...]:
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


def _awaited_question(facts: Facts, questions: tuple[Question, ...]) -> Question | None:
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


def _gate_blockers(facts: Facts, question: Question | None) -> tuple[Blocker, ...]:
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
