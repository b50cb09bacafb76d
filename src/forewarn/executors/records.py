"""What executors remember of an order on disk: that it was begun, and how it ended. Each once."""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName, is_name
from forewarn.executors.attendant import ENDING, ORDER, OUTPUT, claim, last_words, sync_directory
from forewarn.ports.store import LeaseLostError
from forewarn.private_files import draft_of

OrderKey: TypeAlias = tuple[str, str]
"""What an order is about, and which of its orders: an EventId and a virtual machine, say."""

LINEAGE: Final = "lineage.json"


class Records:
    """A directory with files for each order. What is written stays as it is.

    Orders that wait for a place or for a target stay where they are unless *may_begin*, a look that
    may be out of date at once. So each begins only with a *permit*, which a transaction gives: none
    to the leader of an old epoch, and none after a pause. Where there is a *doubt*, an order may
    have been begun although there is no record of it. *epoch* is that of the leader; nothing is
    begun for others. Without it, whoever asks is taken for the leader.
    """

    def __init__(
        self,
        directory: Path,
        *,
        may_begin: Callable[[], bool] = lambda: True,
        permit: Callable[[int], bool] = lambda _: True,
        doubt: Callable[[OrderKey], str] = lambda _: "",
        epoch: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._directory = directory
        self.may_begin = may_begin
        self.permit = permit
        self._doubt = doubt
        self._epoch = epoch

    def check_epoch(self, epoch: int) -> None:
        """Refuse with LeaseLostError what a leader wants to begin whose lease is over."""
        # Only a look: the lease may end at any moment. Most of those who were held up notice here.
        current = self._epoch()
        if current is not None and current != epoch:
            raise LeaseLostError(epoch, current)

    def is_of_leader(self, epoch: int) -> bool:
        """Tell whether what was begun under *epoch* is still the leader's."""
        return self._epoch() in {None, epoch}

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

    def without(self, key: OrderKey, advice: str) -> Impact:
        """Say what it means that nothing was remembered of an order."""
        doubt = self._doubt(key)
        if not doubt:
            return Impact(status=ImpactStatus.NOT_BEGUN)
        return Impact(status=ImpactStatus.UNKNOWN, reason=f"{doubt} {advice}")

    def claim(self, key: OrderKey, content: Mapping[str, object]) -> int | None:
        """Remember for good that it is begun; return the file, locked, or None if it was before."""
        path = self.order_path(key)
        self._make_directory(path.parent)
        return claim(path, content)

    def take_over(self, key: OrderKey) -> int | None:
        """Return the file of what was begun, locked, or None if somebody else has the lock."""
        descriptor = os.open(self.order_path(key), os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def has(self, key: OrderKey) -> bool:
        """Tell whether it was begun or has ended, or whether that is in doubt."""
        is_known = self.order_path(key).exists() or self._path(key, ENDING).exists()
        return is_known or bool(self._doubt(key))

    def begun(self, key: OrderKey) -> Mapping[str, Any] | None:
        """Return what was remembered when it began."""
        return _read(self.order_path(key))

    def is_of(self, executor: str, key: OrderKey) -> bool:
        """Tell whether *executor* began it; the end of one that never began is anybody's."""
        begun = self.begun(key)
        return self.ended(key) is not None if begun is None else begun["executor"] == executor

    def is_attended(self, key: OrderKey) -> bool:
        """Tell whether whoever began it, or was left with it, is still there."""
        with self.order_path(key).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    def end(
        self,
        key: OrderKey,
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

    def ended(self, key: OrderKey) -> Impact | None:
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
        names = (path.name.removesuffix(ORDER) for path in folder.glob(f"*{ORDER}"))
        if any(self.is_attended((subject, name)) for name in names):
            return False
        shutil.rmtree(folder)
        return True

    def last_word(self, key: OrderKey) -> str:
        """Return the last line that was printed, other than where the virtual machine is."""
        said, _ = last_words(self._path(key, OUTPUT))
        return said

    def order_path(self, key: OrderKey) -> Path:
        """Return the file that is there once it is begun."""
        return self._path(key, ORDER)

    def _path(self, key: OrderKey, suffix: str) -> Path:
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
