"""/server: the server itself, its replicas, and whether it begins anything."""

from fastapi import APIRouter

from forewarn.control.caller import Administering, Viewing
from forewarn.desk import server
from forewarn.desk.schemas import PauseRequest
from forewarn.desk.server import ServerStatusView, ServerView

router = APIRouter(prefix="/server", tags=["server"])


@router.get("")
def show_server(caller: Viewing) -> ServerStatusView:
    """Return the state of the server and its replicas."""
    return server.server_status(caller)


@router.post("/pause", name="pause")
def pause_server(caller: Administering, request: PauseRequest | None = None) -> ServerView:
    """Pause the server: it starts nothing until resumed, except what is starting at this moment."""
    return server.pause_server(caller, request.reason if request else "")


@router.post("/resume", name="resume")
def resume_server(caller: Administering) -> ServerView:
    """Resume the server; overdue work starts at once."""
    return server.resume_server(caller)
