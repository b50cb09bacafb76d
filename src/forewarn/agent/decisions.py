"""What the agent does next about a case. Pure: it knows nothing but its arguments.

Rules of this file: hooks of one phase run one after the other, in their order, each at most once.
One that says "not yet" is asked again, and holds those after it. One that fails does not, but then
there is no approval. When an event enters another phase, what still runs for the last is stopped.

Those that put things back are run again until they succeed, and only while none of this machine's
events is open: several events that overlap are one absence. What takes things out begins after what
still puts them back has been stopped.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from typing import Final, TypeAlias

from forewarn.agent.cases import Case
from forewarn.agent.hooks import Hook
from forewarn.agent.rules import Rule
from forewarn.agent.vocabulary import (
    ENDS,
    FAILURES,
    ApprovalMode,
    Consent,
    HookOutcome,
    HookPhase,
    RuleVerdict,
)
from forewarn.protocol.identity import Identity, names, spell


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """A moment, told twice: by the clock on the wall, and in seconds that never jump."""

    wall: datetime
    steady: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What counts beside a case itself."""

    now: Now
    resting_until: float = -inf
    may_postpone: bool = True
    """Whether no later time was asked for since the last hook ended."""
    is_out: bool = False
    """Whether another event is handled and not over."""
    is_returning: bool = False
    """Whether a hook for another event is putting things back."""
    has_room: bool = True
    """Whether one more hook may run."""

    @property
    def is_rested(self) -> bool:
        """Whether there is no need to wait any longer."""
        return self.now.steady >= self.resting_until


@dataclass(frozen=True, slots=True, kw_only=True)
class Mandate:
    """How the agent of the machine *me* behaves, as its configuration says."""

    me: Identity
    approval: ApprovalMode
    timeout: timedelta
    postpone: timedelta
    ask_again: float
    """After how many seconds a hook, or a server that gave no answer, is asked again."""
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHook:
    """Let a hook begin, and end it after *seconds*."""

    phase: HookPhase
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
class Repeat:
    """Run the hooks that failed to put things back again, after a while."""


@dataclass(frozen=True, slots=True)
class Close:
    """Forget the case: nothing is left to do."""


AgentAction: TypeAlias = RunHook | StopHook | Approve | Postpone | Repeat | Close
Hooks: TypeAlias = Mapping[HookPhase, tuple[Hook, ...]]

_TO_RUN: Final = frozenset({None, HookOutcome.NOT_YET, HookOutcome.STOPPED})


def decide(
    case: Case, hooks: Hooks, mandate: Mandate, circumstances: Circumstances
) -> AgentAction | None:
    """Return what to do next, None if there is nothing to do for now, or at all.

    A later time is asked for once each time a hook says "not yet", whatever comes of it.
    """
    running = _find_running(case)
    phase = _current_phase(case)
    if running is not None:
        has_to_end = running is not phase or (running in ENDS and circumstances.is_out)
        return StopHook() if has_to_end else None
    if phase is None:
        return Close() if case.is_over else None
    to_run = (hook for hook in hooks[phase] if case.outcome(phase, hook.name) in _TO_RUN)
    hook = next(to_run, None)
    if hook is None and case.is_over:
        return Repeat() if _has_failed(case, phase, hooks[phase]) else Close()
    if _is_held(phase, circumstances):
        return None
    if hook is None:
        return _conclude(case, mandate) if circumstances.is_rested else None
    return _run(case, phase, hook, mandate, circumstances)


def find_time(case: Case, phase: HookPhase, mandate: Mandate, now: Now) -> float:
    """Return how many seconds a hook of *phase* that begins now may take."""
    not_before = case.event.not_before
    # If it is past and the event has not started, one of the clocks is wrong: nobody knows when.
    if phase is HookPhase.SCHEDULED and not_before is not None and not_before > now.wall:
        return min(mandate.timeout, not_before - now.wall).total_seconds()
    return mandate.timeout.total_seconds()


def _find_running(case: Case) -> HookPhase | None:
    found = (each for each in case.outcomes if HookOutcome.RUNNING in case.outcomes[each].values())
    return next(found, None)


def _current_phase(case: Case) -> HookPhase | None:
    match case.verdict:
        case RuleVerdict.HANDLE:
            return case.phase
        case RuleVerdict.NOTIFY:
            return HookPhase.NOTIFY
        case RuleVerdict.IGNORE:
            return None


def _has_failed(case: Case, phase: HookPhase, hooks: tuple[Hook, ...]) -> bool:
    """Tell whether a hook that is still there has to be run again; one taken away has not."""
    return phase in ENDS and any(case.outcome(phase, hook.name) in FAILURES for hook in hooks)


def _is_held(phase: HookPhase, circumstances: Circumstances) -> bool:
    match phase:
        case HookPhase.RECOVERED | HookPhase.CANCELED:
            return circumstances.is_out
        case HookPhase.SCHEDULED | HookPhase.STARTED:
            return circumstances.is_returning
        case HookPhase.NOTIFY:
            return False


def _run(
    case: Case, phase: HookPhase, hook: Hook, mandate: Mandate, circumstances: Circumstances
) -> AgentAction | None:
    now = circumstances.now
    if circumstances.may_postpone and case.outcome(phase, hook.name) is HookOutcome.NOT_YET:
        not_before = _find_later(case, phase, mandate, now)
        if not_before is not None:
            return Postpone(not_before)
    if not (circumstances.is_rested and circumstances.has_room):
        return None
    return RunHook(phase=phase, hook=hook, seconds=find_time(case, phase, mandate, now))


def _conclude(case: Case, mandate: Mandate) -> AgentAction | None:
    is_awaited = case.verdict is RuleVerdict.HANDLE and case.phase is HookPhase.SCHEDULED
    if not is_awaited or case.consent is not Consent.OPEN:
        return None
    # What is still to be run belongs to a hook that was taken away, or it would be next.
    outcomes = set(case.outcomes.get(HookPhase.SCHEDULED, {}).values()) - _TO_RUN
    is_ready = outcomes <= {HookOutcome.READY}
    return Approve() if is_ready and _may_approve(case, mandate) else None


def _may_approve(case: Case, mandate: Mandate) -> bool:
    match mandate.approval:
        case ApprovalMode.NEVER:
            return False
        case ApprovalMode.WHEN_READY:
            return True
        case ApprovalMode.LEADER:
            resources = case.event.resources
            return bool(resources) and spell(resources[0]) in names(mandate.me)


def _find_later(case: Case, phase: HookPhase, mandate: Mandate, now: Now) -> datetime | None:
    not_before = case.event.not_before
    if phase is not HookPhase.SCHEDULED or not case.may_postpone or not_before is None:
        return None
    left = not_before - now.wall
    # If much is left, others' approvals would be lost each time the hook is asked. If none is and
    # the event has not started, one of the clocks is wrong.
    if not timedelta(0) < left <= mandate.postpone / 2:
        return None
    return not_before + mandate.postpone
