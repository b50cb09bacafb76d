"""/audit: who did what, and who was refused."""

from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from forewarn.control.bodies import BodyRoute
from forewarn.control.caller import Administering
from forewarn.control.paging import Paged
from forewarn.control.routes import lists
from forewarn.desk.schemas import View
from forewarn.desk.shapes import mirrors, several
from forewarn.ports.entries import AuditEntry
from forewarn.wording.moments import parse_past

router = APIRouter(prefix="/audit", tags=["audit"], route_class=BodyRoute)

_SINCE: Final = "2h (ago), 22:00 (the last, in GMT) or 2026-01-05T08:15:00Z, in real time."


@mirrors(AuditEntry, "at maintenance_time who actor where action subject outcome detail")
class AuditEntryView(View):
    """One change or refusal: who is responsible, and from where."""


_AUDIT: Final = several("audit", AuditEntryView, "Actions and refusals, in order.")


@router.get("", **lists(_AUDIT))
def show_audit(
    caller: Administering,
    who: Annotated[str | None, Query()] = None,
    action: Annotated[str | None, Query(examples=["event approve"])] = None,
    since: Annotated[str | None, Query(description=_SINCE)] = None,
    *,
    paging: Paged,
) -> Response:
    """Return the newest actions and refusals, oldest first; the next page has older ones."""
    now = caller.context().at
    moment = None if since is None else parse_past(since, now)
    seen = paging.place()
    entries = caller.read(
        lambda reading: reading.audit(
            who=who, action=action, since=moment, older_than=seen, limit=paging.limit + 1
        )
    )
    return paging.answer(
        "audit", entries, AuditEntryView.model_validate, "sequence", goes_back=True
    )
