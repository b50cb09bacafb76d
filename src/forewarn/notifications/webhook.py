"""Messages as HTTP requests: signed, with a name of their own, and never redirected."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import httpx2
from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import SandboxedEnvironment

import forewarn
from forewarn.domain.notification import Delivery, Notification
from forewarn.domain.webhook import SIGNATURE, retry_after, sign
from forewarn.notifications.messages import cloud_event, text_of, title_of

WEBHOOK_ID: Final = "Webhook-Id"

_MOST_CHUNKS: Final = 16

Body = Callable[[Notification], bytes]


class WebhookNotifier:
    """A URL that messages are posted to. One connection is kept between them."""

    def __init__(
        self,
        *,
        url: str,
        body: Body,
        headers: Mapping[str, str],
        secret: str | None = None,
        timeout: float = 10,
    ) -> None:
        self._url = url
        self._body = body
        self._secret = secret
        self._client = httpx2.Client(
            # No proxies or credentials from the environment: only settings.py reads that.
            trust_env=False,
            follow_redirects=False,
            timeout=timeout,
            headers={"User-Agent": f"forewarn/{forewarn.__version__}", **headers},
        )

    def deliver(self, notification: Notification, *, now: datetime) -> Delivery:
        """Post it: 2xx is delivered, 410 is final, everything else is tried again."""
        try:
            body = self._body(notification)
        except TemplateError as error:
            return Delivery(is_delivered=False, answer=f"The template fails: {error}.")
        headers = {WEBHOOK_ID: notification.notification_id}
        if self._secret is not None:
            headers[SIGNATURE] = sign(self._secret, body, now)
        try:
            with self._client.stream("POST", self._url, content=body, headers=headers) as answer:
                _drain(answer)
                return _read(answer, now)
        except httpx2.TimeoutException:
            return Delivery(is_delivered=False, answer="The receiver does not answer in time.")
        except (httpx2.HTTPError, OSError) as error:
            return Delivery(is_delivered=False, answer=f"There is no way to it: {error}.")

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()


def cloud_event_body(source: str) -> Body:
    """Return how messages are written without a template."""

    def write(notification: Notification) -> bytes:
        return _encode(cloud_event(notification, source))

    return write


def template_body(template: str, source: str) -> Body:
    """Return how messages are written by *template*; refuses with a TemplateError."""
    compiled = _TEMPLATES.from_string(template)

    def write(notification: Notification) -> bytes:
        known = cloud_event(notification, source)
        people = {"title": title_of(notification), "text": text_of(notification)}
        return compiled.render(**known, **people).encode()

    return write


# What an operator writes there can neither reach into the process nor misspell a name unnoticed.
_TEMPLATES: Final = SandboxedEnvironment(undefined=StrictUndefined, autoescape=False)


def _encode(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _drain(answer: httpx2.Response) -> None:
    """Read a body of usual size, so that the connection can be used again; all others are cut."""
    with suppress(httpx2.HTTPError):
        for number, _ in enumerate(answer.iter_raw()):
            if number == _MOST_CHUNKS:
                break


def _read(answer: httpx2.Response, now: datetime) -> Delivery:
    said = f"{answer.status_code} {answer.reason_phrase}".strip()
    if answer.is_success:
        return Delivery(is_delivered=True, answer=said)
    if answer.status_code == httpx2.codes.GONE:
        return Delivery(is_delivered=False, answer=f"The receiver is gone: {said}.", is_final=True)
    return Delivery(
        is_delivered=False,
        answer=f"The receiver answers {said}.",
        retry_after=retry_after(answer.headers.get("Retry-After", ""), now),
    )
