"""Virtual machines that are on another host after their impact, or after they were returned.

Each word of whoever did it counts once, as soon as it is heard, and is forgotten with the same
transaction that follows it. So an event that lasts longer never takes back what a later one did.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from forewarn.domain.actions import FollowMove
from forewarn.domain.amending import amend
from forewarn.domain.arrivals import find_joining, join
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.host_work import HostTask
from forewarn.domain.names import HostName, VmName, name_key
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.topology import Topology
from forewarn.protocol.vocabulary import EventId, EventStatus


def find_moves(snapshot: Snapshot) -> Iterator[FollowMove]:
    """Yield where virtual machines are now, as far as that was said and nobody has followed yet."""
    for (event_id, vm), said in snapshot.impacts.items():
        event = snapshot.events.get(event_id)
        is_under_way = event is not None and event.event_status is EventStatus.STARTED
        if said.moved_to is not None and said.is_over and is_under_way:
            yield FollowMove(event_id=event_id, about=(event_id, vm), vm=vm, host=said.moved_to)
    # Last: a virtual machine is returned after its impact.
    for task, said in snapshot.tasks.items():
        if said.moved_to is None or not said.is_over or task.vm is None:
            continue
        event = _event_of(task, snapshot)
        if event is not None:
            yield FollowMove(event_id=event.event_id, about=task, vm=task.vm, host=said.moved_to)


def follow_moves(
    snapshot: Snapshot, moves: Sequence[FollowMove], *, now: datetime, event_ids: Iterator[EventId]
) -> Snapshot:
    """Return *snapshot* after *moves*, which are facts: neither closed nor unknown hosts refuse.

    Whoever comes to a host that is in maintenance is told.
    """
    if not moves:
        return snapshot
    topology = snapshot.topology
    impacts, tasks = dict(snapshot.impacts), dict(snapshot.tasks)
    for move in moves:
        topology = _place(topology, move.vm, move.host)
        if isinstance(move.about, HostTask):
            tasks[move.about] = replace(tasks[move.about], moved_to=None)
        else:
            impacts[move.about] = replace(impacts[move.about], moved_to=None)
    told = [
        join(each, topology, event_id=next(event_ids), now=now, speed=snapshot.speed)
        for each in find_joining(snapshot, topology)
    ]
    events = {**snapshot.events, **{event.event_id: event for event in told}}
    return replace(snapshot, topology=topology, events=events, impacts=impacts, tasks=tasks)


def _place(before: Topology, name: VmName, host: HostName) -> Topology:
    vm = before.virtual_machines.get(name)
    if vm is None:
        return before
    known = {name_key(each): each for each in before.hosts}
    found = known.get(name_key(host), host)
    return before if vm.host == found else amend(before, virtual_machines=[replace(vm, host=found)])


def _event_of(task: HostTask, snapshot: Snapshot) -> ScheduledEvent | None:
    """Return the event that told the virtual machine of *task* about it."""
    return next(
        (
            event
            for event in snapshot.events.values()
            if event.operation_id == task.operation_id and task.vm in event.resources
        ),
        None,
    )
