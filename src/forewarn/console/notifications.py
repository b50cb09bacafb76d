"""/notifications: what people were told, and what did not arrive."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from forewarn.console.visit import (
    ActionRoute,
    ConsoleRoute,
    Done,
    FormError,
    Fragment,
    Page,
    PageRoute,
    Visit,
)
from forewarn.desk.notifications import try_target
from forewarn.domain.notification import Notification, NotificationStatus
from forewarn.domain.roles import Role
from forewarn.operations.notifications import find_notifications, retry_notification
from forewarn.ports.store import Reading

PAGE_LENGTH: Final = 50
_FAILED_SHOWN: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """Some messages, the newest first, and whether there are more."""

    lines: tuple[Notification, ...]
    has_more: bool


def show_notifications(visit: Visit) -> Page:
    """Show what did not arrive, who is told what, and the messages of each status."""
    query = visit.query
    status = _status(query.text("status"))
    older_than = query.text("older_than") or None
    is_first = status is None and older_than is None
    failing = NotificationStatus.FAILED

    def look(reading: Reading) -> tuple[Messages, Messages]:
        found = _find(reading, status, older_than, PAGE_LENGTH)
        return found, _find(reading, failing, None, _FAILED_SHOWN) if is_first else found

    messages, failed = visit.read(look)
    older = {"status": status or "", "older_than": ""}
    if messages.has_more:
        older["older_than"] = messages.lines[-1].notification_id
    return Page(
        title="Notifications",
        template="notifications.html",
        values={
            "targets": visit.caller.targets(),
            "messages": messages,
            "failed": failed,
            "is_first": is_first,
            "status": status,
            "statuses": tuple(NotificationStatus),
            "older": f"/notifications?{urlencode(older)}" if messages.has_more else "",
        },
    )


def retry(visit: Visit) -> Done:
    """Have a message that was given up tried again."""
    notification_id = visit.path_values["notification_id"]
    again = visit.caller.write(lambda tx, context: retry_notification(tx, context, notification_id))
    return Done(message=f"Sending the message to {again.target} again.")


def send_test(visit: Visit) -> Done | Fragment:
    """Send an example to one target, and say what came of it."""
    name = visit.path_values["name"]
    delivery = try_target(visit.caller, name)
    if not delivery.is_delivered:
        detail = f"The test message to {name} was not delivered: {delivery.answer}"
        return Fragment(template="refusal.html", values={"detail": detail})
    return Done(message=f"The test message to {name} was delivered: {delivery.answer}")


def _find(
    reading: Reading, status: NotificationStatus | None, older_than: str | None, most: int
) -> Messages:
    found = find_notifications(reading, status=status, older_than=older_than, limit=most + 1)
    return Messages(lines=found[::-1][:most], has_more=len(found) > most)


def _status(text: str) -> NotificationStatus | None:
    try:
        return NotificationStatus(text) if text else None
    except ValueError:
        choices = ", ".join(NotificationStatus)
        raise FormError(f"Status: choose one of {choices}.") from None


ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    PageRoute(path="/notifications", show=show_notifications),
    ActionRoute(
        path="/notifications/{notification_id}/retry",
        act=retry,
        role=Role.ADMIN,
        name="notification retry",
        subject="notification_id",
    ),
    ActionRoute(
        path="/notification-targets/{name}/test",
        act=send_test,
        role=Role.ADMIN,
        name="notification test",
        subject="name",
        is_slow=True,
    ),
)
