"""/server: the server itself, and whether it begins anything."""

from datetime import datetime

from fastapi import APIRouter

import forewarn
from forewarn.control.caller import Administering, Viewing
from forewarn.desk.caller import Caller
from forewarn.desk.schemas import PauseRequest, View
from forewarn.domain.server_pause import ServerPause
from forewarn.operations import pausing

router = APIRouter(prefix="/server", tags=["server"])


class ServerView(View):
    """The server. While it is paused it answers everybody and begins nothing."""

    version: str
    is_paused: bool
    paused_since: datetime | None
    paused_by: str
    pause_reason: str
    executor_problem: str


@router.get("")
def show_server(caller: Viewing) -> ServerView:
    """Return how the server is."""
    return _view(caller, caller.read(pausing.find_pause))


@router.post("/pause", name="pause")
def pause_server(caller: Administering, request: PauseRequest | None = None) -> ServerView:
    """Begin nothing until resumed; once this is answered, nothing more begins."""
    reason = request.reason if request else ""
    found = caller.write(lambda tx, context: pausing.pause_server(tx, context, reason))
    caller.services.finish_turn()
    return _view(caller, found)


@router.post("/resume", name="resume")
def resume_server(caller: Administering) -> ServerView:
    """Continue, with all that fell due in the meantime."""
    caller.write(pausing.resume_server)
    return _view(caller, None)


def _view(caller: Caller, pause: ServerPause | None) -> ServerView:
    return ServerView(
        version=forewarn.__version__,
        is_paused=pause is not None,
        paused_since=pause.since if pause else None,
        paused_by=pause.who if pause else "",
        pause_reason=pause.reason if pause else "",
        executor_problem=caller.services.executor_problem(),
    )
