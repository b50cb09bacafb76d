"""How the server is: for load balancers and supervisors, who need no token, and for Prometheus.

On the event loop, except for the figures, so that they answer when every thread waits for the disk.
"""

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from forewarn.control.authentication import METRICS_PATH
from forewarn.desk.schemas import HealthView, ReadinessView
from forewarn.desk.services import Services
from forewarn.domain.access import Principal
from forewarn.domain.roles import Role

router = APIRouter(tags=["health"])
metrics = APIRouter(tags=["health"])
"""Without a token on the machine itself, with the token of any viewer elsewhere."""


@router.get("/healthz")
async def check_health() -> HealthView:
    """Respond as long as the process is alive."""
    return HealthView(status="ok")


@router.get(
    "/readyz", responses={503: {"model": ReadinessView, "description": "Polls are not served."}}
)
async def check_readiness(request: Request, response: Response) -> ReadinessView:
    """Report whether polls are served, and which loops of the server fail."""
    services: Services = request.app.state.services
    found = _answer(response, is_ready=services.is_ready(), otherwise="polls are not served")
    # A loop that fails does not make the server unready: machines are answered all the same.
    return ReadinessView(status=found.status, failing=services.failing())


@router.get(
    "/readyz/write", responses={503: {"model": HealthView, "description": "Writes are refused."}}
)
async def check_readiness_for_writes(request: Request, response: Response) -> HealthView:
    """Report whether the server accepts writes."""
    services: Services = request.app.state.services
    has_store, has_records = services.store.is_writable(), not services.records_problem()
    what = "state directory" if has_store else "store"
    otherwise = f"the {what} cannot be written"
    return _answer(response, is_ready=has_store and has_records, otherwise=otherwise)


class _Exposition(Response):
    """What Prometheus reads."""

    media_type = CONTENT_TYPE_LATEST


@metrics.get(METRICS_PATH, response_class=_Exposition)
def show_metrics(request: Request) -> Response:
    """Return the metrics of this server in Prometheus text format."""
    services: Services = request.app.state.services
    principal: Principal | None = getattr(request.state, "principal", None)
    if principal is not None:
        principal.require(Role.VIEWER)
    return _Exposition(services.metrics())


def _answer(response: Response, *, is_ready: bool, otherwise: str) -> HealthView:
    if not is_ready:
        response.status_code = 503
    return HealthView(status="ok" if is_ready else otherwise)
