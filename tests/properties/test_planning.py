"""A plan says when every step of the walk takes place: the walk itself is the witness."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tasks import owned, reserved

from forewarn.domain.actions import ScheduleStep
from forewarn.domain.aftermath import apply_actions
from forewarn.domain.amending import build_topology
from forewarn.domain.course import Course
from forewarn.domain.decisions import decide, next_deadline
from forewarn.domain.event import Approval, Approver, ScheduledEvent, approve
from forewarn.domain.host_work import Undertaking
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.maintenance import Maintenance, Step, remaining_steps
from forewarn.domain.names import HostName, MaintenanceId, VmName
from forewarn.domain.planning import Scheme, make_plan
from forewarn.domain.policy import Policy
from forewarn.domain.scenario import USUAL_IMPACT
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.task import SIMULATED
from forewarn.domain.topology import DeliveryScope, ScopeKind, Topology, VirtualMachine
from forewarn.domain.windows import Calendar, read_blackout, read_window
from forewarn.ports.runner import Assignment
from forewarn.protocol.vocabulary import EventId, EventStatus, EventType

BEGINNING = datetime(2026, 3, 27, 8, tzinfo=UTC)
"""Two days before the clocks change in Berlin."""
HOSTS = [HostName(f"kvm-{number}") for number in range(3)]
WINDOWS = ["Mon-Fri 20:00-23:00 UTC", "Sat,Sun 01:00-04:00 Europe/Berlin", "daily 8:00-8:40 UTC"]
LONGEST = 10_000
"""More turns than any walk takes that does end."""


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    scopes = [
        DeliveryScope(
            kind=ScopeKind.AVAILABILITY_SET,
            name=f"set-{number}",
            update_domains=3,
            policy=Policy(notice=draw(st.sampled_from([None, timedelta(minutes=23)]))),
        )
        for number in range(3)
    ]
    vms = [
        VirtualMachine(
            name=VmName(f"vm-{number}"),
            scope_id=draw(st.sampled_from(scopes)).scope_id,
            update_domain=draw(st.integers(0, 2)),
            host=draw(st.sampled_from(HOSTS)),
        )
        for number in range(draw(st.integers(1, 10)))
    ]
    return build_topology(scopes=scopes, virtual_machines=vms)


@st.composite
def courses(draw: st.DrawFn, topology: Topology) -> Course:
    places = [*topology.scopes, *HOSTS]
    return Course(
        canary=tuple(draw(st.lists(st.sampled_from(places), max_size=2, unique=True))),
        at_once=draw(st.sampled_from([None, 1, 2])),
        soak=timedelta(minutes=draw(st.sampled_from([0, 7]))),
        min_available=draw(st.sampled_from([0, 50])),
        in_order=draw(st.booleans()),
        notice_outside=draw(st.booleans()),
        calendar=Calendar(
            windows=tuple(
                map(read_window, draw(st.lists(st.sampled_from(WINDOWS), max_size=2, unique=True)))
            ),
            blackouts=draw(st.sampled_from([(), (read_blackout("2026-03-28 UTC"),)])),
        ),
    )


@st.composite
def schemes(draw: st.DrawFn) -> Scheme:
    topology = draw(topologies())
    by_host = draw(st.booleans())
    maintenance = Maintenance(
        maintenance_id=MaintenanceId("os"),
        event_type=draw(st.sampled_from([EventType.FREEZE, EventType.REDEPLOY])),
        started_at=BEGINNING,
        resources=() if by_host else tuple(topology.virtual_machines),
        hosts=tuple(HOSTS) if by_host else (),
        course=draw(courses(topology)),
    )
    snapshot = Snapshot(
        topology=topology,
        maintenances={maintenance.maintenance_id: maintenance},
        speed=draw(st.sampled_from([1, 3])),
    )
    return Scheme(
        maintenance=maintenance,
        steps=remaining_steps(maintenance, topology, events=()),
        snapshot=snapshot,
        now=BEGINNING,
        is_simulated=True,
    )


class Walker:
    """Does what `decide` says, from deadline to deadline, until nothing is due any more."""

    def __init__(self, scheme: Scheme, *, approves: bool) -> None:
        self.now = scheme.now
        self.snapshot = scheme.snapshot
        self.steps: list[tuple[Step, tuple[EventId, ...]]] = []
        self._lasts = USUAL_IMPACT[scheme.maintenance.event_type] / scheme.snapshot.speed
        self._approves = approves
        self._ids: Iterator[EventId] = (EventId(f"E{number}") for number in count())

    def walk(self) -> dict[Step, tuple[ScheduledEvent, ...]]:
        """Return the events of each step that was begun."""
        for _ in range(LONGEST):
            while self._turn():
                pass
            moment = next_deadline(self.snapshot, self.now)
            if moment is None:
                break
            self.now = moment
        return {
            step: tuple(self.snapshot.events[event_id] for event_id in event_ids)
            for step, event_ids in self.steps
        }

    def _turn(self) -> bool:
        known = set(self.snapshot.events)
        self.snapshot = owned(self.snapshot, self.now)
        due = decide(self.snapshot, self.now)
        after = apply_actions(self.snapshot, due.actions, now=self.now, event_ids=self._ids)
        self.snapshot = reserved(after, due, at=self.now, assign=self._assign)
        created = iter([name for name in self.snapshot.events if name not in known])
        for action in due.actions:
            if isinstance(action, ScheduleStep):
                names = tuple(next(created) for _ in action.step.shares)
                self.steps.append((action.step, names))
        self._approve()
        return bool(due)

    def _assign(self, about: Undertaking) -> Assignment:
        """Have every impact take as long as was planned."""
        del about
        said = Impact(status=ImpactStatus.RUNNING, ask_again_at=self.now + self._lasts)
        return Assignment(runner=SIMULATED, said=said)

    def _approve(self) -> None:
        if not self._approves:
            return
        approval = Approval(approver=Approver.OPERATOR, name="all", approved_at=self.now)
        events = {
            name: approve(event, approval) if event.event_status is EventStatus.SCHEDULED else event
            for name, event in self.snapshot.events.items()
        }
        self.snapshot = replace(self.snapshot, events=events)


def check(scheme: Scheme, walked: dict[Step, tuple[ScheduledEvent, ...]], pace: str) -> None:
    plan = make_plan(scheme)
    for step, planned in zip(scheme.steps, plan.steps, strict=True):
        stretch = getattr(planned, pace)
        events = walked.get(step)
        if events is None:
            assert stretch is None
        else:
            assert stretch is not None
            assert {event.created_at for event in events} == {stretch.begins}
            assert {event.started_at for event in events} == {stretch.starts}
            assert max(event.ended_at for event in events if event.ended_at) == stretch.ends


@settings(max_examples=150)
@given(scheme=schemes())
def test_walk_that_nobody_approves_takes_place_as_planned_at_the_latest(scheme: Scheme) -> None:
    check(scheme, Walker(scheme, approves=False).walk(), "latest")


@settings(max_examples=150)
@given(scheme=schemes())
def test_walk_that_all_approve_takes_place_as_planned_at_the_earliest(scheme: Scheme) -> None:
    check(scheme, Walker(scheme, approves=True).walk(), "earliest")


@settings(max_examples=100)
@given(scheme=schemes())
def test_capacity_is_never_below_what_was_planned(scheme: Scheme) -> None:
    plan = make_plan(scheme)
    walked = Walker(scheme, approves=False).walk()
    least = {capacity.scope_id: capacity for capacity in plan.capacities}

    for events in walked.values():
        for event in events:
            beside = {
                vm
                for others in walked.values()
                for other in others
                if other.scope_id == event.scope_id
                and other.ended_at
                and other.created_at <= event.created_at < other.ended_at
                for vm in other.resources
            }
            capacity = least[event.scope_id]
            assert capacity.members - len(beside) >= capacity.available
