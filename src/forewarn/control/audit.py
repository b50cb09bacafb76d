"""/audit: who did what."""

from typing import Annotated

from fastapi import APIRouter, Query

from forewarn.control.caller import Calling
from forewarn.control.schemas import AuditEntryView, AuditView

router = APIRouter(prefix="/audit", tags=["audit"])


@router.get("")
def show_audit(caller: Calling, limit: Annotated[int, Query(ge=1, le=10_000)] = 1000) -> AuditView:
    """Return what was done and by whom."""
    entries = caller.read(lambda reading: reading.audit(limit=limit))
    return AuditView(audit=tuple(map(AuditEntryView.model_validate, entries)))
