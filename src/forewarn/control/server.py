"""/server: the server itself, its replicas, and whether it begins anything."""

from fastapi import APIRouter

from forewarn.control.caller import Administering, Viewing
from forewarn.desk import server
from forewarn.desk.schemas import PauseRequest
from forewarn.desk.server import ServerStatusView, ServerView

router = APIRouter(prefix="/server", tags=["server"])


@router.get("")
def show_server(caller: Viewing) -> ServerStatusView:
    """Return how the server and its replicas are."""
    return server.server_status(caller)


@router.post("/pause", name="pause")
def pause_server(caller: Administering, request: PauseRequest | None = None) -> ServerView:
    """Begin nothing until resumed. What begins at this moment, on any replica, still does."""
    return server.pause_server(caller, request.reason if request else "")


@router.post("/resume", name="resume")
def resume_server(caller: Administering) -> ServerView:
    """Continue, with all that fell due in the meantime."""
    return server.resume_server(caller)
