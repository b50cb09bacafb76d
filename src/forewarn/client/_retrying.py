"""What is trouble and what is a refusal, and how often to try again.

| answer | what it is |
|---|---|
| 2xx, 304 | an answer; a document that is empty or none is trouble |
| none, 3xx, 404, 408, 410, 429, 5xx | trouble: it is starting, or a proxy answers for it |
| 400, 403, 405 and every other 4xx | a refusal: asking again would not help |
"""

import json
import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeVar

from forewarn.client._errors import RefusedError, UnavailableError, quote_sentence
from forewarn.client._messages import Conversation, NoAnswer, Pause, Request, Response, ask
from forewarn.protocol.dates import read_retry_after

TROUBLED_STATUSES: Final = frozenset({404, 408, 410, 429})
BACK_OFF: Final = (1.0, 2.0, 3.0)
"""No longer: a Preempt is announced 30 seconds before, and a server is no use before it is back."""

LONGEST_RETRY_AFTER: Final = 10.0
"""However long a server wants to be left alone: events may have less notice than that."""

_JITTER: Final = 0.2

_log = logging.getLogger("forewarn.client")
_log.addHandler(logging.NullHandler())  # or what nobody set up logging for goes to standard error
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """How a client behaves towards any server. `monotonic` tells real time."""

    api_version: str
    timeout: float
    patience: float
    random: Random = field(default_factory=Random)
    monotonic: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        if not (math.isfinite(self.timeout) and self.timeout > 0):
            raise ValueError("timeout must be a number of seconds greater than 0.")
        if not self.patience >= 0:
            raise ValueError("patience must be a number of seconds, 0 or more.")


def exchange(request: Request) -> Conversation[Response]:
    """Send *request* once and return its answer, if that is one."""
    answer = yield from ask(request)
    endpoint = str(request.endpoint)
    if isinstance(answer, NoAnswer):
        raise UnavailableError(endpoint, answer.reason)
    if 200 <= answer.status < 300 or answer.status == 304:
        return answer
    sentence = _read_sentence(answer.body)
    if 400 <= answer.status < 500 and answer.status not in TROUBLED_STATUSES:
        raise RefusedError(endpoint, answer.status, sentence)
    trouble = f"it answered {answer.status}" + (f", {quote_sentence(sentence)}" if sentence else "")
    raise UnavailableError(
        endpoint,
        trouble,
        status=answer.status,
        retry_after=read_retry_after(answer.headers),
    )


def persist(attempt: Callable[[], Conversation[_T]], conduct: Conduct) -> Conversation[_T]:
    """Make *attempt* until it succeeds, is refused, or patience is at its end."""
    deadline = conduct.monotonic() + conduct.patience
    spell = Spell(conduct.random)
    while True:
        try:
            result = yield from attempt()
        except UnavailableError as error:
            left = deadline - conduct.monotonic()
            if left <= 0 or (error.retry_after or 0) > left:
                raise
            yield Pause(min(spell.suffer(error), left))
        else:
            spell.end()
            return result


class Spell:
    """A spell of trouble: how long to wait each time. It is logged when it changes."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._pauses = self._back_off()
        self._trouble = ""

    def suffer(self, error: UnavailableError) -> float:
        """Return how many seconds to pause after *error*."""
        if error.trouble != self._trouble:
            _log.warning(
                "metadata_unavailable endpoint=%s trouble=%r", error.endpoint, error.trouble
            )
            self._trouble = error.trouble
        return max(next(self._pauses), min(error.retry_after or 0, LONGEST_RETRY_AFTER))

    def end(self) -> None:
        if self._trouble:
            _log.info("metadata_available_again")
            self._trouble = ""
            self._pauses = self._back_off()

    def _back_off(self) -> Iterator[float]:
        for seconds in BACK_OFF:
            yield seconds * self._random.uniform(1 - _JITTER, 1 + _JITTER)
        while True:
            yield BACK_OFF[-1] * self._random.uniform(1 - _JITTER, 1 + _JITTER)


def decode_json(body: bytes) -> object:
    """Return what *body* holds, None if it is not JSON."""
    try:
        content: object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return content


def _read_sentence(body: bytes) -> str:
    content = decode_json(body)
    sentence = content.get("error") if isinstance(content, dict) else None
    return sentence if isinstance(sentence, str) else ""
