"""What a relay was told is on disk before it is shown, whatever the disk does."""

import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.syncs import is_lasting, is_named, record_syncs

from forewarn.feed.feed_file import FeedFile, FeedFileError
from forewarn.protocol.errors import ForewarnError

HELLO, PUT, OTHER, MARK = (
    b'{"type":"hello"}',
    b'{"type":"put","name":"web-0"}',
    b'{"type":"put","name":"web-1"}',
    b'{"type":"mark"}',
)


def kept(folder: Path) -> tuple[bytes, ...]:
    """Return what a relay that starts now is told."""
    with FeedFile(folder) as file:
        return file.load(read)


def read(line: bytes) -> bytes:
    if not line.startswith(b"{"):
        raise ForewarnError("it is not a line of the feed")
    return line


@contextmanager
def room_for(size: int) -> Generator[None]:
    """Let no file of this process be larger than *size*: writing fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_relay_finds_what_it_was_told(tmp_path: Path) -> None:
    with FeedFile(tmp_path / "state") as file:
        assert file.load(read) == ()
        for line in (HELLO, PUT):
            file.keep(line)
        file.keep(MARK, is_mark=True)

    assert kept(tmp_path / "state") == (HELLO, PUT, MARK)
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert file.path.parent.stat().st_mode & 0o777 == 0o700


def test_heartbeats_are_not_written(tmp_path: Path) -> None:
    with FeedFile(tmp_path) as file:
        file.load(read)
        file.keep(PUT)
        for _ in range(3):
            file.keep(MARK, is_mark=True)
        file.keep(OTHER)
        file.keep(MARK, is_mark=True)

    assert kept(tmp_path) == (PUT, MARK, OTHER, MARK)


def test_line_is_on_disk_before_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FeedFile(tmp_path) as file:
        file.load(read)
        syncs = record_syncs(monkeypatch)
        file.keep(HELLO)
        file.keep(PUT)

    contents = [sync.content for sync in syncs]
    assert contents == [HELLO + b"\n", HELLO + b"\n" + PUT + b"\n"]


def test_mark_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FeedFile(tmp_path) as file:
        file.load(read)
        syncs = record_syncs(monkeypatch)
        file.keep(MARK, is_mark=True)

    assert syncs == []


def test_new_file_and_what_is_cut_off_are_on_disk_before_more_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "feed.ndjson").write_bytes(HELLO + b"\n" + PUT[:5])
    syncs = record_syncs(monkeypatch)

    with FeedFile(tmp_path) as file:
        file.load(read)

    assert syncs[0].content == HELLO + b"\n"
    assert is_named(file.path, syncs[1:])


def test_rewritten_file_is_on_disk_before_and_after_it_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FeedFile(tmp_path) as file:
        syncs = record_syncs(monkeypatch)
        file.rewrite([HELLO, PUT, MARK])

    assert is_lasting(file.path, syncs)


def test_file_that_lacks_a_line_is_empty_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FeedFile(tmp_path) as file:
        file.load(read)
        file.keep(PUT)
        syncs = record_syncs(monkeypatch)
        with capture_logs(), room_for(file.path.stat().st_size + 5):
            file.keep(OTHER)

    assert [sync.content for sync in syncs] == [b""]


def test_file_is_rewritten_when_it_has_grown(tmp_path: Path) -> None:
    with FeedFile(tmp_path, roomy=100) as file:
        file.load(read)
        while not file.needs_rewriting:
            file.keep(PUT)
        assert file.path.stat().st_size > 100
        file.rewrite([HELLO, PUT, MARK])
        assert not file.needs_rewriting
        file.keep(OTHER)

    assert kept(tmp_path) == (HELLO, PUT, MARK, OTHER)
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["feed.ndjson", "lock"]


@pytest.mark.parametrize("damage", [b"\n", b"\xff\n", b"\0\0\n"])
def test_damaged_file_is_set_aside(tmp_path: Path, damage: bytes) -> None:
    damaged = HELLO + b"\n" + damage + PUT + b"\n"
    (tmp_path / "feed.ndjson").write_bytes(damaged)

    with capture_logs() as lines, FeedFile(tmp_path) as file:
        assert file.load(read) == ()
        file.keep(OTHER)

    assert [line["event"] for line in lines] == ["feed_file_damaged"]
    assert (tmp_path / "feed.damaged").read_bytes() == damaged
    assert kept(tmp_path) == (OTHER,)


def test_relay_goes_on_without_room_and_writes_all_when_there_is(tmp_path: Path) -> None:
    with capture_logs() as lines, FeedFile(tmp_path) as file:
        file.load(read)
        file.keep(PUT)
        with room_for(file.path.stat().st_size + 5):
            file.keep(OTHER)
            assert kept_meanwhile(file) == b"", "it would be older than what is shown"
            file.keep(OTHER)
            assert file.needs_rewriting
            file.rewrite([HELLO, PUT, OTHER, MARK])
            assert file.needs_rewriting
        file.rewrite([HELLO, PUT, OTHER, MARK])
        assert not file.needs_rewriting
        file.keep(PUT)

    assert [line["event"] for line in lines] == ["feed_file_not_written", "feed_file_written"]
    assert kept(tmp_path) == (HELLO, PUT, OTHER, MARK, PUT)


def test_file_that_is_too_large_stays_until_it_can_be_rewritten(tmp_path: Path) -> None:
    with capture_logs() as lines, FeedFile(tmp_path, roomy=10) as file:
        file.load(read)
        file.keep(PUT)
        with room_for(20):
            file.rewrite([HELLO, PUT, MARK])

    assert [line["event"] for line in lines] == ["feed_file_not_rewritten"]
    assert kept(tmp_path) == (PUT,)


def test_link_to_another_file_leaves_that_alone(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(PUT + b"\n")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "feed.ndjson").symlink_to(other)

    with capture_logs() as lines, FeedFile(tmp_path / "state") as file:
        file.load(read)
        file.rewrite([HELLO, OTHER])

    assert other.read_bytes() == PUT + b"\n"
    assert [line["event"] for line in lines] == ["feed_file_not_written", "feed_file_written"]
    assert kept(tmp_path / "state") == (HELLO, OTHER)


def test_two_relays_do_not_share_a_folder(tmp_path: Path) -> None:
    with (
        FeedFile(tmp_path),
        pytest.raises(FeedFileError, match="Another relay is using"),
        FeedFile(tmp_path),
    ):
        pass

    assert kept(tmp_path) == ()


def test_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "state" / "feed.ndjson").mkdir(parents=True)

    with pytest.raises(FeedFileError, match="set another state_dir"):
        kept(tmp_path / "file" / "state")
    with pytest.raises(FeedFileError, match="set another state_dir"):
        kept(tmp_path / "state")


def kept_meanwhile(file: FeedFile) -> bytes:
    return file.path.read_bytes()
