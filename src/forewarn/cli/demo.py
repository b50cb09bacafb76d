"""`forewarn demo`: a Reboot and a Maintenance, from Scheduled to gone, in virtual time."""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Final

import typer

from forewarn.domain.decisions import (
    BeginImpact,
    Effect,
    Impact,
    ImpactStatus,
    Snapshot,
    decide,
    next_deadline,
    record,
)
from forewarn.domain.event import Draft, ScheduledEvent, request_start, schedule
from forewarn.domain.maintenance import Maintenance, plan
from forewarn.domain.names import MaintenanceId, VmName
from forewarn.domain.notice import minimum_notice
from forewarn.domain.publication import FIRST_DOCUMENT, publish
from forewarn.domain.topology import (
    DeliveryScope,
    ScopeKind,
    Topology,
    VirtualMachine,
    build_topology,
    split_by_update_domain,
)
from forewarn.protocol.document import Document, encode_document
from forewarn.protocol.start_requests import decode_start_requests, encode_start_requests
from forewarn.protocol.versions import API_VERSIONS
from forewarn.protocol.vocabulary import EventId, EventSource, EventType, event_id

_MORNING: Final = datetime(2026, 1, 5, 8, tzinfo=UTC)
_IMPACT_LASTS: Final = timedelta(minutes=10)


def demo() -> None:
    """Show one Reboot in every api-version, then one Maintenance walking through a set.

    Example: forewarn demo
    """
    world = _World(snapshot=Snapshot(topology=_fleet()), now=_MORNING)
    _show_reboot(world)
    _show_maintenance(world)


@dataclass
class _World:
    """A fleet, its document and the time; moved on by `decide` alone."""

    snapshot: Snapshot
    now: datetime
    document: Document = FIRST_DOCUMENT

    def __post_init__(self) -> None:
        self.event_ids = _event_ids()
        self.ends: dict[tuple[EventId, VmName], datetime] = {}

    def put(self, *events: ScheduledEvent) -> None:
        known = {**self.snapshot.events, **{event.event_id: event for event in events}}
        self.snapshot = replace(self.snapshot, events=known)
        self.document = publish(self.document, known.values())

    def tick(self) -> bool:
        """Do what is due, and tell whether anything was."""
        decisions = decide(self.snapshot, self.now)
        self.snapshot = record(
            self.snapshot, decisions.actions, now=self.now, event_ids=self.event_ids
        )
        self.document = publish(self.document, self.snapshot.events.values())
        self._perform(decisions.effects)
        return bool(decisions)

    def settle(self) -> None:
        while self.tick():
            pass

    def pass_time(self) -> bool:
        """Go to the next moment at which something is due, if there is one."""
        moments = [next_deadline(self.snapshot, self.now), *self.ends.values()]
        self.now = min((moment for moment in moments if moment), default=self.now)
        over = [key for key, end in self.ends.items() if end <= self.now]
        for key in over:
            del self.ends[key]
        self._learn(dict.fromkeys(over, ImpactStatus.DONE))
        return any(moments)

    def _perform(self, effects: Iterable[Effect]) -> None:
        learned = {}
        for effect in effects:
            key = (effect.event_id, effect.vm)
            learned[key] = ImpactStatus.NOT_BEGUN
            if isinstance(effect, BeginImpact):
                learned[key] = ImpactStatus.RUNNING
                self.ends[key] = self.now + _IMPACT_LASTS
        self._learn(learned)

    def _learn(self, statuses: dict[tuple[EventId, VmName], ImpactStatus]) -> None:
        impacts = {key: Impact(status=status) for key, status in statuses.items()}
        self.snapshot = replace(self.snapshot, impacts={**self.snapshot.impacts, **impacts})


def _show_reboot(world: _World) -> None:
    vm = VmName("web-0")
    (share,) = split_by_update_domain(world.snapshot.topology, [vm])
    draft = Draft(
        event_type=EventType.REBOOT,
        event_source=EventSource.USER,
        share=share,
        description="Virtual machine is going to be restarted as requested by authorized user.",
    )
    event = schedule(
        draft,
        event_id=next(world.event_ids),
        now=world.now,
        notice=minimum_notice(EventType.REBOOT),
    )
    world.put(event)
    _say(world, f"someone restarts {vm}; every VM of its availability set reads")
    _show_document(world)

    world.now += timedelta(minutes=3)
    body = encode_start_requests([event.event_id])
    _say(world, f"{vm} is ready and posts {body.decode()}")
    for requested in decode_start_requests(body):
        world.put(request_start(world.snapshot.events[requested], vm=vm, now=world.now))
    world.settle()
    _say(world, "the Reboot starts")
    _show_document(world)

    world.pass_time()
    world.settle()
    _say(world, f"{vm} is back, the event is gone")
    _show_document(world)


def _show_maintenance(world: _World) -> None:
    maintenance = Maintenance(
        maintenance_id=MaintenanceId("host-os"),
        event_type=EventType.FREEZE,
        description="Host server is undergoing maintenance.",
        duration_in_seconds=9,
        resources=tuple(world.snapshot.topology.virtual_machines),
    )
    steps = plan(maintenance, world.snapshot.topology)
    typer.echo()
    _say(world, f"a Maintenance freezes all of web in {len(steps)} steps; nobody approves")
    world.snapshot = replace(world.snapshot, maintenances={maintenance.maintenance_id: maintenance})
    known = dict(world.snapshot.events)
    while True:
        world.settle()
        for event in world.snapshot.events.values():
            if known.get(event.event_id) != event:
                vms = ", ".join(event.resources)
                _say(world, f"  update domain {event.update_domain}: {event.event_status:<9} {vms}")
        known = dict(world.snapshot.events)
        if not world.pass_time():
            break
    _say(world, "done: never two update domains at once")


def _show_document(world: _World) -> None:
    for version in API_VERSIONS:
        typer.echo(f"  {version.name} {encode_document(world.document, version).decode()}")


def _say(world: _World, what: str) -> None:
    typer.echo(f"{world.now:%H:%M:%S} {what}")


def _fleet() -> Topology:
    web = DeliveryScope(kind=ScopeKind.AVAILABILITY_SET, name="web", update_domains=3)
    vms = [
        VirtualMachine(name=VmName(f"web-{i}"), scope_id=web.scope_id, update_domain=i % 3)
        for i in range(6)
    ]
    return build_topology(scopes=[web], virtual_machines=vms)


def _event_ids() -> Iterator[EventId]:
    return (event_id(str(uuid.uuid5(uuid.NAMESPACE_URL, f"forewarn demo {i}"))) for i in count())
