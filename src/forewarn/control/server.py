"""/server: the server itself, its replicas, and whether it begins anything."""

from fastapi import APIRouter

from forewarn.control.bodies import BodyRoute
from forewarn.control.caller import Administering, Viewing
from forewarn.desk import server
from forewarn.desk.schemas import PauseRequest, RequestModel, View
from forewarn.desk.server import ServerStatusView, ServerView
from forewarn.operations.tasks import forget_owner

router = APIRouter(prefix="/server", tags=["server"], route_class=BodyRoute)


@router.get("")
def show_server(caller: Viewing) -> ServerStatusView:
    """Return the state of the server and its replicas."""
    return server.server_status(caller)


@router.post("/pause", name="pause")
def pause_server(caller: Administering, request: PauseRequest | None = None) -> ServerView:
    """Pause the server: it starts nothing until resumed, except what is starting at this moment."""
    return server.pause_server(caller, request.reason if request else "")


class ForgetRequest(RequestModel):
    """The replica to forget."""

    name: str


class HandedOverView(View):
    """The replica that leads no more."""

    name: str


class ForgottenView(View):
    """The tasks of a forgotten replica that it may have begun, to be settled."""

    tasks: tuple[str, ...]


@router.post("/replicas/hand-over", name="replica hand-over")
def hand_over(caller: Administering) -> HandedOverView:
    """Let another replica lead; only the leader can hand over."""
    return HandedOverView(name=server.hand_over(caller))


@router.post("/replicas/forget", name="replica forget")
def forget(caller: Administering, request: ForgetRequest) -> ForgottenView:
    """Stop waiting for a replica whose machine is off for good; its tasks become unknown."""
    lost = caller.write(lambda tx, context: forget_owner(tx, context, request.name))
    return ForgottenView(tasks=tuple(task.task_id for task in lost))


@router.post("/resume", name="resume")
def resume_server(caller: Administering) -> ServerView:
    """Resume the server; overdue work starts at once."""
    return server.resume_server(caller)
