"""What reads bytes that others wrote, each as a function that takes any bytes.

A target lets only the documented error pass. Anything else that is raised is a bug: so is an
assertion here, which says what two ways to read or write the same thing must have in common.
"""

import re
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from ipaddress import IPv4Address
from itertools import count
from random import Random
from typing import Final, TypeAlias, cast

from tests.fuzz.listeners import (
    EVENT_ID,
    PROXY_ADDRESS,
    SIGNATURE,
    TOKEN,
    VM_ADDRESS,
    Listener,
    MetadataListener,
    control_listener,
)

from forewarn.client._conversations import Conversations
from forewarn.client._dhcp import make_discover, read_offer, read_options
from forewarn.client._discovery import Search, Sources, find_flaw
from forewarn.client._errors import ClientError
from forewarn.client._leases import LEASE_FILES
from forewarn.client._messages import Conversation, NoAnswer, Pause, Response
from forewarn.client._retrying import Conduct
from forewarn.client._watching import Watch
from forewarn.domain.topology import NO_FLEET, Topology
from forewarn.feed.frames import FeedLineError, decode_line, encode_line
from forewarn.feed.mirror import Mirror
from forewarn.files.declarations import declare_fleet
from forewarn.files.fleet import read_fleet_file, write_fleet_file
from forewarn.files.fleet_lines import FleetLines, subject_of
from forewarn.files.scenario import ScenarioError, declare_step, read_scenario
from forewarn.files.toml import encode_keys, encode_table, split_lines
from forewarn.metadata.board import Board, Pages
from forewarn.operations.context import Context
from forewarn.operations.declaring import declare
from forewarn.protocol.document import decode_document, encode_document
from forewarn.protocol.errors import (
    ForewarnError,
    MalformedDocumentError,
    MalformedStartRequestsError,
)
from forewarn.protocol.identity import Identity
from forewarn.protocol.start_requests import decode_start_requests, encode_start_requests
from forewarn.protocol.versions import API_VERSIONS, NEWEST
from forewarn.protocol.vocabulary import event_id

Target: TypeAlias = Callable[[bytes], None]


def start_requests(body: bytes) -> None:
    """Read the body of a POST; what was read is read again from what we would write."""
    with suppress(MalformedStartRequestsError):
        event_ids = decode_start_requests(body)
        assert decode_start_requests(encode_start_requests(event_ids)) == event_ids


def documents(body: bytes) -> None:
    """Read a document as the SDK does, and again as each api-version shows it."""
    try:
        document = decode_document(body)
    except MalformedDocumentError:
        assert find_flaw(Response(status=200, body=body)) is not None
        return
    assert find_flaw(Response(status=200, body=body)) is None
    if document is None:
        return
    for event in document.events:
        event.affects(Identity(name="vmss_18", host_name=event.description))
    for version in API_VERSIONS:
        shown = decode_document(encode_document(document, version))
        assert shown is not None
        assert shown.document_incarnation == document.document_incarnation
        if all(event.not_before is None or event.not_before.year > 999 for event in shown.events):
            assert decode_document(encode_document(shown, version)) == shown


def answers(data: bytes) -> None:
    """Have the SDK hear an answer: a line with its status, headers, a blank line, a body.

    Whatever it asks in its conversations, the answer is the same.
    """
    head, _, body = data.partition(b"\n\n")
    first, *lines = head.decode("latin-1").split("\n")
    status = int(first) if re.fullmatch("[1-5][0-9]{2}", first) else 200
    parted = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in parted}
    moment = _Moment()
    for conversation in _conversations(moment.conduct()):
        moment.play(conversation, Response(status=status, headers=headers, body=body))


def metadata_requests(data: bytes) -> None:
    """Send requests to the metadata endpoint; all ways to answer a poll give the same bytes."""
    listener = _metadata_listener()
    for client in (VM_ADDRESS, PROXY_ADDRESS):
        answer = listener.long.exchange(client, data)
        assert b"HTTP/1.1 500" not in answer
        short = listener.short.exchange(client, data)
        assert short == answer or _without_end(short) == _without_end(answer) != b""
        assert listener.hot(client, data) in {None, answer}
        half = len(data) // 2
        parted = listener.short.exchange(client, data[:half], data[half:])
        assert parted == short or _without_end(parted) == _without_end(short) != b""
        if b"DocumentIncarnation" in answer:
            assert re.search(rb"(?i)metadata:\s*true", data)
            assert client == VM_ADDRESS or SIGNATURE.encode() in data.lower()


def control_requests(data: bytes) -> None:
    """Send requests to the control listener; only a token or an open path leads anywhere."""
    answer = _control_listener().exchange("127.0.0.1", data)
    assert b"HTTP/1.1 500" not in answer
    assert b"alice" not in answer or TOKEN.encode() in data


def feed_lines(data: bytes) -> None:
    """Show lines of the feed; a relay that starts again with what it kept shows the same."""
    board, kept = Board(), Board()
    mirror = _mirror(board)
    with suppress(FeedLineError):
        _take(mirror, data.split(b"\n"))
    _take(_mirror(kept), mirror.lines())
    if mirror.hello is not None:
        assert kept.parts == board.parts
        # The documents of scopes that were not told are not kept; no server sends such.
        for vm in (vm for vm in board.parts[0] if vm.scope_id in board.parts[1]):
            assert kept.page(vm, NEWEST.name) == board.page(vm, NEWEST.name)


def fleet_files(data: bytes) -> None:
    """Read a fleet file and declare it; what is shown of the fleet can be declared again."""
    text = data.decode(errors="replace")
    try:
        fleet = _declare(text)
    except ForewarnError as error:
        lines = FleetLines(text)
        for mistake in getattr(error, "mistakes", (error,)):
            _check_line(lines.find(subject_of(mistake)), text)
    else:
        again = _declare(write_fleet_file(declare_fleet(fleet)))
        assert again.virtual_machines == fleet.virtual_machines
        assert again.scopes == fleet.scopes
        assert again.hosts == fleet.hosts


def scenario_files(data: bytes) -> None:
    """Read a scenario; what was read is read again from what we would write."""
    text = data.decode(errors="replace")
    try:
        scenario = read_scenario(text)
    except ScenarioError as error:
        for mistake in (error, *error.mistakes):
            _check_line(mistake.line, text)
    else:
        keys = encode_keys({"name": scenario.name, "description": scenario.description})
        steps = (encode_table("step", declare_step(step)) for step in scenario.steps)
        assert read_scenario("\n".join((keys, *steps))) == scenario


def dhcp_answers(packet: bytes) -> None:
    """Read a packet that was sent to a DHCP client."""
    xid, mac = packet[4:8], packet[28:34]
    address = read_offer(packet, mac, xid)
    options = dict(_options_of(packet))
    assert read_options(packet) == options
    if address is not None:
        assert address.packed == options[245]
        assert read_offer(packet, mac[::-1] + b"\0", xid) is None
    discover = read_options(make_discover(mac.ljust(6), xid.ljust(4)))
    assert discover == {53: b"\x01", 55: b"\xf5"}


def leases(content: bytes) -> None:
    """Read a file of a DHCP client, and look for the server at what it says."""
    found = [address for read in _LEASE_READERS if (address := read(content)) is not None]
    moment = _Moment()
    moment.play(Search(moment.conduct(), _sources(found)).find_endpoint(), NoAnswer("it is silent"))


TARGETS: Final[Mapping[str, Target]] = {
    target.__name__: target
    for target in (
        start_requests,
        documents,
        answers,
        metadata_requests,
        control_requests,
        feed_lines,
        fleet_files,
        scenario_files,
        dhcp_answers,
        leases,
    )
}
"""Every target by its name, which is also that of its corpus."""

NOON: Final = datetime(2026, 3, 2, 12, tzinfo=UTC)
_LEASE_READERS: Final = tuple(dict.fromkeys(LEASE_FILES.values()))
_MOST_STEPS: Final = 1_000
"""Until which a conversation has to be at its end, however long it is trouble that it meets."""


def _offer_nothing(seconds: float) -> Conversation[IPv4Address | None]:
    yield Pause(seconds)
    return None


def _sources(found: Iterable[IPv4Address]) -> Sources:
    return Sources(
        read_environment=lambda: None,
        find_addresses=lambda: iter(found),
        ask_for_address=_offer_nothing,
    )


def _conversations(conduct: Conduct) -> Iterator[Conversation[object]]:
    """Yield everything that the SDK says to a server."""
    told = Conversations("host", conduct)
    yield told.document()
    yield told.poll({"If-None-Match": "1", "Prefer": "wait=1"}, 1)
    yield told.approve([EVENT_ID])
    yield told.postpone(EVENT_ID, NOON)
    yield told.whoami("web-0")
    yield told.describe(EVENT_ID)
    yield Watch(told).all_changes()
    yield Search(conduct, _sources([IPv4Address("10.0.0.1")])).find_endpoint()


class _Moment:
    """Time that passes in pauses only."""

    def __init__(self) -> None:
        self.now = 0.0

    def conduct(self) -> Conduct:
        return Conduct(
            api_version=NEWEST.name,
            timeout=10,
            patience=30,
            random=Random(1),  # noqa: S311
            monotonic=lambda: self.now,
        )

    def play(self, conversation: Conversation[object], answer: Response | NoAnswer) -> None:
        """Let *conversation* have the same *answer* to whatever it asks."""
        given: Response | NoAnswer | None = None
        with suppress(StopIteration, ClientError):
            for _ in range(_MOST_STEPS):
                step = conversation.send(given)
                given = None if isinstance(step, Pause) else answer
                self.now += step.seconds if isinstance(step, Pause) else 0
            raise AssertionError("the conversation ends")


def _without_end(answers: bytes) -> bytes:
    """Leave out how a connection ends: what cannot be read is refused if nothing is answered."""
    rest = answers.replace(b"Connection: close\r\n", b"")
    return re.sub(rb"HTTP/1.1 4[^\r]*\r\nContent-Length: 0\r\n\r\n$", b"", rest)


@cache
def _metadata_listener() -> MetadataListener:
    return MetadataListener()


@cache
def _control_listener() -> Listener:
    return control_listener()


class _AtOnce:
    """An event loop that does at once what a thread wants done."""

    def call_soon_threadsafe(self, call: Callable[[], object]) -> None:
        call()


def _mirror(board: Board) -> Mirror[Pages]:
    return Mirror(board, cast("AbstractEventLoop", _AtOnce()))


def _take(mirror: Mirror[Pages], texts: Iterable[bytes]) -> None:
    for text in texts:
        line = decode_line(text)
        if line is not None:
            # Of the events, those of newer types are not written.
            written = decode_line(encode_line(line))
            assert written is not None
            assert decode_line(encode_line(written)) == written
            mirror.take(line)


def _declare(text: str) -> Topology:
    new_id = (event_id(f"00000000-0000-4000-8000-{number:012x}") for number in count())
    context = Context(who="alice", now=NOON, at=NOON, new_id=lambda: next(new_id))
    return declare(NO_FLEET, read_fleet_file(text), context, prune=False)


def _check_line(line: int | None, text: str) -> None:
    assert line is None or 1 <= line <= len(split_lines(text))


def _options_of(packet: bytes) -> Mapping[int, bytes]:
    """Read the options as RFC 2132 defines them; the first of a kind counts."""
    found: dict[int, bytes] = {}
    at = 240
    while packet[236:240] == b"\x63\x82\x53\x63" and at + 1 < len(packet) and packet[at] != 255:
        kind, length = packet[at], packet[at + 1]
        if kind == 0:
            at += 1
        elif at + 2 + length > len(packet):
            break
        else:
            found = {kind: packet[at + 2 : at + 2 + length], **found}
            at += 2 + length
    return found
