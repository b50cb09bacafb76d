"""uvicorn for operators, with the same guards as for virtual machines."""

from pathlib import Path
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from forewarn.connections.crowd import Crowd
from forewarn.connections.guarded import GuardedProtocol
from forewarn.connections.limits import Limits, operator_limits

_GRACE_SECONDS: Final = 5


def configure(
    app: ASGIApp,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    limits: Limits | None = None,
) -> uvicorn.Config:
    """Return how uvicorn serves *app*; over TLS if there are *certificate* and *key*."""
    kept = limits or operator_limits()
    return uvicorn.Config(
        app,
        http=type("OperatorProtocol", (GuardedProtocol,), {"limits": kept, "crowd": Crowd(kept)}),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        # Where a caller comes from is where the connection comes from, whatever its headers claim.
        proxy_headers=False,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        timeout_keep_alive=kept.idle_seconds,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
