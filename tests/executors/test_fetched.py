"""Offers of a server that the host does not fetch in time, or during a pause."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.executors.conftest import NOW
from tests.executors.host_work import WORK
from tests.host_worker.own_host import store_with

from forewarn.domain.host_offer import OfferRefusedError, OfferStatus, take
from forewarn.domain.impact import ImpactStatus
from forewarn.executors.fetched import FetchedByHost, OfferContractor
from forewarn.executors.host_tasks import HostOrder
from forewarn.executors.orders import PAUSED
from forewarn.operations.context import Context
from forewarn.operations.pausing import pause_server, resume_server
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import event_id

ORDER = HostOrder(task=WORK, epoch=1)
OPERATOR = Context(who="alice", now=NOW, at=NOW, new_id=lambda: event_id(f"{1:032x}"))


@dataclass
class Moment:
    at: datetime = NOW

    def now(self) -> datetime:
        return self.at


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with store_with(WORK, tmp_path) as opened:
        yield opened


@pytest.fixture
def wall() -> Moment:
    return Moment()


@pytest.fixture
def contractor(store: Store, wall: Moment) -> OfferContractor:
    def find(about: object) -> FetchedByHost:
        assert about == {"host": "kvm-0", "task": "work"}
        return FetchedByHost(within=timedelta(minutes=5))

    return OfferContractor(find, store=store, clock=wall, wall=wall)


def test_host_that_does_not_fetch_in_time_has_failed_and_comes_too_late(
    store: Store, contractor: OfferContractor, wall: Moment
) -> None:
    contractor.begin(ORDER)
    wall.at += timedelta(minutes=5) - timedelta(seconds=1)
    assert contractor.inquire(ORDER.key).status is ImpactStatus.RUNNING
    wall.at += timedelta(seconds=1)

    impact = contractor.inquire(ORDER.key)

    assert impact.status is ImpactStatus.FAILED
    assert impact.reason.startswith("the host did not fetch it within 5m; check that forewarn")
    offer = store.read(lambda reading: reading.host_offer(WORK.operation_id, WORK.name))
    assert offer is not None
    with pytest.raises(OfferRefusedError, match="it is withdrawn"):
        take(offer, "late", now=wall.at)


def test_host_that_took_it_has_all_the_time(
    store: Store, contractor: OfferContractor, wall: Moment
) -> None:
    contractor.begin(ORDER)
    offer = store.read(lambda reading: reading.host_offer(WORK.operation_id, WORK.name))
    assert offer is not None
    store.write(lambda tx: tx.put_offer(take(offer, "ours", now=wall.at)))
    wall.at += timedelta(hours=5)

    impact = contractor.inquire(ORDER.key)

    assert impact.status is ImpactStatus.UNKNOWN
    assert impact.ask_again_at is not None, "it may be restarting, and is asked about again"


def test_nothing_is_offered_or_withdrawn_during_a_pause(
    store: Store, contractor: OfferContractor, wall: Moment
) -> None:
    store.write(lambda tx: pause_server(tx, OPERATOR))
    assert contractor.begin(ORDER).status is ImpactStatus.NOT_BEGUN
    store.write(lambda tx: resume_server(tx, OPERATOR))
    contractor.begin(ORDER)
    store.write(lambda tx: pause_server(tx, OPERATOR))
    wall.at += timedelta(minutes=5)

    impact = contractor.inquire(ORDER.key)

    assert impact.status is ImpactStatus.RUNNING
    assert impact.reason == PAUSED
    offer = store.read(lambda reading: reading.host_offer(WORK.operation_id, WORK.name))
    assert offer is not None
    assert offer.status is OfferStatus.OFFERED
