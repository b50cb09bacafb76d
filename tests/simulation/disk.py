"""The disk of each server, and the processes that carry tasks out.

Files are real, in a folder in memory; what was synced is known, so that a loss of power can take
the rest. Processes outlive the server that started them, but not the power.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.simulation.world import MINUTE, SECOND, Process, World

from forewarn.domain.task import TaskKey
from forewarn.executors.attendant import ENDING, write_ending


@dataclass(slots=True, eq=False)
class Disk:
    """The folder of one server, and which of its names would survive a loss of power."""

    folder: Path
    durable: dict[Path, set[str]] = field(default_factory=dict)
    is_full: bool = False

    def lose_power(self, world: World) -> None:
        """Take what was not synced, or most of it."""
        for folder, _, names in sorted(os.walk(self.folder / "tasks")):
            kept = self.durable.get(Path(folder), set())
            for name in sorted(names):
                if name not in kept and world.faults.happens(0.7):
                    Path(folder, name).unlink()
            for name in sorted(kept - set(names)):
                # Its removal was not synced.
                if name.endswith(".intended") and world.faults.happens(0.3):
                    Path(folder, name).touch()


class Disks:
    """All disks; while *installed*, each sync of this process is theirs."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.disks: dict[str, Disk] = {}
        self.processes: dict[str, Process] = {}
        self.is_attendant = False
        """Whether what is synced now is not of a server, but of a process that it has started."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        real = os.fsync
        os.fsync = self._sync
        try:
            yield
        finally:
            os.fsync = real

    def _sync(self, fd: Any) -> None:
        found = next(
            ((name, disk) for name, disk in self.disks.items() if self._is_on(fd, disk)),
            None,
        )
        if found is None:
            return
        name, disk = found
        process = None if self.is_attendant else self.processes.get(name)
        if process is not None and process.is_alive:
            self.world.crash_point(process, "sync")
        if disk.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            folder = _path_of(fd)
            disk.durable[folder] = {each.name for each in folder.iterdir()}
        if process is not None and process.is_alive:
            self.world.point(process, "synced")

    @staticmethod
    def _is_on(descriptor: int, disk: Disk) -> bool:
        return disk.folder in _path_of(descriptor).parents


def _path_of(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}").readlink()


@dataclass(slots=True, eq=False)
class Running:
    """A process that carries out a task: it holds the file of the task locked until its end."""

    key: TaskKey
    server: str
    claim: Path
    descriptor: int
    status: str
    reason: str
    host: str | None = None
    """Where it says that it has put the machine."""

    def wait(self) -> None:
        """Do not wait: whoever starts processes here has no thread of its own."""


class Processes:
    """Everything that really runs, whoever has started it."""

    def __init__(self, world: World, disks: Disks, *, lasts: Callable[[TaskKey], int]) -> None:
        self.world = world
        self.disks = disks
        self.lasts = lasts
        self.running: dict[TaskKey, Running] = {}
        self.begun: Callable[[TaskKey, str], None] = lambda *_: None
        self.ended: Callable[[TaskKey, str], None] = lambda *_: None
        self.told: Callable[[str], None] = lambda _: None
        self.failure_rate = 0.0
        self.lost_rate = 0.0
        self.hang_rate = 0.0
        self.lie_rate = 0.0
        self.late_rate = 0.0

    def start(
        self, server: str, words: Sequence[str], *, pass_fds: Sequence[int], **_: Any
    ) -> Running:
        """Start the process for the file that the last of *words* names."""
        claim = Path(words[-1])
        key = claim.parent.name, claim.name.removesuffix(".begun")
        faults = self.world.faults
        has_failed = faults.happens(self.failure_rate)
        running = Running(
            key=key,
            server=server,
            claim=claim,
            descriptor=os.dup(pass_fds[0]),
            status="failed" if has_failed else "done",
            reason="exit code 1" if has_failed else "",
        )
        if not has_failed and faults.happens(self.lie_rate):
            self.world.injected["runner says nonsense"] += 1
            running.status, running.host = "done", "no such host!"
        self.world.note(server, f"really begins {'/'.join(key)}")
        self.begun(key, server)
        self.running[key] = running
        lasts = self.lasts(key)
        if faults.happens(self.hang_rate):
            self.world.injected["runner hangs"] += 1
            lasts *= 8
        if faults.happens(self.lost_rate):
            self.world.injected["runner dies"] += 1
            self.world.later(faults.below(lasts), lambda: self._end(running, is_told=False))
        else:
            self.world.later(lasts, lambda: self._end(running, is_told=True))
        return running

    def lose(self, server: str) -> None:
        """End all that runs on the machine of *server*, which tells nobody."""
        for running in [each for each in self.running.values() if each.server == server]:
            self._end(running, is_told=False)

    def _end(self, running: Running, *, is_told: bool) -> None:
        if self.running.get(running.key) is not running:
            return
        if is_told and self.disks.disks[running.server].is_full:
            self.world.later(5 * SECOND, lambda: self._end(running, is_told=True))
            return
        del self.running[running.key]
        said = running.status if is_told else "without a word"
        if is_told and running.host is not None:
            said = "failed"
        self.world.note(running.server, f"really ends {'/'.join(running.key)} {said}")
        if is_told:
            ending = {"status": running.status, "reason": running.reason, "host": running.host}
            self.disks.is_attendant = True
            write_ending(running.claim.with_suffix(ENDING), ending)
            self.disks.is_attendant = False
        os.close(running.descriptor)
        self.ended(running.key, said)
        delay = self.world.timing.below(2 * SECOND)
        if self.world.faults.happens(self.late_rate):
            self.world.injected["runner answers late"] += 1
            delay = self.world.faults.below(20 * MINUTE)
        self.world.later(delay, lambda: self.told(running.server))

    def close(self) -> None:
        for running in self.running.values():
            os.close(running.descriptor)
        self.running.clear()
