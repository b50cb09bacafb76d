"""/availability-sets, /cloud-services, /scale-sets and /scopes: who shares events, and settings."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from forewarn.control.bodies import BodyRoute
from forewarn.control.caller import Administering, Viewing
from forewarn.control.paging import Paged
from forewarn.control.routes import CHANGES, Key, answer_seen, lists, shows
from forewarn.desk.caller import Caller
from forewarn.desk.schemas import ScopePatch, View
from forewarn.desk.shapes import fill, several
from forewarn.domain.names import name_key
from forewarn.domain.policy import ApprovalPolicy
from forewarn.domain.topology import DeliveryScope, ScopeKind, Topology
from forewarn.files.declarations import describe_policy
from forewarn.operations.patches import patch_scope
from forewarn.operations.scopes import UnknownSelectionError, find_scopes
from forewarn.ports.store import Reading

router = APIRouter(tags=["places"], route_class=BodyRoute)


class SetView(BaseModel):
    """An availability set, cloud service or scale set, with its virtual machines."""

    name: str
    update_domains: int
    fault_domains: int
    approval: ApprovalPolicy
    postpone_until_seconds: int
    auto_approve_user: bool
    terminate_notice_seconds: int | None
    notice_seconds: int | None
    placement_groups: tuple[str, ...]
    virtual_machines: tuple[str, ...]


_SETS: Final = several("sets", SetView, "Every set of one kind, in fleet order.")


class ScopeView(View):
    """A set, service, scale set or standalone virtual machine, with its settings."""

    name: str
    scope_kind: ScopeKind
    approval: ApprovalPolicy
    postpone_until: str
    auto_approve_user: bool
    terminate_notice: str | None
    notice: str | None
    virtual_machines: tuple[str, ...]


def _add_routes(kind: ScopeKind) -> None:
    """Have the sets of *kind* listed and shown, at paths and under names of their own."""

    def list_sets(caller: Viewing, paging: Paged) -> Response:
        sets = _all_sets(caller, kind)
        begin = 0 if paging.after is None else _find(sets, paging.after) + 1
        return paging.answer("sets", sets[begin:], lambda view: view, "name")

    def show_set(caller: Viewing, name: str) -> SetView:
        sets = _all_sets(caller, kind)
        return sets[_find(sets, name)]

    word = kind.replace("-", "_")
    list_sets.__name__, list_sets.__doc__ = f"list_{word}s", f"Return every {kind.noun}."
    show_set.__name__, show_set.__doc__ = f"show_{word}", f"Return one {kind.noun}."
    router.get(f"/{kind}s", **lists(_SETS))(list_sets)
    router.get(f"/{kind}s/{{name}}")(show_set)


for _kind in (ScopeKind.AVAILABILITY_SET, ScopeKind.CLOUD_SERVICE, ScopeKind.SCALE_SET):
    _add_routes(_kind)


# The id of a scope has slashes in it.
@router.get("/scopes/{name:path}", **shows(ScopeView))
def show_scope(caller: Viewing, name: str) -> Response:
    """Return the settings of one scope."""
    return answer_seen(caller, lambda reading: _scope_view(reading, name))


@router.patch("/scopes/{name:path}", name="scope set", dependencies=CHANGES)
def change_scope(caller: Administering, key: Key, name: str, request: ScopePatch) -> ScopeView:
    """Change settings of a scope: only the named ones, and null resets one to its default."""
    patch = request.model_dump(exclude_unset=True)
    return caller.change(
        key,
        ScopeView,
        lambda reading: _scope_view(reading, name),
        lambda tx, context: patch_scope(tx, context, name, patch),
    )


def _find(views: Sequence[SetView], name: str) -> int:
    for place, view in enumerate(views):
        if name_key(view.name) == name_key(name):
            return place
    raise UnknownSelectionError(name)


def _all_sets(caller: Caller, kind: ScopeKind) -> Sequence[SetView]:
    return tuple(_sets(caller.read(lambda reading: reading.topology()), kind))


def _sets(topology: Topology, kind: ScopeKind) -> Iterator[SetView]:
    # The placement groups of a scale set are scopes of their own, with its name and settings.
    parts: dict[str, list[DeliveryScope]] = {}
    for scope in topology.scopes.values():
        if scope.kind is kind:
            parts.setdefault(scope.name, []).append(scope)
    members: dict[str, list[str]] = {}
    for vm in topology.virtual_machines.values():
        scope = topology.scopes[vm.scope_id]
        if scope.kind is kind:
            members.setdefault(scope.name, []).append(vm.name)
    for name, scopes in parts.items():
        policy = scopes[0].policy
        yield fill(
            SetView,
            policy,
            scopes[0],
            postpone_until_seconds=_seconds(policy.postpone_until),
            terminate_notice_seconds=_seconds(policy.terminate_notice),
            notice_seconds=_seconds(policy.notice),
            placement_groups=[each.placement_group for each in scopes if each.placement_group],
            virtual_machines=members.get(name, ()),
        )


def _seconds(duration: timedelta | None) -> int | None:
    return None if duration is None else int(duration.total_seconds())


def _scope_view(reading: Reading, name: str) -> ScopeView:
    topology = reading.topology()
    scopes = {scope.scope_id: scope for scope in find_scopes(topology, name)}
    scope = next(iter(scopes.values()))
    settings = describe_policy(scope.policy)
    vms = [vm.name for vm in topology.virtual_machines.values() if vm.scope_id in scopes]
    return fill(ScopeView, scope, scope_kind=scope.kind, **settings, virtual_machines=vms)
