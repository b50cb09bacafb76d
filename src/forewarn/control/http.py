"""uvicorn for operators, with the same guards as for virtual machines."""

import asyncio
import ssl
from math import ceil

import uvicorn
from starlette.types import ASGIApp

from forewarn.connections.crowd import Crowd
from forewarn.connections.guarded import GuardedProtocol
from forewarn.connections.handshakes import HandshakeProtocol, SecuredProtocol
from forewarn.connections.limits import Limits, operator_limits


def configure(
    app: ASGIApp,
    *,
    tls: ssl.SSLContext | None = None,
    limits: Limits | None = None,
) -> uvicorn.Config:
    """Return how uvicorn serves *app*; over TLS if *tls* says with which certificate."""
    kept = limits or operator_limits()
    return uvicorn.Config(
        app,
        http=_make_protocol(kept, tls),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        # Where a caller comes from is where the connection comes from, whatever its headers claim.
        proxy_headers=False,
        timeout_keep_alive=kept.idle_seconds,
        timeout_graceful_shutdown=ceil(kept.grace_seconds),
    )


def _make_protocol(limits: Limits, tls: ssl.SSLContext | None) -> type[asyncio.Protocol]:
    members = {"limits": limits, "crowd": Crowd(limits)}
    if tls is None:
        return type("OperatorProtocol", (GuardedProtocol,), members)
    secured = type("OperatorProtocol", (SecuredProtocol,), {**members, "tls": tls})
    return type("OperatorHandshake", (HandshakeProtocol,), {"secured": secured})
