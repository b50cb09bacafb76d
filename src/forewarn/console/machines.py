"""/virtual-machines/{name}: what a machine reads, its history, and its time machine."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from forewarn.console.cells import STATE_LABELS, STATE_TONES
from forewarn.console.visit import ActionRoute, ConsoleRoute, Done, Page, PageRoute, Visit
from forewarn.desk.explanations import explain_event_to
from forewarn.domain.errors import ConflictError, InvalidError, UnknownVirtualMachineError
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.machine_states import MachineState, find_involved, state_of
from forewarn.domain.names import VmName, name_key
from forewarn.domain.notice import is_enabled
from forewarn.domain.topology import DeliveryScope, Host, VirtualMachine
from forewarn.operations.context import Context
from forewarn.operations.events import operate
from forewarn.operations.seen import see
from forewarn.operations.tasks import find_impacts
from forewarn.ports.entries import Membership, Showing
from forewarn.ports.store import Reading
from forewarn.protocol.versions import API_VERSIONS, NEWEST
from forewarn.protocol.vocabulary import EventStatus, EventType, event_id
from forewarn.wording.moments import parse_past

_ON_ONE_PAGE: Final = 20
"""How many events of the past are shown at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMachine:
    """A virtual machine with its place and how it is; or, without one, the past of a former one."""

    name: VmName
    vm: VirtualMachine | None
    memberships: tuple[Membership, ...]
    scope: DeliveryScope | None = None
    host: Host | None = None
    state: MachineState = MachineState.IN_SERVICE
    last_polled_at: datetime | None = None
    is_enabled: bool = False

    @property
    def label(self) -> str:
        """How it is, in a word."""
        return STATE_LABELS[self.state]

    @property
    def tone(self) -> str:
        """The tone in which that is said."""
        return STATE_TONES[self.state]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenDocument:
    """What a virtual machine could read at a moment, or why that is not known."""

    at: datetime | None = None
    body: str = ""
    pretty: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the address of the page asks for."""

    name: str
    api_version: str
    at: str
    older: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSight:
    """All that the page shows, in one look at the store."""

    machine: KnownMachine
    events: tuple[ScheduledEvent, ...]
    neighbours: int
    past: tuple[ScheduledEvent, ...]
    now: SeenDocument
    then: SeenDocument | None


def show_machine(visit: Visit) -> Page:
    """Show one virtual machine, or the past of one that has left the fleet."""
    asked = Asked(
        name=visit.path_values["name"],
        api_version=visit.query.text("api-version") or NEWEST.name,
        at=visit.query.text("at"),
        older=visit.query.text("older"),
    )
    context = visit.caller.context()
    pending = visit.caller.services.showings()  # before the look, or some are in neither
    seen = visit.read(lambda reading: _look(reading, context, asked, pending))
    past = seen.past[:_ON_ONE_PAGE]
    return Page(
        title=seen.machine.name,
        template="machine.html",
        values={
            "seen": seen,
            "machine": seen.machine,
            "vm": seen.machine.vm,
            "asked": asked,
            "versions": [version.name for version in reversed(API_VERSIONS)],
            "waits": {event.event_id: _explain(visit, event) for event in seen.events},
            "past": past,
            "older": past[-1].event_id if len(seen.past) > len(past) else "",
        },
    )


def restart(visit: Visit) -> Done:
    """Restart a virtual machine as its owner."""
    return _operate(visit, EventType.REBOOT, "restart")


def redeploy(visit: Visit) -> Done:
    """Redeploy a virtual machine as its owner."""
    return _operate(visit, EventType.REDEPLOY, "redeployment")


def _operate(visit: Visit, event_type: EventType, noun: str) -> Done:
    name = visit.path_values["name"]
    event = visit.caller.write(lambda tx, context: operate(tx, context, name, event_type))
    said = "is scheduled" if event.event_status is EventStatus.SCHEDULED else "has started"
    return Done(message=f"The {noun} of {event.resources[0]} {said}.")


def _look(
    reading: Reading, context: Context, asked: Asked, pending: Sequence[Showing]
) -> MachineSight:
    in_flight, machine = _find(reading, context, asked.name)
    own = tuple(event for event in in_flight if machine.name in event.resources)
    past = reading.events(
        status=(EventStatus.COMPLETED, EventStatus.CANCELED),
        vm=machine.name,
        older_than=event_id(asked.older) if asked.older else None,
        limit=_ON_ONE_PAGE + 1,
    )

    def read_at(moment: datetime | str) -> SeenDocument:
        return _see(reading, context, asked, moment, pending)

    return MachineSight(
        machine=machine,
        events=own,
        neighbours=sum(event.is_published for event in in_flight if event not in own),
        past=past[::-1],
        now=read_at(context.now),
        then=read_at(asked.at) if asked.at else None,
    )


def _find(
    reading: Reading, context: Context, name: str
) -> tuple[tuple[ScheduledEvent, ...], KnownMachine]:
    """Return the events in flight in the scope of the virtual machine called *name*, and itself."""
    topology = reading.topology()
    vm = topology.virtual_machines.get(VmName(name)) or topology.directory.by_name.get(
        name_key(name)
    )
    memberships = reading.memberships(name)
    if vm is None:
        if not memberships:
            raise UnknownVirtualMachineError(name)
        return (), KnownMachine(name=memberships[-1].vm, vm=None, memberships=memberships)
    in_flight = reading.events_in_flight([vm.scope_id])
    involved = find_involved(topology, in_flight, find_impacts(reading), context.now)
    last_polled_at = reading.last_polls([vm.name]).get(vm.name)
    is_unpolled = not is_enabled(last_polled_at, context.now)
    return in_flight, KnownMachine(
        name=vm.name,
        vm=vm,
        memberships=memberships,
        scope=topology.scopes[vm.scope_id],
        host=topology.hosts[vm.host] if vm.host else None,
        state=state_of(vm.name, involved, is_unpolled=is_unpolled),
        last_polled_at=last_polled_at,
        is_enabled=is_enabled(reading.last_polled_at(vm.scope_id), context.now),
    )


def _see(
    reading: Reading,
    context: Context,
    asked: Asked,
    moment: datetime | str,
    pending: Sequence[Showing],
) -> SeenDocument:
    try:
        at = parse_past(moment, context.now) if isinstance(moment, str) else moment
        body = see(reading, context, asked.name, at, asked.api_version, pending=pending).decode()
    except (ConflictError, InvalidError) as error:
        return SeenDocument(problem=str(error))
    pretty = json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    return SeenDocument(at=at, body=body, pretty=pretty)


def _explain(visit: Visit, event: ScheduledEvent) -> str:
    """Return the first thing that *event* waits for, or that there is to know about it."""
    reasons = explain_event_to(visit.caller, event.event_id).reasons
    return reasons[0].sentence if reasons else ""


ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    PageRoute(path="/virtual-machines/{name}", show=show_machine),
    ActionRoute(
        path="/virtual-machines/{name}/restart", act=restart, name="vm restart", subject="name"
    ),
    ActionRoute(
        path="/virtual-machines/{name}/redeploy", act=redeploy, name="vm redeploy", subject="name"
    ),
)
