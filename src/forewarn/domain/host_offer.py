"""A task that a host fetches and does by itself, from the offer to the result it reports.

The server offers a task; the host takes it, and reports until it is over. An offer that the host
has not taken can be withdrawn. All times here are real times.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from forewarn.domain.errors import ConflictError, NotFoundError, says
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName, OperationId
from forewarn.domain.phrases import say_moment

SILENCE: Final = timedelta(minutes=2)
"""After how long without a report nobody knows any more how far a host is."""


class OfferStatus(StrEnum):
    """How far an offer is."""

    OFFERED = "offered"
    TAKEN = "taken"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    WITHDRAWN = "withdrawn"


OPEN: Final = (OfferStatus.OFFERED, OfferStatus.TAKEN)
"""What a host still has to do something about."""

REPORTED: Final[Mapping[ImpactStatus, OfferStatus]] = {
    ImpactStatus.RUNNING: OfferStatus.TAKEN,
    ImpactStatus.DONE: OfferStatus.DONE,
    ImpactStatus.FAILED: OfferStatus.FAILED,
    ImpactStatus.UNKNOWN: OfferStatus.UNKNOWN,
}
"""What a host can report about a task that it took, and what the offer becomes."""

_IMPACTS: Final[Mapping[OfferStatus, ImpactStatus]] = {
    OfferStatus.OFFERED: ImpactStatus.RUNNING,
    OfferStatus.TAKEN: ImpactStatus.RUNNING,
    OfferStatus.DONE: ImpactStatus.DONE,
    OfferStatus.FAILED: ImpactStatus.FAILED,
    OfferStatus.UNKNOWN: ImpactStatus.UNKNOWN,
    OfferStatus.WITHDRAWN: ImpactStatus.FAILED,
}
_NOT_FETCHED: Final = "the host has not fetched it yet"


@says("Unknown task {task!r} of operation {operation_id!r} for this host.")
class UnknownOfferError(NotFoundError):
    """A task that was never offered to this host."""

    operation_id: str
    task: str


@says("The task {task!r} of operation {operation_id!r} cannot be taken: {problem}.")
class OfferRefusedError(ConflictError):
    """A task that somebody else took, or that nobody may take now."""

    operation_id: str
    task: str
    problem: str


@says("The task {task!r} of operation {operation_id!r} was not taken; take it first.")
class OfferNotTakenError(ConflictError):
    """A report about a task that nobody has taken."""

    operation_id: str
    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOffer:
    """A task for *host*, in the words of *order*.

    Whoever takes it shows a *ticket*; with the same one it can be taken again, in case the answer
    was lost. The host was last *heard_at*. *reason* is its last word.
    """

    operation_id: OperationId
    task: str
    host: HostName
    order: Mapping[str, object]
    offered_at: datetime
    status: OfferStatus = OfferStatus.OFFERED
    ticket: str = ""
    heard_at: datetime | None = None
    reason: str = ""
    moved_to: HostName | None = None

    @property
    def is_untaken(self) -> bool:
        """Whether the host can still take it."""
        return self.status is OfferStatus.OFFERED

    def progress(self, now: datetime) -> Impact:
        """Return how far the task is, as far as anybody knows at *now*."""
        if self.is_untaken:
            return Impact(status=ImpactStatus.RUNNING, reason=_NOT_FETCHED)
        heard_at = self.heard_at
        if self.status is OfferStatus.TAKEN and heard_at and now >= heard_at + SILENCE:
            said = f": {self.reason}" if self.reason else ""
            reason = (
                f"the host took it, and has not reported since {say_moment(heard_at)}{said}; "
                "check the host"
            )
            return Impact(status=ImpactStatus.UNKNOWN, reason=reason)
        return Impact(status=_IMPACTS[self.status], reason=self.reason, moved_to=self.moved_to)


def take(offer: HostOffer, ticket: str, *, now: datetime) -> HostOffer:
    """Return *offer* as taken with *ticket*, or refuse."""
    if offer.status is OfferStatus.TAKEN and offer.ticket == ticket:
        return offer
    if not offer.is_untaken:
        raise OfferRefusedError(offer.operation_id, offer.task, f"it is {offer.status}")
    return replace(offer, status=OfferStatus.TAKEN, ticket=ticket, heard_at=now)


def report(offer: HostOffer, said: Impact, *, now: datetime) -> HostOffer:
    """Return *offer* after the host *said* how far it is; the first result is the last."""
    if offer.is_untaken:
        raise OfferNotTakenError(offer.operation_id, offer.task)
    if offer.status is not OfferStatus.TAKEN:
        return offer
    return replace(
        offer,
        status=REPORTED[said.status],
        heard_at=now,
        reason=said.reason,
        moved_to=said.moved_to,
    )


def withdraw(offer: HostOffer, reason: str) -> HostOffer:
    """Return *offer* as nobody can take it any more, unless the host has taken it."""
    if not offer.is_untaken:
        return offer
    return replace(offer, status=OfferStatus.WITHDRAWN, reason=reason)
