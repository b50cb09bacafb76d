"""The libvirt of hosts as the operator describes it, and the plans that are made of it."""

import sys
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from forewarn.domain.names import HostName, VmName, is_meant
from forewarn.domain.scenario import USUAL_IMPACT
from forewarn.domain.topology import Host, Topology
from forewarn.executors.libvirt.plans import HostPlace, ImpactPlan, encode_plan, is_move
from forewarn.executors.processes import ImpossibleTaskError, ProcessProgram
from forewarn.executors.task_input import LONGEST, Selection, TaskInput
from forewarn.protocol.vocabulary import EventId

EXECUTOR: Final = "libvirt"
HOST: Final = "{host}"
"""What stands for the name of a host in a URI."""
GRACE: Final = timedelta(minutes=2)
CONNECT_TIMEOUT: Final = timedelta(seconds=30)

_MOST_DESTINATIONS: Final = 16
"""How many hosts are asked whether they have room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFleet:
    """What plans are made from: the fleet, and the hosts that are being worked on."""

    fleet: Topology
    at_work: AbstractSet[HostName] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypervisor:
    """The libvirt of some hosts, and how impacts are carried out there.

    *grace* is how long a guest may take to restart or shut down by itself. With *migrate*, a
    Freeze is a live migration. *to* names the hosts that guests may be moved to, *ephemeral* the
    disks that are made anew when they are.
    """

    uri: str
    selection: Selection = field(default_factory=Selection)
    timeout: timedelta = LONGEST
    connect_timeout: timedelta = CONNECT_TIMEOUT
    grace: timedelta = GRACE
    migrate: bool = False
    migrate_uri: str | None = None
    unsafe_migration: bool = False
    to: tuple[str, ...] = ()
    ephemeral: tuple[str, ...] = ()

    def place(self, host: str) -> HostPlace:
        """Return *host* as a place."""
        migrate_uri = None if self.migrate_uri is None else self.migrate_uri.replace(HOST, host)
        return HostPlace(host=host, uri=self.uri.replace(HOST, host), migrate_uri=migrate_uri)


def stewards(
    known_fleet: Callable[[], KnownFleet], hypervisor_of: Callable[[Host], Hypervisor | None]
) -> ProcessProgram[Hypervisor]:
    """Return the program of processes that carry out one impact each.

    *hypervisor_of* says which libvirt another host has.
    """

    def describe(task: TaskInput, libvirt: Hypervisor) -> dict[str, object]:
        plan = make_plan(task, libvirt, known_fleet(), hypervisor_of)
        return {"host": task.host, "plan": encode_plan(plan)}

    return ProcessProgram(
        name=EXECUTOR,
        words=(sys.executable, "-P", "-m", "forewarn.executors.libvirt.steward"),
        describe=describe,
        has_successors=True,
    )


def make_plan(
    task: TaskInput,
    libvirt: Hypervisor,
    known: KnownFleet,
    hypervisor_of: Callable[[Host], Hypervisor | None],
) -> ImpactPlan:
    """Return the plan for *task*, or refuse what cannot be done."""
    event_id, name = task.key
    host, event_type = task.host, task.event_type
    if host is None and HOST in libvirt.uri:
        raise ImpossibleTaskError(
            f"the URI {libvirt.uri!r} needs a host, but the fleet has none for {name}"
        )
    vm = known.fleet.virtual_machines.get(VmName(name))
    seconds = task.content["duration_in_seconds"]
    here = libvirt.place(host or "")
    places, barred = _destinations(here, libvirt, known, hypervisor_of)
    moves = is_move(event_type, migrate=libvirt.migrate)
    return ImpactPlan(
        event_id=EventId(event_id),
        event_type=event_type,
        epoch=task.epoch,
        vm=name,
        vm_id=vm.vm_id if vm else "",
        here=here,
        duration=USUAL_IMPACT[event_type] if seconds is None else timedelta(seconds=seconds),
        grace=libvirt.grace,
        timeout=libvirt.timeout,
        connect_timeout=libvirt.connect_timeout,
        migrate=libvirt.migrate,
        unsafe_migration=libvirt.unsafe_migration,
        ephemeral=libvirt.ephemeral,
        others=places if moves else (),
        barred=barred if moves else {},
    )


def _destinations(
    here: HostPlace,
    libvirt: Hypervisor,
    known: KnownFleet,
    hypervisor_of: Callable[[Host], Hypervisor | None],
) -> tuple[tuple[HostPlace, ...], Mapping[str, str]]:
    """Return some hosts that a guest may be moved to, and why not to others that *libvirt* names.

    Those that come after its own are first, so that guests of different hosts go to different ones.
    """
    places, barred = list[HostPlace](), dict[str, str]()
    hosts, own = known.fleet.hosts, HostName(here.host)
    names = list(hosts)
    turn = names.index(own) + 1 if own in hosts else 0
    for name in (*names[turn:], *names[:turn]):
        if len(places) == _MOST_DESTINATIONS:
            break
        if name == here.host or not is_meant(name, libvirt.to):
            continue
        hypervisor = hypervisor_of(hosts[name])
        if hypervisor is None:
            barred[name] = "it has no [[libvirt]] table"
        elif hosts[name].closure is not None:
            barred[name] = "it is closed"
        elif name in known.at_work:
            barred[name] = "a Maintenance is working on it"
        elif (place := hypervisor.place(name)).uri == here.uri:
            barred[name] = "it has the same URI"
        else:
            places.append(place)
    return tuple(places), barred


def hypervisor_among(those: Sequence[object]) -> Callable[[Host], Hypervisor | None]:
    """Return how to find the libvirt of a host, whatever the event: the first that is meant."""

    def find(host: Host) -> Hypervisor | None:
        for each in those:
            if isinstance(each, Hypervisor) and each.selection.is_for_host(host):
                return each
        return None

    return find
