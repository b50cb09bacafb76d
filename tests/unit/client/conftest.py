"""A conversation driven by hand: every answer is in a script, and time passes only in pauses."""

import json
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, TypeVar

import pytest

from forewarn.client._conversations import Conversations
from forewarn.client._endpoints import Endpoint
from forewarn.client._messages import Conversation, NoAnswer, Pause, Request, Response
from forewarn.client._retrying import Conduct

T = TypeVar("T")
Answer = Response | NoAnswer | Callable[[Request], Response | NoAnswer]


class Even(Random):
    """Chance that is always in the middle."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def seeded(seed: int) -> Random:
    return Random(seed)  # noqa: S311


class Scene:
    """Answers requests from a script, one after the other, and notes all that happens."""

    def __init__(self) -> None:
        self.script: list[Answer] = []
        self.requests: list[Request] = []
        self.pauses: list[float] = []
        self.now = 1_000.0

    def conversations(
        self,
        endpoint: str | None = "host",
        *,
        patience: float = 30,
        random: Random | None = None,
        find_endpoint: Callable[[], Conversation[Endpoint]] | None = None,
    ) -> Conversations:
        conduct = self.conduct(patience=patience, random=random)
        return Conversations(endpoint, conduct, find_endpoint)

    def conduct(self, *, patience: float = 30, random: Random | None = None) -> Conduct:
        return Conduct(
            api_version="2020-07-01",
            timeout=10,
            patience=patience,
            random=random or Even(),
            monotonic=lambda: self.now,
        )

    def play(self, conversation: Conversation[T], *script: Answer) -> T:
        """Return what comes of *conversation*, which must use up the script."""
        self.script = list(script)
        answer: Response | NoAnswer | None = None
        while True:
            try:
                step = conversation.send(answer)
            except StopIteration as end:
                assert not self.script, f"never asked for {self.script}"
                result: T = end.value
                return result
            answer = self._perform(step)

    def _perform(self, step: Request | Pause) -> Response | NoAnswer | None:
        if isinstance(step, Pause):
            self.pauses.append(step.seconds)
            self.now += step.seconds
            return None
        self.requests.append(step)
        assert self.script, f"the script has no answer to {step}"
        answer = self.script.pop(0)
        return answer(step) if callable(answer) else answer


@pytest.fixture
def scene() -> Scene:
    return Scene()


def reply(content: object, status: int = 200, **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(status=status, headers=named, body=json.dumps(content).encode())


def event(number: int, status: str = "Scheduled", **fields: object) -> dict[str, Any]:
    not_before = "" if status == "Started" else "Mon, 19 Sep 2016 18:29:47 GMT"
    return {
        "EventId": f"00000000-0000-4000-8000-{number:012X}",
        "EventStatus": status,
        "EventType": "Reboot",
        "ResourceType": "VirtualMachine",
        "Resources": ["web-0"],
        "NotBefore": not_before,
        **fields,
    }


def document(incarnation: int, events: Iterable[object] = (), **headers: str) -> Response:
    return reply({"DocumentIncarnation": incarnation, "Events": list(events)}, 200, **headers)
