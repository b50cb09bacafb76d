"""/requests: what virtual machines asked and were answered, on servers for tests."""

from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from forewarn.control.bodies import BodyRoute
from forewarn.control.caller import Viewing
from forewarn.control.paging import Paged
from forewarn.control.routes import lists
from forewarn.desk.caller import Caller
from forewarn.desk.schemas import View
from forewarn.desk.services import JournalError
from forewarn.desk.shapes import fill, mirrors, several
from forewarn.operations.inventory import find_vm
from forewarn.ports.journal import JournalEntry

router = APIRouter(prefix="/requests", tags=["requests"], route_class=BodyRoute)


@mirrors(
    JournalEntry,
    "at maintenance_time vm method path body status error document_incarnation seconds is_reset",
)
class RequestView(View):
    """One request and its response. The status is null while there is no response.

    Method and path are empty if the request was unreadable; vm is null if the caller is unknown.
    """

    body: str


_REQUESTS: Final = several("requests", RequestView, "Requests, in the order of arrival.")


@router.get("", **lists(_REQUESTS))
def list_requests(
    caller: Viewing,
    vm: Annotated[str | None, Query(description="Only requests from this virtual machine.")] = None,
    *,
    paging: Paged,
) -> Response:
    """Return the newest requests from VMs, oldest first; the next page has older ones."""
    seen = paging.place()
    entries = [entry for entry in _find(caller, vm) if seen is None or entry.sequence < seen]
    newest = entries[-paging.limit - 1 :]
    return paging.answer("requests", newest, _view, "sequence", goes_back=True)


def _find(caller: Caller, name: str | None) -> tuple[JournalEntry, ...]:
    """Return the requests of the virtual machines that *caller* sees, or of the one called *name*.

    Unknown callers are shown to those who see everything.
    """
    journal = caller.services.journal
    if journal is None:
        raise JournalError
    topology = caller.read(lambda reading: reading.topology())
    if name is not None:
        wanted = find_vm(topology, name).name
        return tuple(entry for entry in journal() if entry.vm == wanted)
    sees_all = not caller.principal.scopes
    return tuple(entry for entry in journal() if sees_all or entry.vm in topology.virtual_machines)


def _view(entry: JournalEntry) -> RequestView:
    return fill(RequestView, entry, body=entry.body.decode(errors="replace"))
