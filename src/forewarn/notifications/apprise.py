"""Messages to people by mail, chat and whatever else apprise knows, if it is installed."""

import importlib
import logging
import re
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
    Phase.STUCK: "failure",
    Phase.GATE_SHUT: "warning",
    Phase.PAUSED: "warning",
    Phase.ABORTED: "warning",
    Phase.SKIPPED: "warning",
}
_SHORTEST_SECRET: Final = 4
_LONGEST_ANSWER: Final = 500
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
        """Send it, and tell what apprise said last if that failed."""
        del now
        result = self._apprise.notify(
            title=title_of(notification),
            body=text_of(notification),
            notify_type=_KINDS.get(notification.phase, "info"),
        )
        return Delivery(is_delivered=bool(result), answer=self._answer(result))

    def _answer(self, result: Any) -> str:
        if result:
            return "Sent."
        *_, last = ("The message was not sent.", *(entry.message for entry in result.logs()))
        return self._without_secrets(last)[:_LONGEST_ANSWER]

    def _without_secrets(self, text: str) -> str:
        for part in re.split(r"[/:@?&=]+", self._url):
            if len(part) >= _SHORTEST_SECRET:
                text = text.replace(part, "***")
        return text


def _load() -> Any:
    try:
        module = importlib.import_module("apprise")
    except ModuleNotFoundError:
        module = None
    if not hasattr(module, "AppriseResult"):
        raise AppriseError(
            "Apprise 2 or later is not installed; run: pip install 'forewarn[notify]'."
        )
    # Its log lines say why a message failed, whatever the level of our own log. They can have
    # the URL in them, and the URL has secrets.
    logger = logging.getLogger("apprise")
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    logger.addHandler(_SILENT)
    return module
