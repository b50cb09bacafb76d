"""A worker that takes no job which the next reboot would cut short."""

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from forewarn.client import Change, ChangeKind, Client, ClosedError

Job = Callable[[], None]


class Worker:
    """Does one job after the other, except when its machine is about to be interrupted."""

    def __init__(self, metadata: str | None = None) -> None:
        self.jobs: queue.Queue[Job] = queue.Queue()
        self.is_paused = threading.Event()
        self._busy = threading.Lock()
        self._ahead: set[str] = set()
        self._client = Client(metadata)  # None: wherever this machine finds it
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=do) for do in (self._work, self._follow)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._client.close()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while not self._stopping.is_set():
            with self._busy:
                if not self.is_paused.is_set():
                    self._do_next_job()
            self._stopping.wait(0.01)

    def _do_next_job(self) -> None:
        try:
            job = self.jobs.get_nowait()
        except queue.Empty:
            return
        job()

    def _follow(self) -> None:
        with suppress(ClosedError):  # as we stop
            me = self._client.whoami()
            for change in self._client.watch():
                if change.event.affects(me):
                    self._react(change)

    def _react(self, change: Change) -> None:
        match change.kind:
            case ChangeKind.SCHEDULED:
                self._pause(change.event.event_id)
                self._client.approve(change.event)
            case ChangeKind.STARTED:
                self._pause(change.event.event_id)
            case _:
                self._resume(change.event.event_id)

    def _pause(self, event_id: str) -> None:
        self._ahead.add(event_id)
        self.is_paused.set()
        with self._busy:
            pass  # the job under way has ended

    def _resume(self, event_id: str) -> None:
        self._ahead.discard(event_id)
        if not self._ahead:
            self.is_paused.clear()
