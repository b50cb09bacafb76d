"""One connection with deadlines and limits.

Idle connections may stay long, because pollers keep theirs. A request that has begun must arrive
in time, heads are limited, and what cannot be read is answered once and drained.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Any, ClassVar, Final, cast

import httptools

from forewarn.connections.crowd import NOBODY, Crowd
from forewarn.connections.limits import Limits
from forewarn.connections.uvicorn_parts import (
    HIGH_WATER_LIMIT,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
    cycle_of,
    is_ssl,
)
from forewarn.protocol.errors import ForewarnError


class TunnelError(ForewarnError):
    """A CONNECT: what follows it would not be ours to read."""


class NoUpgradeProtocol(HttpToolsProtocol):
    """Answers a request with `Upgrade` as if it did not have it, body and all (RFC 9110, 7.8).

    The parser takes what follows such a head for another protocol. So the head is parsed a second
    time without its `Upgrade`, by a fresh parser that goes on with the body.
    """

    def feed(self, data: bytes) -> None:
        """Parse *data*; raise HttpParserError if that is no HTTP."""
        rest: bytes | memoryview = data
        while rest:
            try:
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as upgrade:
                rest = memoryview(rest)[upgrade.args[0] :]
                self._parse_again()
            else:
                return

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise TunnelError
        else:
            self.on_head_complete()

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            self.on_request_complete()

    def on_head_complete(self) -> None:
        """Begin to answer; the body may be still to come."""
        super().on_headers_complete()

    def on_request_complete(self) -> None:
        """Take note that the whole body is there."""
        super().on_message_complete()

    def _parse_again(self) -> None:
        first = b"%b %b HTTP/%b" % (
            self.parser.get_method(),
            self.url,
            self.parser.get_http_version().encode("ascii"),
        )
        lines = (name + b": " + value for name, value in self.headers if name != b"upgrade")
        head = b"\r\n".join((first, *lines, b"", b""))
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.parser.feed_data(head)


FAREWELL_SECONDS: Final = 1.0
_SLICE: Final = 1024
"""How much is parsed in one go; most requests are shorter, and come alone."""
_SLICE_OF_MANY: Final = 256
"""How much of several requests is parsed in one go; each of them takes its time."""
_LINGER_NOT: Final = struct.pack("hh" if os.name == "nt" else "ii", 1, 0)


class _SharedLines:
    """The lines of the headers that uvicorn gives to every answer: Date and Server.

    It makes a new list of them every second. Writing them out for each poll would cost more than
    finding the poll's document.
    """

    def __init__(self) -> None:
        self._headers: Sequence[tuple[bytes, bytes]] = ()
        self._lines = b""

    def __call__(self, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        if headers is not self._headers:
            lines = (name.title() + b": " + value + b"\r\n" for name, value in headers)
            self._headers, self._lines = headers, b"".join(lines)
        return self._lines


shared_lines: Final = _SharedLines()


class _Awaited(Enum):
    """What a connection owes us."""

    HEAD = "the rest of a head"
    BODY = "the rest of a body"
    LAST_BODY = "the rest of a body, after which the server stops"
    READING = "that it reads what we wrote"
    FAREWELL = "nothing but its end"


class _HeadTooLargeError(ForewarnError):
    """A head with too many bytes or headers."""


class GuardedProtocol(NoUpgradeProtocol):
    """One connection, with deadlines and limits."""

    limits: ClassVar[Limits]
    crowd: ClassVar[Crowd]

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # uvicorn's business
        super().__init__(*args, **kwargs)
        self.access_log = False
        self._application, self.app = self.app, self._run_in_turn
        self._incomplete: _Awaited | None = None
        self._awaited: _Awaited | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._lost = asyncio.Event()
        self._impatient = asyncio.Event()
        self._has_begun = False
        self._is_answered = False
        self._is_refused = False
        self._is_fresh_head = False
        self._is_behind = False
        self._has_ended = False
        self._gives_way = False
        self._is_waiting = False
        self._head_bytes = 0
        self._unparsed_bytes = 0
        self._discarded_bytes = 0
        self._held = bytearray()
        self._holder = NOBODY

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        name = transport.get_extra_info("sockname")
        if isinstance(name, str):  # a unix socket, of which uvicorn tells since 0.41
            self.server = (name, None)
        holder = self.crowd.admit(self, self.client[0] if self.client else None)
        if holder is None:
            self._is_refused = True
            self.transport.abort()
        else:
            self._holder = holder
            self._await(_Awaited.HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        self._await(None)
        self._lost.set()
        self._impatient.set()
        self._held.clear()
        self.pipeline.clear()
        self.crowd.leave(self, self._holder)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        # They refer to this connection. As circles, many would be left to the garbage collector,
        # and all others would wait for it.
        self._has_begun = False
        del self.app, self.cycle, self.scope

    def is_idle(self) -> bool:
        return self._gives_way or (not self._held and not self._is_answering())

    def is_stalled(self) -> bool:
        return self._awaited in {_Awaited.BODY, _Awaited.LAST_BODY, _Awaited.READING}

    def drop(self) -> None:
        self.crowd.leave(self, self._holder)
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            self._discard(data)
        elif self._held or len(data) > _SLICE or self._holder.waiting or not self._holder.spend(1):
            self._held += data
            self._go_on_in_turn()
        else:
            self._take(data)

    def _discard(self, data: bytes) -> None:
        # Reading on gives a client that is still sending the time to see why it was refused.
        self._discarded_bytes += len(data)
        if self._discarded_bytes > self.limits.discarded_bytes:
            self.flow.pause_reading()

    def _go_on_in_turn(self) -> None:
        """Take in more of what is held when it is this connection's turn, if it has room then."""
        if len(self._held) > self.limits.held_bytes:
            self._is_behind = True
            self.flow.pause_reading()
        if self._held and not self._is_waiting and not self._is_full():
            self._is_waiting = True
            self._holder.waiting.append(self._go_on)
            self._holder.spend(0)

    def _go_on(self) -> None:
        self._is_waiting = False
        if self._is_refused or self.transport.is_closing():
            self._held.clear()
            return
        is_alone = self._incomplete is _Awaited.BODY or len(self._held) <= _SLICE
        size = _SLICE if is_alone else _SLICE_OF_MANY
        part = bytes(self._held[:size])
        del self._held[:size]
        self._take(part)
        if self._held:
            self._holder.is_pipelining |= self._incomplete is not _Awaited.BODY
            self._go_on_in_turn()
        elif self._has_ended and not self._stay_for_the_answer():
            self.transport.close()
        elif self._is_behind:
            self._is_behind = False
            if not self.pipeline and not self._has_unread_body():
                self.flow.resume_reading()

    def _has_unread_body(self) -> bool:
        return self._has_begun and len(self.cycle.body) > HIGH_WATER_LIMIT

    def _is_full(self) -> bool:
        return len(self.pipeline) >= self.limits.queued_requests or self.flow.write_paused

    def _take(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._is_fresh_head = False
        try:
            self.feed(data)
        except httptools.HttpParserError as error:
            self.refuse(431 if isinstance(error.__context__, _HeadTooLargeError) else 400)
            return
        if self._incomplete is _Awaited.HEAD and not self._is_fresh_head:
            self._unparsed_bytes += len(data)
            if self._unparsed_bytes > self.limits.head_bytes:
                self.refuse(431)
                return
        self._await(self._owed())

    def _stay_for_the_answer(self) -> bool:
        # Somebody who has nothing more to say, as `nc` does, still wants to be answered. A client
        # that has gone looks the same, so a parked poll is answered now, and there is an end to it.
        if self._is_refused or is_ssl(self.transport):  # which cannot be half closed
            return False
        self._has_ended = True
        if not self._held:
            if self._incomplete or not self._is_answering():
                return False
            self.cycle.keep_alive = False
        self._impatient.set()
        self._await(_Awaited.FAREWELL)
        return True

    eof_received: Any = _stay_for_the_answer  # uvicorn declares that it never stays

    def shutdown(self) -> None:
        super().shutdown()
        if self._incomplete is _Awaited.BODY:
            self._await(_Awaited.LAST_BODY)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await(_Awaited.READING)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._await(self._owed())
        self._go_on_in_turn()

    def on_response_complete(self) -> None:
        is_last = not self.pipeline
        self.crowd.end_stream(self, self._holder)
        self._holder.is_pipelining |= not is_last
        super().on_response_complete()
        if self._is_refused and is_last:
            self.transport.close()
        self._go_on_in_turn()

    async def _run_in_turn(self, scope: Any, receive: Any, send: Any) -> None:
        holder, effort = self._holder, self.limits.effort_of_a_task
        cycle = cycle_of(send)
        if holder.waiting or not holder.spend(effort):
            turn = asyncio.Event()
            holder.waiting.append(turn.set)
            holder.spend(0)
            await turn.wait()
            if self.transport.is_closing():
                cycle.disconnected = True
                return
            holder.spend(effort)
        write = self.writer_of(cycle)

        async def send_if_open(message: Any) -> None:
            if cycle.flow.write_paused:
                await cycle.flow.drain()
            # A transport that was reset refuses writes before it tells us, and of several requests
            # uvicorn tells only the last one.
            cycle.disconnected |= cycle.transport.is_closing()
            if not cycle.disconnected:
                await write(message)

        await self._application(scope, receive, send_if_open)

    def writer_of(self, cycle: RequestResponseCycle) -> Any:
        """Return what writes the answer of the application."""
        return cycle.send

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await(None)  # each request has its own time
        self._incomplete = _Awaited.HEAD
        self._is_fresh_head = True
        self._head_bytes = self._unparsed_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._head_bytes += len(url)
        if self._head_bytes > self.limits.head_bytes:
            raise _HeadTooLargeError
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + 4
        limits = self.limits
        if self._head_bytes > limits.head_bytes or len(self.headers) >= limits.headers:
            raise _HeadTooLargeError
        if self._incomplete is not _Awaited.BODY:  # a trailer says nothing that a head says
            super().on_header(name, value)

    def on_head_complete(self) -> None:
        self._incomplete = _Awaited.BODY
        self._is_answered = not self._is_answering() and self.answer_at_once()
        if not self._is_answered:
            self._impatient.set()  # whoever asks for more does not want to wait for the last answer
            self._impatient = asyncio.Event()
            self.scope["extensions"] = {
                "connection": {
                    "reset": self._reset,
                    "close": self.transport.close,
                    "drop": self.drop,
                    "begin_stream": partial(self.crowd.begin_stream, self, self._holder),
                    "give_way": partial(setattr, self, "_gives_way"),
                    "lost": self._lost,
                    "impatient": self._impatient,
                },
                **self.more_extensions(),
            }
            super().on_head_complete()
            # Which uvicorn before 0.53 finds out when it writes the answer, and then not always.
            self.cycle.keep_alive &= self.parser.should_keep_alive()
            self._has_begun = True

    def on_request_complete(self) -> None:
        self._incomplete = None
        if not self._is_answered:
            super().on_request_complete()

    def more_extensions(self) -> dict[str, Any]:
        """Return what the application is to know of a request besides its connection."""
        return {}

    def answer_at_once(self) -> bool:
        """Answer a request by its head alone, without an ASGI call; False sends it that way."""
        return False

    def write_at_once(self, answer: bytes) -> None:
        """Write a whole *answer*, after which the connection stays open."""
        self._holder.left -= 1
        self.transport.write(answer)
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def _shared_lines(self) -> bytes:
        return shared_lines(self.server_state.default_headers)

    def _is_answering(self) -> bool:
        return self._has_begun and not self.cycle.response_complete

    def _owed(self) -> _Awaited | None:
        if self.flow.write_paused:
            return _Awaited.READING
        if self._incomplete or self._is_answering() or self.timeout_keep_alive_task:
            return self._incomplete
        return _Awaited.HEAD  # bytes came, but no request: blank lines, say

    def _await(self, awaited: _Awaited | None) -> None:
        is_last = self._awaited is _Awaited.LAST_BODY and awaited is _Awaited.BODY
        if awaited is self._awaited or is_last:
            return
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._awaited = awaited
        if awaited is not None:
            seconds = {
                _Awaited.HEAD: self.limits.head_seconds,
                _Awaited.BODY: self.limits.body_seconds,
                _Awaited.LAST_BODY: self.limits.grace_seconds - FAREWELL_SECONDS,
                _Awaited.READING: self.limits.write_seconds,
                _Awaited.FAREWELL: FAREWELL_SECONDS,
            }[awaited]
            self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _reset(self) -> None:
        if self.transport.is_closing():
            return
        # Closed with nothing to linger for, TCP sends RST; other sockets just close.
        connection = self.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        self.transport.abort()

    def refuse(self, status: int) -> None:
        """Answer what cannot be read with *status*, and end the connection."""
        self._is_refused = True
        self.crowd.troubles.note(self._holder.origin.name, f"HTTP {status}")
        if self.transport.is_closing():
            return
        if self._is_answering() and self._incomplete is _Awaited.BODY:
            # The handler that has begun learns that nobody waits for its answer.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.pipeline:
                self.pipeline.popleft()
                return
        elif self._is_answering():
            # The requests before the bad one get their answers, and then it is over.
            self.cycle.keep_alive = False
            return
        ending = b"Content-Length: 0\r\nConnection: close\r\n\r\n"
        self.transport.write(b"".join((STATUS_LINE[status], self._shared_lines(), ending)))
        # Closing now would reset the connection under a client that is still sending.
        if self.transport.can_write_eof():
            with suppress(OSError):  # it was reset in the meantime
                self.transport.write_eof()
        self._await(_Awaited.FAREWELL)
