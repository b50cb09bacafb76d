"""Requests over HTTP: bounded in time and size, signed, never redirected.

What is said of failures has no secrets in it.
"""

import asyncio
import hashlib
import hmac
import os
import socket
import ssl
from datetime import datetime
from typing import Final

import httpx2

import forewarn
from forewarn.outbound.client import NoAnswerError, OutboundRequest, Reply

SIGNATURE: Final = "Forewarn-Signature"
LARGEST_BODY: Final = 1_000_000
"""How many bytes of an answer are read; the rest is cut off."""


class HttpTransport:
    """The connections of one loop."""

    def __init__(self) -> None:
        self._client = httpx2.AsyncClient(
            # No proxies or credentials from the environment: only settings.py reads that.
            trust_env=False,
            follow_redirects=False,
            timeout=None,
            # A target that lets requests hang takes no connection from the others.
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
            headers={
                "User-Agent": f"forewarn/{forewarn.__version__}",
                # What is compressed can be a thousand times as long as what was read.
                "Accept-Encoding": "identity",
            },
        )

    async def send(self, request: OutboundRequest, *, now: datetime) -> Reply:
        """Return the answer to *request* as far as it came in time, or refuse."""
        late = f"No answer within {request.timeout:g} seconds."
        try:
            async with asyncio.timeout(request.timeout) as limit:
                answer = await self._client.send(self._build(request, now), stream=True)
        except TimeoutError:
            raise NoAnswerError(late) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise NoAnswerError(_failure(error)) from None
        content, trouble = bytearray(), ""
        try:
            async with asyncio.timeout_at(limit.when()):
                async for chunk in answer.aiter_raw():
                    content += chunk
                    if len(content) > LARGEST_BODY:
                        break
        except TimeoutError:
            trouble = late
        except (httpx2.HTTPError, OSError) as error:
            trouble = _failure(error)
        finally:
            await answer.aclose()
        return Reply(
            status=answer.status_code,
            said=f"{answer.status_code} {answer.reason_phrase}".strip(),
            headers=answer.headers,
            content=bytes(content[:LARGEST_BODY]),
            trouble=trouble,
        )

    async def close(self) -> None:
        """Drop the connections."""
        await self._client.aclose()

    def _build(self, request: OutboundRequest, now: datetime) -> httpx2.Request:
        headers = httpx2.Headers(dict(request.headers))
        if request.secret is not None:
            headers[SIGNATURE] = sign(request.secret, request.body, now)
        return self._client.build_request(
            request.method,
            request.url,
            params=dict(request.parameters) or None,
            content=request.body or None,
            headers=headers,
        )


def sign(secret: str, body: bytes, now: datetime) -> str:
    """Return the value of the header that proves who sent *body*, and when."""
    moment = str(int(now.timestamp()))
    signed = hmac.new(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256)
    return f"t={moment},v1={signed.hexdigest()}"


def _failure(error: Exception) -> str:
    """Return why a request failed, without what could be secret: our headers and the address."""
    return f"The request failed: {_reason(error).rstrip('.')}."


def _reason(error: Exception) -> str:
    if isinstance(error, httpx2.LocalProtocolError | httpx2.InvalidURL):
        # What it says has our own headers or the address in it.
        return type(error).__name__
    bottom: BaseException = error
    while below := bottom.__cause__ or bottom.__context__:
        bottom = below
    # Errors of TLS and of lookups have numbers of their own.
    if isinstance(bottom, OSError) and not isinstance(bottom, ssl.SSLError | socket.gaierror):
        return os.strerror(bottom.errno) if bottom.errno else str(error)
    return str(error) or type(error).__name__
