"""What only PostgreSQL can go through: lost connections, replicas, and what it cannot keep."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit, setrlimit

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError
from tests.postgres import Cluster, run_cluster
from tests.waiting import wait_until
from tests.works import TIMEOUT, held

from forewarn.clocks import SystemClock
from forewarn.domain.amending import build_topology
from forewarn.domain.names import VmName
from forewarn.domain.topology import Topology, VirtualMachine, standalone
from forewarn.ports.changes import StoreChange
from forewarn.ports.entries import AuditEntry
from forewarn.ports.replicas import ReplicaIdentity
from forewarn.ports.store import SERVER_PAUSE, StoreUnavailableError, Transaction
from forewarn.storage.administration import back_up, mark_restored
from forewarn.storage.errors import DatabaseUnusableError, DatabaseUrlError
from forewarn.storage.lease import DatabaseLeadership
from forewarn.storage.postgres import PostgresStore, open_postgres
from forewarn.storage.postgres_changes import CHANGES_KEPT, read_changes
from forewarn.storage.postgres_outages import will_pass
from forewarn.storage.postgres_session import (
    READERS,
    PostgresAddress,
    PostgresSession,
    without_nul,
)
from forewarn.storage.replicas import DatabaseReplicas
from forewarn.storage.transaction import Changes

NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)

# At the very end of a transaction, when everything else is done.
FAILING_COMMIT = """
CREATE FUNCTION cut_off() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER cut_off AFTER INSERT OR UPDATE ON settings
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION cut_off()
"""

# What a setting is called tells what happens to the transaction that writes it.
HARMFUL_SETTINGS = """
CREATE FUNCTION do_harm() RETURNS trigger LANGUAGE plpgsql AS '
  BEGIN
    IF NEW.name = ''fail'' THEN RAISE EXCEPTION ''no''; END IF;
    IF NEW.name = ''demote'' THEN
      PERFORM set_config(''default_transaction_read_only'', ''on'', false);
    END IF;
    RETURN NEW;
  END';
CREATE TRIGGER do_harm BEFORE INSERT ON settings FOR EACH ROW EXECUTE FUNCTION do_harm()
"""


class Heard:
    """A listener that others can wait for."""

    def __init__(self, store: PostgresStore) -> None:
        self.changes: list[StoreChange] = []
        self._news = threading.Condition()
        store.listen(self._note)

    def wait_for(self, is_it: Callable[[StoreChange], bool]) -> StoreChange:
        """Return the first change of which this holds, that came or comes soon."""
        with self._news:
            assert self._news.wait_for(lambda: any(map(is_it, self.changes)), TIMEOUT)
            return next(filter(is_it, self.changes))

    def _note(self, change: StoreChange) -> None:
        with self._news:
            self.changes.append(change)
            self._news.notify_all()


def pause(number: int) -> Callable[[Transaction], None]:
    return lambda tx: tx.put_setting(SERVER_PAUSE, str(number))


def make_topology(name: str) -> Topology:
    scope = standalone(VmName(name))
    vm = VirtualMachine(name=VmName(name), scope_id=scope.scope_id)
    return build_topology(scopes=[scope], virtual_machines=[vm])


def cut_off_all(url: str) -> None:
    """End every connection to the database but this one."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(OTHERS)


def test_replica_hears_of_what_others_commit_in_their_order(
    store: PostgresStore, replica: PostgresStore
) -> None:
    heard = Heard(replica)

    for number in range(5):
        store.write(pause(number))

    last = heard.wait_for(lambda change: change.sequence == 5)
    assert last.has_work
    assert [change.sequence for change in heard.changes] == sorted(
        change.sequence for change in heard.changes
    )


def test_replica_is_told_of_others_changes_before_its_own_is_acknowledged(
    store: PostgresStore, replica: PostgresStore
) -> None:
    heard = Heard(replica)
    store.write(pause(1))

    replica.write(lambda tx: tx.put_setting("x", "y"))

    assert [change.sequence for change in heard.changes] == [1]


def test_replica_with_thousands_of_open_files_is_woken_by_others_changes(
    postgres_url: str, store: PostgresStore, capsys: pytest.CaptureFixture[str]
) -> None:
    limit, most = getrlimit(RLIMIT_NOFILE)
    setrlimit(RLIMIT_NOFILE, (min(4096, most), most))
    try:
        with ExitStack() as stack:
            for _ in range(1100):
                stack.enter_context(Path(os.devnull).open("rb"))
            replica = stack.enter_context(closing(open_postgres(postgres_url)))
            heard = Heard(replica)
            for number in range(1, 6):
                store.write(pause(number))
                heard.wait_for(lambda change: change.sequence == store.last_told)
    finally:
        setrlimit(RLIMIT_NOFILE, (limit, most))

    assert "changes_not_followed" not in capsys.readouterr().out


def test_change_whose_notification_was_lost_is_found(
    postgres_url: str, store: PostgresStore, replica: PostgresStore
) -> None:
    heard = Heard(replica)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("UPDATE write_lock SET last_change = 1")
        hint = '{"sequence": 1, "has_work": true}'
        connection.execute("INSERT INTO changes VALUES (1, %s, 0)", [hint])

    assert heard.wait_for(lambda change: change.sequence == 1).has_work
    store.write(pause(2))
    heard.wait_for(lambda change: change.sequence == 2)


def test_replica_that_is_too_far_behind_reads_everything(
    postgres_url: str, replica: PostgresStore
) -> None:
    heard = Heard(replica)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("UPDATE write_lock SET last_change = %s", [CHANGES_KEPT + 5])

    gap = heard.wait_for(lambda change: change.is_gap)

    assert (gap.sequence, gap.has_work) == (CHANGES_KEPT + 5, True)
    assert (gap.has_ledger_grown, gap.has_outbox_grown, gap.has_tasks) == (True, True, True)


def test_commits_of_others_between_two_statements_are_no_gap(
    postgres_url: str, store: PostgresStore
) -> None:
    for number in range(3):
        store.write(pause(number))

    with psycopg.connect(postgres_url) as connection:
        changes = read_changes(connection, 0, 2)

    assert [(change.sequence, change.is_gap) for change in changes] == [(1, False), (2, False)]


def test_database_that_is_older_than_before_is_read_again_and_followed(
    postgres_url: str,
    store: PostgresStore,
    replica: PostgresStore,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for number in range(10):
        store.write(pause(number))
    # One that lies behind would not notice that the database does, too.
    wait_until(lambda: replica.last_told == 10, "the replica to be told of all changes")
    heard, heard_elsewhere = Heard(store), Heard(replica)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DELETE FROM changes WHERE number > 7")
        connection.execute("UPDATE write_lock SET last_change = 7")

    for each in (heard, heard_elsewhere):
        each.wait_for(lambda change: change.is_gap)
    store.write(pause(100))

    assert heard.changes[-1].sequence == store.last_told == 8
    heard_elsewhere.wait_for(lambda change: change.sequence == 8)
    assert "forewarn db mark-restored" in capsys.readouterr().out


def test_writer_that_finds_the_database_older_tells_of_its_own_change(
    postgres_url: str, store: PostgresStore
) -> None:
    for number in range(10):
        store.write(pause(number))
    heard = Heard(store)
    with psycopg.connect(postgres_url) as connection:
        connection.execute("DELETE FROM changes WHERE number > 7")
        connection.execute("UPDATE write_lock SET last_change = 7")
        submitted = store.submit(pause(100))
    submitted.result(TIMEOUT)

    heard.wait_for(lambda change: change.is_gap)
    assert store.last_told == 8


def test_topology_of_an_older_database_is_read_again(
    postgres_url: str, store: PostgresStore
) -> None:
    store.write(lambda tx: tx.put_topology(make_topology("web-0")))
    heard = Heard(store)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("UPDATE virtual_machines SET name = 'web-1'")
        connection.execute("UPDATE write_lock SET last_change = 0")

    heard.wait_for(lambda change: change.is_gap)

    assert list(store.read(lambda reading: reading.topology()).virtual_machines) == ["web-1"]


def test_hint_that_this_release_cannot_read_is_a_gap(
    postgres_url: str, store: PostgresStore
) -> None:
    heard = Heard(store)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        hint = '{"sequence": 1, "incarnations": ["x"]}'
        connection.execute("INSERT INTO changes VALUES (1, %s, 0), (2, 'null', 0)", [hint])
        connection.execute("UPDATE write_lock SET last_change = 2")

    heard.wait_for(lambda change: change.is_gap and change.sequence == 2)
    store.write(pause(1))


def test_only_the_last_changes_are_kept(postgres_url: str, store: PostgresStore) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("INSERT INTO changes VALUES (1, '{}', 0), (2, '{}', 0)")
        connection.execute("UPDATE write_lock SET last_change = %s", [CHANGES_KEPT])
        store.write(pause(1))
        rows = connection.execute("SELECT number FROM changes ORDER BY number").fetchall()

    assert rows == [(2,), (CHANGES_KEPT + 1,)]


def test_lost_connections_are_opened_again(postgres_url: str, store: PostgresStore) -> None:
    heard = Heard(store)
    store.write(pause(1))
    assert store.read(lambda reading: reading.setting(SERVER_PAUSE)) == "1"
    cut_off_all(postgres_url)

    store.write(pause(2))

    assert store.read(lambda reading: reading.setting(SERVER_PAUSE)) == "2"
    heard.wait_for(lambda change: change.sequence == 2)


def test_connection_that_is_lost_in_a_transaction_undoes_it_for_all_who_share_it(
    postgres_url: str, store: PostgresStore
) -> None:
    def fail(tx: Transaction) -> None:
        tx.put_setting("b", "1")
        cut_off_all(postgres_url)
        tx.setting("b")

    with held(store):
        first = store.submit(lambda tx: tx.put_setting("a", "1"))
        second = store.submit(fail)

    for each in (first, second):
        with pytest.raises(StoreUnavailableError, match="Nothing was written"):
            each.result(TIMEOUT)
    assert not store.is_writable()
    store.write(pause(1))
    assert store.is_writable()
    assert store.read(lambda reading: (reading.setting("a"), reading.setting("b"))) == (None, None)


def test_work_that_ignores_an_error_of_the_database_fails_alone(
    postgres_url: str, store: PostgresStore
) -> None:
    def ignore(tx: Transaction) -> None:
        with suppress(psycopg.Error):
            tx.put_setting("fail", "1")

    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(HARMFUL_SETTINGS)
    with held(store):
        first = store.submit(lambda tx: tx.put_setting("a", "1"))
        second = store.submit(ignore)

    first.result(TIMEOUT)
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        second.result(TIMEOUT)
    assert store.read(lambda reading: reading.setting("a")) == "1"


def test_transaction_that_failed_is_not_taken_for_committed(postgres_url: str) -> None:
    session = PostgresSession(PostgresAddress(postgres_url), told=lambda: 0)
    with closing(open_postgres(postgres_url)), closing(session):
        session.begin()
        with suppress(DBAPIError):
            session.sql.exec_driver_sql("SELECT nothing")

        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            session.commit(Changes())


def test_connection_that_has_become_read_only_is_given_up(
    postgres_url: str, store: PostgresStore
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(HARMFUL_SETTINGS)
    store.write(lambda tx: tx.put_setting("demote", "1"))
    with pytest.raises(StoreUnavailableError, match="read-only"):
        store.write(pause(1))

    store.write(pause(2))


def test_listener_reads_although_every_reader_is_busy(store: PostgresStore) -> None:
    read: list[str | None] = []
    store.listen(lambda _: read.append(store.read(lambda it: it.setting(SERVER_PAUSE))))

    def keep_busy(more: int) -> None:
        if more:
            store.read(lambda _: keep_busy(more - 1))
        else:
            store.write(pause(1))

    keep_busy(READERS)

    assert read == ["1"]


def test_listener_that_would_wait_for_the_writer_is_refused_on_any_thread(
    store: PostgresStore, replica: PostgresStore
) -> None:
    refused: list[Exception] = []

    def write_here(_: StoreChange) -> None:
        try:
            replica.write(pause(2))
        except RuntimeError as error:
            refused.append(error)

    replica.listen(write_here)
    heard = Heard(replica)
    store.write(pause(1))

    heard.wait_for(lambda change: change.sequence == 1)
    assert "use submit()" in str(refused[0])


def test_limits_of_tcp_are_ignored_on_a_unix_socket(postgres: Cluster) -> None:
    url = f"postgresql:///postgres?host={postgres.folder}&port={postgres.port}&user=forewarn"
    with closing(PostgresSession(PostgresAddress(url), told=lambda: 0)) as session:
        shown = session.sql.exec_driver_sql("SHOW tcp_keepalives_idle").scalar()

    assert shown == "0"


def test_isolation_that_the_database_prefers_makes_no_write_fail(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as other:
        name = other.info.dbname
        other.execute(
            f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'".encode()
        )
    with ExitStack() as stack:
        stores = [stack.enter_context(closing(open_postgres(postgres_url))) for _ in range(3)]
        submitted = [each.submit(pause(number)) for number in range(50) for each in stores]

        for each in submitted:
            each.result(TIMEOUT)


def test_commit_that_is_cut_off_is_not_said_to_be_undone(
    postgres_url: str, store: PostgresStore
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(FAILING_COMMIT)
        with pytest.raises(StoreUnavailableError, match="may have been stored"):
            store.write(pause(1))
        connection.execute("DROP FUNCTION cut_off CASCADE")

    store.write(pause(2))


def test_replica_that_stands_still_in_a_transaction_is_cut_off(
    postgres_url: str, store: PostgresStore
) -> None:
    with suppress(psycopg.Error), psycopg.connect(postgres_url) as other:
        other.execute("SET idle_in_transaction_session_timeout = '200ms'")
        other.execute("SELECT FROM write_lock FOR UPDATE")

        store.write(pause(1))

    assert store.read(lambda reading: reading.setting(SERVER_PAUSE)) == "1"


@pytest.mark.parametrize("harm", ["DROP TABLE write_lock, settings", "TRUNCATE write_lock"])
def test_database_whose_tables_somebody_took_away_is_not_written(
    postgres_url: str, store: PostgresStore, harm: str
) -> None:
    leadership = DatabaseLeadership(store.address, "replica-0", now=SystemClock().now)
    with psycopg.connect(postgres_url) as other:
        other.execute(harm.encode())

    with pytest.raises(StoreUnavailableError, match="restore it from a backup"):
        store.write(pause(1))

    assert not store.is_writable()
    with closing(leadership), suppress(StoreUnavailableError):
        assert leadership.campaign() is None


def test_database_whose_tables_are_gone_cannot_be_read(
    postgres_url: str, store: PostgresStore
) -> None:
    with psycopg.connect(postgres_url) as other:
        other.execute("DROP SCHEMA public CASCADE")

    with pytest.raises(StoreUnavailableError, match="cannot be read now: its tables were changed"):
        store.read(lambda reading: reading.setting(SERVER_PAUSE))


def test_database_that_is_away_refuses_reads_and_writes_and_heals() -> None:
    with run_cluster() as cluster:
        url = cluster.new_database()
        with closing(open_postgres(url)) as store:
            store.write(pause(1))
            cluster.stop("immediate")
            for attempt in range(2):
                with pytest.raises(StoreUnavailableError, match="cannot be read now"):
                    store.read(lambda reading: reading.setting(SERVER_PAUSE))
                with pytest.raises(StoreUnavailableError, match="Nothing was written"):
                    store.write(pause(attempt))
            with pytest.raises(StoreUnavailableError, match="cannot be used now"):
                open_postgres(url)

            cluster.start()

            store.write(pause(3))
            assert store.read(lambda reading: reading.setting(SERVER_PAUSE)) == "3"


def test_what_waiting_does_not_mend_is_refused_at_once(postgres: Cluster) -> None:
    with pytest.raises(DatabaseUnusableError, match="does not exist"):
        open_postgres(postgres.url("nothing"))
    with pytest.raises(DatabaseUrlError):
        open_postgres("postgresql://user:secret@[::1/name")


@pytest.mark.parametrize(
    ("said", "passes"),
    [
        ("SSL connection has been closed unexpectedly", True),
        ("SSL SYSCALL error: EOF detected", True),
        ("FATAL:  terminating connection due to administrator command", True),
        ("FATAL:  the database system is starting up", True),
        ("FATAL:  das Datenbanksystem startet", True),
        ("failed to resolve host 'db': [Errno -3] Temporary failure in name resolution", True),
        ("failed to resolve host 'db': [Errno -2] Name or service not known", False),
        ('FATAL:  password authentication failed for user "x"', False),
        ("server does not support SSL, but SSL was required", False),
        ("SSL error: certificate verify failed", False),
        ('connection is bad: invalid sslmode value: "foo"', False),
        ('connection is bad: invalid port number: "99999"', False),
    ],
)
def test_outage_is_waited_for_and_a_mistake_is_not(said: str, *, passes: bool) -> None:
    assert will_pass(psycopg.OperationalError(said)) is passes


def test_secret_of_the_address_is_in_no_error(postgres: Cluster) -> None:
    url = postgres.url("nothing").replace("forewarn@", "forewarn:open-sesame@")

    with pytest.raises(DatabaseUnusableError) as refused:
        open_postgres(f"{url}?sslpassword=open-sesame")

    assert "open-sesame" not in str(refused.value)


def test_symbol_is_kept_for_the_character_that_cannot_be(store: PostgresStore) -> None:
    entry = AuditEntry(at=NOW, maintenance_time=NOW, who="a\0b", action="create", subject="x")

    store.write(lambda tx: tx.append_audit(entry))

    (kept,) = store.read(lambda reading: reading.audit(who="a\0b"))
    assert kept.who == "a␀b"


@pytest.mark.parametrize("values", [(1, "a"), [1, "a"], {"a": ("b",)}])
def test_values_without_that_character_stay_what_they_are(values: object) -> None:
    assert without_nul(values) == values


@contextmanager
def server_that_says(version: str) -> Iterator[str]:
    """Run a server that lets everybody in and says that it is *version*; its URL."""

    def message(kind: bytes, content: bytes) -> bytes:
        return kind + (len(content) + 4).to_bytes(4, "big") + content

    def greet(listener: socket.socket) -> None:
        with listener.accept()[0] as peer:
            peer.recv(10_000)
            known = f"server_version\0{version}\0".encode()
            peer.sendall(message(b"R", bytes(4)) + message(b"S", known) + message(b"Z", b"I"))
            peer.recv(10_000)  # until it goes

    with socket.create_server(("127.0.0.1", 0)) as listener:
        greeting = threading.Thread(target=greet, args=(listener,))
        greeting.start()
        place = f"127.0.0.1:{listener.getsockname()[1]}/forewarn"
        options = "sslmode=disable&gssencmode=disable&target_session_attrs=any"
        yield f"postgresql://{place}?{options}"
        greeting.join(TIMEOUT)


@pytest.mark.parametrize("version", ["13.14 (Debian 13.14-1)", "9.6.24"])
def test_server_that_is_too_old_is_refused(version: str) -> None:
    said = version.partition(" ")[0]
    with (
        server_that_says(version) as url,
        pytest.raises(DatabaseUnusableError) as refused,
    ):
        open_postgres(url)

    assert str(refused.value).endswith(
        f"cannot be used: it is PostgreSQL {said}; forewarn needs 14 or newer."
    )


# Owned by a role that may create schemas; the server's role comes across them on its search path.
SHADOWS = """
DROP ROLE IF EXISTS mallory;
CREATE ROLE mallory;
CREATE SCHEMA forewarn AUTHORIZATION mallory;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO mallory;
SET ROLE mallory;
GRANT ALL ON SCHEMA forewarn TO PUBLIC;
CREATE TABLE forewarn.leases (LIKE public.leases INCLUDING ALL);
CREATE TABLE forewarn.changes (LIKE public.changes INCLUDING ALL);
CREATE TABLE forewarn.replicas (LIKE public.replicas INCLUDING ALL);
CREATE TABLE forewarn.settings (LIKE public.settings INCLUDING ALL);
CREATE TABLE forewarn.audit (LIKE public.audit INCLUDING ALL);
GRANT ALL ON ALL TABLES IN SCHEMA forewarn TO PUBLIC
"""
SHADOWED = ("leases", "changes", "replicas", "settings", "audit")


@pytest.fixture
def shadowed_url(postgres: Cluster) -> Iterator[str]:
    """Return the URL of a database whose default search path leads to tables of another role."""
    url = postgres.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(SHADOWS)
    yield url
    postgres.drop(url)
    postgres.run_sql("DROP ROLE mallory")


def count_rows(url: str, schema: str) -> dict[str, int]:
    def count(table: str) -> int:
        query = f"SELECT count(*) FROM {schema}.{table}"  # noqa: S608
        return int(connection.execute(query.encode()).fetchall()[0][0])

    with psycopg.connect(url) as connection:
        return {table: count(table) for table in SHADOWED}


def test_tables_of_another_role_on_the_search_path_are_not_used(
    shadowed_url: str, tmp_path: Path
) -> None:
    with closing(open_postgres(shadowed_url)) as store, closing(open_postgres(shadowed_url)) as two:
        heard = Heard(two)
        store.write(pause(1))
        entry = AuditEntry(at=NOW, maintenance_time=NOW, who="a", action="create", subject="x")
        store.write(lambda tx: tx.append_audit(entry))
        heard.wait_for(lambda change: change.sequence == 1)
        leadership = DatabaseLeadership(store.address, "one", now=SystemClock().now)
        assert leadership.campaign() == 1
        leadership.close()
        itself = ReplicaIdentity(replica_id="1", name="one", address="", version="1", settings={})
        replicas = DatabaseReplicas(store, itself)
        replicas.report()
        assert [each.identity.name for each in replicas.call_roll().replicas] == ["one"]
        assert store.read(lambda reading: reading.audit())[0].who == "a"
        before = count_rows(shadowed_url, "public")
        replicas.leave()

    back_up(shadowed_url, tmp_path / "copy.db", at=NOW, tell=lambda *_: None)
    mark_restored(shadowed_url, at=NOW)

    assert min(before.values()) > 0
    assert set(count_rows(shadowed_url, "forewarn").values()) == {0}


def test_temporary_tables_come_after_those_of_the_server(postgres_url: str) -> None:
    with PostgresAddress(postgres_url).connect() as connection:
        connection.execute("CREATE TEMP TABLE leases (LIKE public.leases)")
        found = connection.execute("SELECT 'leases'::regclass = 'public.leases'::regclass")

        assert found.fetchone() == (True,)


def test_schema_is_that_of_the_url(postgres: Cluster) -> None:
    url = postgres.empty_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute('CREATE SCHEMA "Own, one"')
    chosen = f"{url}?options=-csearch_path%3D%22Own%2C%5C%20one%22%2Cpublic"

    for _ in range(2):
        with closing(open_postgres(chosen)) as store:
            store.write(pause(1))

    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT schemaname FROM pg_tables WHERE tablename = 'leases'"
        ).fetchall()
    postgres.drop(url)
    assert rows == [("Own, one",)]


def test_schema_of_the_tables_is_found_wherever_it_is_on_the_path(postgres: Cluster) -> None:
    url = postgres.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA empty")

    with closing(open_postgres(f"{url}?options=-csearch_path%3Dempty%2Cpublic")) as store:
        store.write(pause(1))

    postgres.drop(url)


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("public,other", 'it has tables of forewarn in the schemas "public", "other"; select one'),
        ("nowhere", "its search_path contains no schema that exists"),
    ],
)
def test_search_path_that_leads_to_no_schema_or_to_two_is_refused(
    postgres: Cluster, path: str, sentence: str
) -> None:
    url = postgres.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA other")
        connection.execute("CREATE TABLE other.write_lock (LIKE public.write_lock)")

    with pytest.raises(DatabaseUnusableError, match=sentence):
        open_postgres(f"{url}?options=-csearch_path%3D{path}")

    postgres.drop(url)


def test_connections_of_a_running_server_keep_to_their_schema(
    postgres_url: str, store: PostgresStore
) -> None:
    store.write(pause(1))
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA forewarn")
        connection.execute("CREATE TABLE forewarn.write_lock (LIKE public.write_lock)")
    try:
        cut_off_all(postgres_url)

        store.write(pause(2))

        assert store.read(lambda reading: reading.setting(SERVER_PAUSE)) == "2"
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("DROP SCHEMA forewarn CASCADE")
