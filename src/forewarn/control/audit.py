"""/audit: who did what, and who was refused."""

from operator import attrgetter
from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from forewarn.control.caller import Administering
from forewarn.control.paging import LINKED, Paged
from forewarn.desk.schemas import View
from forewarn.desk.shapes import mirrors
from forewarn.ports.entries import AuditEntry
from forewarn.wording.moments import parse_past

router = APIRouter(prefix="/audit", tags=["audit"])

_SINCE: Final = "2h (ago), 22:00 (the last, in GMT) or 2026-01-05T08:15:00Z, in real time."


@mirrors(AuditEntry, "at maintenance_time who actor where action subject outcome detail")
class AuditEntryView(View):
    """One change or refusal, who is answerable for it, and where they were."""


class AuditView(View):
    """What was done and refused, in that order."""

    audit: tuple[AuditEntryView, ...]


@router.get("", response_model=AuditView, responses=LINKED)
def show_audit(
    caller: Administering,
    who: Annotated[str | None, Query()] = None,
    action: Annotated[str | None, Query(examples=["event approve"])] = None,
    since: Annotated[str | None, Query(description=_SINCE)] = None,
    *,
    paging: Paged,
) -> Response:
    """Return the newest of what was done and refused, oldest first; the next page is older."""
    now = caller.context().at
    moment = None if since is None else parse_past(since, now)
    seen = paging.place()
    entries = caller.read(
        lambda reading: reading.audit(
            who=who, action=action, since=moment, older_than=seen, limit=paging.limit + 1
        )
    )
    return paging.newest("audit", entries, AuditEntryView.model_validate, attrgetter("sequence"))
