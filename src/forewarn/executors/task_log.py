"""What executors remember of a task on disk: that it was begun, and how it ended. Each once."""

import fcntl
import json
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName, is_name
from forewarn.domain.task import TaskKey
from forewarn.executors.attendant import CLAIM, ENDING, OUTPUT, claim, last_words, sync_directory
from forewarn.private_files import create_private, draft_of

INTENT: Final = ".intended"
LINEAGE: Final = "lineage.json"

_PROBE: Final = ".writable"
_PROBE_SIZE: Final = 4096
"""More than a record has, so that a disk is full for both."""


class TaskLog:
    """A directory with files for each task. What is written stays as it is.

    Before its owner commits that a task begins, it writes down that it intends to. So a task
    that was committed and has an intent but no record was not begun: the server stopped before. An
    intent that comes to nothing is forgotten: in a copy of the records it would prove too much.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.starting: Final = dict[TaskKey, threading.Event]()
        """What this process is about to begin, and has no record of yet. All runners that share the
        records know it: also those that were made anew meanwhile."""

    def check(self) -> str:
        """Return why records cannot be written; nothing if they can."""
        probe = self._directory / _PROBE
        try:
            self._make_directory(self._directory)
            probe.write_bytes(bytes(_PROBE_SIZE))
        except OSError as error:
            return f"{self._directory} cannot be written: {error.strerror}."
        finally:
            with suppress(OSError):
                probe.unlink()
        return ""

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep out other servers that share the directory and start with it, too."""
        self._make_directory(self._directory)
        descriptor = os.open(self._directory, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def lineage(self) -> str | None:
        """Return what was kept about all of these records, if they are there."""
        try:
            return (self._directory / LINEAGE).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def keep_lineage(self, text: str) -> None:
        """Keep *text* about all of these records, before any of them is made; while locked."""
        draft = draft_of(self._directory / LINEAGE)
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._directory / LINEAGE)
        sync_directory(self._directory)

    def intend(self, key: TaskKey) -> None:
        """Remember that it is about to be begun."""
        path = self._path(key, INTENT)
        self._make_directory(path.parent)
        with suppress(FileExistsError), create_private(path):
            sync_directory(path.parent)

    def forget_intent(self, key: TaskKey) -> None:
        """Forget that it was about to be begun: that was refused."""
        self._path(key, INTENT).unlink(missing_ok=True)

    def is_intended(self, key: TaskKey) -> bool:
        """Tell whether it was about to be begun with this directory."""
        return self._path(key, INTENT).exists()

    def forget_intents(self) -> None:
        """Forget what was about to be begun: what has become of it may be among lost records."""
        for path in self._directory.glob(f"*/*{INTENT}"):
            path.unlink()

    def claim(self, key: TaskKey, content: Mapping[str, object]) -> int | None:
        """Remember for good that it is begun; return the file, locked, or None if it was before."""
        path = self.claim_path(key)
        self._make_directory(path.parent)
        return claim(path, content)

    def take_over(self, key: TaskKey) -> int | None:
        """Return the file of what was begun, locked, or None if somebody else has the lock."""
        descriptor = os.open(self.claim_path(key), os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def has(self, key: TaskKey) -> bool:
        """Tell whether it was begun or has ended."""
        return self.claim_path(key).exists() or self._path(key, ENDING).exists()

    def begun(self, key: TaskKey) -> Mapping[str, Any] | None:
        """Return what was remembered when it began."""
        return _read(self.claim_path(key))

    def is_attended(self, key: TaskKey) -> bool:
        """Tell whether whoever began it, or was left with it, is still there."""
        with self.claim_path(key).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    def end(
        self,
        key: TaskKey,
        status: ImpactStatus,
        reason: str = "",
        *,
        host: HostName | None = None,
    ) -> None:
        """Remember how it ended, and on which *host* if that was said, unless that is known."""
        path = self._path(key, ENDING)
        self._make_directory(path.parent)
        descriptor = claim(path, {"status": status, "reason": reason, "host": host})
        if descriptor is not None:
            os.close(descriptor)

    def ended(self, key: TaskKey) -> Impact | None:
        """Return how it ended, if it did."""
        ending = _read(self._path(key, ENDING))
        if ending is None:
            return None
        host = ending.get("host")
        if host is not None and not is_name(host):
            reason = f"it reported the host {host!r}, which is not a valid host name"
            return Impact(status=ImpactStatus.FAILED, reason=reason)
        status = ImpactStatus(ending["status"])
        return Impact(status=status, reason=ending["reason"], moved_to=host)

    def subjects(self) -> Iterator[str]:
        """Yield what there are records about: events, or operations."""
        with suppress(FileNotFoundError), os.scandir(self._directory) as entries:
            yield from (each.name for each in entries if each.is_dir(follow_symlinks=False))

    def remove(self, subject: str) -> bool:
        """Remove all records about *subject*, unless one of its scripts is still attended to."""
        folder = self._directory / subject
        names = (path.name.removesuffix(CLAIM) for path in folder.glob(f"*{CLAIM}"))
        if any(self.is_attended((subject, name)) for name in names):
            return False
        shutil.rmtree(folder)
        return True

    def last_word(self, key: TaskKey) -> str:
        """Return the last line that was printed, other than where the virtual machine is."""
        said, _ = last_words(self._path(key, OUTPUT))
        return said

    def claim_path(self, key: TaskKey) -> Path:
        """Return the file that is there once it is begun."""
        return self._path(key, CLAIM)

    def _path(self, key: TaskKey, suffix: str) -> Path:
        folder, name = key
        return self._directory / folder / f"{name}{suffix}"

    def _make_directory(self, path: Path) -> None:
        for directory in (self._directory, path):
            if not directory.exists():
                directory.mkdir(mode=0o700, exist_ok=True)
                sync_directory(directory.parent)


def _read(path: Path) -> Mapping[str, Any] | None:
    try:
        content: Mapping[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return content
