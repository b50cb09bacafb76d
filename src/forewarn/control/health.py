"""How the server is, for load balancers and supervisors; needs no token.

On the event loop, so that they answer when every thread waits for the disk.
"""

from typing import Any, Final

from fastapi import APIRouter, Request, Response

from forewarn.control.schemas import HealthView, ReadinessView
from forewarn.desk.services import Services

router = APIRouter(tags=["health"])

_OTHERWISE: Final[dict[int | str, dict[str, Any]]] = {
    503: {"model": HealthView, "description": "Not so."}
}


@router.get("/healthz")
async def check_health() -> HealthView:
    """Answer as long as the process can."""
    return HealthView(status="ok")


@router.get("/readyz", responses={503: {"model": ReadinessView, "description": "Not so."}})
async def check_readiness(request: Request, response: Response) -> ReadinessView:
    """Tell whether polls are served, and which loops of the server fail."""
    services: Services = request.app.state.services
    found = _answer(response, is_ready=services.is_ready(), otherwise="polls are not served")
    # A loop that fails does not make the server unready: machines are answered all the same.
    return ReadinessView(status=found.status, failing=services.failing())


@router.get("/readyz/write", responses=_OTHERWISE)
async def check_readiness_for_writes(request: Request, response: Response) -> HealthView:
    """Tell whether writes are taken."""
    services: Services = request.app.state.services
    return _answer(
        response, is_ready=services.store.is_writable(), otherwise="the store cannot be written"
    )


def _answer(response: Response, *, is_ready: bool, otherwise: str) -> HealthView:
    if not is_ready:
        response.status_code = 503
    return HealthView(status="ok" if is_ready else otherwise)
