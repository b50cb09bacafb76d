"""One request to the target of a webhook, and its answer: signed, bounded, never redirected."""

import asyncio
import json
import threading
from collections.abc import Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import httpx2

import forewarn
from forewarn.domain.webhook import SIGNATURE, retry_after, sign
from forewarn.executors.answers import TargetAnswer
from forewarn.executors.orders import LONGEST, Selection
from forewarn.outbound.loops import new_loop

_LARGEST_BODY: Final = 65_536


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


class Exchange:
    """Connections to targets, to be used from several threads, which wait while a loop works."""

    def __init__(self) -> None:
        self._loop = new_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="webhook-exchange", daemon=True
        )
        self._thread.start()
        self._client = httpx2.AsyncClient(
            # No proxies or credentials from the environment: only settings.py reads that.
            trust_env=False,
            follow_redirects=False,
            timeout=None,
            headers={
                "User-Agent": f"forewarn/{forewarn.__version__}",
                "Accept": "application/json",
                "Accept-Encoding": "identity",
            },
        )

    def post(
        self, target: ImpactTarget, body: bytes, headers: Mapping[str, str], now: datetime
    ) -> TargetAnswer:
        """Hand an order over."""
        kind = {"Content-Type": "application/json"}
        request = self._client.build_request(
            "POST",
            target.url,
            content=body,
            headers={**kind, **_headers(target, body, headers, now)},
        )
        return self._send(target, request, now)

    def get(
        self, target: ImpactTarget, url: str, headers: Mapping[str, str], now: datetime
    ) -> TargetAnswer:
        """Ask how far it is."""
        known = _headers(target, b"", headers, now)
        request = self._client.build_request("GET", url, headers=known)
        return self._send(target, request, now)

    def close(self) -> None:
        """Let go of the connections, and of whoever waits for an answer."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _send(self, target: ImpactTarget, request: httpx2.Request, now: datetime) -> TargetAnswer:
        exchange = self._exchange(request, target.request_timeout)
        try:
            answer, body = asyncio.run_coroutine_threadsafe(exchange, self._loop).result()
        except TimeoutError:
            return TargetAnswer(code=0, said="it does not answer in time")
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, CancelledError) as error:
            return TargetAnswer(code=0, said=f"the request failed: {error}")
        # As UTF-8, whatever the header says.
        text = body.decode("utf-8-sig", errors="replace")
        return TargetAnswer(
            code=answer.status_code,
            said=f"{answer.status_code} {answer.reason_phrase}".strip(),
            body=text if _is_json(answer, text) else None,
            status_url=_status_url(target, answer),
            retry_after=retry_after(answer.headers.get("Retry-After", ""), now),
        )

    async def _exchange(
        self, request: httpx2.Request, seconds: float
    ) -> tuple[httpx2.Response, bytes]:
        async with asyncio.timeout(seconds) as limit:
            answer = await self._client.send(request, stream=True)
        try:
            return answer, await _read(answer, limit.when())
        finally:
            await answer.aclose()

    async def _end(self) -> None:
        waiting = asyncio.all_tasks() - {asyncio.current_task()}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await self._client.aclose()


def _headers(
    target: ImpactTarget, body: bytes, headers: Mapping[str, str], now: datetime
) -> dict[str, str]:
    signature = {} if target.secret is None else {SIGNATURE: sign(target.secret, body, now)}
    return {**target.headers, **headers, **signature}


async def _read(answer: httpx2.Response, deadline: float | None) -> bytes:
    """Return the body; one that is too long or too slow is cut, and then makes no sense."""
    body = b""
    with suppress(TimeoutError):
        async with asyncio.timeout_at(deadline):
            async for chunk in answer.aiter_raw():
                body += chunk
                if len(body) > _LARGEST_BODY:
                    break
    return body[:_LARGEST_BODY]


def _is_json(answer: httpx2.Response, body: str) -> bool:
    """Tell whether *body* is said to be JSON, or is an object of it, whatever it is said to be."""
    if "json" in answer.headers.get("Content-Type", ""):
        return True
    try:
        return isinstance(json.loads(body), dict)
    except (ValueError, RecursionError):
        return False


def _status_url(target: ImpactTarget, answer: httpx2.Response) -> str | None:
    location = answer.headers.get("Location")
    if not location:
        return None
    try:
        url = str(httpx2.URL(target.url).join(location))
        return url if target.has(url) else None
    except httpx2.InvalidURL:
        return None
