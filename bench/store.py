"""Writes per second at the Store port, beside the same statements through plain sqlite3.

A write is what an operation does: an event, its scope's document, a line in the ledger and one in
the audit, four statements in a transaction that is on the disk before it is acknowledged. The peer
has its values ready and commits them one by one, with the same durability.

The disks: memory, where a commit costs nothing and only our own time counts; the directory for
temporary files; and memory again with 5 ms for each fsync, like a good network disk.
"""

import gc
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from forewarn.domain.event import Happening, ScheduledEvent
from forewarn.domain.names import ScopeId, VmName
from forewarn.domain.publication import show
from forewarn.ports.entries import AuditEntry, LedgerEntry
from forewarn.ports.store import Store, Transaction
from forewarn.protocol.document import Document, encode_document
from forewarn.protocol.versions import NEWEST
from forewarn.protocol.vocabulary import EventId, EventSource, EventStatus, EventType
from forewarn.storage.sqlite import open_sqlite, upgrade
from forewarn.storage.statements import PUT
from forewarn.storage.tables import audit, documents, events, ledger

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
MICROSECONDS = 1_767_600_000_000_000
CALLERS = 32
RUNS = 5
SECONDS = 0.5
WARM_UP = 500
MEMORY = Path("/dev/shm")  # noqa: S108 - the point is that it is no disk

SLOW_SYNC = """
#include <time.h>
static int slow(void) {
    struct timespec pause = {0, 5000000};
    nanosleep(&pause, 0);
    return 0;
}
int fsync(int file) { (void)file; return slow(); }
int fdatasync(int file) { (void)file; return slow(); }
"""


def main() -> None:
    if sys.argv[1:] == ["slow"]:
        _measure("fsync of 5 ms", MEMORY)
        return
    print(f"{'disk':<18}{'callers':>8}{'store':>12}{'sqlite3':>12}  ratio", flush=True)
    if MEMORY.is_dir():
        _measure("memory", MEMORY)
    _measure("temporary files", None)
    if MEMORY.is_dir() and shutil.which("gcc"):
        _measure_with_slow_sync()


def _measure(disk: str, directory: Path | None) -> None:
    with _files(directory) as path:
        numbers = count()
        store = open_sqlite(path / "store.db")
        peer = _open_peer(path / "peer.db")
        # Until the logs have their size, a disk has to find room for them too.
        for _ in range(WARM_UP):
            store.submit(_work(next(numbers)))
            _write_plainly(peer, next(numbers))
        store.write(_work(next(numbers)))
        for callers in (1, CALLERS):
            pairs = [
                (_rate_of_store(store, numbers, callers), _rate_of_peer(peer, numbers))
                for _ in range(RUNS)
            ]
            ours, theirs = (median(rates) for rates in zip(*pairs, strict=True))
            row = f"{disk:<18}{callers:>8}{ours:>10.0f}/s{theirs:>10.0f}/s  {ours / theirs:.2f}"
            print(row, flush=True)
        store.close()
        peer.close()


def _measure_with_slow_sync() -> None:
    with _files(None) as path:
        source, shim = path / "slow_sync.c", path / "slow_sync.so"
        source.write_text(SLOW_SYNC)
        compile_shim = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(shim), str(source)]
        subprocess.run(compile_shim, check=True)  # noqa: S603
        measure = ["env", f"LD_PRELOAD={shim}", sys.executable, __file__, "slow"]
        subprocess.run(measure, check=True)  # noqa: S603


@contextmanager
def _files(directory: Path | None) -> Iterator[Path]:
    with TemporaryDirectory(dir=directory) as name:
        yield Path(name)


def _rate_of_store(store: Store, numbers: Iterator[int], callers: int) -> float:
    def call(deadline: float) -> int:
        done = 0
        while perf_counter() < deadline:
            store.write(_work(next(numbers)))
            done += 1
        return done

    with ThreadPoolExecutor(callers) as threads:
        # Threads that are there already, as they are in a server.
        list(threads.map(call, [0.0] * callers))
        return _rate(lambda deadline: sum(threads.map(call, [deadline] * callers)))


def _rate_of_peer(peer: sqlite3.Connection, numbers: Iterator[int]) -> float:
    def call(deadline: float) -> int:
        done = 0
        while perf_counter() < deadline:
            _write_plainly(peer, next(numbers))
            done += 1
        return done

    return _rate(call)


def _rate(call: Callable[[float], int]) -> float:
    gc.collect()
    begin = perf_counter()
    done = call(begin + SECONDS)
    return done / (perf_counter() - begin)


def _work(number: int) -> Callable[[Transaction], None]:
    event = _event(number)

    def work(tx: Transaction) -> None:
        tx.put_event(event)
        document = Document(document_incarnation=number, events=(show(event),))
        tx.put_document(event.scope_id, document, at=NOW)
        what = Happening.SCHEDULED
        tx.append_ledger(LedgerEntry(event_id=event.event_id, at=NOW, what=what, who="ada"))
        tx.append_audit(
            AuditEntry(
                at=NOW, maintenance_time=NOW, who="ada", action="create", subject=event.event_id
            )
        )

    return work


def _event(number: int) -> ScheduledEvent:
    return ScheduledEvent(
        event_id=EventId(f"602D9444-D2CD-49C7-8624-{number:012X}"),
        event_type=EventType.REBOOT,
        event_source=EventSource.PLATFORM,
        event_status=EventStatus.SCHEDULED,
        # Scopes of their own, because callers do not come in the order of their numbers.
        scope_id=ScopeId(f"virtual-machine/web-{number}"),
        update_domain=0,
        resources=(VmName(f"web-{number}"),),
        description="Host server is undergoing maintenance.",
        duration_in_seconds=None,
        maintenance_id=None,
        host=None,
        created_at=NOW,
        not_before=NOW + timedelta(minutes=15),
        first_not_before=NOW + timedelta(minutes=15),
        is_announced=True,
        is_published=True,
    )


def _open_peer(path: Path) -> sqlite3.Connection:
    upgrade(path)
    peer = sqlite3.connect(path, isolation_level=None)
    peer.execute("PRAGMA journal_mode=WAL")
    peer.execute("PRAGMA synchronous=FULL")
    peer.execute("PRAGMA foreign_keys=ON")
    return peer


BODY = encode_document(Document(document_incarnation=1, events=(show(_event(1)),)), NEWEST)


def _write_plainly(peer: sqlite3.Connection, number: int) -> None:
    event_id = f"602D9444-D2CD-49C7-8624-{number:012X}"
    vm = f"web-{number}"
    scope_id = f"virtual-machine/{vm}"
    at = MICROSECONDS
    kind = ("Reboot", "Platform", "Scheduled")
    text = ("Host server is undergoing maintenance.", None, None, None)
    rest = (at, at, at, 1, 1, "[]", None, None, None, "", None, None, None)
    peer.execute("BEGIN IMMEDIATE")
    peer.execute(
        PUT[events].texts["sqlite"], (event_id, *kind, scope_id, 0, f'["{vm}"]', *text, *rest)
    )
    peer.execute(PUT[documents].texts["sqlite"], (scope_id, number, at, BODY, scope_id, number))
    peer.execute(PUT[ledger].texts["sqlite"], (event_id, at, "scheduled", "ada", "", ""))
    peer.execute(
        PUT[audit].texts["sqlite"], (at, at, "ada", "create", event_id, "done", "", "", "operator")
    )
    peer.execute("COMMIT")


if __name__ == "__main__":
    main()
