"""/audit: who did what, and who was refused."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, BaseModel, ConfigDict

from forewarn.control.caller import Administering

router = APIRouter(prefix="/audit", tags=["audit"])


class AuditEntryView(BaseModel):
    """One change or refusal, who is answerable for it, and where they were."""

    model_config = ConfigDict(from_attributes=True, frozen=True)

    at: datetime
    maintenance_time: datetime
    who: str
    where: str
    action: str
    subject: str
    outcome: str
    detail: str


class AuditView(BaseModel):
    """What was done and refused, in that order."""

    audit: tuple[AuditEntryView, ...]


@router.get("")
def show_audit(
    caller: Administering,
    who: Annotated[str | None, Query()] = None,
    action: Annotated[str | None, Query(examples=["event approve"])] = None,
    since: Annotated[AwareDatetime | None, Query(description="A time, in real time.")] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> AuditView:
    """Return the newest of what was done and refused, oldest first."""
    entries = caller.read(
        lambda reading: reading.audit(who=who, action=action, since=since, limit=limit)
    )
    return AuditView(audit=tuple(map(AuditEntryView.model_validate, entries)))
