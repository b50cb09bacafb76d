"""Messages to people by mail, chat and whatever else apprise knows, if it is installed."""

import importlib
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Final

from forewarn.domain.notification import Delivery, Notification, Phase
from forewarn.notifications.messages import text_of, title_of
from forewarn.protocol.errors import ForewarnError

_KINDS: Final = {
    Phase.FINISHED: "success",
    Phase.FAILED: "failure",
    Phase.OVERDUE: "warning",
    Phase.STEP_FAILED: "failure",
    Phase.HELD: "failure",
    Phase.GATE_SHUT: "warning",
    Phase.PAUSED: "warning",
    Phase.ABORTED: "warning",
    Phase.SKIPPED: "warning",
}
_SHORTEST_SECRET: Final = 4


_SILENT: Final = logging.NullHandler()


class AppriseError(ForewarnError):
    """There is no apprise, or a URL that it does not know."""


class AppriseNotifier:
    """One URL of apprise. What it says of a failure is shown without anything from the URL."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._apprise: Any = _load().Apprise()
        if not self._apprise.add(url):
            raise AppriseError("Apprise does not support this URL.")

    def deliver(self, notification: Notification, *, now: datetime) -> Delivery:
        """Send it; all that apprise tells is whether that went well."""
        del now
        with _listening() as said:
            is_delivered = bool(
                self._apprise.notify(
                    title=title_of(notification),
                    body=text_of(notification),
                    notify_type=_KINDS.get(notification.phase, "info"),
                )
            )
        answer = (
            "Sent."
            if is_delivered
            else self._without_secrets(said.last or "The message was not sent.")
        )
        return Delivery(is_delivered=is_delivered, answer=answer)

    def _without_secrets(self, text: str) -> str:
        for part in re.split(r"[/:@?&=]+", self._url):
            if len(part) >= _SHORTEST_SECRET:
                text = text.replace(part, "***")
        return text


class _Said(logging.Handler):
    """Keeps the last warning of the delivery it is made for; others deliver to other targets."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        if _DELIVERY.get() is self:
            self.last = record.getMessage()[:500]


# There is one logger for all of apprise. A delivery is known by its context and not by its thread:
# apprise has threads of its own, which it gives the context of who asks.
_DELIVERY: Final[ContextVar[_Said | None]] = ContextVar("_DELIVERY", default=None)


@contextmanager
def _listening() -> Iterator[_Said]:
    said = _Said()
    logger = logging.getLogger("apprise")
    logger.addHandler(said)
    before = _DELIVERY.set(said)
    try:
        yield said
    finally:
        _DELIVERY.reset(before)
        logger.removeHandler(said)


def _load() -> Any:
    try:
        module = importlib.import_module("apprise")
    except ModuleNotFoundError:
        raise AppriseError(
            "Apprise is not installed; run: pip install 'forewarn[notify]'."
        ) from None
    # Its log lines can have the URL in them, and the URL has secrets.
    logger = logging.getLogger("apprise")
    logger.propagate = False
    logger.addHandler(_SILENT)
    return module
