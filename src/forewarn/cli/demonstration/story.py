"""What is going on, and what has happened, in sentences that say why."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from forewarn.cli.demonstration.fleet import HOSTS, MEMBERS, SILENT, Behaviour
from forewarn.cli.demonstration.machines import Machine, Workload
from forewarn.domain.event import Approval, Approver, ScheduledEvent
from forewarn.domain.names import HostName, VmName
from forewarn.domain.standing import NEEDS_OPERATOR, NOT_OVER, MaintenanceStatus

KEY: Final = "a"
"""What to press to approve for the machine that never responds."""


@dataclass(frozen=True, slots=True)
class Line:
    """One sentence of the story, and the maintenance time it is about."""

    at: datetime
    text: str

    def __str__(self) -> str:
        return f"{self.at:%H:%M:%S}  {self.text}"


@dataclass(frozen=True, slots=True)
class HostStep:
    """Events that start together: those of one host's operation, or a single one."""

    events: Sequence[ScheduledEvent]

    @property
    def first(self) -> ScheduledEvent:
        return self.events[0]

    @property
    def unheard(self) -> list[VmName]:
        return [vm for event in self.events if not event.approvals for vm in event.resources]

    @property
    def early(self) -> timedelta:
        """How long before NotBefore it has started."""
        start = self.first.started_at or self.first.not_before
        return max(timedelta(0), self.first.not_before - start)

    @property
    def ended_at(self) -> datetime | None:
        ends = [event.ended_at for event in self.events if event.ended_at]
        return max(ends) if len(ends) == len(self.events) else None


@dataclass(slots=True)
class Scene:
    """What is going on: as the server says it, and as machines and users have it."""

    machines: Sequence[Machine]
    workloads: Sequence[Workload]
    now: datetime
    speed: float
    suggestions: Sequence[str]
    """What to type in another terminal; nothing if nobody stays to do so."""
    link: str = ""
    status: MaintenanceStatus | None = None
    """Of the roll-out, once it has begun."""
    events: Sequence[ScheduledEvent] = ()
    document: str = ""
    summary: str = ""
    story: list[Line] = field(default_factory=list)

    @property
    def steps(self) -> list[HostStep]:
        """All events there have been, the oldest first, those together that start together."""
        steps: dict[str, list[ScheduledEvent]] = {}
        rank = {name: place for place, name in enumerate(MEMBERS)}
        for event in sorted(self.events, key=lambda e: (e.created_at, rank.get(e.resources[0], 0))):
            steps.setdefault(event.operation_id or event.event_id, []).append(event)
        return [HostStep(events) for events in steps.values()]

    @property
    def host_steps(self) -> dict[HostName, HostStep]:
        return {step.first.host: step for step in self.steps if step.first.host in HOSTS}

    @property
    def host(self) -> HostName:
        """The host that the roll-out has come to."""
        return next(reversed(self.host_steps), HOSTS[0])

    @property
    def reader(self) -> Machine:
        """The machine whose document is shown."""
        return next(each for each in self.machines if each.member.host == self.host)

    @property
    def is_under_way(self) -> bool:
        return self.status in NOT_OVER and self.status not in NEEDS_OPERATOR


def introduce(scene: Scene) -> str:
    """Return what the demo is about."""
    return (
        f"Hosts are updated in turn ({scene.speed:g}x speed). Machines get notice and drain first."
    )


def headline(scene: Scene) -> str:
    """Return the roll-out in one line."""
    doing = "Rolling Freeze" if scene.is_under_way else f"Freeze {scene.status or 'to come'}"
    place = f"host {HOSTS.index(scene.host) + 1} of {len(HOSTS)}"
    drained = scene.workloads[0]
    lost = f"{drained.lost} requests lost by {drained.name}"
    return f"{doing} · {place} · {len(MEMBERS)} machines · {lost}"


def explain(scene: Scene) -> str:
    """Return what the roll-out waits for."""
    step = scene.host_steps.get(scene.host)
    if scene.summary or step is None or step.ended_at:
        return scene.summary or "Every machine serves requests and polls for Scheduled Events."
    if step.first.started_at:
        drained, other = (each.name for each in scene.workloads)
        return (
            f"{scene.host} is frozen. {drained} sends it no requests; {other} does, and loses them."
        )
    if step.unheard and SILENT.issuperset(step.unheard):
        hint = f" Press '{KEY}' to approve for it." if scene.suggestions else ""
        return f"{scene.host} waits for {', '.join(step.unheard)}, which never responds.{hint}"
    draining = ", ".join(name for name in step.unheard if name not in SILENT)
    return f"{scene.host} waits for {draining} to drain."


def summarize(scene: Scene, took: timedelta) -> str:
    """Return what came of the roll-out."""
    steps = scene.host_steps.values()
    early = f"{sum(bool(step.early) for step in steps)} of {len(steps)} hosts started early"
    return f"Done in {seconds(took)}. {early}: all their machines approved."


def tell(scene: Scene) -> list[Line]:
    """Return what has happened to events so far, in order."""
    lines = [line for step in scene.steps for line in _tell_step(step)]
    return sorted(lines, key=lambda line: line.at)


def _tell_step(step: HostStep) -> Iterator[Line]:
    first, names = step.first, ", ".join(vm for event in step.events for vm in event.resources)
    subject = f"{first.host or names}: {first.event_type}"
    if first.is_announced:
        whom = f" to {names}" if first.host else ""
        yield Line(first.created_at, f"{subject} announced for {first.not_before:%H:%M:%S}{whom}")
    for event in step.events:
        for approval in event.approvals:
            yield Line(approval.approved_at, _tell_approval(approval, event))
    if first.started_at:
        yield Line(first.started_at, f"{subject} starts {_why_started(step)}")
    if step.ended_at:
        outcomes = " and ".join(sorted({event.outcome or "canceled" for event in step.events}))
        reason = next((f": {event.reason}" for event in step.events if event.reason), "")
        took = seconds(step.ended_at - (first.started_at or first.created_at))
        yield Line(step.ended_at, f"{subject} {outcomes} after {took}{reason}")


def _tell_approval(approval: Approval, event: ScheduledEvent) -> str:
    if approval.approver is Approver.OPERATOR:
        return f"An operator approves for {', '.join(event.resources)}"
    member = MEMBERS.get(VmName(approval.name))
    is_hasty = member and member.behaviour is Behaviour.HASTY
    return f"{approval.name} {Behaviour.HASTY if is_hasty else 'has drained and approves'}"


def _why_started(step: HostStep) -> str:
    if not step.first.is_announced:
        return "without notice"
    names = ", ".join(step.unheard)
    if step.early:
        why = "an operator started it" if names else "every machine has approved"
        return f"{seconds(step.early)} early: {why}"
    return f"at NotBefore: {names} never approved" if names else "at NotBefore"


def seconds(duration: timedelta) -> str:
    """Return *duration* as people read it."""
    number = duration.total_seconds()
    return f"{number:.0f} s" if number >= 1 else f"{number:.1f} s"
