"""Requests and answers of the metadata endpoint: the small part of ASGI that it needs."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NotRequired, TypeAlias, TypedDict
from urllib.parse import parse_qsl

from forewarn.domain.topology import VirtualMachine
from forewarn.protocol.errors import ERROR_ANSWERS, ForewarnError, Refusal
from forewarn.protocol.versions import is_well_formed

Header: TypeAlias = tuple[bytes, bytes]

CONTENT_TYPE_JSON: Final[Header] = (b"Content-Type", b"application/json; charset=utf-8")
CLOSE: Final[Header] = (b"Connection", b"close")
REQUEST_ID: Final = b"x-ms-request-id"
PREFERENCE_APPLIED: Final = b"Preference-Applied"
LARGEST_BODY: Final = 64 * 1024
LARGEST_DISCARDED_BODY: Final = 1024 * 1024


class Extensions(TypedDict):
    """What our server can do beyond ASGI.

    A poll that *has_waited* before it came to the application was taken note of then. A *replay*
    answers polls in place of the document. To *welcome* whoever is not known adds them, if they can
    be.
    """

    connection: "Connection"
    has_waited: NotRequired[bool]
    replay: NotRequired[Callable[["MetadataRequest"], Awaitable["MetadataAnswer"]]]
    welcome: NotRequired[Callable[[], Awaitable[VirtualMachine | None]]]


class Connection(TypedDict):
    """The connection that a request came by."""

    reset: Callable[[], None]
    close: Callable[[], None]
    lost: asyncio.Event
    impatient: asyncio.Event


class HttpScope(TypedDict):
    """What the server knows about a request before its body."""

    type: str
    method: str
    path: str
    query_string: bytes
    headers: list[Header]
    client: tuple[str, int] | None
    server: tuple[str, int | None] | None
    extensions: Extensions


class ReceivedMessage(TypedDict, total=False):
    """A part of the body, or the end of the connection."""

    type: str
    body: bytes
    more_body: bool


class SentMessage(TypedDict, total=False):
    """The head of an answer, or a part of its body."""

    type: str
    status: int
    headers: list[Header]
    body: bytes
    more_body: bool


Receive: TypeAlias = Callable[[], Awaitable[ReceivedMessage]]
Send: TypeAlias = Callable[[SentMessage], Awaitable[None]]


class MetadataRefusedError(ForewarnError):
    """The request is answered with the refusal's status and body."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.value)
        self.refusal = refusal


class DisconnectedError(ForewarnError):
    """The client has gone; nobody reads an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataAnswer:
    """What goes out, but for the headers that every answer has.

    A body that takes *seconds* is sent a few bytes at a time.
    """

    status: int = 200
    body: bytes = b""
    headers: tuple[Header, ...] = ((b"Content-Length", b"0"),)
    seconds: float = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequest:
    """One request, after it has been decided who is calling."""

    method: str
    path: str
    parameters: Mapping[str, str] | None
    headers: Mapping[bytes, bytes]
    vm: VirtualMachine | None
    address: str
    receive: Receive
    extensions: Extensions

    @property
    def connection(self) -> Connection:
        return self.extensions["connection"]

    def has_metadata_header(self) -> bool:
        return self.headers.get(b"metadata", b"").strip().lower() == b"true"


def answer_json(content: object, *, status: int = 200) -> MetadataAnswer:
    """Return *content* as a JSON answer."""
    return answer_bytes(json.dumps(content, separators=(",", ":")).encode("ascii"), status=status)


def answer_error(sentence: str, *, status: int) -> MetadataAnswer:
    """Return an error with a sentence of its own."""
    return answer_json({"error": sentence}, status=status)


def answer_bytes(
    body: bytes, *, status: int = 200, content_type: Header = CONTENT_TYPE_JSON
) -> MetadataAnswer:
    """Return *body* with the headers that describe it."""
    length = (b"Content-Length", str(len(body)).encode("ascii"))
    return MetadataAnswer(status=status, body=body, headers=(content_type, length))


REFUSALS: Final[Mapping[Refusal, MetadataAnswer]] = {
    refusal: answer_bytes(error.body, status=error.status)
    for refusal, error in ERROR_ANSWERS.items()
}


def read_parameters(query_string: bytes) -> Mapping[str, str] | None:
    """Return the parameters by lower-case name; None when one is given twice."""
    try:
        pairs = parse_qsl(query_string.decode("latin-1"), keep_blank_values=True, max_num_fields=64)
    except ValueError:
        return None
    parameters = {name.lower(): value for name, value in pairs}
    return parameters if len(parameters) == len(pairs) else None


def require_header(request: MetadataRequest) -> None:
    """Refuse a request without `Metadata: true`."""
    if not request.has_metadata_header():
        raise MetadataRefusedError(Refusal.METADATA_HEADER_MISSING)


def require_dated_version(request: MetadataRequest) -> Mapping[str, str]:
    """Return the parameters, or refuse them without an api-version that could be one."""
    parameters = request.parameters or {}
    name = parameters.get("api-version", "")
    if name.lower() == "latest":
        raise MetadataRefusedError(Refusal.API_VERSION_LATEST)
    if not is_well_formed(name):
        raise MetadataRefusedError(Refusal.API_VERSION_MISSING)
    return parameters


_LISTS: Final = frozenset({b"if-none-match", b"prefer"})


def read_headers(headers: Iterable[Header]) -> Mapping[bytes, bytes]:
    """Return the headers by name: lists joined, of anything else the first."""
    fields: dict[bytes, bytes] = {}
    for name, value in headers:
        known = fields.setdefault(name, value)
        if known is not value and name in _LISTS:
            fields[name] = known + b", " + value
    return fields


async def read_body(request: MetadataRequest) -> bytes:
    """Return the whole body, or refuse one that is too large.

    What is too large is read on for a while, because a client that is still sending when the
    connection closes would never see the answer.
    """
    if _announces_too_much(request.headers) and b"expect" in request.headers:
        raise MetadataRefusedError(Refusal.BODY_TOO_LARGE)
    body, received, more = bytearray(), 0, True
    while more and received <= LARGEST_DISCARDED_BODY:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise DisconnectedError
        part, more = message.get("body", b""), message.get("more_body", False)
        received += len(part)
        if received <= LARGEST_BODY:
            body += part
    if received > LARGEST_BODY:
        raise MetadataRefusedError(Refusal.BODY_TOO_LARGE)
    return bytes(body)


def _announces_too_much(headers: Mapping[bytes, bytes]) -> bool:
    length = headers.get(b"content-length", b"")
    return length.isdigit() and int(length) > LARGEST_BODY
