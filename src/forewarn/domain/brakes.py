"""What holds back a step of a Maintenance: each brake is a rule, and all rules are in one table.

A rule yields blockers, with sentences of their own. They do not name the step, for what holds many
steps is found once; whoever says why a step waits adds it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from itertools import chain
from typing import Final

from forewarn.domain.blockers import Blocker, BlockerKind, BrakeKind, Release, kinds_of
from forewarn.domain.course import Course
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.failures import Failure, find_failures
from forewarn.domain.maintenance import (
    Maintenance,
    Step,
    canary_parts,
    is_canary,
    is_in_the_way,
    lost_capacity,
    own_events,
    own_operations,
    set_sizes,
    shared_hosts,
)
from forewarn.domain.names import HostName, OperationId, ScopeId, VmName
from forewarn.domain.openings import expected_impact, longest_notice, next_beginning
from forewarn.domain.phrases import say_moment
from forewarn.domain.precedence import needing_somebody
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.task import Task, say_task
from forewarn.domain.windows import ALWAYS
from forewarn.protocol.vocabulary import EventId

_CANARIES: Final = {
    Release.BY_TIME: BlockerKind.CANARY_SOAK,
    Release.BY_PROGRESS: BlockerKind.CANARY,
    Release.BY_HAND: BlockerKind.CANARY_HELD,
}


class Facts:
    """What the brakes go by: the Maintenance, all around it, and the steps that come first.

    *ahead* are the scopes of these where they keep their place, with whether they are stuck there,
    and *held* are scopes in which nothing begins, with the reasons; *places* is how many scopes
    or hosts are taken up by what is in flight or about to be.
    """

    def __init__(
        self,
        maintenance: Maintenance,
        snapshot: Snapshot,
        now: datetime,
        taken: Collection[ScopeId | HostName],
    ) -> None:
        self.maintenance = maintenance
        self.course = maintenance.course
        self.snapshot = snapshot
        self.now = now
        self.taken = taken
        self.own = tuple(own_events(maintenance, snapshot.events.values()))
        self.operations = tuple(own_operations(maintenance, snapshot.operations.values()))
        self.soak = maintenance.course.soak / snapshot.speed
        self.failures = {
            failure: failure_blocker(maintenance, failure, snapshot)
            for failure in find_failures(maintenance, self.own, self.operations)
        }
        self.busy_hosts = {each.host for each in snapshot.operations.values() if not each.is_over}
        self.in_flight = _by_scope(snapshot.events.values())
        self.lingering = _lingering_by_scope(snapshot)
        self.soaks = dict(snapshot.soaks)
        for scope_id, ended_at in _last_ends(self.own).items():
            self.note_end(scope_id, ended_at)
        self.steps_done = Counter(event.scope_id for event in self.own)
        self.sizes = set_sizes(snapshot.topology) if self.course.min_available else {}
        self.places = len(
            {
                *(event.host or event.scope_id for event in self.own if event.is_in_flight),
                *(each.host for each in self.operations if not each.is_over),
                *(e.host or e.scope_id for e in self.own if e.event_id in snapshot.open_of),
                *(o.host for o in self.operations if o.operation_id in snapshot.open_of),
            }
        )
        self.ahead: dict[ScopeId, bool] = {}
        self.held: dict[frozenset[ScopeId], tuple[Blocker, ...]] = {}
        self.canaries_ahead: list[bool] = []
        self._openings: dict[timedelta, datetime | None] = {}

    def note_end(self, scope_id: ScopeId, ended_at: datetime) -> None:
        """Leave the scope alone for the soak after a step that ended then."""
        until = ended_at + self.soak
        self.soaks[scope_id] = max(until, self.soaks.get(scope_id, until))

    def move_to(self, now: datetime) -> None:
        """Go by what is so at a later moment."""
        self.now = now
        self._openings.clear()
        self.__dict__.pop("canary_blocker", None)

    @cached_property
    def canary_blocker(self) -> Blocker | None:
        """What holds everybody but the canaries, which all come first."""
        if self.canaries_ahead:
            is_stuck = any(self.canaries_ahead)
            return self._canary(Release.BY_HAND if is_stuck else Release.BY_PROGRESS)
        canaries, operations = canary_parts(self.course, self.own, self.operations)
        failed = find_failures(self.maintenance, canaries, operations)
        if failed:
            known = {event.event_id: event for event in canaries}
            events = [known[each] for failure in failed for each in failure.event_ids]
            return self._canary(Release.BY_HAND, events)
        flying = [event for event in canaries if event.is_in_flight]
        if flying or any(not operation.is_over for operation in operations):
            return self._canary(Release.BY_PROGRESS, flying)
        ends = [
            *_last_ends(canaries).values(),
            *(operation.ended_at for operation in operations if operation.ended_at),
        ]
        until = max((end + self.soak for end in ends), default=self.now)
        return None if until <= self.now else self._canary(Release.BY_TIME, until=until)

    def _canary(
        self,
        release: Release,
        events: Sequence[ScheduledEvent] = (),
        until: datetime | None = None,
    ) -> Blocker:
        return Blocker(
            kind=_CANARIES[release],
            release=release,
            vms=_vms(events),
            event_ids=_ids(events),
            until=until,
            about=", ".join(self.course.canary),
        )

    @cached_property
    def server_pause(self) -> tuple[Blocker, ...]:
        """What holds every step while the server is paused. No forecast goes by it."""
        pause = self.snapshot.server_pause
        if pause is None:
            return ()
        about = f"{pause} since {say_moment(pause.since)}"
        kind, release = BlockerKind.SERVER_PAUSED, Release.BY_HAND
        return (Blocker(kind=kind, release=release, since=pause.since, about=about),)

    def is_own(self, event: ScheduledEvent) -> bool:
        """Tell whether *event* is of a step of the Maintenance."""
        return event.maintenance_id == self.maintenance.maintenance_id

    def awaited(self, event: ScheduledEvent) -> tuple[EventId, ...]:
        """Return what somebody has to complete, or *event* never ends."""
        return needing_somebody(event, self.snapshot)

    def busy_with(self, event: ScheduledEvent) -> Blocker:
        """Return *event* as what holds the next step in its scope."""
        # What holds an event of its own is said of that event.
        awaited = () if self.is_own(event) else self.awaited(event)
        origin = f"a step of maintenance {event.maintenance_id}" if event.maintenance_id else ""
        return Blocker(
            kind=BlockerKind.BUSY,
            release=Release.BY_HAND if awaited else Release.BY_PROGRESS,
            scope_ids=(event.scope_id,),
            vms=event.resources,
            event_ids=(event.event_id,),
            since=event.created_at,
            about=origin or "not part of any maintenance",
            awaited=awaited,
        )

    def opening(self, notice: timedelta) -> datetime | None:
        """Return when a step with so much notice may begin."""
        if notice not in self._openings:
            impact = expected_impact(self.maintenance, self.snapshot)
            self._openings[notice] = next_beginning(
                self.course, self.now, notice=notice, impact=impact
            )
        return self._openings[notice]


def open_tasks(failure: Failure, snapshot: Snapshot) -> Iterator[Task]:
    """Return what is not over of the events or the host operation that failed; some of it twice."""
    of_events = (snapshot.open_of.get(each, ()) for each in failure.event_ids)
    return chain(snapshot.open_in(OperationId(failure.key)), *of_events)


def failure_blocker(maintenance: Maintenance, failure: Failure, snapshot: Snapshot) -> Blocker:
    """Return *failure* as what holds steps of *maintenance*.

    An operator can decide about it as soon as nothing of it is under way any more.
    """
    is_under_way = not failure.is_over or any(open_tasks(failure, snapshot))
    holds_all = maintenance.course.hold_all
    reason = f": {failure.reason}" if failure.reason else ""
    return Blocker(
        kind=BlockerKind.FAILURE_HOLDS_ALL if holds_all else BlockerKind.FAILURE,
        release=Release.BY_PROGRESS if is_under_way else Release.BY_HAND,
        scope_ids=failure.scope_ids,
        vms=failure.vms,
        event_ids=failure.event_ids,
        since=failure.ended_at,
        about=f"{failure.ending} at {say_moment(failure.ended_at)}{reason}",
        place=failure.place,
    )


def earlier_step(facts: Facts, step: Step) -> Iterator[Blocker]:
    """Yield what holds *step* if another one comes first in one of its scopes."""
    waiting = tuple(sorted(scope_id for scope_id in step.scope_ids if scope_id in facts.ahead))
    if waiting:
        is_stuck = any(facts.ahead[scope_id] for scope_id in waiting)
        release = Release.BY_HAND if is_stuck else Release.BY_PROGRESS
        yield Blocker(kind=BlockerKind.EARLIER_STEP, release=release, scope_ids=waiting)


def _paused(facts: Facts, step: Step) -> Iterator[Blocker]:
    del step
    if facts.maintenance.is_paused:
        yield Blocker(kind=BlockerKind.PAUSED, release=Release.BY_HAND)


def _shared_host(facts: Facts, step: Step) -> Iterator[Blocker]:
    del facts
    for error in () if step.is_safe else shared_hosts(step):
        yield Blocker(
            kind=BlockerKind.SHARED_HOST,
            release=Release.BY_HAND,
            scope_ids=(ScopeId(error.scope),),
            vms=error.vms,
            about=str(error),
        )


def _failure(facts: Facts, step: Step) -> Iterator[Blocker]:
    for failure, blocker in facts.failures.items():
        is_here = failure.host == step.host is not None
        if facts.course.hold_all or is_here or not step.scope_ids.isdisjoint(failure.scope_ids):
            yield blocker


def _canary(facts: Facts, step: Step) -> Iterator[Blocker]:
    if facts.course.canary and not is_canary(facts.course, step) and facts.canary_blocker:
        yield facts.canary_blocker


def taken_places(step: Step, taken: Collection[ScopeId | HostName]) -> Iterator[Blocker]:
    """Yield what holds *step* if another Maintenance is about to begin in one of its places."""
    if step.host and step.host in taken:
        yield Blocker(kind=BlockerKind.BUSY_HOST, release=Release.BY_PROGRESS)
    if soon := tuple(sorted(step.scope_ids.intersection(taken))):
        yield Blocker(kind=BlockerKind.BUSY_SOON, release=Release.BY_PROGRESS, scope_ids=soon)


def _busy(facts: Facts, step: Step) -> Iterator[Blocker]:
    if step.host in facts.busy_hosts and step.host not in facts.taken:
        yield Blocker(kind=BlockerKind.BUSY_HOST, release=Release.BY_PROGRESS)
    yield from taken_places(step, facts.taken)
    for scope_id in sorted(step.scope_ids):
        yield from map(facts.busy_with, filter(is_in_the_way, facts.in_flight.get(scope_id, ())))
        for vm, task in facts.lingering.get(scope_id, ()):
            yield task_blocker(task, facts.snapshot, scope_ids=(scope_id,), vms=(vm,))
    for task in facts.snapshot.lingering if step.host else ():
        if task.host == step.host and task.vm is None:
            yield task_blocker(task, facts.snapshot)


def task_blocker(
    task: Task,
    snapshot: Snapshot,
    *,
    scope_ids: tuple[ScopeId, ...] = (),
    vms: tuple[VmName, ...] = (),
) -> Blocker:
    """Return *task*, which goes on although its event or host operation has ended, as a blocker."""
    is_unknown = snapshot.awaits_word(task)
    return Blocker(
        kind=BlockerKind.BUSY_UNKNOWN if is_unknown else BlockerKind.BUSY_TASK,
        release=Release.BY_HAND if is_unknown else Release.BY_PROGRESS,
        scope_ids=scope_ids,
        vms=vms,
        about=say_task(task),
        task_ids=(task.task_id,),
    )


def _capacity(facts: Facts, step: Step) -> Iterator[Blocker]:
    for share in (share for share in step.shares if share.scope_id in facts.sizes):
        members = facts.sizes[share.scope_id]
        in_flight = facts.in_flight.get(share.scope_id, ())
        lost = lost_capacity(facts.course, members, {*_vms(in_flight), *share.resources})
        if lost is None:
            continue
        # What is too much by itself never fits, whatever ends.
        fits_alone = lost_capacity(facts.course, members, share.resources) is None
        events = in_flight if fits_alone else ()
        awaited = [facts.awaited(event) for event in events]
        # An event of its own goes by itself, or is said to need somebody.
        is_stuck = not any(facts.is_own(event) for event in events) and all(awaited)
        yield Blocker(
            kind=BlockerKind.CAPACITY if fits_alone else BlockerKind.CAPACITY_NEVER,
            release=Release.BY_HAND if is_stuck else Release.BY_PROGRESS,
            scope_ids=(share.scope_id,),
            vms=_vms(events),
            event_ids=_ids(events),
            about=lost,
            awaited=tuple(dict.fromkeys(chain.from_iterable(awaited))),
        )
        return


def _soak(facts: Facts, step: Step) -> Iterator[Blocker]:
    soaking = {
        scope_id: until
        for scope_id in step.scope_ids
        if (until := facts.soaks.get(scope_id)) and until > facts.now
    }
    if soaking:
        yield Blocker(
            kind=BlockerKind.SOAK,
            release=Release.BY_TIME,
            until=max(soaking.values()),
            scope_ids=tuple(sorted(soaking)),
        )


def _calendar(facts: Facts, step: Step) -> Iterator[Blocker]:
    if facts.course.calendar == ALWAYS:
        return
    opening = facts.opening(longest_notice(facts.maintenance, step, facts.snapshot))
    if opening is None:
        yield Blocker(kind=BlockerKind.CALENDAR_NEVER, release=Release.BY_HAND)
    elif opening > facts.now:
        yield Blocker(kind=BlockerKind.CALENDAR, release=Release.BY_TIME, until=opening)


def _at_once(facts: Facts, step: Step) -> Iterator[Blocker]:
    del step
    at_once = facts.course.at_once
    if at_once is not None and facts.places >= at_once:
        yield Blocker(kind=BlockerKind.AT_ONCE, release=Release.BY_PROGRESS, about=str(at_once))


BRAKES: Final[tuple[Callable[[Facts, Step], Iterator[Blocker]], ...]] = (
    _paused,
    _shared_host,
    _failure,
    _canary,
    _busy,
    _capacity,
    _soak,
    _calendar,
    _at_once,
)
"""What may hold the next step of a scope. Gates are asked when none of these does."""


def find_blockers(facts: Facts, step: Step) -> tuple[Blocker, ...]:
    """Return all that these rules find to hold *step*."""
    return tuple(blocker for rule in BRAKES for blocker in rule(facts, step))


_GIVING_WAY: Final = kinds_of(
    BrakeKind.EARLIER_STEP,
    BrakeKind.SHARED_HOST,
    BrakeKind.FAILURE,
    BrakeKind.BUSY,
    BrakeKind.CAPACITY,
    BrakeKind.SOAK,
)
"""What keeps a step from its own scopes or host, and is no reason for later ones to wait."""


def keeps_its_place(course: Course, blockers: Iterable[Blocker]) -> bool:
    """Tell whether later steps in the same scopes wait for one that *blockers* hold."""
    return course.in_order or not any(blocker.kind in _GIVING_WAY for blocker in blockers)


def _by_scope(events: Collection[ScheduledEvent]) -> dict[ScopeId, list[ScheduledEvent]]:
    found: dict[ScopeId, list[ScheduledEvent]] = {}
    for event in events:
        if event.is_in_flight:
            found.setdefault(event.scope_id, []).append(event)
    return found


def _lingering_by_scope(snapshot: Snapshot) -> dict[ScopeId, list[tuple[VmName, Task]]]:
    found: dict[ScopeId, list[tuple[VmName, Task]]] = {}
    for name, tasks in snapshot.lingering_on.items():
        vm = snapshot.topology.virtual_machines.get(name)
        if vm is not None:
            found.setdefault(vm.scope_id, []).extend((name, task) for task in tasks)
    return found


def _last_ends(events: Collection[ScheduledEvent]) -> dict[ScopeId, datetime]:
    """Return when the impact on each scope was over; what was withdrawn had none."""
    ends: dict[ScopeId, datetime] = {}
    for event in events:
        if event.ended_at is not None and event.outcome is not None:
            ends[event.scope_id] = max(event.ended_at, ends.get(event.scope_id, event.ended_at))
    return ends


def _vms(events: Iterable[ScheduledEvent]) -> tuple[VmName, ...]:
    return tuple(vm for event in events for vm in event.resources)


def _ids(events: Collection[ScheduledEvent]) -> tuple[EventId, ...]:
    return tuple(event.event_id for event in events)
