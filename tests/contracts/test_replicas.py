"""What holds for the replicas of a store, whether it can have several or one."""

from collections.abc import Iterator
from datetime import timedelta
from typing import TypeAlias

import pytest
from tests.replicas import ITSELF
from tests.simulation.database import SimulatedLeadership, SimulatedReplicas, SimulatedStore
from tests.simulation.world import SECOND
from tests.waiting import wait_until

from forewarn.clocks import SystemClock
from forewarn.ports.leadership import Leadership
from forewarn.ports.replicas import Replicas
from forewarn.ports.store import Store
from forewarn.storage.lease import DatabaseLeadership
from forewarn.storage.lock import FileLeadership, SoleReplica
from forewarn.storage.postgres import PostgresStore
from forewarn.storage.replicas import DatabaseReplicas

Parts: TypeAlias = tuple[Replicas, Leadership]


class _Timely(SimulatedReplicas):
    """A second passes with each report."""

    def report(self) -> None:
        self._database.world.now += SECOND
        super().report()


@pytest.fixture
def parts(store: Store) -> Iterator[Parts]:
    if isinstance(store, PostgresStore):
        replicas = DatabaseReplicas(store, ITSELF)
        leadership = DatabaseLeadership(store.address, ITSELF.replica_id, now=SystemClock().now)
        yield replicas, leadership
        leadership.close()
        replicas.leave()
    elif isinstance(store, SimulatedStore):
        store.holder = ITSELF.replica_id
        yield _Timely(store, ITSELF), SimulatedLeadership(store, store.holder)
    else:
        yield SoleReplica(store, ITSELF, now=SystemClock().now), FileLeadership(store)


def test_replica_that_reports_is_present_as_it_introduced_itself(parts: Parts) -> None:
    replicas, _ = parts

    replicas.report()
    replicas.report()
    found = replicas.call_roll()

    (only,) = found.present
    assert only.identity == replicas.itself == ITSELF
    assert only.started_at <= only.seen_at <= found.at
    assert (only.changes_behind, only.lag) == (0, timedelta(0))
    assert not only.is_leader
    assert found.epoch == 0


def test_replica_with_the_lease_leads(parts: Parts) -> None:
    replicas, leadership = parts
    replicas.report()

    epoch = leadership.campaign()
    found = replicas.call_roll()

    assert found.epoch == epoch
    assert [each.is_leader for each in found.replicas] == [True]


def test_time_passes_for_a_replica_that_reports(parts: Parts) -> None:
    replicas, _ = parts
    replicas.report()
    before = replicas.call_roll().replicas[0]

    replicas.report()
    after = replicas.call_roll().replicas[0]

    assert after.started_at == before.started_at
    assert after.seen_at > before.seen_at


def test_what_others_change_is_followed(parts: Parts) -> None:
    replicas, _ = parts

    wait_until(replicas.is_following, "the changes to be followed")
