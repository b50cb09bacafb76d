"""/maintenances/{maintenance_id}/explain: what holds a Maintenance."""

from fastapi import APIRouter

from forewarn.control.caller import Viewing
from forewarn.control.schemas import View
from forewarn.control.shapes import fill, mirrors
from forewarn.desk.explanations import explain_maintenance_to
from forewarn.domain.blockers import Blocker, Verdict
from forewarn.domain.names import MaintenanceId
from forewarn.domain.standing import MaintenanceStatus, Standing
from forewarn.wording.command_lines import say_actions, say_blocker, say_verdict

router = APIRouter(prefix="/maintenances", tags=["maintenances"])


@mirrors(
    Blocker,
    "kind release sentence scope_ids hosts vms event_ids since until about places",
)
class BlockerView(View):
    """One thing that holds a Maintenance, and how it goes away."""

    kind: str


@mirrors(Verdict, "kind sentence until actions")
class VerdictView(View):
    """When a Maintenance continues by itself, or what somebody has to do first."""

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
    return fill(
        StandstillView,
        found,
        found.standstill,
        maintenance_id=key,
        blockers=[_blocker_view(each, key) for each in found.standstill.blockers],
        verdict=fill(
            VerdictView, verdict, sentence=say_verdict(verdict), actions=say_actions(verdict)
        ),
    )


def _blocker_view(blocker: Blocker, maintenance_id: MaintenanceId) -> BlockerView:
    sentence, about = say_blocker(blocker, maintenance_id)
    return fill(BlockerView, blocker, sentence=sentence, about=about)
