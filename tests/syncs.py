"""Records each fsync of a test, with the content of the file and the names in its folder."""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A file or a folder that was synced: its *content*, and the *names* in its folder.

    A folder has no content of its own.
    """

    path: Path
    content: bytes | None
    names: frozenset[str]


def record_syncs(monkeypatch: pytest.MonkeyPatch) -> list[Sync]:
    """Return a list that grows with each sync of this process."""
    syncs: list[Sync] = []

    def note(descriptor: int) -> None:
        link = Path(f"/proc/self/fd/{descriptor}")
        path = link.readlink()
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        folder = path if is_folder else path.parent
        names = frozenset(each.name for each in folder.iterdir())
        syncs.append(Sync(path=path, content=None if is_folder else link.read_bytes(), names=names))

    monkeypatch.setattr(os, "fsync", note)
    return syncs


def is_lasting(path: Path, syncs: Sequence[Sync]) -> bool:
    """Tell whether *path* was synced before it had its name, and its folder afterwards."""
    whole = (
        number
        for number, sync in enumerate(syncs)
        if sync.content == path.read_bytes() and path.name not in sync.names
    )
    first = next(whole, len(syncs))
    return is_named(path, syncs[first:])


def is_named(path: Path, syncs: Sequence[Sync]) -> bool:
    """Tell whether the folder of *path* was synced when it had that name."""
    return any(sync.path == path.parent and path.name in sync.names for sync in syncs)
