"""The target of a webhook: where it is, what it says, and what is made of that."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final

import httpx2

from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName, is_name
from forewarn.executors.orders import LONGEST, Selection
from forewarn.outbound.client import OutboundRequest, Reply

_TRY_AGAIN: Final = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)
_STATUSES: Final = {
    "running": ImpactStatus.RUNNING,
    "done": ImpactStatus.DONE,
    "failed": ImpactStatus.FAILED,
}
_LONGEST_MESSAGE: Final = 200
_NONSENSE: Final = Impact(status=ImpactStatus.UNKNOWN, reason="the target sent an invalid answer")
_NO_HOST: Final = Impact(
    status=ImpactStatus.UNKNOWN, reason="the target reported an invalid host name"
)
_FORGOTTEN: Final = Impact(
    status=ImpactStatus.UNKNOWN, reason="the target accepted it, but no longer knows it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpactTarget:
    """Where to post, for which events, and how long the impact and each request may take."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret: str | None = field(default=None, repr=False)
    selection: Selection = field(default_factory=Selection)
    timeout: timedelta = LONGEST
    request_timeout: float = 10.0

    def has(self, url: str) -> bool:
        """Tell whether *url* is at the same place: nobody else gets our headers."""
        own, other = httpx2.URL(self.url), httpx2.URL(url)
        return (own.scheme, own.host, own.port) == (other.scheme, other.host, other.port)

    def join(self, location: str) -> str | None:
        """Return the address that *location* is, if it is at the same place."""
        try:
            url = str(httpx2.URL(self.url).join(location))
            return url if self.has(url) else None
        except (httpx2.InvalidURL, ValueError):  # the latter for http:////[
            return None

    def request(
        self, headers: Mapping[str, str], *, body: bytes = b"", url: str | None = None
    ) -> OutboundRequest:
        """Return the request that hands over an order as *body*, or asks at *url* how far it is."""
        kind = {"Content-Type": "application/json"} if body else {}
        return OutboundRequest(
            method="POST" if body else "GET",
            url=url or self.url,
            timeout=self.request_timeout,
            headers={"Accept": "application/json", **kind, **self.headers, **headers},
            body=body,
            secret=self.secret,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAnswer:
    """One answer, or with the *code* 0 none, and then *said* is why.

    *body* is what was said in JSON, if anything was; *status_url* is where to ask from now on.
    """

    code: int
    said: str
    body: str | None = None
    status_url: str | None = None
    retry_after: timedelta = timedelta(0)

    @property
    def is_success(self) -> bool:
        return HTTPStatus.OK <= self.code < HTTPStatus.MULTIPLE_CHOICES

    @property
    def is_worth_another_try(self) -> bool:
        is_down = self.code >= HTTPStatus.INTERNAL_SERVER_ERROR
        return self.code == 0 or is_down or self.code in _TRY_AGAIN


def read_answer(target: ImpactTarget, reply: Reply, now: datetime) -> TargetAnswer:
    """Return what *target* said."""
    location = reply.headers.get("Location")
    return TargetAnswer(
        code=reply.status,
        said=reply.said,
        body=reply.body if _is_json(reply) else None,
        status_url=target.join(location) if location else None,
        retry_after=reply.retry_after(now),
    )


def judge_order(answer: TargetAnswer, untold: str) -> Impact:
    """Say what is known after the target was told to begin.

    *untold* is the reason to give if the target names no place to ask.
    """
    if answer.is_success and answer.body is not None:
        return _read(answer.body)
    if answer.is_success:
        return Impact(status=ImpactStatus.RUNNING, reason="" if answer.status_url else untold)
    if answer.is_worth_another_try:
        reason = f"the target has not accepted it yet: {answer.said}"
        return Impact(status=ImpactStatus.UNKNOWN, reason=reason)
    return Impact(status=ImpactStatus.FAILED, reason=f"the target rejected it: {answer.said}")


def judge_status(answer: TargetAnswer) -> Impact:
    """Say what is known after the target, which took the order, was asked how far it is."""
    if answer.code in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
        return _FORGOTTEN
    if not answer.is_success:
        reason = f"the target did not report its status: {answer.said}"
        return Impact(status=ImpactStatus.UNKNOWN, reason=reason)
    return _NONSENSE if answer.body is None else _read(answer.body)


def _is_json(reply: Reply) -> bool:
    """Tell whether the body is said to be JSON, or is an object of it whatever is said."""
    if "json" in reply.headers.get("Content-Type", ""):
        return True
    try:
        return isinstance(json.loads(reply.body), dict)
    except (ValueError, RecursionError):
        return False


def _read(body: str) -> Impact:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return _NONSENSE
    if not isinstance(content, Mapping):
        return _NONSENSE
    said = content.get("status")
    if said == ImpactStatus.NOT_BEGUN:
        return _FORGOTTEN
    status = _STATUSES.get(said) if isinstance(said, str) else None
    if status is None:
        return _NONSENSE
    return _with_host(Impact(status=status, reason=_message(content)), content.get("host"))


def _with_host(impact: Impact, host: object) -> Impact:
    # What the order says of the host comes back from targets that repeat it: nothing moves then.
    if host is None or not impact.is_over:
        return impact
    if not isinstance(host, str) or not is_name(host):
        return _NO_HOST
    return replace(impact, moved_to=HostName(host))


def _message(content: Mapping[str, object]) -> str:
    message = content.get("message")
    if not isinstance(message, str):
        return ""
    return "".join(filter(str.isprintable, message)).strip()[:_LONGEST_MESSAGE]
