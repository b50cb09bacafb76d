"""Messages as HTTP requests: signed, with a name of their own, and never redirected."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
from typing import Final

from jinja2 import StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

from forewarn.domain.notification import Delivery, Notification
from forewarn.notifications.messages import cloud_event, text_of, title_of
from forewarn.outbound.client import NoAnswerError, Outbound, OutboundRequest, Reply
from forewarn.protocol.errors import ForewarnError

WEBHOOK_ID: Final = "Webhook-Id"

Body = Callable[[Notification], bytes]


class TemplateFailedError(ForewarnError):
    """A template that is none, or that cannot write a message."""


class WebhookNotifier:
    """Posts messages as *request* says, each with the *body* that is written for it."""

    def __init__(self, outbound: Outbound, request: OutboundRequest, body: Body) -> None:
        self._outbound = outbound
        self._request = request
        self._body = body

    def deliver(self, notification: Notification, *, now: datetime) -> Delivery:
        """Post it: 2xx is delivered, 410 is final, everything else is tried again."""
        try:
            body = self._body(notification)
        except TemplateFailedError as error:
            # The message will not change, nor the template while the server runs.
            problem = f"The template failed: {error}."
            return Delivery(is_delivered=False, answer=problem, is_final=True)
        headers = {**self._request.headers, WEBHOOK_ID: notification.notification_id}
        request = replace(self._request, headers=headers, body=body)
        try:
            return _read(self._outbound.ask(request, now=now), now)
        except NoAnswerError as error:
            return Delivery(is_delivered=False, answer=str(error))


def cloud_event_body(source: str) -> Body:
    """Return how messages are written without a template."""

    def write(notification: Notification) -> bytes:
        content = cloud_event(notification, source)
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()

    return write


def template_body(template: str, source: str) -> Body:
    """Return how messages are written by *template*; both refuse with a TemplateFailedError."""
    with _failing():
        compiled = _TEMPLATES.from_string(template)

    def write(notification: Notification) -> bytes:
        known = cloud_event(notification, source)
        people = {"title": title_of(notification), "text": text_of(notification)}
        with _failing():
            return compiled.render(**known, **people).encode()

    return write


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # A template is a program: it can raise whatever a program can.
        raise TemplateFailedError(str(error).rstrip(".") or type(error).__name__) from error


# What an operator writes there can neither reach into the process nor misspell a name unnoticed.
_TEMPLATES: Final = SandboxedEnvironment(undefined=StrictUndefined, autoescape=False)


def _read(reply: Reply, now: datetime) -> Delivery:
    if reply.is_success:
        return Delivery(is_delivered=True, answer=reply.said)
    if reply.status == HTTPStatus.GONE:
        problem = f"The receiver no longer exists: {reply.said}."
        return Delivery(is_delivered=False, answer=problem, is_final=True)
    return Delivery(
        is_delivered=False,
        answer=f"The receiver answered {reply.said}.",
        retry_after=reply.retry_after(now),
    )
