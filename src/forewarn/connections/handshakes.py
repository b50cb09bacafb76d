"""Connections over TLS, with the same guards from the moment they are accepted.

Were the handshake left to the event loop, whoever connects and says nothing would hold a file for a
minute, counted by nobody, and keep a server from stopping.
"""

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from typing import Any, ClassVar, cast

from forewarn.connections.crowd import NOBODY
from forewarn.connections.guarded import GuardedProtocol
from forewarn.connections.uvicorn_parts import HttpToolsProtocol, ServerState, get_remote_addr


class SecuredProtocol(GuardedProtocol):
    """One connection, as guarded as others, from the end of its *handshake* on."""

    tls: ClassVar[ssl.SSLContext]
    handshake: "HandshakeProtocol"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.handshake.leave()  # or it would count twice
        super().connection_made(transport)


class HandshakeProtocol(SSLProtocol):
    """TLS below one connection of *secured*, which is a member of its crowd until that is."""

    secured: ClassVar[type[SecuredProtocol]]

    def __init__(self, *, server_state: ServerState, **kwargs: Any) -> None:  # uvicorn's business
        protocol = self.secured(server_state=server_state, **kwargs)
        protocol.handshake = self
        self._server_state = server_state
        self._holder = NOBODY
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        ended.add_done_callback(self._note_trouble)
        super().__init__(
            loop,
            protocol,
            self.secured.tls,
            ended,
            server_side=True,
            ssl_handshake_timeout=cast("int", self.secured.limits.head_seconds),  # or a part
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._accepted = cast("asyncio.Transport", transport)
        client = get_remote_addr(self._accepted)
        holder = self.secured.crowd.admit(self, client[0] if client else None)
        if holder is None:
            self._accepted.abort()
            return
        self._holder = holder
        # Only what is among its connections is shut down when uvicorn stops.
        self._server_state.connections.add(cast("HttpToolsProtocol", self))
        super().connection_made(self._accepted)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.leave()
        super().connection_lost(exc)

    def leave(self) -> None:
        """Count no longer: the handshake is over, or the connection lost."""
        self.secured.crowd.leave(self, self._holder)
        self._server_state.connections.discard(cast("HttpToolsProtocol", self))

    def is_idle(self) -> bool:
        return True

    def is_stalled(self) -> bool:
        return False

    def drop(self) -> None:
        self._accepted.abort()

    shutdown = drop

    def _note_trouble(self, ended: "asyncio.Future[None]") -> None:
        # Who just hangs up, as port scanners and load balancers do, is no trouble.
        if isinstance(ended.exception(), ssl.SSLError):
            self.secured.crowd.troubles.note(self._holder.origin.name, "TLS handshake")
