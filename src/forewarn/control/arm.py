"""The route for tools that approve from outside: compatibility.md#azure-resource-manager.

Its path is matched in any case, its errors have ARM's envelope, and an api-version has to be given
and well-formed, whichever it is.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import FastAPI, Query
from fastapi.routing import APIRoute

from forewarn.control.caller import Operating
from forewarn.control.events import EventIdPath
from forewarn.control.fastapi_parts import ignore_case
from forewarn.control.problems import ApiVersionError, ResourceTypeError
from forewarn.desk.schemas import View
from forewarn.domain.topology import ScopeKind
from forewarn.operations.approvals import ArmResource, acknowledge

KINDS: Final[Mapping[str, ScopeKind]] = {
    "virtualmachines": ScopeKind.VIRTUAL_MACHINE,
    "virtualmachinescalesets": ScopeKind.SCALE_SET,
    "availabilitysets": ScopeKind.AVAILABILITY_SET,
}
"""The types of resources that have scheduled events, in lower case."""

ARM_PATH: Final = (
    "/subscriptions/{subscription_id}/resourcegroups/{resource_group}"
    "/providers/Microsoft.Compute/{resource_type}/{name}"
    "/providers/Microsoft.Maintenance/scheduledevents/{event_id}/acknowledge"
)
_API_VERSION: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:-preview)?")
_REFUSED: Final[dict[int | str, dict[str, Any]]] = {
    "4XX": {
        "description": "Refused; the body gives the reason.",
        "content": {"application/json": {"schema": {"type": "object", "required": ["error"]}}},
    }
}


class AcknowledgementView(View):
    """Confirmation, in Azure's words."""

    value: str = "Successfully approved scheduled event"


def add_arm_route(app: FastAPI) -> APIRoute:
    """Have *app* answer on the path of Azure Resource Manager, by the route that is returned."""
    app.add_api_route(
        ARM_PATH,
        acknowledge_scheduled_event,
        methods=["POST"],
        name="event approve",
        tags=["arm"],
        responses=_REFUSED,
    )
    routes = (route for route in app.routes if isinstance(route, APIRoute))
    (own,) = (route for route in routes if route.path == ARM_PATH)
    ignore_case(own)
    return own


def acknowledge_scheduled_event(
    caller: Operating,
    *,
    subscription_id: str,
    resource_group: str,
    resource_type: str,
    name: str,
    event_id: EventIdPath,
    api_version: Annotated[str | None, Query(alias="api-version")] = None,
) -> AcknowledgementView:
    """Approve an event, as its virtual machine could itself."""
    if api_version is None or _API_VERSION.fullmatch(api_version) is None:
        raise ApiVersionError(api_version)
    kind = KINDS.get(resource_type.lower())
    if kind is None:
        raise ResourceTypeError(resource_type)
    resource = ArmResource(
        kind=kind, name=name, subscription_id=subscription_id, resource_group=resource_group
    )
    caller.write(lambda tx, context: acknowledge(tx, context, resource, event_id))
    return AcknowledgementView()
