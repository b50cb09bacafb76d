"""What conversations are made of.

A conversation is a generator: it yields what is to be done next and is sent what came of it, and
does no input or output itself. A `Request` is answered by a `Response` or a `Failure`, a `Pause`
by None. The drivers that do it are in `_drivers.py`.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from forewarn.client._endpoints import Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Something to ask of a metadata server; `path` comes after the prefix of the endpoint.

    The answer may take `timeout` seconds, and `wait` longer until it begins.
    """

    endpoint: Endpoint
    path: str
    timeout: float
    wait: float = 0
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer. The names of headers are in lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """There was no answer; `reason` continues a sentence that names the endpoint."""

    reason: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Let some seconds pass."""

    seconds: float


_T = TypeVar("_T")
Conversation: TypeAlias = Generator[Request | Pause, Response | NoAnswer | None, _T]


def ask(request: Request) -> Conversation[Response | NoAnswer]:
    """Return what comes of *request*."""
    answer = None
    while answer is None:
        answer = yield request
    return answer
