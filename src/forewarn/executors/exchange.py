"""One request to the target of a webhook, and its answer: signed, bounded, never redirected."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import httpx2

import forewarn
from forewarn.domain.webhook import SIGNATURE, retry_after, sign
from forewarn.executors.answers import Answer
from forewarn.executors.orders import LONGEST, Selection

_LARGEST_BODY: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
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


class Exchange:
    """Connections to targets, to be used from several threads."""

    def __init__(self) -> None:
        self._client = httpx2.Client(
            # No proxies or credentials from the environment: only settings.py reads that.
            trust_env=False,
            follow_redirects=False,
            headers={
                "User-Agent": f"forewarn/{forewarn.__version__}",
                "Accept": "application/json",
                "Accept-Encoding": "identity",
            },
        )

    def post(
        self, target: Target, body: bytes, headers: Mapping[str, str], now: datetime
    ) -> Answer:
        """Hand an order over."""
        kind = {"Content-Type": "application/json"}
        request = self._client.build_request(
            "POST",
            target.url,
            content=body,
            headers={**kind, **_headers(target, body, headers, now)},
            timeout=target.request_timeout,
        )
        return self._send(target, request, now)

    def get(self, target: Target, url: str, headers: Mapping[str, str], now: datetime) -> Answer:
        """Ask how far it is."""
        request = self._client.build_request(
            "GET",
            url,
            headers=_headers(target, b"", headers, now),
            timeout=target.request_timeout,
        )
        return self._send(target, request, now)

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def _send(self, target: Target, request: httpx2.Request, now: datetime) -> Answer:
        try:
            answer = self._client.send(request, stream=True)
            try:
                body = _read(answer, target.request_timeout)
            finally:
                answer.close()
        except httpx2.TimeoutException:
            return Answer(code=0, said="it does not answer in time")
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            return Answer(code=0, said=f"there is no way to it: {error}")
        return Answer(
            code=answer.status_code,
            said=f"{answer.status_code} {answer.reason_phrase}".strip(),
            body=body if "json" in answer.headers.get("Content-Type", "") else None,
            status_url=_status_url(target, answer),
            retry_after=retry_after(answer.headers.get("Retry-After", ""), now),
        )


def _headers(
    target: Target, body: bytes, headers: Mapping[str, str], now: datetime
) -> dict[str, str]:
    signature = {} if target.secret is None else {SIGNATURE: sign(target.secret, body, now)}
    return {**target.headers, **headers, **signature}


def _read(answer: httpx2.Response, seconds: float) -> bytes:
    """Return the body; one that is too long or too slow is cut, and then makes no sense."""
    body, deadline = b"", time.monotonic() + seconds
    for chunk in answer.iter_raw():
        body += chunk
        if len(body) > _LARGEST_BODY or time.monotonic() > deadline:
            break
    return body[:_LARGEST_BODY]


def _status_url(target: Target, answer: httpx2.Response) -> str | None:
    location = answer.headers.get("Location")
    if not location:
        return None
    try:
        url = str(httpx2.URL(target.url).join(location))
        return url if target.has(url) else None
    except httpx2.InvalidURL:
        return None
