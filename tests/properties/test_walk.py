"""Maintenances walking through a fleet, with everything that can get in their way.

The machine is stopped at any point, as a server is that is killed: before a decision is recorded,
and before what was reserved is begun. What gates said is forgotten then. Tasks are rows, which only
the verbs of their owner change.
"""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from enum import Enum, auto
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.tasks import COMMAND, changed, owned, reserved, word

from forewarn.domain.actions import (
    AdvanceOperation,
    AskGate,
    CompleteEvent,
    Decisions,
    FinishMaintenance,
    ScheduleStep,
    StartEvent,
)
from forewarn.domain.aftermath import apply_actions
from forewarn.domain.amending import build_topology
from forewarn.domain.arrivals import find_joining, join, refusals
from forewarn.domain.blockers import BrakeKind, VerdictKind
from forewarn.domain.course import Course
from forewarn.domain.decisions import decide, next_deadline
from forewarn.domain.event import (
    Approval,
    Approver,
    Draft,
    Outcome,
    ScheduledEvent,
    approve,
    cancel,
    request_start,
    schedule,
    start,
    start_unannounced,
)
from forewarn.domain.explanation import explain
from forewarn.domain.failures import find_failures, resolve
from forewarn.domain.gate import Answer, GateStatus, Question
from forewarn.domain.host_operation import HostPhase
from forewarn.domain.host_work import HostTask, HostTaskKind, HostWorkRule, Undertaking
from forewarn.domain.impact import ImpactStatus
from forewarn.domain.maintenance import (
    Maintenance,
    Resolution,
    Step,
    abort,
    own_events,
    pause,
    resume,
)
from forewarn.domain.names import HostName, MaintenanceId, ScopeId, VmName
from forewarn.domain.policy import ApprovalPolicy, Policy
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.standing import MaintenanceStatus
from forewarn.domain.standstill import find_standstill
from forewarn.domain.task import MANUAL, OPEN, Task, TaskKey, TaskState, begin, finish, settle
from forewarn.domain.topology import (
    DeliveryScope,
    ScopeKind,
    Topology,
    VirtualMachine,
    split_by_update_domain,
)
from forewarn.domain.walk import find_state, walk
from forewarn.domain.why import Reason, ReasonKind
from forewarn.domain.windows import Calendar, Window
from forewarn.executors.simulated import MANUALLY
from forewarn.ports.runner import Assignment
from forewarn.protocol.vocabulary import EventId, EventSource, EventStatus, EventType, event_id

HOSTS = [HostName(f"kvm-{i}") for i in range(3)]
UPDATE_DOMAINS = 3
NOTICE = {EventType.FREEZE: timedelta(minutes=15), EventType.REDEPLOY: timedelta(minutes=10)}
BEGINNING = datetime(2026, 1, 5, 8, tzinfo=UTC)


class Crash(Enum):
    """When the scheduler dies in a tick."""

    NEVER = auto()
    BEFORE_RECORDING = auto()
    BEFORE_BEGINNING = auto()


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Draw a small fleet whose hosts may well carry two update domains of one scope."""
    scopes = [
        DeliveryScope(
            kind=ScopeKind.AVAILABILITY_SET,
            name=f"set-{i}",
            update_domains=UPDATE_DOMAINS,
            policy=Policy(approval=draw(st.sampled_from(ApprovalPolicy))),
        )
        for i in range(2)
    ]
    vms = [
        VirtualMachine(
            name=VmName(f"vm-{i}"),
            scope_id=draw(st.sampled_from(scopes)).scope_id,
            update_domain=draw(st.integers(0, UPDATE_DOMAINS - 1)),
            host=draw(st.sampled_from(HOSTS)),
        )
        for i in range(draw(st.integers(1, 7)))
    ]
    return build_topology(scopes=scopes, virtual_machines=vms)


@st.composite
def maintenances(draw: st.DrawFn, topology: Topology, name: str) -> Maintenance:
    by_host = draw(st.booleans())
    resources = st.lists(st.sampled_from(list(topology.virtual_machines)), unique=True, min_size=1)
    hosts = st.lists(st.sampled_from(HOSTS), unique=True, min_size=1)
    return Maintenance(
        maintenance_id=MaintenanceId(name),
        event_type=draw(st.sampled_from(list(NOTICE))),
        started_at=BEGINNING,
        resources=() if by_host else tuple(draw(resources)),
        hosts=tuple(draw(hosts)) if by_host else (),
        course=draw(courses(topology)),
    )


NIGHT = Calendar(
    windows=(Window(days=frozenset(range(7)), opens=time(8), closes=time(11), zone="UTC"),)
)
GATE = "smoke"
WORK = HostWorkRule(
    hosts=tuple(HOSTS[:2]),
    has_verify=True,
    verify_within=timedelta(minutes=10),
    verify_every=timedelta(minutes=2),
    has_return=True,
)
HOST_WORKS = [(), (WORK,), (replace(WORK, has_verify=False),), (replace(WORK, has_return=False),)]
STEERING = ["pause", "resume", "resume", "retry", "skip", "skip", "abort"]


@st.composite
def courses(draw: st.DrawFn, topology: Topology) -> Course:
    """Draw what it waits for; only what the fleet can have, as when it is started."""
    places = [*topology.scopes, *HOSTS]
    return Course(
        canary=tuple(draw(st.lists(st.sampled_from(places), unique=True, max_size=2))),
        at_once=draw(st.none() | st.integers(1, 2)),
        soak=draw(st.sampled_from([timedelta(0), timedelta(minutes=20)])),
        min_available=draw(st.sampled_from([0, 0, 30])),
        gates=draw(st.sampled_from([(), (GATE,)])),
        calendar=draw(st.sampled_from([Calendar(), NIGHT])),
        hold_all=draw(st.booleans()),
        in_order=draw(st.booleans()),
        notice_outside=draw(st.booleans()),
    )


class Walk(RuleBasedStateMachine):
    @initialize(data=st.data())
    def prepare(self, data: st.DataObject) -> None:
        topology = data.draw(topologies())
        wanted = [data.draw(maintenances(topology, name)) for name in ("os", "firmware")]
        self.now = BEGINNING
        self.snapshot = Snapshot(
            topology=topology,
            maintenances={maintenance.maintenance_id: maintenance for maintenance in wanted},
            host_works=data.draw(st.sampled_from(HOST_WORKS)),
        )
        self.event_ids = (event_id(f"{i:032x}") for i in count())
        self.begun: Counter[TaskKey] = Counter()
        self.told: set[EventId] = set()
        self.gate_is_open = True
        vms = st.sampled_from(list(topology.virtual_machines))
        self.by_hand = data.draw(st.sets(vms, max_size=2))

    @rule(crash=st.sampled_from(Crash), seconds=st.integers(0, 900))
    def time_passes(self, crash: Crash, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self.tick(crash)

    def tick(self, crash: Crash = Crash.NEVER) -> Decisions:
        self.snapshot = owned(self.snapshot, self.now)
        decisions = decide(self.snapshot, self.now)
        self.check_starts(decisions)
        self.check_steps(decisions)
        if crash is not Crash.BEFORE_RECORDING:
            after = apply_actions(
                self.snapshot, decisions.actions, now=self.now, event_ids=self.event_ids
            )
            self.snapshot = reserved(after, decisions, at=self.now, assign=self.assign)
            self.check_deadlines()
        if crash is Crash.NEVER:
            self.owner_begins()
        answers = self.ask(decisions) if crash is Crash.NEVER else {}
        self.snapshot = replace(self.snapshot, answers=answers)
        return decisions

    def assign(self, about: Undertaking) -> Assignment:
        """Leave the impact on some machines to operators."""
        if not isinstance(about, HostTask) and about[1] in self.by_hand:
            self.begun[about] += 1
            return MANUALLY
        return COMMAND

    def owner_begins(self) -> None:
        """Begin what is reserved, as its owner does that finds it."""
        for task in self.rows(TaskState.RESERVED):
            if not task.is_impact:
                self.check_beginning(task)
            self.begun[task.key] += 1
            self.change(begin(task, self.now))

    def rows(self, *states: TaskState) -> list[Task]:
        return [task for task in self.snapshot.rows.values() if task.state in states]

    def change(self, *tasks: Task) -> None:
        self.snapshot = changed(self.snapshot, *tasks)

    def ask(self, decisions: Decisions) -> dict[Question, Answer]:
        """Put the questions to the gate, and forget the answers that matter no more."""
        known = {
            question: answer
            for question, answer in self.snapshot.answers.items()
            if question in decisions.questions
        }
        status = GateStatus.OPEN if self.gate_is_open else GateStatus.SHUT
        again = None if self.gate_is_open else self.now + timedelta(minutes=5)
        for effect in decisions.effects:
            if isinstance(effect, AskGate):
                since = known[effect.question].asked_since if effect.question in known else self.now
                known[effect.question] = Answer(
                    status=status, ask_again_at=again, asked_since=since
                )
        return known

    @rule()
    def gate_opens_or_shuts(self) -> None:
        self.gate_is_open = not self.gate_is_open

    @rule(data=st.data(), operator=st.booleans())
    def somebody_approves(self, data: st.DataObject, *, operator: bool) -> None:
        event = self.draw_event(data, EventStatus.SCHEDULED)
        vm = data.draw(st.sampled_from(list(self.snapshot.topology.virtual_machines)))
        if event and operator:
            word = Approval(approver=Approver.OPERATOR, name="alice", approved_at=self.now)
            self.put(approve(event, word))
        elif event:
            self.put(request_start(event, vm=vm, now=self.now))

    @rule(data=st.data(), failed=st.booleans())
    def task_ends(self, data: st.DataObject, *, failed: bool) -> None:
        running = self.rows(TaskState.BEGUN)
        if running:
            self.end(data.draw(st.sampled_from(running)), is_done=not failed)

    def end(self, task: Task, *, is_done: bool) -> None:
        said = word(ImpactStatus.DONE if is_done else ImpactStatus.FAILED)
        if task.runner == MANUAL:
            self.change(settle(task, is_done=is_done, reason="", now=self.now))
        else:
            self.change(finish(task, said, self.now))

    @rule(data=st.data())
    def operator_cancels(self, data: st.DataObject) -> None:
        """Withdraw an event, or all of a host operation: one of its events is refused."""
        event = self.draw_event(data, EventStatus.SCHEDULED)
        together = [
            other
            for other in self.events()
            if event and (other == event or event.operation_id == other.operation_id is not None)
        ]
        if all(other.event_status is EventStatus.SCHEDULED for other in together):
            for other in together:
                self.put(cancel(other, now=self.now))

    @rule(data=st.data())
    def operator_forces_a_start(self, data: st.DataObject) -> None:
        event = self.draw_event(data, EventStatus.SCHEDULED)
        if event:
            self.put(start(event, now=self.now))

    @rule(data=st.data(), verb=st.sampled_from(STEERING))
    def operator_steers(self, data: st.DataObject, verb: str) -> None:
        maintenance = data.draw(st.sampled_from(list(self.snapshot.maintenances.values())))
        if maintenance.is_aborted or maintenance.finished_at:
            return
        match verb:
            case "pause":
                steered = pause(maintenance)
            case "abort":
                steered = abort(maintenance)
            case "resume":
                steered = resume(maintenance, now=self.now)
            case _:
                steered = self.decided(maintenance, Resolution(verb))
        self.steer(steered)

    def decided(self, maintenance: Maintenance, resolution: Resolution) -> Maintenance:
        """Have everything that failed and is over tried again or passed over."""
        events, operations = self.snapshot.events.values(), self.snapshot.operations.values()
        failures = find_failures(maintenance, events, operations)
        over = [failure for failure in failures if failure.is_over]
        return resolve(maintenance, over, resolution) if over else maintenance

    @rule(data=st.data(), unannounced=st.booleans())
    def something_else_happens(self, data: st.DataObject, *, unannounced: bool) -> None:
        """Let a user restart a virtual machine, or a host fail: nobody planned it."""
        vm = data.draw(st.sampled_from(list(self.snapshot.topology.virtual_machines)))
        (share,) = split_by_update_domain(self.snapshot.topology, [vm])
        draft = Draft(event_type=EventType.REBOOT, event_source=EventSource.USER, share=share)
        if unannounced:
            failure = replace(draft, event_source=EventSource.PLATFORM)
            self.put(start_unannounced(failure, event_id=next(self.event_ids), now=self.now))
        else:
            notice = timedelta(minutes=15)
            self.put(schedule(draft, event_id=next(self.event_ids), now=self.now, notice=notice))

    @rule(
        data=st.data(),
        domain=st.integers(0, UPDATE_DOMAINS - 1),
        host=st.sampled_from(HOSTS),
        is_fact=st.booleans(),
    )
    def operator_moves_an_idle_vm(
        self, data: st.DataObject, domain: int, host: HostName, *, is_fact: bool
    ) -> None:
        topology = self.snapshot.topology
        busy = {vm for event in self.in_flight() for vm in event.resources}
        idle = [vm for vm in topology.virtual_machines if vm not in busy]
        if idle:
            vm = data.draw(st.sampled_from(idle))
            moved = replace(topology.virtual_machines[vm], update_domain=domain, host=host)
            vms = {**topology.virtual_machines, vm: moved}
            self.place(replace(topology, virtual_machines=vms), is_fact=is_fact)

    def place(self, after: Topology, *, is_fact: bool) -> None:
        """Change the fleet, and tell whoever comes to a host in an operation; or refuse."""
        joining = find_joining(self.snapshot, after)
        is_refused = any(refusals(joining, self.snapshot, after))
        if is_refused and not is_fact:
            return
        for each in joining:
            event = join(each, after, event_id=next(self.event_ids), now=self.now, speed=1)
            is_announced = each.operation.phase is HostPhase.ANNOUNCED
            assert (event.event_status is EventStatus.SCHEDULED) == is_announced
            self.put(event)
            if is_refused:
                self.told.add(event.event_id)
        self.snapshot = replace(self.snapshot, topology=after)

    @invariant()
    def maintenances_have_one_update_domain_of_a_scope_in_flight(self) -> None:
        domains: dict[ScopeId, set[int]] = {}
        for event in self.in_flight():
            # Where a fact has brought another update domain, there is nothing left to refuse.
            if event.maintenance_id and event.event_id not in self.told:
                domains.setdefault(event.scope_id, set()).add(event.update_domain)
        assert all(len(numbers) == 1 for numbers in domains.values())

    @invariant()
    def impact_happens_at_most_once(self) -> None:
        assert all(times == 1 for times in self.begun.values())

    @invariant()
    def virtual_machine_has_one_impact_at_a_time(self) -> None:
        # What is reserved may begin at any moment; what is done by hand ends with its event.
        running = [
            task.vm
            for task in self.rows(*OPEN)
            if task.is_impact
            if task.runner != MANUAL or self.snapshot.events[EventId(task.subject)].is_in_flight
        ]
        assert len(running) == len(set(running))

    @invariant()
    def no_maintenance_names_a_vm_twice_on_one_host_unless_it_is_retried(self) -> None:
        named = Counter(
            (event.maintenance_id, event.host, vm)
            for event in self.snapshot.events.values()
            if event.maintenance_id and not self.is_retried(event)
            if event.event_id not in self.told
            for vm in event.resources
        )
        assert all(times == 1 for times in named.values())

    def is_retried(self, event: ScheduledEvent) -> bool:
        assert event.maintenance_id
        resolutions = self.snapshot.maintenances[event.maintenance_id].resolutions
        return resolutions.get(event.operation_id or event.event_id) is Resolution.RETRY

    @invariant()
    def no_host_is_in_two_operations(self) -> None:
        hosts = Counter(each.host for each in self.snapshot.operations.values() if not each.is_over)
        assert all(times == 1 for times in hosts.values())

    @invariant()
    def whatever_does_not_move_is_explained(self) -> None:
        """An event in flight has a reason that holds it, or the next decision moves it on.

        An event whose host has work of its own may also be moved on with its operation.
        """
        actions = decide(self.snapshot, self.now).actions
        moving = {
            action.event_id for action in actions if isinstance(action, StartEvent | CompleteEvent)
        }
        advancing = {
            action.operation.operation_id
            for action in actions
            if isinstance(action, AdvanceOperation)
        }
        for event in self.snapshot.events.values():
            reasons = explain(event, self.snapshot, self.now)
            assert reasons
            is_held = any(reason.holds for reason in reasons)
            if is_held or event.operation_id not in advancing:
                assert is_held == (event.is_in_flight and event.event_id not in moving)
            self.check_claims(event, reasons)

    @invariant()
    def maintenance_is_held_when_it_never_goes_on_by_itself(self) -> None:
        flying = {event.maintenance_id for event in self.in_flight()}
        for maintenance in self.snapshot.maintenances.values():
            if maintenance.maintenance_id not in flying and not maintenance.is_paused:
                said = find_state(maintenance, self.snapshot, self.now).status
                verdict = find_standstill(maintenance, self.snapshot, self.now).verdict
                is_held = said is MaintenanceStatus.HELD
                assert is_held == (verdict.kind is VerdictKind.NEVER)

    def check_claims(self, event: ScheduledEvent, reasons: tuple[Reason, ...]) -> None:
        """Nobody is said to have not approved who has."""
        approvals = (
            ReasonKind.APPROVAL_OF_ANY,
            ReasonKind.APPROVAL_OF_ALL,
            ReasonKind.APPROVAL_OF_LEADER,
        )
        for reason in reasons:
            if reason.kind in approvals:
                assert reason.vms
                assert not set(reason.vms) & {approval.name for approval in event.approvals}
            if reason.kind is ReasonKind.HOST_OPERATION:
                others = [self.snapshot.events[other_id] for other_id in reason.event_ids]
                assert {other.operation_id for other in others} == {event.operation_id}
                approved = {word.name for other in others for word in other.approvals}
                assert not set(reason.vms) & approved

    def teardown(self) -> None:
        """Let everything go well from now on: the walk ends."""
        if not hasattr(self, "snapshot"):
            return
        for _ in range(400):
            due = self.tick()
            if not due and not self.help_along():
                break
            self.maintenances_have_one_update_domain_of_a_scope_in_flight()
            self.impact_happens_at_most_once()
            self.virtual_machine_has_one_impact_at_a_time()
        assert all(maintenance.finished_at for maintenance in self.snapshot.maintenances.values())
        assert not list(self.in_flight())

    def help_along(self) -> bool:
        """Finish what runs, skip what failed, let time pass; tell whether there was a need."""
        working = self.rows(*OPEN)
        self.owner_begins()
        for task in self.rows(TaskState.BEGUN):
            self.end(task, is_done=True)
        unfinished = [
            maintenance
            for maintenance in self.snapshot.maintenances.values()
            if not maintenance.finished_at
        ]
        self.mend_hosts()
        self.gate_is_open = True
        for maintenance in unfinished:
            if not maintenance.is_aborted and self.needs_more_machines(maintenance):
                self.steer(abort(maintenance))
            elif not maintenance.is_aborted:
                self.steer(self.decided(resume(maintenance, now=self.now), Resolution.SKIP))
        deadline = next_deadline(self.snapshot, self.now)
        self.now = deadline or self.now
        return bool(working or unfinished or deadline)

    def needs_more_machines(self, maintenance: Maintenance) -> bool:
        """Tell whether a step takes too much of a scope by itself, which no resuming helps."""
        return any(
            brake.kind is BrakeKind.CAPACITY and not brake.event_ids
            for stage in walk(maintenance, self.snapshot, self.now)
            for brake in stage.brakes
        )

    def mend_hosts(self) -> None:
        """Take every idle virtual machine but the first off its host, so that none is shared."""
        topology = self.snapshot.topology
        busy = {vm for event in self.in_flight() for vm in event.resources}
        carrying = {topology.virtual_machines[vm].host for vm in busy}
        vms = dict(topology.virtual_machines)
        for vm in topology.virtual_machines.values():
            if vm.host in carrying and vm.name not in busy:
                vms[vm.name] = replace(vm, host=None)
            carrying.add(vm.host)
        self.snapshot = replace(self.snapshot, topology=replace(topology, virtual_machines=vms))

    def check_starts(self, decisions: Decisions) -> None:
        starting = {a.event_id for a in decisions.actions if isinstance(a, StartEvent)}
        for identifier in starting:
            event = self.snapshot.events[identifier]
            assert self.now >= event.not_before or self.may_start_early(event)
            if event.maintenance_id:
                course = self.snapshot.maintenances[event.maintenance_id].course
                assert self.is_open(course, self.now)
            if event.operation_id:
                together = {
                    other.event_id
                    for other in self.snapshot.events.values()
                    if other.operation_id == event.operation_id
                    and other.event_status is EventStatus.SCHEDULED
                }
                assert together <= starting

    def check_steps(self, decisions: Decisions) -> None:
        """No step begins beside another one of its scope, or in a scope that holds."""
        events = self.snapshot.events.values()
        self.check_courses(decisions)
        for action in decisions.actions:
            if not isinstance(action, ScheduleStep | FinishMaintenance):
                continue
            maintenance = self.snapshot.maintenances[action.maintenance_id]
            touched = action.step.scope_ids if isinstance(action, ScheduleStep) else None
            for event in events:
                if event.maintenance_id == action.maintenance_id:
                    concerns = touched is None or event.scope_id in touched
                    assert not (concerns and event.is_in_flight)
                    went_wrong = (
                        event.outcome is Outcome.FAILED
                        or event.event_status is EventStatus.CANCELED
                    )
                    key = event.operation_id or event.event_id
                    is_decided = not went_wrong or key in maintenance.resolutions
                    is_over = maintenance.is_aborted and touched is None
                    holds = concerns or maintenance.course.hold_all
                    assert is_decided or is_over or not holds

    def check_courses(self, decisions: Decisions) -> None:
        """State what a course asks for a second time, in other words."""
        begun: dict[MaintenanceId, int] = {}
        for action in decisions.actions:
            if isinstance(action, ScheduleStep):
                maintenance = self.snapshot.maintenances[action.maintenance_id]
                begun[action.maintenance_id] = begun.get(action.maintenance_id, 0) + 1
                self.check_step(maintenance, action.step)
        for maintenance_id, steps in begun.items():
            at_once = self.snapshot.maintenances[maintenance_id].course.at_once
            places = {
                event.host or event.scope_id
                for event in self.in_flight()
                if event.maintenance_id == maintenance_id
            }
            places |= {
                each.host
                for each in self.snapshot.operations.values()
                if each.maintenance_id == maintenance_id and not each.is_over
            }
            assert at_once is None or steps + len(places) <= at_once

    def check_step(self, maintenance: Maintenance, step: Step) -> None:
        course, own = maintenance.course, list(own_events(maintenance, self.events()))
        vms = [vm for share in step.shares for vm in share.resources]
        for event in self.events():
            if event.maintenance_id and event.outcome and event.scope_id in step.scope_ids:
                soak = self.snapshot.maintenances[event.maintenance_id].course.soak
                assert event.ended_at
                assert self.now >= event.ended_at + soak
        notice = NOTICE[maintenance.event_type] if course.notice_outside else timedelta(0)
        assert self.is_open(course, self.now + notice)
        assert not own or not course.gates or self.gate_was_open(maintenance, step)
        for share in step.shares:
            members = [
                vm.name
                for vm in self.snapshot.topology.virtual_machines.values()
                if vm.scope_id == share.scope_id
            ]
            down = {vm for event in self.in_flight() for vm in event.resources} | set(vms)
            left = [vm for vm in members if vm not in down]
            assert len(left) * 100 >= course.min_available * len(members)
        is_first = step.host in course.canary or set(course.canary) & step.scope_ids
        if course.canary and not is_first:
            canaries = [e for e in own if {e.host, e.scope_id} & set(course.canary)]
            assert not any(event.is_in_flight for event in canaries)

    def is_open(self, course: Course, moment: datetime) -> bool:
        return course.calendar == Calendar() or 8 <= moment.hour < 11

    def gate_was_open(self, maintenance: Maintenance, step: Step) -> bool:
        return any(
            answer.status is GateStatus.OPEN
            and question.maintenance_id == maintenance.maintenance_id
            and set(question.scope_ids) == step.scope_ids
            for question, answer in self.snapshot.answers.items()
        )

    def events(self) -> list[ScheduledEvent]:
        return list(self.snapshot.events.values())

    def may_start_early(self, event: ScheduledEvent) -> bool:
        """State the approval policies a second time, in other words."""
        names = {approval.name for approval in event.approvals}
        if "alice" in names:
            return True
        match self.snapshot.topology.scopes[event.scope_id].policy.approval:
            case ApprovalPolicy.ANY:
                return len(names) > 0
            case ApprovalPolicy.ALL:
                return names >= set(event.resources)
            case ApprovalPolicy.LEADER:
                return event.resources[0] in names

    def check_beginning(self, task: Task) -> None:
        """No work begins before every impact is over, and nothing before what comes first."""
        said = {
            kind: other.said.status
            for other in self.snapshot.rows.values()
            if other.subject == task.subject and other.key != task.key
            for kind in [HostTaskKind(other.name.partition("-")[0])]
        }
        match HostTaskKind(task.name.partition("-")[0]):
            case HostTaskKind.WORK:
                running = [
                    vm
                    for event in self.in_flight()
                    if event.operation_id == task.subject
                    # Whoever came as a fact when it had started has no impact of its own.
                    if event.is_announced
                    for vm in event.resources
                    if vm not in self.by_hand and not self.is_done(event, vm)
                ]
                assert not running
            case HostTaskKind.VERIFY:
                assert said[HostTaskKind.WORK] is ImpactStatus.DONE
                assert said.get(HostTaskKind.VERIFY, ImpactStatus.FAILED) is ImpactStatus.FAILED
            case HostTaskKind.RETURN if HostTaskKind.WORK in said:
                before = {said[HostTaskKind.WORK], said.get(HostTaskKind.VERIFY, ImpactStatus.DONE)}
                assert before == {ImpactStatus.DONE}
            case HostTaskKind.RETURN:
                pass  # the work was left out, as a machine stays on the host

    def is_done(self, event: ScheduledEvent, vm: VmName) -> bool:
        task = self.snapshot.rows.get((event.event_id, vm))
        return task is not None and task.is_over

    def check_deadlines(self) -> None:
        """Whoever is not back in time has failed."""
        for each in self.snapshot.operations.values():
            if each.phase is HostPhase.VERIFY:
                assert each.verify_by
                assert self.now < each.verify_by

    def in_flight(self) -> list[ScheduledEvent]:
        return [event for event in self.snapshot.events.values() if event.is_in_flight]

    def draw_event(self, data: st.DataObject, status: EventStatus) -> ScheduledEvent | None:
        events = [e for e in self.snapshot.events.values() if e.event_status is status]
        return data.draw(st.sampled_from(events)) if events else None

    def put(self, event: ScheduledEvent) -> None:
        events = {**self.snapshot.events, event.event_id: event}
        self.snapshot = replace(self.snapshot, events=events)

    def steer(self, maintenance: Maintenance) -> None:
        maintenances = {**self.snapshot.maintenances, maintenance.maintenance_id: maintenance}
        self.snapshot = replace(self.snapshot, maintenances=maintenances)


TestWalk = Walk.TestCase
# The longest of all properties; `make soak` tries ten times as many.
TestWalk.settings = settings(max_examples=settings().max_examples * 3 // 4)
