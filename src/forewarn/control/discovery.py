"""/discovery: the sources that the fleet follows. They are set in a file only."""

from typing import Any, Final

from fastapi import APIRouter

from forewarn.control.bodies import BodyRoute
from forewarn.control.caller import Viewing
from forewarn.desk.discovery import list_sources
from forewarn.desk.schemas import View
from forewarn.desk.shapes import mirrors, several
from forewarn.operations.discovery import SourceStatus

router = APIRouter(prefix="/discovery", tags=["discovery"], route_class=BodyRoute)


@mirrors(SourceStatus)
class MachineSourceView(View):
    """A source, as of its last answer or failure; it works if it has no problem."""


_SOURCES: Final = several("sources", MachineSourceView, "Sources, in the order of their file.")


@router.get("", response_model=_SOURCES)
def show_discovery(caller: Viewing) -> Any:
    """Return the state of the sources; callers limited to scopes see none."""
    return _SOURCES.model_validate({"sources": list_sources(caller)})
