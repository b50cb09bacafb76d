"""What the agent knows about each event that means this machine, and how that changes. Pure.

A case is opened when an event is first seen, with a verdict that it keeps. It is closed when the
event is gone and the hooks for that have run. Cases are what is kept on disk.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeAlias

from forewarn.agent.vocabulary import ENDS, FAILURES, Consent, HookOutcome, HookPhase, RuleVerdict
from forewarn.client import Change, ChangeKind
from forewarn.protocol.document import Event, write_event
from forewarn.protocol.versions import NEWEST
from forewarn.protocol.vocabulary import EventId


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One event in its last known form, the phase it is in, and what came of the hooks so far."""

    event: Event
    verdict: RuleVerdict
    phase: HookPhase
    outcomes: Mapping[HookPhase, Mapping[str, HookOutcome]] = field(default_factory=dict)
    consent: Consent = Consent.OPEN
    may_postpone: bool = True

    @property
    def is_over(self) -> bool:
        """Whether the event is gone."""
        return self.phase in ENDS

    @property
    def is_open(self) -> bool:
        """Whether this machine is out, or about to be, because of the event."""
        return self.verdict is RuleVerdict.HANDLE and not self.is_over

    def outcome(self, phase: HookPhase, hook: str) -> HookOutcome | None:
        """Return what came of *hook* in *phase*, None if it was not begun."""
        return self.outcomes.get(phase, {}).get(hook)


Cases: TypeAlias = Mapping[EventId, Case]

_PHASES: Final[Mapping[ChangeKind, HookPhase]] = {
    ChangeKind.SCHEDULED: HookPhase.SCHEDULED,
    ChangeKind.STARTED: HookPhase.STARTED,
    ChangeKind.COMPLETED: HookPhase.RECOVERED,
    ChangeKind.CANCELED: HookPhase.CANCELED,
    ChangeKind.GONE: HookPhase.RECOVERED,
}
"""Which phase an event is in after a change. Who cannot say why it is gone has to put back all."""


def open_case(change: Change, verdict: RuleVerdict) -> Case:
    """Return the case of an event that is seen for the first time."""
    return Case(event=change.event, verdict=verdict, phase=_PHASES[change.kind])


def reopen(case: Case, change: Change, verdict: RuleVerdict) -> Case:
    """Return the case of an event that has come back after it was gone, as if it were new.

    Of *case* only what still runs is left, so that it is stopped before anything else begins.
    """
    running = {phase: _find_running(outcomes) for phase, outcomes in case.outcomes.items()}
    return replace(open_case(change, verdict), outcomes=running)


def follow(case: Case, change: Change) -> Case:
    """Return *case* after *change*. An event that is postponed loses the approvals it had."""
    has_moved = case.event.not_before != change.event.not_before
    is_waiting = change.kind is ChangeKind.SCHEDULED
    phase = _PHASES[change.kind]
    outcomes = case.outcomes
    if not case.is_over and phase in ENDS:  # it may have ended, and come back, before
        outcomes = {**outcomes, phase: _find_running(outcomes.get(phase, {}))}
    return replace(
        case,
        outcomes=outcomes,
        event=change.event,
        phase=phase,
        consent=Consent.OPEN if has_moved and is_waiting else case.consent,
    )


def record_outcome(case: Case, phase: HookPhase, hook: str, outcome: HookOutcome) -> Case:
    """Return *case* with what came of *hook* in *phase*."""
    changed = {**case.outcomes.get(phase, {}), hook: outcome}
    return replace(case, outcomes={**case.outcomes, phase: changed})


def record_postponement(case: Case, not_before: datetime) -> Case:
    """Return *case* as the server will show it now that it has moved the event."""
    return replace(case, event=replace(case.event, not_before=not_before))


def resume(case: Case) -> Case:
    """Return *case* as a new process finds it: whatever was running has been interrupted."""
    interrupted = {
        phase: {hook: _resume_outcome(outcome) for hook, outcome in outcomes.items()}
        for phase, outcomes in case.outcomes.items()
    }
    return forget_failures(replace(case, outcomes=interrupted))


def forget_failures(case: Case) -> Case:
    """Return *case* as if the hooks that failed to put things back had not been run yet."""
    outcomes = {
        phase: {
            hook: outcome
            for hook, outcome in found.items()
            if phase not in ENDS or outcome not in FAILURES
        }
        for phase, found in case.outcomes.items()
    }
    return replace(case, outcomes=outcomes)


def write_item(event: Event) -> dict[str, object]:
    """Return *event* as an item of the newest api-version, without a source if it has none."""
    item = write_event(event, NEWEST)
    return item if event.event_source else {**item, "EventSource": ""}


def _find_running(outcomes: Mapping[str, HookOutcome]) -> Mapping[str, HookOutcome]:
    return {hook: outcome for hook, outcome in outcomes.items() if outcome is HookOutcome.RUNNING}


def _resume_outcome(outcome: HookOutcome) -> HookOutcome:
    return HookOutcome.INTERRUPTED if outcome is HookOutcome.RUNNING else outcome
