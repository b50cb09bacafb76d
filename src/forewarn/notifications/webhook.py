"""Messages as HTTP requests: signed, with a name of their own, and never redirected."""

import asyncio
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, Final

import httpx2
from jinja2 import StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

import forewarn
from forewarn.domain.notification import Delivery, Notification
from forewarn.domain.webhook import SIGNATURE, retry_after, sign
from forewarn.notifications.messages import cloud_event, text_of, title_of
from forewarn.outbound.loops import new_loop
from forewarn.protocol.errors import ForewarnError

WEBHOOK_ID: Final = "Webhook-Id"

_MOST_CHUNKS: Final = 16

Body = Callable[[Notification], bytes]


class TemplateFailedError(ForewarnError):
    """A template that is none, or that cannot write a message."""


class WebhookNotifier:
    """A URL that messages are posted to, one at a time. One connection is kept between them."""

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
        self._timeout = timeout
        # A loop of its own: only there can a time-out be one for all of an attempt.
        self._runner = asyncio.Runner(loop_factory=new_loop)
        self._turn = threading.Lock()
        self._client = httpx2.AsyncClient(
            # No proxies or credentials from the environment: only settings.py reads that.
            trust_env=False,
            follow_redirects=False,
            timeout=None,
            headers={"User-Agent": f"forewarn/{forewarn.__version__}", **headers},
        )

    def deliver(self, notification: Notification, *, now: datetime) -> Delivery:
        """Post it: 2xx is delivered, 410 is final, everything else is tried again."""
        try:
            body = self._body(notification)
        except TemplateFailedError as error:
            # The message will not change, nor the template while the server runs.
            problem = f"The template fails: {error}."
            return Delivery(is_delivered=False, answer=problem, is_final=True)
        headers = {WEBHOOK_ID: notification.notification_id}
        if self._secret is not None:
            headers[SIGNATURE] = sign(self._secret, body, now)
        try:
            with self._turn:
                answer = self._runner.run(self._post(body, headers))
        except (TimeoutError, httpx2.TimeoutException):
            return Delivery(is_delivered=False, answer="The receiver does not answer in time.")
        except (httpx2.HTTPError, OSError) as error:
            problem = f"The request failed: {_reason(error)}."
            return Delivery(is_delivered=False, answer=problem)
        return _read(answer, now)

    def close(self) -> None:
        """Let go of the connection."""
        with self._turn, self._runner:
            self._runner.run(self._client.aclose())

    async def _post(self, body: bytes, headers: Mapping[str, str]) -> httpx2.Response:
        request = self._client.build_request("POST", self._url, content=body, headers=headers)
        async with asyncio.timeout(self._timeout) as limit:
            answer = await self._client.send(request, stream=True)
        await _drain(answer, limit.when())
        return answer


def cloud_event_body(source: str) -> Body:
    """Return how messages are written without a template."""

    def write(notification: Notification) -> bytes:
        return _encode(cloud_event(notification, source))

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


def _encode(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


async def _drain(answer: httpx2.Response, deadline: float | None) -> None:
    """Read a body of usual size, so that the connection can be used again; all others are cut."""
    try:
        with suppress(httpx2.HTTPError, TimeoutError):
            async with asyncio.timeout_at(deadline):
                number = 0
                async for _ in answer.aiter_raw():
                    number += 1
                    if number == _MOST_CHUNKS:
                        break
    finally:
        await answer.aclose()


def _reason(error: Exception) -> str:
    """Return what is at the bottom of *error*, without the secrets and the address in it."""
    if isinstance(error, httpx2.LocalProtocolError):
        # What it says has our own headers in it.
        return type(error).__name__
    bottom: BaseException = error
    while below := bottom.__cause__ or bottom.__context__:
        bottom = below
    if isinstance(bottom, ConnectionError) and bottom.errno is not None:
        return os.strerror(bottom.errno)
    return str(error)


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
