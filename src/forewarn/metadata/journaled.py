"""The metadata endpoint with a journal around it, which a server for tests keeps.

Every request goes the long way, so that there is one road to write down. It is written down before
its answer leaves: whoever has read the answer finds it in the journal.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from forewarn.domain.names import VmName
from forewarn.metadata.asgi import (
    LARGEST_BODY,
    Connection,
    HttpScope,
    MetadataRefusedError,
    Receive,
    ReceivedMessage,
    Send,
    SentMessage,
    read_headers,
)
from forewarn.metadata.http import App
from forewarn.metadata.identity import Identifier, Peer
from forewarn.ports.journal import Journal, JournalEntry

_NO_HEADERS: Final[Mapping[bytes, bytes]] = {}


class JournaledApp:
    """Answers virtual machines as *app* does, and writes it down."""

    plain_polls: Final = None

    def __init__(self, app: App, identity: Identifier, journal: Journal) -> None:
        self._app = app
        self._identity = identity
        self._journal = journal
        self.find_origin = app.find_origin
        self.stop_waiting = app.stop_waiting

    def note_unreadable(self, status: int, peer: Peer) -> None:
        """Write down that bytes which are no request were answered with *status*."""
        vm = self._identity.vm_of(peer)
        entry = self._journal.begin(vm.name if vm else None, "", "")
        self._journal.end(replace(entry, status=status))

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        query = scope["query_string"].decode("latin-1")
        path = f"{scope['path']}?{query}" if query else scope["path"]
        entry = self._journal.begin(self._find_vm(scope), scope["method"], path)
        scribe = _Scribe(entry, partial(self._end, scope), receive, send)
        extensions = scope["extensions"]
        connection = scribe.watch(extensions["connection"])
        seen: HttpScope = {**scope, "extensions": {**extensions, "connection": connection}}
        try:
            await self._app(seen, scribe.receive, scribe.send)
        finally:
            scribe.end()

    def _end(self, scope: HttpScope, entry: JournalEntry) -> None:
        # Who was nobody may have become a machine since then: what is inside may add it.
        self._journal.end(replace(entry, vm=entry.vm or self._find_vm(scope)))

    def _find_vm(self, scope: HttpScope) -> VmName | None:
        # Without headers: who it is that is refused for sending one of them.
        for headers in (read_headers(scope["headers"]), _NO_HEADERS):
            with suppress(MetadataRefusedError):
                vm = self._identity.identify(scope, headers).vm
                return vm.name if vm else None
        return None


class _Scribe:
    """Sees what passes in the course of one request, and writes down how it ended, once."""

    def __init__(
        self,
        entry: JournalEntry,
        end: Callable[[JournalEntry], None],
        receive: Receive,
        send: Send,
    ) -> None:
        self._entry = entry
        self._end = end
        self._receive = receive
        self._send = send
        self._has_ended = False

    async def receive(self) -> ReceivedMessage:
        message = await self._receive()
        body = self._entry.body + message.get("body", b"")
        self._entry = replace(self._entry, body=body[:LARGEST_BODY])
        return message

    async def send(self, message: SentMessage) -> None:
        if message["type"] == "http.response.start":
            self._entry = replace(self._entry, status=message["status"])
        else:
            self._entry = replace(self._entry, answer=self._entry.answer + message["body"])
            if not message.get("more_body"):
                self.end()
        await self._send(message)

    def watch(self, connection: Connection) -> Connection:
        """Return *connection*, whose reset is written down, too."""

        def reset() -> None:
            self._entry = replace(self._entry, is_reset=True)
            self.end()
            connection["reset"]()

        return {**connection, "reset": reset}

    def end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._end(self._entry)
