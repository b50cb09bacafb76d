"""/notifications and /notification-targets: what people were told, and whether it arrived."""

import asyncio
from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from forewarn.control.bodies import BodyRoute
from forewarn.control.caller import Administering, Viewing
from forewarn.control.paging import Paged
from forewarn.control.routes import Key, lists
from forewarn.desk.notifications import try_target
from forewarn.desk.schemas import View
from forewarn.desk.shapes import fill, mirrors, several
from forewarn.domain.notification import Delivery, Notification, NotificationStatus, Target
from forewarn.operations.context import Context
from forewarn.operations.notifications import find_notifications, retry_notification
from forewarn.outbound.client import Daemons
from forewarn.ports.store import Transaction

router = APIRouter(tags=["notifications"], route_class=BodyRoute)


@mirrors(
    Notification,
    "notification_id event_id maintenance_id schedule phase target status attempts created_at "
    "maintenance_time next_attempt_at ended_at problem",
)
class NotificationView(View):
    """One message to one target, about an event, a Maintenance or a schedule."""


_NOTIFICATIONS: Final = several(
    "notifications", NotificationView, "Messages, in the order of their creation."
)


@mirrors(Target)
class TargetView(View):
    """A notification target and its phases, without its address, which is secret."""


class TargetsView(View):
    """Every target, in the order of the file."""

    targets: tuple[TargetView, ...]


@mirrors(Delivery, "target is_delivered answer")
class DeliveryView(View):
    """The result of one attempt."""

    target: str


@router.get("/notifications", **lists(_NOTIFICATIONS))
def list_notifications(
    caller: Viewing, status: NotificationStatus | None = None, *, paging: Paged
) -> Response:
    """Return the newest messages, optionally of one status; the next page has older ones."""
    found = caller.read(
        lambda reading: find_notifications(
            reading, status=status, older_than=paging.after, limit=paging.limit + 1
        )
    )
    return paging.answer(
        "notifications", found, NotificationView.model_validate, "notification_id", goes_back=True
    )


@router.post("/notifications/{notification_id}/retry", name="notification retry")
def retry(caller: Administering, key: Key, notification_id: str) -> NotificationView:
    """Retry a message whose delivery failed."""

    def operation(tx: Transaction, context: Context) -> NotificationView:
        again = retry_notification(tx, context, notification_id)
        return NotificationView.model_validate(again)

    return caller.write_once(key, NotificationView, operation)


@router.get("/notification-targets")
def list_targets(caller: Viewing) -> TargetsView:
    """Return the notification targets."""
    return TargetsView.model_validate({"targets": caller.targets()})


@router.post("/notification-targets/{name}/test", name="notification test")
async def test_target(caller: Administering, name: str) -> DeliveryView:
    """Send a test message to one target now, and return the result."""
    delivery = await asyncio.wrap_future(Daemons().submit(try_target, caller, name))
    return fill(DeliveryView, delivery, target=name)
