"""Virtual machines that nobody has declared: each is there from its first request on."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from forewarn.connections.crowd import Origin
from forewarn.domain.errors import InvalidError
from forewarn.metadata.asgi import HttpScope, Receive, Send
from forewarn.metadata.http import App
from forewarn.metadata.identity import name_in


class Newcomers:
    """Answers as *app*, which may then know whoever names itself in the path.

    *add* is called for a name that is not known, and refuses what cannot be one.
    """

    def __init__(
        self, app: App, *, is_known: Callable[[str], bool], add: Callable[[str], None]
    ) -> None:
        self._app = app
        self._is_known = is_known
        self._add = add
        self.answer_plain_poll = app.answer_plain_poll
        self.find_origin: Callable[[str | None], Origin] = app.find_origin
        self.note_unreadable = app.note_unreadable
        self.stop_waiting = app.stop_waiting

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        name = name_in(scope["path"])
        if name is not None and not self._is_known(name):
            with suppress(InvalidError):  # is answered as anybody unknown
                await asyncio.to_thread(self._add, name)
        await self._app(scope, receive, send)
