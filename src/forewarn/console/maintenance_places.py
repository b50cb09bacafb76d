"""Where a Maintenance is with each of its hosts, or scopes, and what holds each."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from forewarn.console.flights import PHASES
from forewarn.domain.blockers import BrakeKind
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.maintenance import Maintenance, Step, is_retried
from forewarn.domain.phrases import say_moment, say_names
from forewarn.domain.planning import ForeseenStep
from forewarn.domain.progress import standing_of
from forewarn.domain.standing import ATTENTION, MaintenanceStatus, Standing
from forewarn.domain.walk import BrakeSummary, Stage
from forewarn.operations.maintenances import MaintenanceReport
from forewarn.protocol.vocabulary import EventStatus

TONES: Final[Mapping[str, str]] = {
    MaintenanceStatus.RUNNING: "started",
    MaintenanceStatus.WAITING: "waiting",
    MaintenanceStatus.AWAY: "waiting",
    MaintenanceStatus.PAUSED: "scheduled",
    MaintenanceStatus.HELD: "failed",
    MaintenanceStatus.STUCK: "failed",
    MaintenanceStatus.ABORTING: "scheduled",
    MaintenanceStatus.ABORTED: "canceled",
    MaintenanceStatus.INCOMPLETE: "failed",
    MaintenanceStatus.COMPLETED: "done",
    Standing.NOTHING_TO_DO: "quiet",
    Standing.SUCCEEDED: "done",
    Standing.GONE: "canceled",
    Standing.SKIPPED: "canceled",
    Standing.FAILED: "failed",
    Standing.UNDER_WAY: "started",
}
"""How each status, and each standing, is coloured."""
_BRAKES: Final[Mapping[BrakeKind, str]] = {
    BrakeKind.PAUSED: "Paused.",
    BrakeKind.SHARED_HOST: "The host carries two update domains of one scope.",
    BrakeKind.FAILURE: "Held by a failure.",
    BrakeKind.SERVER_PAUSED: "The server is paused.",
    BrakeKind.EARLIER_STEP: "Waits for an earlier step.",
    BrakeKind.CANARY: "Waits for the canary{until}.",
    BrakeKind.BUSY: "Waits until {events} ended.",
    BrakeKind.CAPACITY: "Waits for capacity: {detail}.",
    BrakeKind.SOAK: "Soaks{until}.",
    BrakeKind.CALENDAR: "Waits for the window{until}.",
    BrakeKind.AT_ONCE: "Waits for its turn.",
    BrakeKind.GATE: "Waits for gate {gate}.",
}
"""What holds the next step of a place, in short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainCell:
    """One update domain of a scope: how far it is, and with how many virtual machines."""

    update_domain: int
    standing: Standing
    machines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceLine:
    """One host or scope: where the Maintenance is with it, and what it waits for there.

    Its next step is *likely* to begin then.
    """

    name: str
    standing: Standing
    phase: str
    cells: tuple[DomainCell, ...]
    machines: int
    approved: str
    waits: tuple[str, ...]
    likely: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What a Maintenance has done, and has before it, at one place."""

    events: list[ScheduledEvent] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    left_out: list[Step] = field(default_factory=list)
    phases: list[str] = field(default_factory=list)
    likely: list[datetime] = field(default_factory=list)


def list_places(
    report: MaintenanceReport,
    foreseen: Iterable[ForeseenStep] = (),
    *,
    standing: str = "",
    most: int,
) -> tuple[PlaceLine, ...]:
    """Return up to *most* places of one *standing*, or of all, those that need attention first."""
    chosen = [
        (name, said) for name, said in report.standings.items() if not standing or said == standing
    ]
    chosen.sort(key=lambda each: ATTENTION.index(each[1]))
    parts: dict[str, _Parts] = {name: _Parts() for name, _ in chosen[:most]}
    nowhere = _Parts()
    for event in report.events:
        parts.get(event.host or event.scope_id, nowhere).events.append(event)
    for stage in report.stages:
        parts.get(stage.step.place, nowhere).stages.append(stage)
    for step in report.left_out:
        parts.get(step.place, nowhere).left_out.append(step)
    for operation in report.operations:
        if not operation.is_over:
            parts.get(operation.host, nowhere).phases.append(str(operation.phase))
    for each in foreseen:
        parts.get(each.step.place, nowhere).likely.append(each.likely.begins)
    return tuple(
        _place(report.maintenance, name, said, parts[name]) for name, said in chosen[:most]
    )


def count_standings(report: MaintenanceReport) -> tuple[tuple[Standing, int], ...]:
    """Return how many places have which standing, what needs attention first."""
    counts = Counter(report.standings.values())
    return tuple((standing, counts[standing]) for standing in ATTENTION if counts[standing])


def _place(maintenance: Maintenance, name: str, standing: Standing, parts: _Parts) -> PlaceLine:
    in_flight = [event for event in parts.events if event.is_in_flight]
    shares = [share for stage in parts.stages for share in stage.step.shares]
    shares += [share for step in parts.left_out for share in step.shares]
    machines = {vm for event in parts.events for vm in event.resources}
    machines.update(vm for share in shares for vm in share.resources)
    approved = sum(bool(event.approvals) for event in in_flight)
    return PlaceLine(
        name=name,
        standing=standing,
        phase=parts.phases[-1] if parts.phases else "",
        cells=() if maintenance.hosts else tuple(_cells(maintenance, parts)),
        machines=len(machines),
        approved=f"{approved} of {len(in_flight)}" if in_flight else "",
        waits=tuple(dict.fromkeys(_waits(in_flight, parts))),
        likely=parts.likely[0] if parts.likely else None,
    )


def _cells(maintenance: Maintenance, parts: _Parts) -> Iterator[DomainCell]:
    """Yield the update domains of a scope. Of one that was tried again, the last try counts."""
    standings: dict[int, tuple[Standing, int]] = {}
    for event in parts.events:
        if not is_retried(maintenance, event.event_id):
            said = standing_of(event, maintenance)
            standings[event.update_domain] = said, len(event.resources)
    ahead = [(stage.step, Standing.WAITING) for stage in parts.stages]
    ahead += [(step, Standing.SKIPPED) for step in parts.left_out]
    for step, said in ahead:
        for share in step.shares:
            standings[share.update_domain] = said, len(share.resources)
    for update_domain in sorted(standings):
        said, machines = standings[update_domain]
        yield DomainCell(update_domain=update_domain, standing=said, machines=machines)


def _waits(in_flight: Sequence[ScheduledEvent], parts: _Parts) -> Iterator[str]:
    at_work = [PHASES[phase] for phase in parts.phases if phase in PHASES]
    due = [each.not_before for each in in_flight if each.event_status is EventStatus.SCHEDULED]
    if due:
        yield f"Starts when approved, at {say_moment(max(due))} at the latest."
    elif at_work or in_flight:
        yield f"{at_work[-1] if at_work else 'The impact is under way'}."
    else:
        for stage in parts.stages[:1]:
            yield from map(_say_brake, stage.brakes)


def _say_brake(brake: BrakeSummary) -> str:
    return _BRAKES[brake.kind].format(
        until=f" until {say_moment(brake.until)}" if brake.until else "",
        events=_say_events(brake),
        detail=brake.detail,
        gate=f"{brake.gate} ({brake.detail})" if brake.detail else brake.gate,
    )


def _say_events(brake: BrakeSummary) -> str:
    if not brake.event_ids:
        return "another maintenance there has"
    return f"{say_names(brake.event_ids)} {'has' if len(brake.event_ids) == 1 else 'have'}"
