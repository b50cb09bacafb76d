"""Whatever a scenario says and whatever machines do meanwhile, it comes to its end."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from tests.tasks import owned, reserved

from forewarn.domain.aftermath import apply_actions
from forewarn.domain.amending import build_topology
from forewarn.domain.decisions import decide, next_deadline
from forewarn.domain.event import request_start
from forewarn.domain.host_work import HostTask, Undertaking
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import ScenarioRunId, ScopeId, VmName
from forewarn.domain.scenario import (
    INTERVENTIONS,
    Announcement,
    Intervention,
    ScenarioRun,
    ScenarioStep,
)
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.task import SIMULATED
from forewarn.domain.topology import DeliveryScope, ScopeKind, VirtualMachine
from forewarn.files.scenario import ScenarioError, read_scenario
from forewarn.ports.runner import Assignment
from forewarn.protocol.vocabulary import EventId, EventSource, EventStatus, EventType

BEGINNING = datetime(2026, 3, 2, 12, tzinfo=UTC)
VMS = tuple(VmName(f"web-{number}") for number in range(3))
FLEET = build_topology(
    scopes=[DeliveryScope(kind=ScopeKind.AVAILABILITY_SET, name="web")],
    virtual_machines=[
        VirtualMachine(name=vm, scope_id=ScopeId("availability-set/web"), update_domain=number % 2)
        for number, vm in enumerate(VMS)
    ],
)
minutes = st.integers(0, 10).map(lambda number: timedelta(minutes=number))


@st.composite
def timelines(draw: st.DrawFn) -> tuple[ScenarioStep, ...]:
    """Any scenario that can be read from a file."""
    steps: list[ScenarioStep] = []
    for number, at in enumerate(sorted(draw(st.lists(minutes, min_size=1, max_size=8)))):
        labels = [step.label for step in steps if isinstance(step, Announcement)]
        is_intervention = draw(st.booleans())
        if labels and is_intervention:
            label, trigger = draw(st.sampled_from(labels)), draw(st.sampled_from([*INTERVENTIONS]))
            steps.append(Intervention(at=at, label=label, trigger=trigger))
        else:
            steps.append(
                Announcement(
                    at=at,
                    label=str(number),
                    event_type=draw(st.sampled_from(EventType)),
                    event_source=EventSource.PLATFORM,
                    description="",
                    duration_in_seconds=None,
                    notice=draw(st.none() | minutes),
                    impact=draw(minutes),
                )
            )
    return tuple(steps)


@dataclass
class Walk:
    """A server in miniature: what is due is done, and impacts take as long as they are to."""

    snapshot: Snapshot
    now: datetime = BEGINNING
    numbers: int = 0
    lives: dict[EventId, list[EventStatus]] = field(default_factory=dict)

    def settle(self) -> None:
        self.snapshot = owned(self.snapshot, self.now)
        while due := decide(self.snapshot, self.now):
            after = apply_actions(
                self.snapshot, due.actions, now=self.now, event_ids=iter(self.new_id, "")
            )
            self.take(reserved(after, due, at=self.now, assign=self.assign))

    def assign(self, about: Undertaking) -> Assignment:
        assert not isinstance(about, HostTask)
        lasts = self.snapshot.events[about[0]].simulated_duration
        assert lasts is not None
        said = Impact(status=ImpactStatus.RUNNING, ask_again_at=self.now + lasts)
        return Assignment(runner=SIMULATED, said=said)

    def approve(self, vms: Iterable[VmName]) -> None:
        """Let *vms* approve all that they are shown."""
        events = dict(self.snapshot.events)
        for vm in vms:
            events |= {
                event_id: request_start(event, vm=vm, now=self.now)
                for event_id, event in events.items()
                if vm in event.resources
            }
        self.take(replace(self.snapshot, events=events))

    def take(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        for event_id, event in snapshot.events.items():
            life = self.lives.setdefault(event_id, [])
            if not life or life[-1] is not event.event_status:
                life.append(event.event_status)

    def new_id(self) -> EventId:
        self.numbers += 1
        return EventId(f"E{self.numbers}")


@given(
    steps=timelines(),
    speed=st.sampled_from([1.0, 7.0, 60.0]),
    approvals=st.lists(st.sets(st.sampled_from(VMS))),
    keeps_history=st.booleans(),
)
def test_scenario_comes_to_its_end(
    steps: tuple[ScenarioStep, ...],
    speed: float,
    approvals: list[set[VmName]],
    *,
    keeps_history: bool,
) -> None:
    run_id = ScenarioRunId("r1")
    run = ScenarioRun(
        run_id=run_id, name="any", resources=VMS, began_at=BEGINNING, speed=speed, steps=steps
    )
    walk, words = Walk(Snapshot(topology=FLEET, scenario_runs={run_id: run})), iter(approvals)

    walk.settle()
    while (moment := next_deadline(walk.snapshot, walk.now)) is not None:
        walk.approve(next(words, ()))
        if not keeps_history:  # as the store does, which forgets what has ended
            in_flight = {key: e for key, e in walk.snapshot.events.items() if e.is_in_flight}
            walk.snapshot = replace(walk.snapshot, events=in_flight)
        walk.settle()
        walk.now = max(moment, walk.now)
        walk.settle()

    ended = walk.snapshot.scenario_runs[run_id]
    made = [step for step in steps if isinstance(step, Announcement)]
    assert ended.finished_at is not None
    assert ended.steps_done == len(steps)
    assert set(ended.events) == {step.label for step in made}
    assert len(ended.event_ids) == 2 * len(made) == walk.numbers
    assert {life[-1] for life in walk.lives.values()} <= {
        EventStatus.COMPLETED,
        EventStatus.CANCELED,
    }


STATEMENTS = (
    'name = "night"',
    "name = 1",
    'description = """',
    '"""',
    "[[step]]",
    "[step]",
    "[step.x]",
    "[x]",
    "step = [{}]",
    "step = [",
    "]",
    'at = "0s"',
    'at = "1m"',
    "at = 07:32:00",
    'announce = "Freeze"',
    'begin = "Reboot"',
    "cancel = true",
    'cancel = "1"',
    'label = "a"',
    "duration = 1e999",
    "# note",
    "",
    "\r",
    "\x00",
    '"at" = "2m"',
    "at.x = 1",
    "\u2028",
    'impact = "9d"',
)


@given(lines=st.lists(st.sampled_from(STATEMENTS) | st.text(max_size=5), max_size=12))
def test_any_text_is_a_scenario_or_refused_with_one_of_its_lines(lines: list[str]) -> None:
    text = "\n".join(lines)

    line: int | None = 1
    try:
        read_scenario(text)
    except ScenarioError as error:
        line = error.line

    assert line in range(1, text.count("\n") + 2)
