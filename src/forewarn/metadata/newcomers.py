"""Virtual machines that nobody has declared: each is there from its first request on."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from forewarn.connections.crowd import Origin
from forewarn.domain.errors import InvalidError
from forewarn.domain.topology import VirtualMachine
from forewarn.metadata.asgi import Extensions, HttpScope, Receive, Send
from forewarn.metadata.http import App
from forewarn.metadata.identity import name_in


class Newcomers:
    """Answers as *app*, which may then know whoever names itself in the path.

    *add* is called for a name that is not known, and refuses what cannot be one. A request that is
    refused whoever sends it adds nobody.
    """

    def __init__(self, app: App, *, add: Callable[[str], VirtualMachine | None]) -> None:
        self._app = app
        self._add = add
        self.plain_polls = app.plain_polls
        self.find_origin: Callable[[str | None], Origin] = app.find_origin
        self.note_unreadable = app.note_unreadable
        self.stop_waiting = app.stop_waiting

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        async def welcome() -> VirtualMachine | None:
            name = name_in(scope["path"])
            with suppress(InvalidError):  # is answered as anybody unknown
                return None if name is None else await asyncio.to_thread(self._add, name)
            return None

        extensions: Extensions = {**scope["extensions"], "welcome": welcome}
        await self._app({**scope, "extensions": extensions}, receive, send)
