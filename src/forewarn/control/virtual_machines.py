"""/virtual-machines: one by one, and what their owners ask for."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from forewarn.control.bodies import BodyRoute
from forewarn.control.caller import Administering, Operating, Viewing
from forewarn.control.paging import Paged
from forewarn.control.problems import VirtualMachineExistsError
from forewarn.control.routes import CHANGES, Key, answer_with_tag, creates, lists, shows
from forewarn.desk.caller import Caller
from forewarn.desk.schemas import (
    AS_IS,
    EventView,
    FleetChangeView,
    VirtualMachinePatch,
    VirtualMachineRequest,
    VirtualMachineView,
    event_view,
)
from forewarn.desk.shapes import fill, several
from forewarn.domain.names import name_key
from forewarn.domain.topology import ScopeKind, Topology, VirtualMachine
from forewarn.files.fleet import Fleet, read_fleet
from forewarn.operations.context import Context
from forewarn.operations.events import operate
from forewarn.operations.inventory import apply_fleet, find_vm, remove_vm
from forewarn.operations.patches import patch_vm
from forewarn.operations.repeats import RequestKey
from forewarn.operations.safeguards import ApplyOptions
from forewarn.ports.store import Reading, Transaction
from forewarn.protocol.vocabulary import EventType

router = APIRouter(prefix="/virtual-machines", tags=["virtual-machines"], route_class=BodyRoute)

AsIs = Annotated[bool, Query(description=AS_IS)]
NewHost = Annotated[bool, Query(description="Create the host if it is unknown.")]


@router.get(
    "",
    **lists(
        several("virtual_machines", VirtualMachineView, "Every virtual machine, in fleet order.")
    ),
)
def list_virtual_machines(caller: Viewing, paging: Paged) -> Response:
    """Return the virtual machines, in fleet order."""
    topology = caller.read(lambda reading: reading.topology())
    vms = list(topology.virtual_machines.values())
    if paging.after is not None:
        vms = vms[vms.index(find_vm(topology, paging.after)) + 1 :]
    page = vms[: paging.limit + 1]
    polls = caller.read(lambda reading: reading.last_polls(vm.name for vm in page))
    return paging.answer(
        "virtual_machines", page, lambda vm: _show(vm, topology, polls.get(vm.name)), "name"
    )


@router.post("", name="vm add", **creates(VirtualMachineView))
def add_virtual_machine(
    caller: Administering, key: Key, request: VirtualMachineRequest, *, as_is: AsIs = False
) -> VirtualMachineView:
    """Add one virtual machine to the fleet."""
    declared = request.model_dump(exclude_none=True)
    fleet = read_fleet({"virtual_machine": [declared]})
    options = ApplyOptions(as_is=as_is)
    return caller.write_once(
        key, VirtualMachineView, lambda tx, context: _add(tx, context, fleet, options)
    )


@router.get("/{name}", **shows(VirtualMachineView))
def show_virtual_machine(caller: Viewing, name: str) -> Response:
    """Return one virtual machine; its ETag does not depend on its last poll."""
    declared, shown = caller.read(
        lambda reading: (_view(reading, name), _view_with_poll(reading, name))
    )
    return answer_with_tag(declared, caller.if_none_match, shown=shown)


@router.patch("/{name}", name="vm set", dependencies=CHANGES)
def change_virtual_machine(
    caller: Administering,
    key: Key,
    name: str,
    request: VirtualMachinePatch,
    *,
    as_is: AsIs = False,
    new_host: NewHost = False,
) -> VirtualMachineView:
    """Change or move one virtual machine: only the named fields, and null clears one."""
    patch = request.model_dump(exclude_unset=True)
    options = ApplyOptions(as_is=as_is)

    def operation(tx: Transaction, context: Context) -> VirtualMachineView:
        changed = patch_vm(tx, context, name, patch, options, new_host=new_host)
        return _view_with_poll(tx, changed.name)

    return caller.write_once(
        key, VirtualMachineView, operation, current=lambda reading: _view(reading, name)
    )


@router.delete("/{name}", name="vm remove", dependencies=CHANGES)
def remove_virtual_machine(caller: Administering, name: str) -> FleetChangeView:
    """Remove one virtual machine from the fleet."""
    change = caller.write(
        lambda tx, context: remove_vm(tx, context, name),
        current=lambda reading: _view(reading, name),
    )
    return FleetChangeView.model_validate(change)


@router.post("/{name}/restart", name="vm restart", **creates(EventView, CHANGES))
def restart_virtual_machine(caller: Operating, key: Key, name: str) -> EventView:
    """Restart as its owner: a Reboot with EventSource User."""
    return _operate(caller, key, name, EventType.REBOOT)


@router.post("/{name}/redeploy", name="vm redeploy", **creates(EventView, CHANGES))
def redeploy_virtual_machine(caller: Operating, key: Key, name: str) -> EventView:
    """Redeploy as its owner: a Redeploy with EventSource User."""
    return _operate(caller, key, name, EventType.REDEPLOY)


def _add(
    tx: Transaction, context: Context, fleet: Fleet, options: ApplyOptions
) -> VirtualMachineView:
    (declared,) = (each.vm for each in fleet.virtual_machines)
    known = tx.topology().directory.by_name.get(name_key(declared.name))
    if known is not None:
        raise VirtualMachineExistsError(known.name)
    apply_fleet(tx, context, fleet, options=options, action="vm add")
    return _view(tx, declared.name)


def _view(reading: Reading, name: str) -> VirtualMachineView:
    topology = reading.topology()
    return _show(find_vm(topology, name), topology)


def _view_with_poll(reading: Reading, name: str) -> VirtualMachineView:
    topology = reading.topology()
    vm = find_vm(topology, name)
    return _show(vm, topology, reading.last_polls([vm.name]).get(vm.name))


def _operate(caller: Caller, key: RequestKey | None, name: str, event_type: EventType) -> EventView:
    return caller.write_once(
        key,
        EventView,
        lambda tx, context: event_view(operate(tx, context, name, event_type)),
        current=lambda reading: _view(reading, name),
    )


def _show(
    vm: VirtualMachine, topology: Topology, last_polled_at: datetime | None = None
) -> VirtualMachineView:
    scope = topology.scopes[vm.scope_id]
    return fill(
        VirtualMachineView,
        vm,
        scope_kind=scope.kind,
        scope_name=scope.name,
        placement_group=scope.placement_group,
        role=vm.role if scope.kind is ScopeKind.CLOUD_SERVICE else None,
        profile=vm.profile.known,
        last_polled_at=last_polled_at,
    )
