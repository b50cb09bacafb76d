"""What holds for the lease of the leader, in PostgreSQL and in the simulation."""

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from tests.contracts.conftest import OpenStore
from tests.simulation.database import SimulatedLeadership, SimulatedStore

from forewarn.clocks import SystemClock
from forewarn.ports.leadership import Leadership
from forewarn.storage.lease import DatabaseLeadership
from forewarn.storage.postgres import PostgresStore

LONG = 60.0
pytestmark = pytest.mark.parametrize("open_store", ["postgresql", "simulated"], indirect=True)


@pytest.fixture
def rivals(open_store: OpenStore) -> Iterator[list[Leadership]]:
    """Two replicas of one database."""
    with ExitStack() as stack:
        yield [_rival(name, open_store, stack) for name in "ab"]


def _rival(name: str, open_store: OpenStore, stack: ExitStack) -> Leadership:
    store = stack.enter_context(closing(open_store()))
    if isinstance(store, SimulatedStore):
        store.holder = name
        return SimulatedLeadership(store, name)
    assert isinstance(store, PostgresStore)
    leadership = DatabaseLeadership(store.address, name, now=SystemClock().now, seconds=LONG)
    return stack.enter_context(closing(leadership))


def test_lease_is_of_one_replica_until_it_is_given_up(rivals: list[Leadership]) -> None:
    first, second = rivals
    assert (first.campaign(), second.campaign()) == (1, None)
    assert (first.renew(1), second.renew(1)) == (True, False)

    second.resign(1)
    assert second.campaign() is None
    first.resign(1)

    assert (second.campaign(), first.campaign()) == (2, None)
    assert (first.renew(1), second.renew(2)) == (False, True)


def test_replica_cannot_use_the_lease_of_an_earlier_epoch_of_its_own(
    rivals: list[Leadership],
) -> None:
    first, second = rivals
    first.resign(first.campaign() or 0)
    assert first.campaign() == 2

    is_renewed = first.renew(1)
    first.resign(1)

    assert (is_renewed, first.renew(2), second.campaign()) == (False, True, None)
