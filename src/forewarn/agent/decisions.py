"""What the agent does next about a case. Pure: it knows nothing but its arguments.

Rules of this file: hooks of one phase run one after the other, in their order, each at most once.
One that says "not yet" is asked again, and holds those after it. One that fails does not, but then
there is no approval. When an event enters another phase, what still runs for the last is stopped.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from forewarn.agent.cases import Case
from forewarn.agent.hooks import Hook
from forewarn.agent.vocabulary import Approval, Consent, Outcome, Phase, Verdict
from forewarn.protocol.identity import Identity, names, spell


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """A moment, told twice: by the clock on the wall, and in seconds that never jump."""

    wall: datetime
    steady: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """How the agent of the machine *me* behaves, as its configuration says."""

    me: Identity
    approval: Approval
    timeout: timedelta
    postpone: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHook:
    """Let a hook begin, and end it after *seconds*."""

    phase: Phase
    hook: Hook
    seconds: float


@dataclass(frozen=True, slots=True)
class StopHook:
    """End the hook that is running: its phase is over."""


@dataclass(frozen=True, slots=True)
class Approve:
    """Request the start of the event."""


@dataclass(frozen=True, slots=True)
class Postpone:
    """Ask for a later NotBefore."""

    not_before: datetime


@dataclass(frozen=True, slots=True)
class Close:
    """Forget the case: nothing is left to do."""


Action: TypeAlias = RunHook | StopHook | Approve | Postpone | Close
Hooks: TypeAlias = Mapping[Phase, tuple[Hook, ...]]

_TO_RUN: Final = frozenset({None, Outcome.NOT_YET, Outcome.STOPPED})


def decide(
    case: Case,
    hooks: Hooks,
    conduct: Conduct,
    now: Now,
    *,
    resting_until: float,
    may_postpone: bool = True,
) -> Action | None:
    """Return what to do next, None if there is nothing to do before *resting_until*, or at all.

    A later time is asked for once each time a hook says "not yet", whatever comes of it.
    """
    running = _find_running(case)
    phase = _current_phase(case)
    if running is not None:
        return StopHook() if running is not phase else None
    if phase is None:
        return Close() if case.is_over else None
    hook = _find_next(case, phase, hooks[phase])
    if hook is None:
        return _conclude(case, conduct, is_rested=now.steady >= resting_until)
    if may_postpone and case.outcome(phase, hook.name) is Outcome.NOT_YET:
        not_before = _find_later(case, phase, conduct, now)
        if not_before is not None:
            return Postpone(not_before)
    if now.steady < resting_until:
        return None
    return RunHook(phase=phase, hook=hook, seconds=find_time(case, phase, conduct, now))


def find_time(case: Case, phase: Phase, conduct: Conduct, now: Now) -> float:
    """Return how many seconds a hook of *phase* that begins now may take."""
    not_before = case.event.not_before
    # If it is past and the event has not started, one of the clocks is wrong: nobody knows when.
    if phase is Phase.SCHEDULED and not_before is not None and not_before > now.wall:
        return min(conduct.timeout, not_before - now.wall).total_seconds()
    return conduct.timeout.total_seconds()


def _find_running(case: Case) -> Phase | None:
    for phase, outcomes in case.outcomes.items():
        if Outcome.RUNNING in outcomes.values():
            return phase
    return None


def _current_phase(case: Case) -> Phase | None:
    match case.verdict:
        case Verdict.HANDLE:
            return case.phase
        case Verdict.NOTIFY:
            return Phase.NOTIFY
        case Verdict.IGNORE:
            return None


def _find_next(case: Case, phase: Phase, hooks: tuple[Hook, ...]) -> Hook | None:
    for hook in hooks:
        if case.outcome(phase, hook.name) in _TO_RUN:
            return hook
    return None


def _conclude(case: Case, conduct: Conduct, *, is_rested: bool) -> Action | None:
    if case.is_over:
        return Close()
    if not (is_rested and _is_awaited(case)):
        return None
    # What is still to be run belongs to a hook that was taken away, or it would be next.
    outcomes = set(case.outcomes.get(Phase.SCHEDULED, {}).values()) - _TO_RUN
    is_ready = outcomes <= {Outcome.READY}
    return Approve() if is_ready and _may_approve(case, conduct) else None


def _is_awaited(case: Case) -> bool:
    return (
        case.verdict is Verdict.HANDLE
        and case.phase is Phase.SCHEDULED
        and case.consent is Consent.OPEN
    )


def _may_approve(case: Case, conduct: Conduct) -> bool:
    match conduct.approval:
        case Approval.NEVER:
            return False
        case Approval.WHEN_READY:
            return True
        case Approval.LEADER:
            resources = case.event.resources
            return bool(resources) and spell(resources[0]) in names(conduct.me)


def _find_later(case: Case, phase: Phase, conduct: Conduct, now: Now) -> datetime | None:
    not_before = case.event.not_before
    if phase is not Phase.SCHEDULED or not case.may_postpone or not_before is None:
        return None
    left = not_before - now.wall
    # If much is left, others' approvals would be lost each time the hook is asked. If none is and
    # the event has not started, one of the clocks is wrong.
    if not timedelta(0) < left <= conduct.postpone / 2:
        return None
    return not_before + conduct.postpone
