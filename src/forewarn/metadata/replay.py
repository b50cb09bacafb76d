"""Polls that are answered from a recording, byte for byte, at the times it has them."""

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from forewarn.files.recording import BODILESS, RecordedAnswer
from forewarn.metadata.asgi import (
    Connection,
    DisconnectedError,
    Extensions,
    Header,
    HttpScope,
    MetadataAnswer,
    MetadataRequest,
    Receive,
    Send,
)
from forewarn.metadata.conditional import matches, preferred_wait
from forewarn.metadata.http import App
from forewarn.metadata.waiting import first_of

_AFTER: Final = 0.001
"""How long after the next answer is due whoever waits for it is woken: timers may be early."""


class Replay:
    """Answers polls with *answers*, *speed* times as fast, and everything else as *app*.

    The first poll begins it. What *app* refuses stays refused, but for approvals of events that
    only the recording has: they are taken, and change nothing. Faults that do not change the
    document do to a recorded answer what they do to any other.
    """

    plain_polls: Final = None

    def __init__(self, app: App, answers: Sequence[RecordedAnswer], *, speed: float = 1) -> None:
        self._app = app
        self._answers = answers
        self._times = [answer.at / speed for answer in answers]
        self._began: float | None = None
        self._stopping = asyncio.Event()
        self.find_origin = app.find_origin
        self.note_unreadable = app.note_unreadable

    def stop_waiting(self) -> None:
        """Answer every parked poll now, and park no more."""
        self._stopping.set()
        self._app.stop_waiting()

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        extensions: Extensions = {**scope["extensions"], "replay": self._replay}
        await self._app({**scope, "extensions": extensions}, receive, send)

    async def _replay(self, request: MetadataRequest) -> MetadataAnswer:
        connection = request.connection
        known = request.headers.get(b"if-none-match", b"")
        seconds = preferred_wait(request.headers.get(b"prefer", b"")) if known else None
        if seconds and _is_known(self._current(), known):
            await self._await_next(connection, seconds)
        recorded = self._current()
        if recorded.no_answer:
            connection["reset"]()
            await connection["lost"].wait()
        if connection["lost"].is_set():
            raise DisconnectedError
        applied: tuple[Header, ...] = ()
        if seconds is not None and recorded.find_header("etag"):
            applied = ((b"Preference-Applied", f"wait={seconds}".encode("ascii")),)
        return _write(recorded, known, applied)

    def _current(self) -> RecordedAnswer:
        return self._answers[self._position()]

    def _position(self) -> int:
        return max(bisect_right(self._times, self._passed()) - 1, 0)

    def _passed(self) -> float:
        now = asyncio.get_running_loop().time()
        self._began = now if self._began is None else self._began
        return now - self._began

    async def _await_next(self, connection: Connection, seconds: float) -> None:
        later = self._times[self._position() + 1 :]
        left = min(seconds, later[0] - self._passed() + _AFTER) if later else seconds
        await first_of(self._stopping, connection["impatient"], seconds=left)


def _is_known(recorded: RecordedAnswer, if_none_match: bytes) -> bool:
    etag = recorded.find_header("etag")
    if recorded.status != 200 or not etag or not if_none_match.strip():
        return False
    return matches(if_none_match, etag.removeprefix("W/").strip('"').encode("ascii"))


def _write(
    recorded: RecordedAnswer, if_none_match: bytes, applied: tuple[Header, ...]
) -> MetadataAnswer:
    headers = tuple(
        (name.encode("ascii"), value.encode("ascii")) for name, value in recorded.headers.items()
    )
    if _is_known(recorded, if_none_match):
        etag = tuple(each for each in headers if each[0].lower() == b"etag")
        return MetadataAnswer(status=304, headers=etag + applied)
    if recorded.status in BODILESS:
        return MetadataAnswer(status=recorded.status, headers=headers + applied)
    length = (b"Content-Length", str(len(recorded.body)).encode("ascii"))
    return MetadataAnswer(
        status=recorded.status, body=recorded.body, headers=(*headers, length, *applied)
    )
