"""One HTTP request with a deadline for all of it, however slowly the other side speaks."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import httpx2

import forewarn
from forewarn.outbound.loops import new_loop
from forewarn.protocol.errors import ForewarnError

_LARGEST_BODY: Final = 1_000_000


class NoAnswerError(ForewarnError):
    """There was no answer, or none in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRequest:
    """What is sent, and how long the answer may take."""

    method: str
    url: str = field(repr=False)
    timeout: timedelta
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    parameters: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back; a body is cut where it is too long."""

    status: int
    said: str
    content: bytes

    @property
    def body(self) -> str:
        """The content as UTF-8, whatever the header says; what is not has replacements."""
        return self.content.decode("utf-8-sig", errors="replace")

    @property
    def is_success(self) -> bool:
        """Whether the status says that all is well."""
        return 200 <= self.status < 300


def send(request: GateRequest) -> Reply:
    """Send *request* and wait for all of the answer. It follows nobody elsewhere."""
    try:
        # A loop of its own: only there can a time-out be one for all of it.
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(_send(request))
    except TimeoutError:
        seconds = request.timeout.total_seconds()
        raise NoAnswerError(f"No answer within {seconds:g} seconds.") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise NoAnswerError(f"The request failed: {_reason(error)}.") from None


def _reason(error: BaseException) -> str:
    """Return what was at the bottom of it; those above only say that something was."""
    while below := error.__cause__ or error.__context__:
        error = below
    return str(error) or type(error).__name__


async def _send(request: GateRequest) -> Reply:
    async with (
        asyncio.timeout(request.timeout.total_seconds()),
        # No proxies or credentials from the environment: only settings.py reads that.
        httpx2.AsyncClient(trust_env=False, follow_redirects=False, timeout=None) as client,
        client.stream(
            request.method,
            request.url,
            params=dict(request.parameters) or None,
            content=request.body,
            headers={"User-Agent": f"forewarn/{forewarn.__version__}", **request.headers},
        ) as answer,
    ):
        body = b""
        async for chunk in answer.aiter_bytes():
            body += chunk
            if len(body) > _LARGEST_BODY:
                break
        return Reply(
            status=answer.status_code,
            said=f"{answer.status_code} {answer.reason_phrase}".strip(),
            content=body[:_LARGEST_BODY],
        )
