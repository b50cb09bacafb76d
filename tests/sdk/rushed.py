"""A watch over a real socket, in a time of its own: whole minutes of pauses cost nothing."""

from dataclasses import replace
from random import Random
from typing import Self

from forewarn.client import Change
from forewarn.client._conversations import Conversations
from forewarn.client._messages import NoAnswer, Pause, Request, Response
from forewarn.client._retrying import Conduct
from forewarn.client._transport import Transport
from forewarn.client._watching import Watch
from forewarn.protocol.versions import NEWEST


class RushedWatch:
    """Carries out a `Watch` as the drivers do, but a pause only moves its own clock.

    For the same reason no poll is parked: the server is asked to wait for 0 seconds.
    """

    def __init__(self, url: str, *, timeout: float = 5) -> None:
        self.seconds = 0.0
        self.changes: list[Change] = []
        self.pauses: list[float] = []
        self._transport = Transport()
        conduct = Conduct(
            api_version=NEWEST.name,
            timeout=timeout,
            patience=0,
            random=Random(0),  # noqa: S311 - it only spreads polls
            monotonic=lambda: self.seconds,
        )
        self._watch = Watch(Conversations(url, conduct))
        self._conversation = self._watch.next_change()
        self._step: Request | Pause | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._transport.close()

    def look(self, seconds: float) -> list[Change]:
        """Watch for so many seconds, and return what has changed in them."""
        known, end = len(self.changes), self.seconds + seconds
        while self.seconds < end:
            self._advance()
        return self.changes[known:]

    def look_until_asked(self, part: str) -> None:
        """Watch until the next thing to be sent is a request for a path that has *part* in it."""
        while not (isinstance(self._step, Request) and part in self._step.path):
            self._advance()

    def _advance(self) -> None:
        answer = None if self._step is None else self._perform(self._step)
        try:
            self._step = self._conversation.send(answer)
        except StopIteration as end:
            self.changes.append(end.value)
            self._conversation, self._step = self._watch.next_change(), None

    def _perform(self, step: Request | Pause) -> Response | NoAnswer | None:
        if isinstance(step, Pause):
            self.pauses.append(step.seconds)
            self.seconds += step.seconds
            return None
        if "Prefer" in step.headers:
            step = replace(step, headers={**step.headers, "Prefer": "wait=0"})
        return self._transport.send(step)
