"""/scopes: the settings of those who share events, by the name of the set or of the machine."""

from fastapi import APIRouter
from starlette.responses import Response

from forewarn.control.caller import Administering, Viewing
from forewarn.control.conditional import TAGGED, TAKES_IF_MATCH, TAKES_IF_NONE_MATCH, show
from forewarn.control.idempotency import Key
from forewarn.control.rehearsal import CAN_BE_DRY
from forewarn.control.schemas import ScopePatch, View
from forewarn.domain.policy import ApprovalPolicy
from forewarn.domain.topology import ScopeKind
from forewarn.files.declarations import describe_policy
from forewarn.operations.context import Context
from forewarn.operations.patches import patch_scope
from forewarn.operations.scopes import find_scopes
from forewarn.ports.store import Reading, Transaction

router = APIRouter(prefix="/scopes", tags=["places"])


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


# The id of a scope has slashes in it.
@router.get(
    "/{name:path}",
    response_model=ScopeView,
    dependencies=[TAKES_IF_NONE_MATCH],
    responses=TAGGED,
)
def show_scope(caller: Viewing, name: str) -> Response:
    """Return the settings of one scope."""
    return show(caller, lambda reading: _shown(reading, name))


@router.patch("/{name:path}", name="scope set", dependencies=[TAKES_IF_MATCH, *CAN_BE_DRY])
def change_scope(caller: Administering, key: Key, name: str, request: ScopePatch) -> ScopeView:
    """Change settings of a scope: only the named ones, and null resets one to its default."""
    patch = request.model_dump(exclude_unset=True)

    def operation(tx: Transaction, context: Context) -> ScopeView:
        patch_scope(tx, context, name, patch)
        return _view(tx, name)

    return caller.write_once(
        key, ScopeView, operation, current=lambda reading: _shown(reading, name)
    )


def _shown(reading: Reading, name: str) -> bytes:
    return _view(reading, name).model_dump_json().encode()


def _view(reading: Reading, name: str) -> ScopeView:
    topology = reading.topology()
    scopes = {scope.scope_id: scope for scope in find_scopes(topology, name)}
    scope = next(iter(scopes.values()))
    settings = describe_policy(scope.policy)
    vms = [vm.name for vm in topology.virtual_machines.values() if vm.scope_id in scopes]
    return ScopeView.model_validate(
        {"name": scope.name, "scope_kind": scope.kind, **settings, "virtual_machines": vms}
    )
