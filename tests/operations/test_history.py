"""What is forgotten when it is old, who decides how long that is, and what the audit says of it."""

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from forewarn.operations.context import Context
from forewarn.operations.history import find_old, prune, settle_retention
from forewarn.operations.pausing import pause_server, resume_server
from forewarn.operations.restoring import BACKUP_TAKEN_AT, take_over_backup
from forewarn.ports.entries import AuditEntry, History
from forewarn.ports.store import HISTORY_RETENTION, Reading, Store

QUARTER = timedelta(days=90)


def settle(store: Store, context: Context, retention: timedelta | None) -> datetime | None:
    return store.write(lambda tx: settle_retention(tx, context, retention))


def stored(store: Store) -> str | None:
    return store.read(lambda reading: reading.setting(HISTORY_RETENTION))


def said(store: Store, action: str) -> list[tuple[str, str]]:
    """Return the subject and detail of each line about *action*."""
    lines = store.read(lambda reading: reading.audit(action=action))
    return [(line.subject, line.detail) for line in lines]


def add_lines(store: Store, *moments: datetime) -> None:
    for at in moments:
        entry = AuditEntry(at=at, maintenance_time=at, who="ada", action="vm add", subject="x")
        store.write(lambda tx, entry=entry: tx.append_audit(entry))  # type: ignore[misc]


def test_retention_is_stored_and_each_change_of_it_is_in_the_audit(
    store: Store, operator: Context
) -> None:
    kept = [settle(store, operator, each) for each in (QUARTER, QUARTER, None, None)]

    margin = timedelta(hours=1)
    assert kept == [operator.now - QUARTER - margin] * 2 + [None, None]
    assert stored(store) == ""
    assert said(store, "history retention") == [
        ("history", "from forever to 90d"),
        ("history", "from 90d to forever"),
    ]


def test_nothing_is_written_where_history_was_always_kept(store: Store, operator: Context) -> None:
    assert settle(store, operator, None) is None

    assert (stored(store), said(store, "history retention")) == (None, [])


def test_paused_server_forgets_nothing(store: Store, operator: Context) -> None:
    before = settle(store, operator, QUARTER)
    assert before is not None
    add_lines(store, before - QUARTER, operator.at)
    look = partial(find_old, kind=History.AUDIT, before=before, limit=9)
    assert len(store.read(look)) == 1

    store.write(lambda tx: pause_server(tx, operator))

    assert store.read(look) == ()
    assert settle(store, operator, timedelta(days=30)) is None
    assert stored(store) == str(90 * 86400)


def test_restored_database_keeps_everything_until_the_server_continues(
    store: Store, operator: Context
) -> None:
    """All of a backup that is older than the retention would be gone before anybody sees it."""
    settle(store, operator, QUARTER)
    store.write(lambda tx: tx.put_setting(BACKUP_TAKEN_AT, operator.at.isoformat()))
    years_later = replace(operator, now=operator.now + 12 * QUARTER, at=operator.at + 12 * QUARTER)

    store.write(lambda tx: take_over_backup(tx, years_later))

    assert settle(store, years_later, QUARTER) is None
    assert stored(store) == "", "nobody could delete a record by hand either"
    store.write(lambda tx: resume_server(tx, years_later))
    assert settle(store, years_later, QUARTER) is not None
    assert said(store, "history retention")[-1] == ("history", "from forever to 90d")


def test_each_pruning_is_in_the_audit_with_its_range(store: Store, operator: Context) -> None:
    before = settle(store, operator, QUARTER)
    assert before is not None
    first, last = before - 2 * QUARTER, before - QUARTER
    add_lines(store, last, first, operator.at)

    def look(reading: Reading) -> tuple[int, ...]:
        return find_old(reading, History.AUDIT, before, limit=9)

    rows = store.read(look)
    for _ in range(2):  # the second time, nothing is left and nothing is said
        store.write(lambda tx: prune(lambda: operator, History.AUDIT, before, rows, tx))

    assert store.read(look) == ()
    assert said(store, "history prune") == [
        ("audit", f"{first:%Y-%m-%d %H:%M:%S} GMT to {last:%Y-%m-%d %H:%M:%S} GMT: 2 audit")
    ]
