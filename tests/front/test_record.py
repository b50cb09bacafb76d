"""What a relay was told is kept, rewritten when it has grown, and belongs to one host."""

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from forewarn.domain.names import HostName, VmName
from forewarn.domain.topology import VirtualMachine, standalone
from forewarn.feed.feed_file import FeedFile
from forewarn.feed.frames import FeedLine, Hello, Mark, Put, encode_line
from forewarn.feed.mirror import Mirror
from forewarn.front.record import FeedRecord, ForeignStateError, WireChangedError
from forewarn.metadata.board import Board, Pages
from forewarn.protocol.document import Document
from forewarn.protocol.versions import PreviewWire, served_versions

WIRE = PreviewWire.DOCUMENTED
HELLO = Hello(feed="f", host=HostName("kvm-1"), preview_wire=WIRE, heartbeat_seconds=5)
SOLO = standalone(VmName("solo"))
VM = VirtualMachine(name=VmName("solo"), scope_id=SOLO.scope_id, host=HostName("kvm-1"))


def put(incarnation: int) -> Put:
    return Put(
        documents={SOLO.scope_id: Document(document_incarnation=incarnation)},
        scopes={SOLO.scope_id: SOLO},
        virtual_machines=(VM,),
    )


@contextmanager
def mirroring() -> Generator[Mirror[Pages]]:
    """Give the mirror of an empty board, whose event loop runs on another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield Mirror(Board(served_versions(WIRE)), loop)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def tell(folder: Path, *lines: FeedLine, roomy: int = 10_000) -> tuple[FeedLine, ...]:
    """Have a relay told *lines*, after what it finds; return what the next one finds."""
    with mirroring() as mirror, FeedFile(folder, roomy=roomy) as file:
        record = FeedRecord(file)
        for known in record.lines:
            mirror.take(known)
        for line in lines:
            record.keep(mirror, WIRE, encode_line(line).rstrip(b"\n"), line)
            mirror.take(line)
    with FeedFile(folder) as file:
        return FeedRecord(file).lines


def test_lines_are_found_again(tmp_path: Path) -> None:
    assert tell(tmp_path, HELLO, put(1), Mark(sequence=4)) == (HELLO, put(1), Mark(sequence=4))


def test_feed_that_goes_on_is_kept_as_one(tmp_path: Path) -> None:
    resumed = Hello(feed="f", host=HostName("KVM-1"), resumed=True, heartbeat_seconds=5)
    tell(tmp_path, HELLO, put(1), Mark(sequence=4))

    found = tell(tmp_path, resumed, put(2), Mark(sequence=5))

    assert found == (HELLO, put(1), Mark(sequence=4), put(2), Mark(sequence=5))


def test_file_that_has_grown_says_only_what_is_shown(tmp_path: Path) -> None:
    many = [line for number in range(9) for line in (put(number), Mark(sequence=number))]

    found = tell(tmp_path, HELLO, *many, Mark(sequence=8), roomy=1_000)

    documents = [line.documents for line in found if isinstance(line, Put) and line.documents]
    assert len(documents) < 9
    assert documents[-1][SOLO.scope_id].document_incarnation == 8
    assert found[-1] == Mark(sequence=8)


def test_state_of_another_host_is_refused(tmp_path: Path) -> None:
    tell(tmp_path, HELLO, put(1), Mark(sequence=4))
    foreign = Hello(feed="f", host=HostName("kvm-2"), heartbeat_seconds=5)

    with pytest.raises(
        ForeignStateError, match=r"belongs to the host kvm-1, .* is for kvm-2; remove"
    ):
        tell(tmp_path, foreign)


def test_other_wire_needs_another_process(tmp_path: Path) -> None:
    observed = replace(HELLO, preview_wire=PreviewWire.OBSERVED)

    with pytest.raises(WireChangedError) as change:
        tell(tmp_path, observed)

    assert change.value.preview_wire is PreviewWire.OBSERVED
