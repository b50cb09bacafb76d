"""Events in flight as the first page shows them: in groups, the most urgent first."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.host_facts import operation_at_work
from forewarn.domain.host_operation import HostPhase
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import MaintenanceId, VmName
from forewarn.domain.policy import ApprovalPolicy, missing_approvals
from forewarn.domain.snapshot import Snapshot
from forewarn.protocol.vocabulary import EventStatus

_ROWS: Final = 24
"""How many events are shown, those of all groups together, more or less."""
_LEAST: Final = 3
"""How many are shown of each group, where there are many."""
_GROUPS: Final = 10


class Trouble(StrEnum):
    """Why an event in flight needs somebody."""

    OVERDUE = "overdue"
    UNKNOWN = "unknown"
    BY_HAND = "by hand"
    NO_EXECUTOR = "no executor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """One event in flight: who has to approve it yet, or what is heard of its impact."""

    event: ScheduledEvent
    approval: ApprovalPolicy
    missing: tuple[VmName, ...]
    impact_sentence: str = ""
    troubles: tuple[Trouble, ...] = ()

    @property
    def awaits_approval(self) -> bool:
        """Whether it is Scheduled, and an approval would start it earlier."""
        return self.event.event_status is EventStatus.SCHEDULED and bool(self.missing)

    @property
    def urgency(self) -> tuple[int, datetime]:
        """Troubles first, then what has started, then what comes next."""
        event = self.event
        if event.event_status is EventStatus.STARTED:
            return (0 if self.troubles else 1), event.started_at or event.not_before
        return 2, event.not_before


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightGroup:
    """The events of one Maintenance, or of none: those that are shown, and how many *more*."""

    maintenance: Maintenance | None
    flights: tuple[Flight, ...]
    more: int

    @property
    def count(self) -> int:
        return len(self.flights) + self.more


def find_flights(snapshot: Snapshot) -> tuple[Flight, ...]:
    """Return every event in flight, the most urgent first."""
    scopes = snapshot.topology.scopes
    flights = []
    for event in snapshot.events.values():
        if event.is_in_flight:
            policy = scopes[event.scope_id].policy
            sentence, troubles = _hear_of(event, snapshot)
            flights.append(
                Flight(
                    event=event,
                    approval=policy.approval,
                    missing=missing_approvals(event, policy.approval),
                    impact_sentence=sentence,
                    troubles=troubles,
                )
            )
    return tuple(sorted(flights, key=lambda flight: flight.urgency))


def group(flights: Iterable[Flight], snapshot: Snapshot) -> tuple[FlightGroup, ...]:
    """Return *flights* by Maintenance, the group that is most urgent first; so many of each."""
    groups: dict[str | None, list[Flight]] = {}
    for flight in flights:
        groups.setdefault(flight.event.maintenance_id, []).append(flight)
    most = max(_LEAST, _ROWS // max(len(groups), 1))
    return tuple(
        FlightGroup(
            maintenance=snapshot.maintenances.get(flights[0].event.maintenance_id or _NONE),
            flights=tuple(flights[:most]),
            more=max(0, len(flights) - most),
        )
        for flights in list(groups.values())[:_GROUPS]
    )


_NONE: Final = MaintenanceId("")
PHASES: Final[Mapping[str, str]] = {
    HostPhase.WORK: "The work on the host is under way",
    HostPhase.VERIFY: "The host is being checked",
    HostPhase.RETURN: "Virtual machines are returning to the host",
}


def _hear_of(event: ScheduledEvent, snapshot: Snapshot) -> tuple[str, tuple[Trouble, ...]]:
    """Return what is heard of the impact of *event*, and what is wrong with it."""
    if event.event_status is not EventStatus.STARTED:
        return "", ()
    impacts = [snapshot.impacts.get((event.event_id, vm)) for vm in event.resources]
    operation = operation_at_work(event, snapshot)
    troubles = [Trouble.OVERDUE] if event.overdue_at else []
    if operation is not None and operation.phase in PHASES:
        return PHASES[operation.phase], tuple(troubles)
    worst = [each for each in map(_trouble_with, impacts) if each]
    if operation is not None:
        worst = [each for each in worst if each is not Trouble.BY_HAND]
    if worst:
        return _WORDS[worst[0]], (*troubles, worst[0])
    return _say_impacts(impacts), tuple(troubles)


_WORDS: Final = {
    Trouble.UNKNOWN: "The state of its impact is unknown",
    Trouble.BY_HAND: "An operator has to carry out the impact and complete the event",
    Trouble.NO_EXECUTOR: "The server cannot use its executors",
}


def _trouble_with(impact: Impact | None) -> Trouble | None:
    if impact is None:
        return None
    if impact.has_no_executor:
        return Trouble.NO_EXECUTOR
    if impact.is_by_hand:
        return Trouble.BY_HAND
    return Trouble.UNKNOWN if impact.is_lost else None


def _say_impacts(impacts: Sequence[Impact | None]) -> str:
    statuses = [impact.status for impact in impacts if impact is not None]
    over = sum(impact.is_over for impact in impacts if impact is not None)
    if over:
        return f"Impact has ended on {over} of {len(impacts)}"
    return "Impact is running" if ImpactStatus.RUNNING in statuses else "Impact is about to begin"
