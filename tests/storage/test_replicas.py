"""Replicas on one PostgreSQL database: who is seen, who lags, and what they notice without it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from tests.postgres import run_cluster, set_clock_ahead
from tests.replicas import ITSELF
from tests.waiting import wait_until

from forewarn.clocks import SystemClock
from forewarn.domain.finding import wrong
from forewarn.domain.names import ScopeId
from forewarn.domain.publication import FIRST_DOCUMENT, republish
from forewarn.domain.task import SILENT_AFTER, Owner
from forewarn.ports.store import StoreUnavailableError, Transaction
from forewarn.storage.lease import DatabaseLeadership
from forewarn.storage.postgres import PostgresStore, open_postgres
from forewarn.storage.replicas import DatabaseReplicas

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)


@contextmanager
def replica(
    url: str, replica_id: str, node: str = ""
) -> Iterator[tuple[PostgresStore, DatabaseReplicas]]:
    store = open_postgres(url, node=node)
    replicas = DatabaseReplicas(store, replace(ITSELF, replica_id=replica_id, name=replica_id))
    try:
        yield store, replicas
    finally:
        replicas.leave()
        store.close()


def names(replicas: DatabaseReplicas) -> list[str]:
    return [each.identity.name for each in replicas.call_roll().replicas]


def run_sql(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def age(url: str, name: str, minutes: int) -> None:
    with psycopg.connect(url) as connection:
        query = "UPDATE replicas SET seen_at = seen_at - %s::BIGINT * 60000000 WHERE name = %s"
        connection.execute(query, [minutes, name])


def change(tx: Transaction) -> None:
    tx.put_document(ScopeId("vm/solo"), republish(FIRST_DOCUMENT), at=NOW)


def test_each_sees_all_until_they_leave(postgres_url: str) -> None:
    with replica(postgres_url, "a") as (_, first):
        first.report()
        with replica(postgres_url, "b") as (_, second):
            second.report()
            assert names(first) == names(second) == ["a", "b"]

        assert names(first) == ["a"]


def test_replica_is_known_with_what_it_finds_wrong(postgres_url: str) -> None:
    finding = wrong("writes", "It cannot write.", "make room")
    with replica(postgres_url, "a") as (_, first), replica(postgres_url, "b") as (_, second):
        first.report()
        second.report()
        first.examine = lambda: [finding]
        at_once = [each.findings for each in first.call_roll().replicas]
        first.report()
        reported = [each.findings for each in second.call_roll().replicas]

    assert at_once == reported == [(finding,), ()]


@pytest.mark.parametrize(("generation", "is_heard"), [(3, True), (2, False)])
def test_report_is_also_that_of_the_owner_of_tasks_unless_a_later_start_replaced_it(
    postgres_url: str, *, generation: int, is_heard: bool
) -> None:
    one = Owner(node="db-1:a", name="db-1", generation=3, heard_at=NOW)
    two = replace(one, node="db-2:b", name="db-2")
    with replica(postgres_url, "a", node=one.node) as (store, first):
        store.write(lambda tx: tx.put_owner(one))
        store.write(lambda tx: tx.put_owner(two))
        first.generation = generation
        first.report()

        heard, silent = store.read(lambda reading: reading.owners())

    assert heard == replace(one, heard_at=heard.heard_at)
    assert (heard.heard_at > NOW) is is_heard
    assert silent == two


def test_real_time_is_that_of_the_database_which_all_replicas_share(postgres_url: str) -> None:
    set_clock_ahead(postgres_url, minutes=20)
    with replica(postgres_url, "a") as (_, itself):
        itself.report()
        before, roll, after = itself.now(), itself.call_roll().at, itself.now()

    assert before - timedelta(seconds=5) < roll < after + timedelta(seconds=5)
    assert roll - SystemClock().now() > timedelta(minutes=19)


def test_only_the_holder_of_a_lease_that_lasts_leads(postgres_url: str) -> None:
    with replica(postgres_url, "a") as (store, first), replica(postgres_url, "b") as (_, second):
        first.report()
        second.report()
        leadership = DatabaseLeadership(store.address, "b", now=SystemClock().now)
        epoch = leadership.campaign() or 0

        leading = [each.is_leader for each in first.call_roll().replicas]
        leadership.resign(epoch)
        over = first.call_roll()
        leadership.close()

    assert leading == [False, True]
    assert [each.is_leader for each in over.replicas] == [False, False]
    assert over.epoch == epoch


def test_one_that_is_silent_is_not_present_and_is_forgotten_after_an_hour(
    postgres_url: str,
) -> None:
    with replica(postgres_url, "a") as (_, first), replica(postgres_url, "b") as (_, silent):
        first.report()
        silent.report()
        age(postgres_url, "b", minutes=30)
        first.report()
        found = first.call_roll()
        age(postgres_url, "b", minutes=60)
        first.report()

        assert [each.identity.name for each in found.present] == ["a"]
        assert found.at - found.replicas[1].seen_at > SILENT_AFTER
        assert names(first) == ["a"]


def test_successor_on_the_same_node_replaces_one_that_is_silent(postgres_url: str) -> None:
    with (
        replica(postgres_url, "kvm-1:a-1/old", "kvm-1:a-1") as (_, old),
        replica(postgres_url, "kvm-1:a-2/other", "kvm-1:a-2") as (_, other),
        replica(postgres_url, "kvm-1:a-1/new", "kvm-1:a-1") as (_, new),
    ):
        old.report()
        other.report()
        new.report()
        together = names(new)
        age(postgres_url, old.itself.name, minutes=1)
        age(postgres_url, other.itself.name, minutes=1)
        new.report()

        assert together == ["kvm-1:a-1/new", "kvm-1:a-1/old", "kvm-1:a-2/other"]
        assert names(new) == ["kvm-1:a-1/new", "kvm-1:a-2/other"]


def test_one_whose_machine_an_operator_forgets_is_no_longer_there(postgres_url: str) -> None:
    gone = Owner(node="kvm-1:a", name="kvm-1", generation=1, heard_at=NOW)
    with (
        replica(postgres_url, "kvm-1:a/1", gone.node) as (_, silent),
        replica(postgres_url, "kvm-1:ab/1", "kvm-1:ab") as (store, first),
    ):
        store.write(lambda tx: tx.put_owner(gone))
        silent.report()
        first.report()

        store.write(lambda tx: tx.remove_owner(gone.node))

        assert names(first) == ["kvm-1:ab/1"]


def test_one_that_comes_back_after_it_was_forgotten_is_known_again(postgres_url: str) -> None:
    with replica(postgres_url, "a") as (_, first):
        first.report()
        run_sql(postgres_url, "DELETE FROM replicas")

        first.report()

        assert names(first) == ["a"]


def test_lag_is_how_many_changes_are_missed_and_since_when(postgres_url: str) -> None:
    with replica(postgres_url, "a") as (store, first):
        store.write(change)
        first.report()
        told = first.call_roll().replicas[0]
        # As if the two last changes had been made while nobody here heard of them.
        run_sql(
            postgres_url,
            "INSERT INTO changes (number, hint, changed_at) "
            "SELECT last_change + n, '{}', (SELECT seen_at FROM replicas) - 3000000 / n "
            "FROM replicas, generate_series(1, 2) AS n",
        )
        lagging = first.call_roll().replicas[0]

    assert (told.changes_behind, told.lag) == (0, timedelta(0))
    assert (lagging.changes_behind, lagging.lag) == (2, timedelta(seconds=3))


def test_change_is_stored_with_the_time_of_the_database(postgres_url: str) -> None:
    with replica(postgres_url, "a") as (store, first):
        before = first.call_roll().at
        store.write(change)
        with psycopg.connect(postgres_url) as connection:
            rows = connection.execute(
                "SELECT to_timestamp(changed_at / 1e6) FROM changes ORDER BY number"
            ).fetchall()
        after = first.call_roll().at

    assert [before <= moment <= after for (moment,) in rows] == [True]


def test_replica_with_nothing_to_write_notices_that_it_could_not_and_that_it_can_again() -> None:
    with run_cluster() as cluster, replica(cluster.new_database(), "a") as (store, only):
        only.report()
        assert store.is_writable()

        cluster.stop("immediate")
        with pytest.raises(StoreUnavailableError, match="cannot be used now"):
            only.report()
        assert not store.is_writable()

        cluster.start()
        only.report()
        wait_until(store.is_writable, "the database to be writable")
        assert names(only) == ["a"]


def test_database_that_does_not_answer_is_not_writable(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with replica(postgres_url, "a") as (store, only):
        only.report()
        monkeypatch.setattr("forewarn.storage.postgres._LOST_SECONDS", 0.0)
        assert not store.is_writable()
