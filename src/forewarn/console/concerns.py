"""What needs somebody: overdue and lost events, failures, and Maintenances that are held."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from forewarn.console.flights import Flight, Trouble
from forewarn.console.remedies import Way, find_ways
from forewarn.domain.blockers import Blocker, Release
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.failures import Failure
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.phrases import count_of
from forewarn.domain.standing import MaintenanceStatus
from forewarn.domain.standstill import Standstill
from forewarn.domain.why import ReasonKind
from forewarn.operations.survey import Survey, Undertaken

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """One thing that needs somebody, in a sentence; *events* are some of those it is about."""

    key: str
    word: str
    tone: str
    sentence: str
    maintenance: Maintenance | None = None
    events: tuple[ScheduledEvent, ...] = ()
    more: int = 0
    since: datetime | None = None
    ways: tuple[Way, ...] = ()


_TROUBLES: Final[Mapping[Trouble, tuple[str, str, str, str]]] = {
    Trouble.UNKNOWN: (
        "Unknown",
        "failed",
        "The state of the impact is unknown. An impact is never begun twice, so the event waits.",
        (
            "The state of the impact of {} events is unknown. An impact is never begun twice, so "
            "they wait."
        ),
    ),
    Trouble.NO_EXECUTOR: (
        "No executor",
        "failed",
        "The server cannot use its executors, so the impact does not begin.",
        "The server cannot use its executors, so the impact of {} events does not begin.",
    ),
    Trouble.OVERDUE: (
        "Overdue",
        "started",
        "The event has been Started for longer than expected.",
        "{} events have been Started for longer than expected.",
    ),
    Trouble.BY_HAND: (
        "By hand",
        "waiting",
        "An operator has to carry out the impact and then complete the event.",
        "{} events wait for an operator to carry out their impacts and complete them.",
    ),
}
"""The word, its tone and the sentence about one and about many, the worst first."""


def find_concerns(survey: Survey, flights: Sequence[Flight]) -> tuple[Concern, ...]:
    """Return everything that needs somebody, the worst first."""
    return (
        *(each for one in survey.maintenances for each in _of_failures(one)),
        *_of_flights(flights),
        *(each for one in survey.maintenances for each in _of_standstill(one)),
    )


def count_held(survey: Survey, flights: Sequence[Flight]) -> int:
    """Return how many events and Maintenances are held, and places that have failed."""
    lost = sum(bool(set(flight.troubles) - {Trouble.OVERDUE}) for flight in flights)
    failures = sum(len(one.failures) for one in survey.maintenances)
    return lost + failures + sum(_is_held(one) for one in survey.maintenances)


def say_wait(standstill: Standstill) -> str:
    """Return what a Maintenance waits for, in a sentence."""
    blockers = standstill.blockers
    by_hand = [each for each in blockers if each.release is Release.BY_HAND]
    for first in by_hand if standstill.verdict.needs_operator and by_hand else blockers:
        alike = [each for each in blockers if each.kind == first.kind]
        return _say_many(first, alike)
    return standstill.verdict.sentence


_MANY: Final[Mapping[object, str]] = {
    ReasonKind.APPROVAL_OF_ANY: "Waiting for an approval or the NotBefore of {}.",
    ReasonKind.APPROVAL_OF_ALL: "Waiting for approvals or the NotBefore of {}.",
    ReasonKind.APPROVAL_OF_LEADER: "Waiting for an approval or the NotBefore of {}.",
    ReasonKind.RUNNING: "The impact of {} is running.",
    ReasonKind.BY_HAND: "Waiting for an operator to carry out and complete {}.",
    ReasonKind.UNKNOWN: "The state of the impact of {} is unknown.",
    ReasonKind.NOT_BEGUN: "The impact of {} is about to begin.",
}
"""How kinds are said that several events of a Maintenance have in common."""


def _say_many(first: Blocker, alike: Sequence[Blocker]) -> str:
    is_of_events = isinstance(first.kind, ReasonKind)
    held = {each for blocker in alike for each in blocker.event_ids} if is_of_events else alike
    if first.kind in _MANY and max(len(alike), len(held)) > 1:
        return _MANY[first.kind].format(count_of(len(held), "event"))
    more = len(held) - (len(first.event_ids) if is_of_events else 1)
    return f"{first.sentence} {more:,} more wait for the same reason." if more else first.sentence


def _of_flights(flights: Sequence[Flight]) -> Iterator[Concern]:
    for trouble, (word, tone, one, many) in _TROUBLES.items():
        events = [flight.event for flight in flights if trouble in flight.troubles]
        if events:
            sinces = [event.overdue_at or event.started_at for event in events]
            yield Concern(
                key=f"trouble-{trouble.name.lower()}",
                word=word,
                tone=tone,
                sentence=one if len(events) == 1 else many.format(f"{len(events):,}"),
                events=tuple(events[:_SHOWN]),
                more=max(0, len(events) - _SHOWN),
                since=min(filter(None, sinces), default=None),
            )


def _of_failures(undertaken: Undertaken) -> Iterator[Concern]:
    page = f"/maintenances/{undertaken.maintenance.maintenance_id}"
    for failure in undertaken.failures[:_SHOWN]:
        yield Concern(
            key=f"failure-{failure.key}",
            word="Failed" if failure.has_failed else "Canceled",
            tone="failed",
            sentence=_say_failure(failure),
            maintenance=undertaken.maintenance,
            since=failure.ended_at,
            ways=(Way(label="Retry or skip", href=page),) if failure.is_over else (),
        )
    more = len(undertaken.failures) - _SHOWN
    if more > 0:
        yield Concern(
            key=f"failures-{undertaken.maintenance.maintenance_id}",
            word="Failed",
            tone="failed",
            sentence=f"{more:,} more have failed or were canceled.",
            maintenance=undertaken.maintenance,
            ways=(Way(label="Show them", href=page),),
        )


def _say_failure(failure: Failure) -> str:
    reason = f": {failure.reason}" if failure.reason else ""
    return f"{failure.place} {failure.ending}{reason}"


def _of_standstill(undertaken: Undertaken) -> Iterator[Concern]:
    if _is_held(undertaken):
        standstill, status = undertaken.explanation.standstill, undertaken.explanation.status
        is_stuck = status is MaintenanceStatus.STUCK
        stopped = "Paused" if undertaken.maintenance.is_paused else "Held"
        yield Concern(
            key=f"held-{undertaken.maintenance.maintenance_id}",
            word="Stuck" if is_stuck else stopped,
            tone="failed" if is_stuck else "waiting",
            sentence=say_wait(standstill),
            maintenance=undertaken.maintenance,
            ways=find_ways(standstill.verdict.remedies)[:_SHOWN],
        )


def _is_held(undertaken: Undertaken) -> bool:
    """Tell whether it never continues by itself, for another reason than what is said already."""
    standstill = undertaken.explanation.standstill
    if undertaken.failures or not standstill.verdict.needs_operator:
        return False
    kinds = {each.kind for each in standstill.blockers if each.release is Release.BY_HAND}
    return not kinds <= {ReasonKind.BY_HAND, ReasonKind.UNKNOWN, ReasonKind.NO_EXECUTOR}
