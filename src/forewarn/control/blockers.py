"""/maintenances/{maintenance_id}/explain: what holds a Maintenance."""

from datetime import datetime

from fastapi import APIRouter

from forewarn.control.caller import Viewing
from forewarn.control.schemas import View
from forewarn.desk.explanations import explain_maintenance_to
from forewarn.domain.blockers import Blocker, Release, VerdictKind
from forewarn.domain.names import MaintenanceId
from forewarn.domain.standing import MaintenanceStatus, Standing
from forewarn.wording.command_lines import say_actions, say_blocker, say_verdict

router = APIRouter(prefix="/maintenances", tags=["maintenances"])


class BlockerView(View):
    """One thing that holds a Maintenance, and how it goes away."""

    kind: str
    release: Release
    sentence: str
    scope_ids: tuple[str, ...]
    hosts: tuple[str, ...]
    vms: tuple[str, ...]
    event_ids: tuple[str, ...]
    since: datetime | None
    until: datetime | None
    about: str
    places: tuple[str, ...]


class VerdictView(View):
    """When a Maintenance continues by itself, or what somebody has to do first."""

    kind: VerdictKind
    sentence: str
    until: datetime | None
    actions: tuple[str, ...]


class StandstillView(View):
    """Everything that holds a Maintenance, what becomes of it, and what it has left undone."""

    maintenance_id: str
    status: MaintenanceStatus
    blockers: tuple[BlockerView, ...]
    verdict: VerdictView
    not_done: dict[str, Standing]


@router.get("/{maintenance_id}/explain")
def explain_maintenance(caller: Viewing, maintenance_id: str) -> StandstillView:
    """Return everything that holds the Maintenance, and when it continues."""
    found = explain_maintenance_to(caller, maintenance_id.lower())
    key, verdict = found.maintenance.maintenance_id, found.standstill.verdict
    return StandstillView(
        maintenance_id=key,
        status=found.status,
        blockers=tuple(_blocker_view(each, key) for each in found.standstill.blockers),
        verdict=VerdictView(
            kind=verdict.kind,
            sentence=say_verdict(verdict),
            until=verdict.until,
            actions=say_actions(verdict),
        ),
        not_done={str(place): said for place, said in found.standstill.not_done.items()},
    )


def _blocker_view(blocker: Blocker, maintenance_id: MaintenanceId) -> BlockerView:
    sentence, about = say_blocker(blocker, maintenance_id)
    said = {"sentence": sentence, "about": about}
    return BlockerView.model_validate(blocker).model_copy(update=said)
