"""What hosts take and report, on a real store."""

from dataclasses import replace

import pytest

from forewarn.domain.host_offer import (
    HostOffer,
    OfferNotTakenError,
    OfferRefusedError,
    OfferStatus,
    UnknownOfferError,
)
from forewarn.domain.host_operation import HostOperation, HostPhase
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName, MaintenanceId, OperationId
from forewarn.operations.context import Context
from forewarn.operations.host_offers import find_offers, report_offer, take_offer
from forewarn.operations.pausing import pause_server, resume_server
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventType

KVM = HostName("KVM-0")
KEY = (OperationId("9F6D1B52"), "work")
DONE = Impact(status=ImpactStatus.DONE, reason="patched")


@pytest.fixture
def offered(store: Store, operator: Context) -> Store:
    operation = HostOperation(
        operation_id=KEY[0],
        maintenance_id=MaintenanceId("kernel"),
        event_type=EventType.REBOOT,
        host=HostName("kvm-0"),
        created_at=operator.now,
        phase=HostPhase.WORK,
    )
    offer = HostOffer(
        operation_id=KEY[0],
        task=KEY[1],
        host=HostName("kvm-0"),
        order={"host": "kvm-0", "task": "work"},
        offered_at=operator.at,
    )

    store.write(lambda tx: tx.put_operation(operation))
    store.write(lambda tx: tx.put_offer(offer))
    return store


def take(store: Store, context: Context, ticket: str = "ours", host: HostName = KVM) -> None:
    store.write(lambda tx: take_offer(tx, context, host, KEY, ticket))


def report(store: Store, context: Context, said: Impact = DONE, host: HostName = KVM) -> None:
    store.write(lambda tx: report_offer(tx, context, host, KEY, said))


def known(store: Store) -> HostOffer:
    offer = store.read(lambda reading: reading.host_offer(*KEY))
    assert offer is not None
    return offer


def listed(store: Store, host: HostName = KVM) -> list[OfferStatus]:
    return [each.status for each in store.read(lambda reading: find_offers(reading, host))]


def audited(store: Store) -> list[tuple[str, str, str]]:
    entries = store.read(lambda reading: reading.audit(limit=10))
    return [(each.action, each.subject, each.detail) for each in entries]


def test_host_takes_what_it_is_offered_and_reports_its_end(
    offered: Store, operator: Context
) -> None:
    assert listed(offered) == [OfferStatus.OFFERED]
    take(offered, operator)
    assert listed(offered) == [OfferStatus.TAKEN]
    report(offered, operator, Impact(status=ImpactStatus.RUNNING, reason="60 %"))
    assert listed(offered) == [OfferStatus.TAKEN]
    report(offered, operator)

    assert listed(offered) == []
    assert (known(offered).status, known(offered).reason) == (OfferStatus.DONE, "patched")
    assert audited(offered) == [
        ("host work take", "kvm-0", "work of operation 9F6D1B52"),
        ("host work done", "kvm-0", "work of operation 9F6D1B52: patched"),
    ]


def test_checks_are_not_audited(offered: Store, operator: Context) -> None:
    offered.write(
        lambda tx: tx.put_offer(replace(known(offered), order={"host": "kvm-0", "task": "verify"}))
    )

    take(offered, operator)
    report(offered, operator)

    assert known(offered).status is OfferStatus.DONE
    assert audited(offered) == []


def test_repeated_requests_change_nothing(offered: Store, operator: Context) -> None:
    for _ in range(2):
        take(offered, operator)
    for _ in range(2):
        report(offered, operator)
    report(offered, operator, Impact(status=ImpactStatus.FAILED, reason="late"))

    assert known(offered).status is OfferStatus.DONE
    assert len(audited(offered)) == 2


def test_second_taker_is_refused(offered: Store, operator: Context) -> None:
    take(offered, operator)

    with pytest.raises(OfferRefusedError, match="it is taken"):
        take(offered, operator, "theirs")

    assert known(offered).ticket == "ours"


def test_what_was_not_taken_cannot_be_reported(offered: Store, operator: Context) -> None:
    with pytest.raises(OfferNotTakenError):
        report(offered, operator)

    assert known(offered).status is OfferStatus.OFFERED


def test_for_another_host_it_does_not_exist(offered: Store, operator: Context) -> None:
    other = HostName("kvm-1")

    assert listed(offered, other) == []
    with pytest.raises(UnknownOfferError):
        take(offered, operator, host=other)
    take(offered, operator)
    before = known(offered)
    with pytest.raises(UnknownOfferError):
        report(offered, operator, host=other)

    assert known(offered) == before


def test_what_was_never_offered_does_not_exist(store: Store, operator: Context) -> None:
    with pytest.raises(UnknownOfferError):
        take(store, operator)


def test_nothing_is_taken_during_a_pause(offered: Store, operator: Context) -> None:
    offered.write(lambda tx: pause_server(tx, operator))

    assert listed(offered) == []
    with pytest.raises(OfferRefusedError, match="the server is paused"):
        take(offered, operator)

    offered.write(lambda tx: resume_server(tx, operator))
    take(offered, operator)
    assert listed(offered) == [OfferStatus.TAKEN]


def test_what_was_taken_before_a_pause_is_reported(offered: Store, operator: Context) -> None:
    take(offered, operator)
    offered.write(lambda tx: pause_server(tx, operator))

    take(offered, operator)
    report(offered, operator)

    assert known(offered).status is OfferStatus.DONE


def test_nothing_is_taken_of_an_operation_that_is_over(offered: Store, operator: Context) -> None:
    operation = offered.read(lambda reading: reading.host_operation(KEY[0]))
    assert operation is not None
    over = replace(operation, phase=HostPhase.OVER, ended_at=operator.now)
    offered.write(lambda tx: tx.put_operation(over))

    assert listed(offered) == []
    with pytest.raises(OfferRefusedError, match="its operation is over"):
        take(offered, operator)
    assert known(offered).status is OfferStatus.OFFERED
