"""/notifications and /notification-targets: what people were told, and whether it arrived."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from operator import attrgetter
from typing import TypeVar

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from forewarn.control.caller import Administering, Viewing
from forewarn.control.paging import LINKED, Paged
from forewarn.control.routes import Key
from forewarn.desk.schemas import View
from forewarn.desk.shapes import fill, mirrors
from forewarn.domain.notification import Delivery, Notification, NotificationStatus, Target
from forewarn.operations.context import Context
from forewarn.operations.notifications import find_notifications, prepare_test, retry_notification
from forewarn.ports.store import Transaction

router = APIRouter(tags=["notifications"])

T = TypeVar("T")


@mirrors(
    Notification,
    "notification_id event_id maintenance_id schedule phase target status attempts created_at "
    "maintenance_time next_attempt_at ended_at problem",
)
class NotificationView(View):
    """One message to one target, about an event, a Maintenance or a schedule."""


class NotificationsView(View):
    """Several messages, in the order they were written."""

    notifications: tuple[NotificationView, ...]


@mirrors(Target)
class TargetView(View):
    """Somebody who wants to know, and of what; how they are reached is a secret."""


class TargetsView(View):
    """Every target, in the order of the file."""

    targets: tuple[TargetView, ...]


@mirrors(Delivery, "target is_delivered answer")
class DeliveryView(View):
    """What came of one attempt."""

    target: str


@router.get("/notifications", response_model=NotificationsView, responses=LINKED)
def list_notifications(
    caller: Viewing, status: NotificationStatus | None = None, *, paging: Paged
) -> Response:
    """Return the newest messages of any status, or of the one given; the next page is older."""
    found = caller.read(
        lambda reading: find_notifications(
            reading, status=status, older_than=paging.after, limit=paging.limit + 1
        )
    )
    cursor = attrgetter("notification_id")
    return paging.newest("notifications", found, NotificationView.model_validate, cursor)


@router.post("/notifications/{notification_id}/retry", name="notification retry")
def retry(caller: Administering, key: Key, notification_id: str) -> NotificationView:
    """Retry a message that was given up."""

    def operation(tx: Transaction, context: Context) -> NotificationView:
        again = retry_notification(tx, context, notification_id)
        return NotificationView.model_validate(again)

    return caller.write_once(key, NotificationView, operation)


@router.get("/notification-targets")
def list_targets(caller: Viewing) -> TargetsView:
    """Return who is told what."""
    return TargetsView.model_validate({"targets": caller.targets()})


@router.post("/notification-targets/{name}/test", name="notification test")
async def test_target(caller: Administering, name: str) -> DeliveryView:
    """Send an example to one target at once, and return what came of it."""
    with caller.services.slow_verbs.place():
        example = await run_in_threadpool(
            caller.write, lambda tx, context: prepare_test(tx, context, name)
        )
        notifier = caller.services.notifiers[example.target]
        at = caller.context().at
        delivery = await _left_behind(lambda: notifier.deliver(example, now=at))
    return fill(DeliveryView, delivery, target=example.target)


async def _left_behind(work: Callable[[], T]) -> T:
    """Return what *work* returns; it is left behind if the server ends before.

    The threads of the pool are no daemons: the process would wait for them.
    """
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except Exception as error:  # noqa: BLE001 - it is raised again where it is waited for
            done.set_exception(error)

    # From here on it cannot be canceled, only left alone.
    done.set_running_or_notify_cancel()
    threading.Thread(target=run, name="notification-test", daemon=True).start()
    return await asyncio.wrap_future(done)
