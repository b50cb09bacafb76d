"""The lock file beside a database: one server per file, and whoever has it leads."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO

from forewarn.domain.finding import Finding
from forewarn.ports.replicas import KnownReplica, ReplicaIdentity, RollCall
from forewarn.ports.store import Store
from forewarn.private_files import create_private, give_to_owner_of
from forewarn.storage.errors import DatabaseInUseError, DatabaseUnusableError

if sys.platform == "win32":
    import msvcrt

    def lock_file(file: IO[bytes]) -> None:
        """Lock *file* until it is closed, or fail with OSError."""
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

    @contextmanager
    def locked_directory(directory: Path) -> Iterator[None]:
        """Do nothing: directories cannot be opened here."""
        del directory
        yield

else:
    import fcntl

    def lock_file(file: IO[bytes]) -> None:
        """Lock *file* until it is closed, or fail with OSError."""
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    @contextmanager
    def locked_directory(directory: Path) -> Iterator[None]:
        """Keep *directory* to this process meanwhile, or fail with BlockingIOError."""
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(descriptor)


class DatabaseLock:
    """Held from its making to `release`, or to the end of the process, however it ends.

    The file itself stays: to remove it would let two servers lock two files of the same name.
    """

    def __init__(self, path: Path) -> None:
        name = path.with_name(f"{path.name}.lock")
        try:
            self._file = _open(name)
        except OSError as error:
            problem = f"its lock file {name.name} cannot be written ({error.strerror})"
            raise DatabaseUnusableError(path, problem) from error
        try:
            lock_file(self._file)
        except OSError as error:
            self._file.close()
            raise DatabaseInUseError(path) from error

    def release(self) -> None:
        """Let another server have the database."""
        self._file.close()


def _open(name: Path) -> IO[bytes]:
    """Open the file *name* for its owner only: who can open it could keep every server out."""
    try:
        file = create_private(name)
    except FileExistsError:
        file = os.fdopen(os.open(name, os.O_WRONLY), "wb")
        if os.name == "posix":
            with suppress(PermissionError):
                os.fchmod(file.fileno(), 0o600)
    else:
        # A command of root may come before the first server, which has to open it as well.
        give_to_owner_of(name.parent, name)
    return file


class FileLeadership:
    """A lease that nobody else can have while this process has the store open."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._epoch = 0

    def holds(self, epoch: int) -> bool:
        """Tell whether this process leads under *epoch*."""
        return 0 < epoch == self._epoch

    def clock_offset(self) -> timedelta:
        """Return zero: the store uses the clock of this machine."""
        return timedelta(0)

    def campaign(self) -> int | None:
        """Return the next epoch: the lock was taken when the store was opened."""
        self._epoch = self._store.write(lambda tx: tx.next_epoch())
        return self._epoch

    def renew(self, epoch: int) -> bool:
        """Tell whether *epoch* is the last one that was given."""
        return self._store.read(lambda reading: reading.lease_epoch()) == epoch

    def resign(self, epoch: int) -> None:
        """Lead no more under *epoch*; the lock goes when the store is closed."""
        if self.holds(epoch):
            self._epoch = 0


class SoleReplica:
    """The Replicas port where nobody else can be: there is nobody to tell, and nothing to miss.

    It *leads* under an epoch, unless the lease says otherwise.
    """

    def __init__(
        self,
        store: Store,
        itself: ReplicaIdentity,
        *,
        now: Callable[[], datetime],
        leads: Callable[[int], bool] = bool,
    ) -> None:
        self.itself = itself
        self.generation = 0
        self.examine: Callable[[], Iterable[Finding]] = tuple
        self._store = store
        self._now = now
        self._leads = leads
        self._started_at = now()

    def report(self) -> None:
        """Do nothing."""

    def leave(self) -> None:
        """Do nothing."""

    def call_roll(self) -> RollCall:
        """Return this replica."""
        epoch, now = self._store.read(lambda reading: reading.lease_epoch()), self._now()
        itself = KnownReplica(
            identity=self.itself,
            started_at=self._started_at,
            seen_at=now,
            is_leader=self._leads(epoch),
            findings=tuple(self.examine()),
        )
        return RollCall(at=now, epoch=epoch, replicas=(itself,))

    def is_following(self) -> bool:
        """Tell that nothing is missed."""
        return True
