"""Writes per second at the Store port, beside the same statements through the plain driver.

A write is what an operation does: an event, its scope's document, a line in the ledger and one in
the audit, four statements in a transaction that is on the disk before it is acknowledged. The peer
has its values ready and commits them one by one, with the same durability.

The disks: the directory for temporary files; memory, where a commit costs nothing and only our own
time counts; and memory again with 5 ms for each fsync, like a good network disk.

Then the same on PostgreSQL, which waits for the disk. Its peer is one connection of psycopg that
takes the lock row first, as every replica does; and, for information, 32 such connections.
"""

import gc
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import psycopg
import structlog
from clusters import durable_cluster
from smoke import PASSED_ON, new_parser, run, sized, skip, skip_without
from sqlalchemy import Table

from forewarn.domain.event import Happening, ScheduledEvent
from forewarn.domain.names import ScopeId, VmName
from forewarn.domain.publication import show
from forewarn.ports.entries import AuditEntry, LedgerEntry
from forewarn.ports.store import Store, Transaction
from forewarn.protocol.document import Document, encode_document
from forewarn.protocol.versions import NEWEST
from forewarn.protocol.vocabulary import EventId, EventSource, EventStatus, EventType
from forewarn.storage.postgres import open_postgres
from forewarn.storage.rows import PUT
from forewarn.storage.sqlite import open_sqlite, upgrade
from forewarn.storage.tables import audit, documents, events, ledger

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
MICROSECONDS = 1_767_600_000_000_000
CALLERS = sized(32, smoke=4)
RUNS = sized(5, smoke=1)
SECONDS = sized(0.5, smoke=0.05)
RATIO_TARGET = 0.5
WARM_UP = sized(500, smoke=10)
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
    parser = new_parser(__doc__)
    parser.add_argument("--slow-sync", action="store_true", help="only measure that disk")
    if parser.parse_args().slow_sync:
        _measure("fsync of 5 ms", MEMORY)
        return
    print(f"{'disk':<18}{'callers':>8}{'store':>12}{'sqlite3':>12}  ratio", flush=True)
    _measure("temporary files", None)
    if MEMORY.is_dir():
        _measure("memory", MEMORY)
        _measure_with_slow_sync()
    else:
        skip(f"{MEMORY} not found")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("error"))
    _measure_postgresql()


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
                (
                    _rate_of_store(store, numbers, callers),
                    _rate_of_peer(partial(_write_plainly, peer), numbers),
                )
                for _ in range(RUNS)
            ]
            _print_row(disk, callers, pairs)
        store.close()
        peer.close()


def _print_row(disk: str, callers: int, pairs: Iterable[tuple[float, float]]) -> None:
    ours, theirs = (median(rates) for rates in zip(*pairs, strict=True))
    row = f"{disk:<18}{callers:>8}{ours:>10.0f}/s{theirs:>10.0f}/s  {ours / theirs:.2f}"
    print(row, flush=True)


def _measure_postgresql() -> None:
    with durable_cluster() as cluster:
        if cluster is None:
            return
        numbers = count()
        url = cluster.new_database()
        store = open_postgres(cluster.new_database())
        peers = [psycopg.connect(url, autocommit=True) for _ in range(CALLERS)]
        header = f"{'PostgreSQL':<18}{'callers':>8}{'store':>12}{'psycopg':>12}  ratio"
        print(f"{header} (target {RATIO_TARGET})", flush=True)
        for _ in range(WARM_UP):
            store.submit(_work(next(numbers)))
            _write_to_postgresql(peers[0], next(numbers))
        store.write(_work(next(numbers)))
        for callers in (1, CALLERS):
            pairs = [
                (
                    _rate_of_store(store, numbers, callers),
                    _rate_of_peer(partial(_write_to_postgresql, peers[0]), numbers),
                )
                for _ in range(RUNS)
            ]
            _print_row("temporary files", callers, pairs)
        crowd = median(_rate_of_peers(peers, numbers) for _ in range(RUNS))
        print(f"{'':<38}{crowd:>10.0f}/s  by {CALLERS} connections", flush=True)
        store.close()
        for peer in peers:
            peer.close()


def _rate_of_peers(peers: Sequence[psycopg.Connection], numbers: Iterator[int]) -> float:
    def call(deadline: float) -> int:
        return sum(
            threads.map(
                lambda peer: _write_on(partial(_write_to_postgresql, peer), numbers, deadline),
                peers,
            )
        )

    with ThreadPoolExecutor(len(peers)) as threads:
        return _rate(call)


def _measure_with_slow_sync() -> None:
    if shutil.which("gcc") is None:
        skip_without("gcc")
        return
    with _files(None) as path:
        source, shim = path / "slow_sync.c", path / "slow_sync.so"
        source.write_text(SLOW_SYNC)
        compile_shim = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(shim), str(source)]
        subprocess.run(compile_shim, check=True)  # noqa: S603
        measure = ["env", f"LD_PRELOAD={shim}", sys.executable, __file__, "--slow-sync"]
        subprocess.run([*measure, *PASSED_ON], check=True)  # noqa: S603


@contextmanager
def _files(directory: Path | None) -> Iterator[Path]:
    with TemporaryDirectory(dir=directory) as name:
        yield Path(name)


def _rate_of_store(store: Store, numbers: Iterator[int], callers: int) -> float:
    call = partial(_write_on, lambda number: store.write(_work(number)), numbers)
    with ThreadPoolExecutor(callers) as threads:
        # Threads that are there already, as they are in a server.
        list(threads.map(call, [0.0] * callers))
        return _rate(lambda deadline: sum(threads.map(call, [deadline] * callers)))


def _rate_of_peer(write: Callable[[int], None], numbers: Iterator[int]) -> float:
    return _rate(partial(_write_on, write, numbers))


def _write_on(write: Callable[[int], None], numbers: Iterator[int], deadline: float) -> int:
    done = 0
    while perf_counter() < deadline:
        write(next(numbers))
        done += 1
    return done


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
    peer.execute("BEGIN IMMEDIATE")
    for table, values in _rows(number):
        peer.execute(PUT[table].texts["sqlite"], values)
    peer.execute("COMMIT")


def _write_to_postgresql(peer: psycopg.Connection, number: int) -> None:
    peer.execute("BEGIN")
    peer.execute(b"SELECT last_change FROM write_lock WHERE name = 'writer' FOR UPDATE")
    for table, values in _rows(number):
        peer.execute(PUT[table].texts["postgresql"].encode(), values)
    peer.execute("COMMIT")


def _rows(number: int) -> Iterator[tuple[Table, tuple[object, ...]]]:
    event_id = f"602D9444-D2CD-49C7-8624-{number:012X}"
    vm = f"web-{number}"
    scope_id = f"virtual-machine/{vm}"
    at = MICROSECONDS
    kind = ("Reboot", "Platform", "Scheduled")
    text = ("Host server is undergoing maintenance.", None, None, None)
    rest = (at, at, at, True, True, "[]", None, None, None, "", None, None, None)
    yield events, (event_id, *kind, scope_id, 0, f'["{vm}"]', *text, *rest)
    yield documents, (scope_id, number, at, BODY, scope_id, number)
    yield ledger, (event_id, at, "scheduled", "ada", "", "")
    yield audit, (at, at, "ada", "create", event_id, "done", "", "", "operator")


if __name__ == "__main__":
    run(main)
