"""A relay that is killed at any byte of what it writes has kept all that it has shown."""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.feed.feed_file import FeedFile

Files: TypeAlias = dict[str, bytes]
Step: TypeAlias = tuple[str, str]
"""A line that is kept, a mark, or a rewriting, with some text."""

KINDS = st.sampled_from(["put", "mark", "rewrite"])
STEPS = st.lists(st.tuples(KINDS, st.text(max_size=3)), max_size=5)
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a disk would take minutes


@settings(deadline=None, max_examples=30)
@given(steps=STEPS)
def test_what_was_shown_is_kept_wherever_a_relay_is_killed(steps: list[Step]) -> None:
    with TemporaryDirectory(dir=MEMORY) as name:
        folder = Path(name)
        shown: list[bytes] = []
        for step in steps:
            before = files(folder)
            after_it = perform(folder, shown, step)
            for crashed in crashes(before, files(folder)):
                assert load_after(crashed) in ([*shown], after_it)
            shown = after_it
            assert load_after(files(folder)) == shown


def perform(folder: Path, shown: list[bytes], step: Step) -> list[bytes]:
    """Take *step* in a relay that starts with *shown*, and return what it shows then."""
    kind, text = step
    line = json.dumps([kind, text]).encode()
    with FeedFile(folder, roomy=50) as file:
        file.load(json.loads)
        if kind == "rewrite":
            file.rewrite([line])
            return [line]
        file.keep(line, is_mark=kind == "mark")
        return [*shown, line]


def crashes(before: Files, after: Files) -> Iterator[Files]:
    """Yield what is on disk if the relay is killed on the way from *before* to *after*."""
    old, new = before.get("feed.ndjson", b""), after["feed.ndjson"]
    if new.startswith(old):
        for size in range(len(old), len(new) + 1):
            yield {**before, "feed.ndjson": new[:size]}
        return
    for size in range(len(new) + 1):
        yield {**before, "feed.new": new[:size]}


def load_after(crashed: Files) -> list[bytes]:
    """Return what a relay loads that finds *crashed*; and check that it can go on from there."""
    more = b'["more"]'
    with TemporaryDirectory(dir=MEMORY) as name:
        folder = Path(name)
        for file_name, content in crashed.items():
            (folder / file_name).write_bytes(content)
        with FeedFile(folder) as file:
            known = list(file.load(_as_it_is))
            file.keep(more)
        with FeedFile(folder) as file:
            assert list(file.load(_as_it_is)) == [*known, more]
    return known


def files(folder: Path) -> Files:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _as_it_is(line: bytes) -> bytes:
    json.loads(line)
    return line
