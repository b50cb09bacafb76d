"""What a PostgreSQL database goes through before a store is opened on it."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier

import psycopg
import pytest
from sqlalchemy import Engine, create_engine, inspect, make_url, select
from sqlalchemy.exc import OperationalError
from tests.e2e.conftest import wait_until
from tests.next_release import become_next_release
from tests.postgres import Cluster, find_binaries

from forewarn.domain.event import Happening
from forewarn.ports.entries import AuditEntry, LedgerEntry
from forewarn.ports.store import Transaction
from forewarn.protocol.vocabulary import event_id
from forewarn.storage.errors import (
    DatabaseTooNewError,
    DatabaseUnreleasedError,
    DatabaseUnusableError,
    NotADatabaseError,
)
from forewarn.storage.postgres import open_postgres
from forewarn.storage.schema import prepare_database
from forewarn.storage.tables import metadata, write_lock

TIMEOUT = 30.0
NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
EVENT = event_id(f"{1:032x}")


@contextmanager
def engine_of(url: str) -> Iterator[Engine]:
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"))
    try:
        yield engine
    finally:
        engine.dispose()


def run_sql(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def record_line(tx: Transaction) -> None:
    tx.append_ledger(LedgerEntry(event_id=EVENT, at=NOW, what=Happening.SCHEDULED, who="ada"))
    tx.append_audit(AuditEntry(at=NOW, maintenance_time=NOW, who="ada", action="", subject=""))


def test_empty_database_gets_every_table_once(postgres: Cluster) -> None:
    url = postgres.empty_database()

    with engine_of(url) as engine:
        assert prepare_database(engine, migrate=True)
        assert not prepare_database(engine, migrate=True)
        assert not prepare_database(engine, migrate=False)
        names = set(inspect(engine).get_table_names())
        with engine.connect() as connection:
            locks = connection.execute(select(write_lock)).all()

    postgres.drop(url)
    assert names == {*metadata.tables, "alembic_version"}
    assert locks == [("writer", 0)]


@pytest.mark.parametrize(
    "statement", ["UPDATE {} SET who = ''", "DELETE FROM {}", "TRUNCATE {}", "truncate {} cascade"]
)
@pytest.mark.parametrize("table", ["ledger", "audit"])
def test_nobody_rewrites_the_records(postgres_url: str, table: str, statement: str) -> None:
    with closing(open_postgres(postgres_url)) as store:
        store.write(record_line)

    with pytest.raises(psycopg.IntegrityError, match=f"{table} is append-only"):
        run_sql(postgres_url, statement.format(table))


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ("DROP TABLE alembic_version", NotADatabaseError, "is not a forewarn database; use an"),
        ("DROP TABLE ledger", NotADatabaseError, "is not a forewarn database; use another databa"),
        (
            "UPDATE alembic_version SET version_num = '9999'; DELETE FROM settings",
            DatabaseTooNewError,
            "has schema 9999, which this release does not know",
        ),
        (
            "UPDATE alembic_version SET version_num = '0022'",
            DatabaseUnreleasedError,
            "has schema 0022 of an unreleased version",
        ),
    ],
)
def test_what_this_release_cannot_use_is_refused_without_a_password(
    postgres_url: str, change: str, error: type[Exception], sentence: str
) -> None:
    run_sql(postgres_url, change)
    url = make_url(postgres_url).set(password="hidden", query={"password": "secret"})  # noqa: S106

    with (
        engine_of(url.render_as_string(hide_password=False)) as engine,
        pytest.raises(error, match=sentence) as refusal,
    ):
        prepare_database(engine, migrate=False)

    assert str(refusal.value).startswith(f"postgresql://forewarn:***@127.0.0.1:{url.port}/test_")
    assert not {"hidden", "secret"} & set(str(refusal.value).split())
    assert "secret" not in str(refusal.value)


def test_missing_privilege_is_named(postgres: Cluster) -> None:
    url = postgres.empty_database()
    run_sql(url, "REVOKE CREATE ON SCHEMA public FROM PUBLIC", "CREATE ROLE guest LOGIN")

    with (
        engine_of(make_url(url).set(username="guest").render_as_string()) as engine,
        pytest.raises(DatabaseUnusableError, match="permission denied for schema public"),
    ):
        prepare_database(engine, migrate=True)

    postgres.drop(url)


def test_database_that_cannot_keep_every_name_is_refused(postgres: Cluster) -> None:
    postgres.run_sql("CREATE DATABASE latin ENCODING LATIN1 TEMPLATE template0")
    url = postgres.url("latin")

    with (
        engine_of(url) as engine,
        pytest.raises(DatabaseUnusableError, match="its encoding is LATIN1; create it with UTF8"),
    ):
        prepare_database(engine, migrate=True)

    postgres.drop(url)


def test_server_that_is_away_is_left_to_the_caller(tmp_path: Path) -> None:
    url = f"postgresql://forewarn@/forewarn?host={tmp_path}"

    with engine_of(url) as engine, pytest.raises(OperationalError):
        prepare_database(engine, migrate=True)


def test_replicas_that_start_at_once_create_one_schema(postgres: Cluster) -> None:
    for _ in range(3):
        url = postgres.empty_database()

        results = at_once(prepare, url)

        postgres.drop(url)
        assert sorted(results) == [False, False, True]


def test_replicas_that_start_at_once_upgrade_once(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    become_next_release(monkeypatch, tmp_path)

    results = at_once(prepare, postgres_url)

    assert sorted(results) == [False, False, True]


def test_upgrade_waits_for_the_replica_that_writes(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    become_next_release(monkeypatch, tmp_path)

    with psycopg.connect(postgres_url) as writer, ThreadPoolExecutor() as pool:
        writer.execute("SELECT last_change FROM write_lock FOR UPDATE")
        upgrade = pool.submit(prepare, postgres_url)
        wait_until(lambda: waits_for_the_writer(postgres_url), "it does not wait", TIMEOUT)
        writer.rollback()

        assert upgrade.result(TIMEOUT)


def waits_for_the_writer(url: str) -> bool:
    query = """
    SELECT FROM pg_stat_activity WHERE datname = current_database()
    AND wait_event_type = 'Lock' AND query LIKE '%write_lock FOR UPDATE'
    """
    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchone() is not None


def prepare(url: str) -> bool:
    with engine_of(url) as engine:
        return prepare_database(engine, migrate=True)


def at_once(work: Callable[[str], bool], url: str, times: int = 3) -> list[bool]:
    barrier = Barrier(times, timeout=TIMEOUT)

    def begin(_: int) -> bool:
        barrier.wait()
        return work(url)

    with ThreadPoolExecutor(times) as pool:
        return list(pool.map(begin, range(times), timeout=TIMEOUT))


def test_creation_that_fails_leaves_nothing(postgres: Cluster) -> None:
    url = postgres.empty_database()
    run_sql(url, "CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END'")

    with engine_of(url) as engine, pytest.raises(DatabaseUnusableError, match="already exists"):
        prepare_database(engine, migrate=True)
    with engine_of(url) as engine:
        names = inspect(engine).get_table_names()

    postgres.drop(url)
    assert names == []


RUN_CLUSTER = """
from tests.postgres import run_cluster
with run_cluster() as cluster:
    print(cluster.folder, cluster.port, flush=True)
    input()
"""


def test_server_ends_with_the_tests_however_these_end() -> None:
    find_binaries()
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", RUN_CLUSTER],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        folder, port = process.stdout.readline().split()
        url = f"postgresql://forewarn@127.0.0.1:{port}/postgres"
        run_sql(url, "SELECT 1")

        process.kill()

    wait_until(lambda: not Path(folder).exists(), "its folder is still there", TIMEOUT)
    with pytest.raises(psycopg.OperationalError):
        run_sql(url, "SELECT 1")
