"""A suite of a thousand tests makes a thousand emulators. Nothing of them may stay."""

import asyncio
import gc
import os
import sys
import threading
import urllib.request
from pathlib import Path
from tempfile import gettempdir

import pytest

from forewarn.testing import Emulator

EMULATORS = 1000
WARM_UP = 50
# A leak of a single kilobyte in each would show as a megabyte.
GROWTH_BYTES = 4 * 1024 * 1024


def _live_through_one() -> None:
    with Emulator() as emulator:
        web = emulator.vm("web-0")
        web.preempt()
        url = f"{web.scheduled_events_url}?api-version=2020-07-01"
        request = urllib.request.Request(url, headers={"Metadata": "true"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 200
        emulator.clock.advance(minutes=1)


def _memory() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _folders() -> set[str]:
    return {path.name for path in Path(gettempdir()).glob("forewarn-*")}


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _tasks() -> int:
    return sum(isinstance(thing, asyncio.Task) and not thing.done() for thing in gc.get_objects())


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_thousand_emulators_leave_nothing_behind() -> None:
    for _ in range(WARM_UP):
        _live_through_one()
    gc.collect()
    before = (_open_files(), threading.active_count(), _tasks(), len(gc.get_objects()))
    memory, folders = _memory(), _folders()

    for _ in range(EMULATORS - WARM_UP):
        _live_through_one()
    gc.collect()

    files, threads, tasks, objects = before
    assert _open_files() <= files
    assert threading.active_count() <= threads
    assert _tasks() <= tasks
    assert len(gc.get_objects()) < objects + EMULATORS
    assert _memory() < memory + GROWTH_BYTES
    assert _folders() <= folders
