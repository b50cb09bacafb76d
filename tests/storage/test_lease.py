"""The lease of the leader, where replicas share a database."""

import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import psycopg
import pytest
from tests.waiting import wait_until
from tests.works import TIMEOUT

from forewarn.ports.store import StoreUnavailableError, Transaction
from forewarn.storage.lease import DatabaseLeadership
from forewarn.storage.postgres import PostgresStore
from forewarn.storage.postgres_session import PostgresAddress

LONG, OVER_AT_ONCE = 60.0, 0.0
RENEW_SECONDS = 1.0
TAKEOVER_SECONDS = 6.0
TAKEN = "SELECT expires_at / 1e6 - 3 FROM leases"
STILL_SINCE = """
SELECT extract(epoch FROM state_change) FROM pg_stat_activity
WHERE datname = current_database() AND state = 'idle in transaction'
"""
WAITING = """
SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


@pytest.fixture
def first(postgres_url: str) -> Iterator[DatabaseLeadership]:
    address = PostgresAddress(postgres_url)
    with closing(DatabaseLeadership(address, "a", seconds=LONG)) as leadership:
        yield leadership


@pytest.fixture
def second(postgres_url: str) -> Iterator[DatabaseLeadership]:
    address = PostgresAddress(postgres_url)
    with closing(DatabaseLeadership(address, "b", seconds=LONG)) as leadership:
        yield leadership


def test_lease_is_of_one_replica_until_it_is_given_up(
    first: DatabaseLeadership, second: DatabaseLeadership
) -> None:
    assert (first.campaign(), second.campaign()) == (1, None)
    assert (first.renew(1), second.renew(1)) == (True, False)

    second.resign(1)
    assert second.campaign() is None
    first.resign(1)

    assert (second.campaign(), first.campaign()) == (2, None)
    assert (first.renew(1), second.renew(2)) == (False, True)


def test_lease_is_of_nobody_when_it_is_over(postgres_url: str, second: DatabaseLeadership) -> None:
    address = PostgresAddress(postgres_url)
    with closing(DatabaseLeadership(address, "a", seconds=OVER_AT_ONCE)) as first:
        assert first.campaign() == 1

        assert second.campaign() == 2

        assert first.renew(1) is False


def test_replica_cannot_use_the_lease_of_an_earlier_epoch_of_its_own(
    first: DatabaseLeadership, second: DatabaseLeadership
) -> None:
    first.resign(first.campaign() or 0)
    assert first.campaign() == 2

    is_renewed = first.renew(1)
    first.resign(1)

    assert (is_renewed, first.renew(2), second.campaign()) == (False, True, None)


def test_lease_is_taken_only_between_transactions(
    postgres_url: str, store: PostgresStore, second: DatabaseLeadership
) -> None:
    epoch = store.write(lambda tx: tx.next_epoch())
    campaigns: list[int | None] = []
    campaign = threading.Thread(target=lambda: campaigns.append(second.campaign()))

    with psycopg.connect(postgres_url, autocommit=True) as connection:

        def is_waiting() -> bool:
            return connection.execute(WAITING).fetchone() is not None

        def work(tx: Transaction) -> list[int | None]:
            tx.check_epoch(epoch)
            campaign.start()
            wait_until(lambda: campaigns or is_waiting(), "the campaign to wait for its turn")
            tx.put_setting("a", "1")
            return list(campaigns)

        taken_meanwhile = store.write(work)

    campaign.join()
    assert taken_meanwhile == []
    assert campaigns == [epoch + 1]


def test_leader_that_stands_still_in_a_transaction_is_replaced_within_six_seconds(
    postgres_url: str, store: PostgresStore
) -> None:
    lost = DatabaseLeadership(store.address, "a")
    candidate = DatabaseLeadership(store.address, "b")
    is_over = threading.Event()

    def stand_still() -> None:
        with suppress(StoreUnavailableError):
            store.write(lambda _: is_over.wait(TIMEOUT))

    standing_still = threading.Thread(target=stand_still)
    with closing(lost), closing(candidate), psycopg.connect(postgres_url, autocommit=True) as seen:
        assert lost.campaign() == 1
        standing_still.start()
        wait_until(lambda: seen.execute(STILL_SINCE).fetchone(), "it to stand still")
        (since,) = seen.execute(STILL_SINCE).fetchone() or ()

        wait_until(lambda: candidate.campaign() == 2, "the takeover")

        (taken,) = seen.execute(TAKEN).fetchone() or ()
    is_over.set()
    standing_still.join()
    # At worst, it was just about to renew its lease.
    assert RENEW_SECONDS + float(taken - since) <= TAKEOVER_SECONDS
