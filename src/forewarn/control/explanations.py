"""/events/{event_id}/explain: why an event is not moving."""

from fastapi import APIRouter

from forewarn.control.caller import Viewing
from forewarn.control.events import EventIdPath
from forewarn.control.schemas import View
from forewarn.control.shapes import fill, mirrors
from forewarn.desk.explanations import explain_event_to
from forewarn.domain.reasons import Reason
from forewarn.protocol.vocabulary import EventStatus
from forewarn.wording.command_lines import say_reason

router = APIRouter(prefix="/events", tags=["events"])


@mirrors(Reason, "kind holds sentence vms event_ids since until about")
class ReasonView(View):
    """One thing to know about an event; it waits for those that hold."""


class ExplanationView(View):
    """Every reason that an event is where it is; what holds it comes first."""

    event_id: str
    event_status: EventStatus
    is_held: bool
    reasons: tuple[ReasonView, ...]


@router.get("/{event_id}/explain")
def explain(caller: Viewing, event_id: EventIdPath) -> ExplanationView:
    """Return every reason that the event is not moving."""
    found = explain_event_to(caller, event_id)
    return fill(
        ExplanationView,
        found.event,
        is_held=any(reason.holds for reason in found.reasons),
        reasons=[fill(ReasonView, each, sentence=say_reason(each)) for each in found.reasons],
    )
