"""Plain polls, which are nearly all requests: GETs of the document with nothing special about them.

`read_plain_poll` is the one place that decides what is plain, and bytes that were read before are
not read again. Whatever is not plain takes the long way through `MetadataApp`, which would answer a
plain poll with the same bytes.
"""

import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import httptools

from forewarn.domain.names import VmName
from forewarn.domain.topology import VirtualMachine
from forewarn.metadata.asgi import CLOSE, PREFERENCE_APPLIED, REQUEST_ID, Header
from forewarn.metadata.board import Board, PrintedDocument
from forewarn.metadata.conditional import matches, preferred_wait
from forewarn.metadata.identity import Claim, Identifier, Peer
from forewarn.ports.faults import Faults
from forewarn.ports.metrics import Tally
from forewarn.protocol.vocabulary import SCHEDULED_EVENTS_PATH

LONGEST_POLL: Final = 4096
"""How many bytes a plain poll may have; those of most clients have 200."""
REMEMBERED_BYTES: Final = 2 * 1024 * 1024
"""How much is remembered before what has not been repeated is forgotten."""
_BYTES_BESIDES: Final = 400
"""What a poll that is remembered takes besides its own bytes."""
_MOST_HEADERS: Final = 32
_NOT_PLAIN: Final = frozenset(
    {b"origin", b"content-length", b"transfer-encoding", b"upgrade", b"expect"}
)
"""Whoever sends one of these has more to say, or wants more than the document."""
_TARGET: Final = re.compile(
    rf"(?:/vm/([\w.-]+))?{re.escape(SCHEDULED_EVENTS_PATH)}\?api-version=([\w-]+)", re.ASCII
)
_REQUEST_ID: Final = REQUEST_ID + b": "
_CLOSE_LINE: Final = b": ".join(CLOSE) + b"\r\n"

PARKED_PER_VM: Final = 64
"""How many polls of one virtual machine wait for a change; one more is refused with 429."""

ClaimReader: TypeAlias = Callable[[str | None, Mapping[bytes, bytes]], Claim]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainPoll:
    """What a plain poll says; it *closes* its connection if it is the last on it.

    If there is nothing new, it waits for as many *seconds*; *applied* is the line that says so.
    """

    version: str
    claim: Claim
    if_none_match: bytes = b""
    closes: bool = False
    seconds: int = 0
    applied: bytes = b""


@dataclass(slots=True)
class Head:
    """The head of a GET, as a parser has found it; *closes* if it is to be the last."""

    target: bytes = b""
    headers: list[Header] = field(default_factory=list)
    http_version: str = ""
    closes: bool = False


class _HeadReader:
    """Reads one head; what is more than that is counted."""

    def __init__(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.head = Head()
        self.requests = 0

    def on_url(self, part: bytes) -> None:
        self.head.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self.head.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.head.http_version = self.parser.get_http_version()
        self.head.closes = not self.parser.should_keep_alive()

    def on_message_complete(self) -> None:
        self.requests += 1


def read_head(data: bytes) -> Head | None:
    """Return the head of the GET that *data* is, if it is one, whole and alone."""
    if not data.startswith(b"GET /") or not data.endswith(b"\r\n\r\n") or len(data) > LONGEST_POLL:
        return None
    reader = _HeadReader()
    try:
        reader.parser.feed_data(data)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return None
    return reader.head if reader.requests == 1 else None


def read_plain_poll(
    head: Head, versions: Container[str], read_claim: ClaimReader
) -> PlainPoll | None:
    """Return what *head* says, if it is that of a plain poll for one of *versions*."""
    target = _TARGET.fullmatch(head.target.decode("latin-1"))
    headers = dict(head.headers)
    if (
        target is None
        or target[2] not in versions
        or head.http_version != "1.1"
        or headers.get(b"metadata") != b"true"
        or not _NOT_PLAIN.isdisjoint(headers)
        or len(headers) < len(head.headers)  # one is there twice
        or len(headers) > _MOST_HEADERS
    ):
        return None
    if_none_match = headers.get(b"if-none-match", b"")
    seconds = preferred_wait(headers.get(b"prefer", b"")) if if_none_match else None
    return PlainPoll(
        version=target[2],
        claim=read_claim(target[1], headers),
        if_none_match=if_none_match,
        closes=head.closes,
        seconds=seconds or 0,
        applied=b"" if seconds is None else b"%b: wait=%d\r\n" % (PREFERENCE_APPLIED, seconds),
    )


class PlainPolls:
    """Answers plain polls with bytes that were ready before they came."""

    def __init__(
        self,
        *,
        board: Board,
        identity: Identifier,
        polled: Callable[[VmName], None],
        faults: Faults,
        tally: Tally,
        request_ids: Iterator[bytes],
    ) -> None:
        self.board = board
        self._identity = identity
        self._polled = polled
        self._faults = faults
        self._polls = tally.polls
        self._request_ids = request_ids
        self._end = self._last_end = b""
        self._known: dict[bytes, PlainPoll] = {}
        self._known_before: dict[bytes, PlainPoll] = {}
        self._known_bytes = 0
        self.parked = Counter[VmName]()
        """How many polls of whom wait for a change."""
        self.is_stopping = False

    def renew(self, shared_lines: bytes) -> None:
        """Take the lines that all answers have from now on: the time is one of them."""
        self._end = b"\r\n" + shared_lines + b"\r\n"
        self._last_end = b"\r\n" + _CLOSE_LINE + shared_lines + b"\r\n"

    def recall(self, data: bytes) -> PlainPoll | None:
        """Return what *data* says, if it is a plain poll; without a look, if it came before."""
        poll = self._known.get(data) or self._known_before.get(data)
        if poll is not None:
            return poll
        head = read_head(data)
        return None if head is None else self.read(head)

    def read(self, head: Head) -> PlainPoll | None:
        """Return what *head* says, if it is that of a plain poll."""
        return read_plain_poll(head, self._polls, self._identity.read_claim)

    def find(self, poll: PlainPoll, peer: Peer) -> VirtualMachine | None:
        """Return who sent *poll* from *peer*; None if it is nobody, or somebody with a fault."""
        vm = self._identity.believe(peer, poll.claim)
        return None if vm is None or vm.name in self._faults else vm

    def find_again(self, name: VmName) -> VirtualMachine | None:
        """Return who is called *name* by now, as `find` does."""
        vm = self.board.vm_named(name)
        return None if vm is None or name in self._faults else vm

    def note(self, poll: PlainPoll, vm: VirtualMachine) -> None:
        """Count *poll*, before it is answered."""
        self._polled(vm.name)
        self._polls[poll.version] += 1

    def page(self, poll: PlainPoll, vm: VirtualMachine) -> PrintedDocument:
        """Return what *vm* can read."""
        return self.board.page(vm, poll.version)

    def resolve(self, data: bytes, peer: Peer) -> "ResolvedPoll | None":
        """Return what *data* says, who says it, and what they can read, if it is a plain poll."""
        generation = self.board.generation  # first: what changes meanwhile is for the next look
        poll = self.recall(data)
        vm = None if poll is None else self.find(poll, peer)
        if poll is None or vm is None:
            return None
        if data not in self._known:
            self._remember(data, poll)
        return ResolvedPoll(data, poll, vm, self.page(poll, vm), generation)

    def _remember(self, data: bytes, poll: PlainPoll) -> None:
        if self._known_bytes > REMEMBERED_BYTES:
            self._known_before, self._known, self._known_bytes = self._known, {}, 0
        self._known[data] = poll
        self._known_bytes += len(data) + _BYTES_BESIDES

    def write(self, poll: PlainPoll, page: PrintedDocument, *, closes: bool = False) -> bytes:
        """Return the answer to *poll* from somebody who can read *page*."""
        end = self._last_end if closes or poll.closes else self._end
        request_id, known = next(self._request_ids), poll.if_none_match
        if known and (known == page.etag or matches(known, page.etag)):
            return b"".join((page.not_modified_head, poll.applied, _REQUEST_ID, request_id, end))
        return b"".join((page.head, poll.applied, _REQUEST_ID, request_id, end, page.body))


@dataclass(frozen=True, slots=True)
class ResolvedPoll:
    """A plain poll as a connection sent it, with all that is known, at one generation."""

    data: bytes
    poll: PlainPoll
    vm: VirtualMachine
    page: PrintedDocument
    generation: int


def has_to_wait(poll: PlainPoll, page: PrintedDocument) -> bool:
    """Tell whether *poll* wants to wait, and *page* is nothing new to it."""
    return poll.seconds > 0 and matches(poll.if_none_match, page.etag)
