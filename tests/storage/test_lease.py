"""The lease of the leader, where replicas share a database."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from datetime import timedelta
from typing import ClassVar

import psycopg
import pytest
from psycopg.adapt import Dumper
from tests.postgres import replace_clock, set_clock_ahead
from tests.waiting import wait_until
from tests.works import TIMEOUT

from forewarn.clocks import SystemClock
from forewarn.domain.amending import build_topology
from forewarn.domain.names import VmName
from forewarn.domain.topology import VirtualMachine, standalone
from forewarn.ports.store import StoreUnavailableError, Transaction
from forewarn.storage.lease import DatabaseLeadership
from forewarn.storage.postgres import PostgresStore, open_postgres
from forewarn.storage.postgres_session import PostgresAddress

LONG, OVER_AT_ONCE = 60.0, 0.0
RENEW_SECONDS = 1.0
TAKEOVER_SECONDS = 6.0
SLOW_BEFORE = """
LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(3); RETURN pg_catalog.clock_of_machine(); END$$
"""
SLOW_AFTER = """
LANGUAGE plpgsql AS $$DECLARE at timestamptz := pg_catalog.clock_of_machine();
BEGIN PERFORM pg_sleep(3); RETURN at; END$$
"""
TAKEN = "SELECT expires_at / 1e6 - 3 FROM leases"
STILL_SINCE = """
SELECT extract(epoch FROM max(state_change)) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event = 'ClientRead' AND xact_start IS NOT NULL
  AND clock_timestamp() - state_change > '0.5s'
HAVING count(*) > 0
"""
WAITING = """
SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


@pytest.fixture
def first(postgres_url: str) -> Iterator[DatabaseLeadership]:
    address = PostgresAddress(postgres_url)
    with closing(
        DatabaseLeadership(address, "a", now=SystemClock().now, seconds=LONG)
    ) as leadership:
        yield leadership


@pytest.fixture
def second(postgres_url: str) -> Iterator[DatabaseLeadership]:
    address = PostgresAddress(postgres_url)
    with closing(
        DatabaseLeadership(address, "b", now=SystemClock().now, seconds=LONG)
    ) as leadership:
        yield leadership


@pytest.mark.parametrize(("minutes", "sign"), [(20, -1), (-20, 1)])
def test_clock_that_differs_from_that_of_the_database_is_measured(
    postgres_url: str, minutes: int, sign: int
) -> None:
    set_clock_ahead(postgres_url, minutes=minutes)
    with closing(
        DatabaseLeadership(PostgresAddress(postgres_url), "a", now=SystemClock().now)
    ) as leadership:
        offset = leadership.clock_offset()

    assert timedelta(minutes=19) < sign * offset <= timedelta(minutes=20)


@pytest.mark.parametrize("body", [SLOW_BEFORE, SLOW_AFTER])
def test_database_that_is_slow_is_not_a_clock_that_differs(postgres_url: str, body: str) -> None:
    replace_clock(postgres_url, body)
    with closing(
        DatabaseLeadership(PostgresAddress(postgres_url), "a", now=SystemClock().now)
    ) as leadership:
        began = time.monotonic()
        offset = leadership.clock_offset()

    assert time.monotonic() - began >= 3
    assert offset == timedelta(0)


def test_lease_is_of_nobody_when_it_is_over(postgres_url: str, second: DatabaseLeadership) -> None:
    address = PostgresAddress(postgres_url)
    with closing(
        DatabaseLeadership(address, "a", now=SystemClock().now, seconds=OVER_AT_ONCE)
    ) as first:
        assert first.campaign() == 1

        assert second.campaign() == 2

        assert first.renew(1) is False


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


class StillName(str):
    """A name at which the process that writes it stands still."""

    __slots__ = ()
    is_over: ClassVar = threading.Event()


class StillDumper(Dumper):
    def dump(self, obj: str) -> bytes:
        StillName.is_over.wait(TIMEOUT)
        return obj.encode("ascii")


def _stand_still(_: Transaction) -> None:
    StillName.is_over.wait(TIMEOUT)


def _stand_still_among_rows(tx: Transaction) -> None:
    """Stand still after more of the fleet than the driver keeps before it sends something."""
    vms = [standalone_vm(f"web-{number}") for number in range(200)]
    vms.append(replace(standalone_vm("last"), vm_id=StillName("last")))
    scopes = [standalone(vm.name) for vm in vms]
    tx.put_topology(build_topology(scopes=scopes, virtual_machines=vms))


def standalone_vm(name: str) -> VirtualMachine:
    return VirtualMachine(name=VmName(name), scope_id=standalone(VmName(name)).scope_id)


@pytest.mark.parametrize("stand_still", [_stand_still, _stand_still_among_rows])
def test_leader_that_stands_still_in_a_transaction_is_replaced_within_six_seconds(
    postgres_url: str, stand_still: Callable[[Transaction], None]
) -> None:
    psycopg.adapters.register_dumper(StillName, StillDumper)
    StillName.is_over.clear()
    store = open_postgres(postgres_url)
    lost = DatabaseLeadership(store.address, "a", now=SystemClock().now)
    candidate = DatabaseLeadership(store.address, "b", now=SystemClock().now)

    def write() -> None:
        with suppress(StoreUnavailableError):
            store.write(stand_still)

    writing = threading.Thread(target=write)
    with (
        closing(store),
        closing(lost),
        closing(candidate),
        psycopg.connect(postgres_url, autocommit=True) as seen,
    ):
        assert lost.campaign() == 1
        writing.start()
        wait_until(lambda: seen.execute(STILL_SINCE).fetchone(), "it to stand still")
        (since,) = seen.execute(STILL_SINCE).fetchone() or ()

        wait_until(lambda: candidate.campaign() == 2, "the takeover")

        (taken,) = seen.execute(TAKEN).fetchone() or ()
        StillName.is_over.set()
        writing.join()
    # At worst, it was just about to renew its lease.
    assert RENEW_SECONDS + float(taken - since) <= TAKEOVER_SECONDS
