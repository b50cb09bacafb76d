"""Offers to hosts: every status against everything that can happen to it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from forewarn.domain.host_offer import (
    OPEN,
    REPORTED,
    SILENCE,
    HostOffer,
    OfferNotTakenError,
    OfferRefusedError,
    OfferStatus,
    report,
    take,
    withdraw,
)
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName, OperationId

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
LATER = NOW + timedelta(seconds=7)
OFFER = HostOffer(
    operation_id=OperationId("9F6D1B52"),
    task="work",
    host=HostName("kvm-1"),
    order={"host": "kvm-1", "task": "work"},
    offered_at=NOW,
)
TAKEN = replace(OFFER, status=OfferStatus.TAKEN, ticket="ours", heard_at=NOW)


def in_status(status: OfferStatus) -> HostOffer:
    return OFFER if status is OfferStatus.OFFERED else replace(TAKEN, status=status)


@pytest.mark.parametrize("status", OfferStatus)
def test_only_what_is_offered_can_be_taken(status: OfferStatus) -> None:
    offer = in_status(status)
    if status is OfferStatus.OFFERED:
        taken = take(offer, "ours", now=LATER)
        assert taken == replace(OFFER, status=OfferStatus.TAKEN, ticket="ours", heard_at=LATER)
        return

    with pytest.raises(OfferRefusedError, match=f"it is {status}"):
        take(offer, "theirs", now=LATER)


def test_whoever_took_it_can_ask_again_with_the_same_ticket() -> None:
    assert take(TAKEN, "ours", now=LATER) == TAKEN


@pytest.mark.parametrize("said", REPORTED)
def test_host_reports_what_it_took(said: ImpactStatus) -> None:
    after = report(TAKEN, Impact(status=said, reason="word"), now=LATER)

    assert after == replace(TAKEN, status=REPORTED[said], heard_at=LATER, reason="word")


@pytest.mark.parametrize("status", [each for each in OfferStatus if each not in OPEN])
@pytest.mark.parametrize("said", REPORTED)
def test_what_is_said_after_the_end_changes_nothing(
    status: OfferStatus, said: ImpactStatus
) -> None:
    offer = in_status(status)

    assert report(offer, Impact(status=said, reason="late"), now=LATER) == offer


def test_what_nobody_took_is_not_reported() -> None:
    with pytest.raises(OfferNotTakenError, match="take it first"):
        report(OFFER, Impact(status=ImpactStatus.DONE), now=LATER)


@pytest.mark.parametrize("status", OfferStatus)
def test_only_what_is_not_taken_is_withdrawn(status: OfferStatus) -> None:
    offer = in_status(status)
    after = withdraw(offer, "too late")

    is_untaken = status is OfferStatus.OFFERED
    withdrawn = replace(OFFER, status=OfferStatus.WITHDRAWN, reason="too late")
    assert after == (withdrawn if is_untaken else offer)


@pytest.mark.parametrize(
    ("offer", "status", "reason"),
    [
        (OFFER, ImpactStatus.RUNNING, "the host has not fetched it yet"),
        (replace(TAKEN, reason="60 %"), ImpactStatus.RUNNING, "60 %"),
        (in_status(OfferStatus.DONE), ImpactStatus.DONE, ""),
        (in_status(OfferStatus.FAILED), ImpactStatus.FAILED, ""),
        (in_status(OfferStatus.UNKNOWN), ImpactStatus.UNKNOWN, ""),
        (withdraw(OFFER, "too late"), ImpactStatus.FAILED, "too late"),
    ],
)
def test_progress_is_what_the_host_said_last(
    offer: HostOffer, status: ImpactStatus, reason: str
) -> None:
    impact = offer.progress(LATER)

    assert impact.status is status
    assert impact.reason.startswith(reason)


@pytest.mark.parametrize(
    ("offer", "said"),
    [
        (TAKEN, "2026-01-05 08:00:00 GMT; check the host"),
        (replace(TAKEN, reason="60 %"), "GMT: 60 %; check the host"),
    ],
)
def test_host_that_took_it_and_is_silent_leaves_it_unknown(offer: HostOffer, said: str) -> None:
    assert offer.progress(NOW + SILENCE - timedelta(seconds=1)).status is ImpactStatus.RUNNING
    impact = offer.progress(NOW + SILENCE)

    assert impact.status is ImpactStatus.UNKNOWN
    assert impact.reason.startswith("the host took it, and has not reported since ")
    assert impact.reason.endswith(said)


def test_offer_that_was_heard_of_after_its_end_is_not_silent() -> None:
    done = in_status(OfferStatus.DONE)

    assert done.progress(NOW + 2 * SILENCE).status is ImpactStatus.DONE
