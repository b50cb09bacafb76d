"""The figures for Prometheus: without a token on the machine itself, with any token elsewhere."""

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from forewarn.control.authentication import METRICS_PATH
from forewarn.desk.services import Services

router = APIRouter(tags=["health"])


class _Exposition(Response):
    """What Prometheus reads."""

    media_type = CONTENT_TYPE_LATEST


@router.get(METRICS_PATH, response_class=_Exposition)
def show_metrics(request: Request) -> Response:
    """Return the figures of this server, in the text format of Prometheus."""
    services: Services = request.app.state.services
    return _Exposition(services.metrics())
