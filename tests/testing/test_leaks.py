"""A suite of hundreds of tests makes hundreds of emulators. Nothing of them may stay."""

import asyncio
import gc
import json
import os
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

from forewarn.testing import Emulator

WARM_UP = 50
SECONDS = 600
# What the caches of the standard library may still take in; one thing of each emulator is more.
GROWTH = {"objects": 200, "bytes": 4 * 1024 * 1024}


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_emulators_leave_nothing_behind(tmp_path: Path, emulators: int) -> None:
    # In a process of its own: a tracer of coverage, for one, stays for each thread there was.
    done = subprocess.run(
        [sys.executable, __file__, str(emulators)],
        env={"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr

    before, after = map(json.loads, done.stdout.splitlines())
    assert after["files"] <= before["files"]
    assert after["threads"] <= before["threads"]
    assert after["tasks"] == before["tasks"] == 0
    for name, growth in GROWTH.items():
        assert after[name] < before[name] + growth, f"{name}: {before} became {after}"
    assert list(tmp_path.iterdir()) == []


def _live_through(emulators: int) -> None:
    for _ in range(emulators):
        with Emulator() as emulator:
            web = emulator.vm("web-0")
            web.preempt()
            url = f"{web.scheduled_events_url}?api-version=2020-07-01"
            request = urllib.request.Request(url, headers={"Metadata": "true"})
            with urllib.request.urlopen(request, timeout=30) as answer:
                answer.read()
            emulator.clock.advance(minutes=1)


def _measure() -> dict[str, int]:
    gc.collect()
    things = gc.get_objects()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return {
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "threads": threading.active_count(),
        "tasks": sum(isinstance(thing, asyncio.Task) and not thing.done() for thing in things),
        "objects": len(things),
        "bytes": pages * os.sysconf("SC_PAGE_SIZE"),
    }


if __name__ == "__main__":
    _live_through(WARM_UP)
    sys.stdout.write(json.dumps(_measure()) + "\n")
    _live_through(int(sys.argv[1]) - WARM_UP)
    sys.stdout.write(json.dumps(_measure()) + "\n")
