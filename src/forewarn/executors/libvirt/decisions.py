"""What to do next with a domain, from its mark and from what libvirt says of it. Pure.

The same rules apply to whoever began the impact and to whoever comes later. A deed that nobody can
prove undone is not done again: where libvirt cannot tell what happened, the end is unknown.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias

from forewarn.domain.impact import ImpactStatus
from forewarn.executors.libvirt.marks import DomainMark, MarkPhase
from forewarn.executors.libvirt.plans import ImpactPlan
from forewarn.protocol.vocabulary import EventType
from forewarn.wording.durations import format_duration


class Power(StrEnum):
    """How a domain is, as far as decisions go."""

    RUNNING = "running"
    PAUSED = "paused"
    OFF = "shut off"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What was seen of a domain, on *host*.

    *was_paused* says that it runs because it was resumed, *is_moving* that a migration is under
    way, *was_transient* that libvirt forgets the domain once it is off. The rest is about whoever
    looks: whether it *has_begun* the impact, or took it over from one that had; whether it
    *is_witness*, which has done the deed of the mark and watched the domain ever since; and whether
    it has seen the domain restart since then.
    """

    power: Power
    host: str
    mark: DomainMark | None = None
    was_paused: bool = False
    is_moving: bool = False
    was_transient: bool = False
    has_begun: bool = False
    is_witness: bool = False
    has_restarted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAgain:
    """Look again when something changes, or at *until*. *word* is what it waits for."""

    word: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """Mark the domain and do the deed of *phase*, which may take until then."""

    phase: MarkPhase
    until: datetime | None = None


class Repair(StrEnum):
    """What may be done any number of times, without a mark."""

    RESUME = "resume"
    START = "start"


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Say that it is over, or that nobody can know."""

    status: ImpactStatus
    reason: str = ""
    moved_to: str | None = None


Decision: TypeAlias = LookAgain | Act | Repair | End
_Rule: TypeAlias = Callable[[ImpactPlan, DomainMark, Sight, datetime], Decision]

_REFUSED: Final = frozenset(
    {
        (EventType.FREEZE, Power.OFF),
        (EventType.FREEZE, Power.PAUSED),
        (EventType.REBOOT, Power.OFF),
        (EventType.REBOOT, Power.PAUSED),
    }
)
"""What makes no sense, and would be undone at a moment that somebody else has not chosen."""
_STOPPING: Final = frozenset({EventType.PREEMPT, EventType.TERMINATE})
_NOBODY_SAW: Final = "no process watched the domain, so it is unknown whether it was {deed}"
_SETTLING: Final = timedelta(seconds=5)
"""How long whoever has set a mark may take to do its deed, and to tell that it is done."""
_ENDINGS: Final = {MarkPhase.DONE: ImpactStatus.DONE, MarkPhase.FAILED: ImpactStatus.FAILED}


def decide(plan: ImpactPlan, sight: Sight, now: datetime) -> Decision:
    """Return what to do next."""
    mark = sight.mark
    if sight.power is Power.GONE:
        return _gone(plan, sight)
    if mark is not None and mark.event_id == plan.event_id:
        if status := _ENDINGS.get(mark.phase):
            return End(status=status, reason=mark.reason, moved_to=_moved(plan, sight))
        is_new = not sight.is_witness and now < mark.at + _SETTLING
        if is_new and sight.power is not Power.PAUSED:
            return LookAgain(word=f"another process is carrying it out (phase: {mark.phase})")
        return _RULES[mark.phase](plan, mark, sight, now)
    if sight.has_begun:
        other = "is missing" if mark is None else f"belongs to event {mark.event_id}"
        return _unknown(f"it was begun, but the mark in the domain's metadata {other}")
    return _begin(plan, sight, now)


def _gone(plan: ImpactPlan, sight: Sight) -> Decision:
    if sight.was_transient and plan.event_type in _STOPPING:
        return End(status=ImpactStatus.DONE)
    return _fail(f"there is no domain {plan.vm_id or plan.vm!r}{_where(sight)}")


def _begin(plan: ImpactPlan, sight: Sight, now: datetime) -> Decision:
    event_type = plan.event_type
    if (event_type, sight.power) in _REFUSED:
        return _fail(f"the domain is {sight.power}{_where(sight)}")
    if event_type is EventType.FREEZE:
        if plan.migrate:
            return Act(phase=MarkPhase.MIGRATE)
        return Act(phase=MarkPhase.SUSPEND, until=now + plan.duration)
    if event_type is EventType.REBOOT:
        return Act(phase=MarkPhase.REBOOT, until=now + plan.grace)
    if sight.power is Power.OFF:
        return _stopped(plan, "it was already shut off")
    return Act(phase=MarkPhase.SHUTDOWN, until=now + plan.grace)


def _suspended(plan: ImpactPlan, mark: DomainMark, sight: Sight, now: datetime) -> Decision:
    until = mark.until or now
    match sight.power:
        case Power.PAUSED if now < until:
            return LookAgain(word=f"it is suspended until {until:%H:%M:%S} UTC", until=until)
        case Power.PAUSED:
            return Repair.RESUME
        case Power.RUNNING if sight.is_witness or (sight.was_paused and not mark.was_resumed):
            return End(status=ImpactStatus.DONE)
        case Power.RUNNING if (
            now < until and not sight.was_paused
        ):  # whoever marked it was gone before the deed
            return Act(phase=MarkPhase.SUSPEND, until=now + plan.duration)
        case Power.RUNNING:
            return _unknown(_NOBODY_SAW.format(deed="suspended"))
        case _:
            return _fail("the domain was shut off while it was suspended")


def _rebooting(plan: ImpactPlan, mark: DomainMark, sight: Sight, now: datetime) -> Decision:
    del plan
    until = mark.until or now
    if sight.has_restarted and sight.power is not Power.OFF:
        return End(status=ImpactStatus.DONE)
    if sight.power is Power.OFF:
        return Repair.START  # a guest may take a restart for a shutdown
    if now < until:
        return LookAgain(word="it is waiting for the guest to restart", until=until)
    if sight.is_witness:
        return Act(phase=MarkPhase.RESET)
    return _unknown(_NOBODY_SAW.format(deed="restarted"))


def _reset(plan: ImpactPlan, _mark: DomainMark, sight: Sight, _now: datetime) -> Decision:
    if sight.power is Power.OFF:
        return Repair.START
    if sight.is_witness or sight.has_restarted:
        said = f"the guest did not restart within {format_duration(plan.grace)} and was reset"
        return End(status=ImpactStatus.DONE, reason=said)
    return _unknown(_NOBODY_SAW.format(deed="reset"))


def _shutting_down(plan: ImpactPlan, mark: DomainMark, sight: Sight, now: datetime) -> Decision:
    until = mark.until or now
    if sight.power is Power.OFF:
        return _stopped(plan)
    if now < until:
        return LookAgain(word="it is waiting for the guest to shut down", until=until)
    return Act(phase=MarkPhase.DESTROY)


def _destroyed(plan: ImpactPlan, _mark: DomainMark, sight: Sight, _now: datetime) -> Decision:
    if sight.power is Power.OFF:
        limit = format_duration(plan.grace)
        return _stopped(plan, f"the guest did not shut down within {limit} and was stopped")
    if sight.is_witness:
        return _fail("libvirt reported success, but the domain is still running")
    return _unknown(_NOBODY_SAW.format(deed="stopped"))


def _migrating(plan: ImpactPlan, mark: DomainMark, sight: Sight, _now: datetime) -> Decision:
    if sight.is_moving:
        return LookAgain(word=f"it is being migrated to host {mark.to}")
    if moved_to := _moved(plan, sight):
        return End(status=ImpactStatus.DONE, moved_to=moved_to)
    return _fail(f"the migration to host {mark.to} failed; the domain is on host {sight.host}")


def _moving(plan: ImpactPlan, mark: DomainMark, sight: Sight, _now: datetime) -> Decision:
    is_there = _moved(plan, sight) is not None
    if is_there and sight.power is not Power.OFF:
        return End(status=ImpactStatus.DONE, moved_to=sight.host, reason=mark.reason)
    if sight.power is Power.OFF:  # nothing runs anywhere, so all of it can be done once more
        return Act(phase=MarkPhase.MOVE)
    return _fail(f"the move to host {mark.to} failed; the domain is running on host {sight.host}")


_RULES: Final[Mapping[MarkPhase, _Rule]] = {
    MarkPhase.SUSPEND: _suspended,
    MarkPhase.REBOOT: _rebooting,
    MarkPhase.RESET: _reset,
    MarkPhase.SHUTDOWN: _shutting_down,
    MarkPhase.DESTROY: _destroyed,
    MarkPhase.MIGRATE: _migrating,
    MarkPhase.MOVE: _moving,
}


def _stopped(plan: ImpactPlan, reason: str = "") -> Decision:
    if plan.event_type in _STOPPING:
        return End(status=ImpactStatus.DONE, reason=reason)
    return Act(phase=MarkPhase.MOVE)


def _where(sight: Sight) -> str:
    return f" on host {sight.host}" if sight.host else ""


def _moved(plan: ImpactPlan, sight: Sight) -> str | None:
    return None if sight.host == plan.host else sight.host


def _fail(reason: str) -> End:
    return End(status=ImpactStatus.FAILED, reason=reason)


def _unknown(reason: str) -> End:
    advice = "check the virtual machine, then settle the task"
    return End(status=ImpactStatus.UNKNOWN, reason=f"{reason}; {advice}")
