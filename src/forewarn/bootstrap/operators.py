"""The server that answers operators."""

import secrets
import socket
from collections.abc import Callable, Iterable
from typing import Final

import uvicorn

from forewarn.bootstrap.clock_control import clock_control
from forewarn.bootstrap.service import Service
from forewarn.bootstrap.starting import ADMIN
from forewarn.control.app import create_app
from forewarn.control.feed import Feed
from forewarn.control.services import Services
from forewarn.emulator.builtin import built_in_scenarios

_GRACE_SECONDS: Final = 5


class ControlServer(uvicorn.Server):
    """uvicorn on open sockets, leaving the signals to whoever runs the event loop."""

    def __init__(
        self, config: uvicorn.Config, listeners: Iterable[socket.socket], feed: Feed
    ) -> None:
        super().__init__(config)
        self._listeners = list(listeners)
        self._feed = feed

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until told to stop."""
        await self._serve(sockets or self._listeners)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let everything finish, and end what would not by itself."""
        self._feed.stop()
        await super().shutdown(sockets)


def control_server(
    service: Service, listeners: Iterable[socket.socket], *, is_ready: Callable[[], bool]
) -> ControlServer:
    """Return the server of the control API of *service* on *listeners*."""

    def authenticate(token: str) -> str | None:
        is_admin = secrets.compare_digest(token.encode(), service.token.encode())
        return ADMIN if is_admin else None

    feed = Feed(service.store)
    service.store.listen(feed.note)
    services = Services(
        store=service.store,
        context=service.context,
        clock=clock_control(service.clock, service.store, service.scheduler),
        faults=service.faults,
        authenticate=authenticate,
        is_ready=is_ready,
        changed=service.changed,
        impacts=lambda: service.scheduler.impacts,
        feed=feed,
        scenarios=built_in_scenarios(),
    )
    config = uvicorn.Config(
        create_app(services),
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    return ControlServer(config, listeners, feed)
