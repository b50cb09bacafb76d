"""The front processes of a server: started, watched, and started again.

Each has listeners of its own, which the server keeps open. While a front does not serve, the server
itself accepts connections there, so that nobody is refused and nobody waits.
"""

import asyncio
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import structlog

from forewarn.environment import environment_with
from forewarn.feed.front_order import SERVING, FrontOrder
from forewarn.metadata.hot_path import HotPath
from forewarn.metadata.http import MetadataServer

log = structlog.get_logger()

LATE_SECONDS: Final = 2.0
"""After how long without a word from a front the server helps it out."""
HUNG_SECONDS: Final = 10.0
"""After how long it is killed."""
GRACE_SECONDS: Final = 10.0
"""At the end: more than a front takes to finish what is under way."""
_READY_SECONDS: Final = 0.02
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 30.0
_SETTLED_SECONDS: Final = 10.0
"""A front that has lived as long did not die of its start."""
_PROGRAM: Final = (sys.executable, "-P", "-m", "forewarn.front.local")


class Fronts:
    """Runs a front process on each of *groups*, the listeners of one of them.

    *order* says what a process of some name is told, whose listeners are these files; *server*
    accepts where no process does. *failures* counts how often each has died.
    """

    def __init__(
        self,
        groups: Iterable[Sequence[socket.socket]],
        order: Callable[[str, Sequence[int]], FrontOrder],
        server: MetadataServer,
        failures: Counter[str],
    ) -> None:
        self._server = server
        self._fronts = [
            _FrontProcess(
                f"front-{number}", tuple(listeners), order, _hot_path_of(server), failures
            )
            for number, listeners in enumerate(groups, start=1)
        ]

    async def run(self) -> None:
        """Keep all of them running until stopped."""
        while not self._server.started:
            if self._server.should_exit:
                return
            await asyncio.sleep(_READY_SECONDS)
        async with asyncio.TaskGroup() as group:
            for front in self._fronts:
                group.create_task(front.run())

    def stop(self) -> None:
        """Listen no more, and have all of them finish what is under way, and end."""
        for front in self._fronts:
            front.stop()


def _hot_path_of(server: MetadataServer) -> HotPath:
    if server.hot_path is None:
        raise ValueError(server.hot_path)
    return server.hot_path


@dataclass(slots=True, eq=False)
class _FrontProcess:
    """One front process after the other, on the same listeners."""

    name: str
    listeners: tuple[socket.socket, ...]
    order: Callable[[str, Sequence[int]], FrontOrder]
    hot_path: HotPath
    failures: Counter[str]
    _process: subprocess.Popen[bytes] | None = None
    _is_helped_out: bool = False
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        pause = _FIRST_PAUSE
        now = asyncio.get_running_loop().time
        self.failures[self.name] += 0  # a figure from the start, so that its first increase is seen
        self._help_out()
        while not self._stopping.is_set():
            since = now()
            problem = await self._run_once()
            if self._stopping.is_set():
                break
            self._help_out()
            pause = _FIRST_PAUSE if now() - since > _SETTLED_SECONDS else pause
            self.failures[self.name] += 1
            log.error("front_died", front=self.name, problem=problem, again_after=pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
            pause = min(pause * 2, _LONGEST_PAUSE)

    def stop(self) -> None:
        self._stopping.set()
        self._leave()
        if self._process is not None:  # or it gets the listeners just now, and is told then
            self._hang_up(self._process)

    def _hang_up(self, process: subprocess.Popen[bytes]) -> None:
        """Leave it to a process to end, as it would if the server had died."""
        for listener in self.listeners:
            listener.close()
        _close_input(process)
        asyncio.get_running_loop().call_later(GRACE_SECONDS, process.kill)

    async def _run_once(self) -> str:
        """Run a process to its end, and return what it died of."""
        try:
            # On a thread: in a server with a million virtual machines it takes its time.
            process = await asyncio.to_thread(self._start)
        except OSError as error:
            return f"it cannot be started: {error.strerror}"
        self._process = process
        if self._stopping.is_set():
            self._hang_up(process)
        problem = "it was killed"
        try:
            problem = await self._watch(process)
        finally:
            self._process = None
            process.kill()  # which it has survived only if this task was canceled
            _close_input(process)
            status = await asyncio.to_thread(process.wait)
        return problem or (f"signal {-status}" if status < 0 else f"exit status {status}")

    def _start(self) -> subprocess.Popen[bytes]:
        files = tuple(each.fileno() for each in self.listeners)
        process = subprocess.Popen(  # noqa: S603
            _PROGRAM,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=files,
            env=environment_with({}),
            process_group=0,  # Ctrl-C is for the server, which tells its fronts
        )
        if process.stdin is not None:
            with suppress(BrokenPipeError):  # it is dead already, and will be missed
                process.stdin.write(self.order(self.name, files).encode())
                process.stdin.flush()
        return process

    async def _watch(self, process: subprocess.Popen[bytes]) -> str:
        """Listen to a front until it ends; return what was wrong if it had to be killed."""
        said = asyncio.StreamReader()
        listening, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(said), process.stdout
        )
        silent, problem = 0.0, ""
        try:
            while not said.at_eof():
                try:
                    async with asyncio.timeout(LATE_SECONDS):
                        word = await said.read(64)
                except TimeoutError:
                    silent += LATE_SECONDS
                    if not self._is_helped_out:
                        log.warning("front_late", front=self.name, pid=process.pid)
                    self._help_out()
                    if silent >= HUNG_SECONDS:
                        problem = f"it made no progress for {HUNG_SECONDS:.0f} seconds"
                        process.kill()
                    continue
                silent = 0.0
                if word.endswith(SERVING) and self._leave():
                    log.info("front_started", front=self.name, pid=process.pid)
        finally:
            listening.close()
        return problem

    def _help_out(self) -> None:
        """Accept connections where the front should."""
        if not (self._is_helped_out or self._stopping.is_set()):
            self._is_helped_out = True
            for listener in self.listeners:
                self.hot_path.listen(listener)

    def _leave(self) -> bool:
        """Leave the listeners to the front; tell whether they were not left to it."""
        was_helped_out, self._is_helped_out = self._is_helped_out, False
        if was_helped_out:
            for listener in self.listeners:
                self.hot_path.ignore(listener)
        return was_helped_out


def _close_input(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            process.stdin.close()
