"""/: what is happening, what comes next, and what it waits for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from forewarn.console.agenda import Appointment, find_agenda
from forewarn.console.concerns import count_held, find_concerns, say_wait
from forewarn.console.flights import Flight, Trouble, find_flights, group
from forewarn.console.maintenance_places import TONES
from forewarn.console.visit import ConsoleRoute, Page, PageRoute, Visit
from forewarn.desk.explanations import survey_for
from forewarn.domain.phrases import count_of
from forewarn.operations.survey import Survey, Undertaken
from forewarn.protocol.vocabulary import EventStatus

_MAINTENANCES: Final = 8
_CONCERNS: Final = 12
_APPOINTMENTS: Final = 12
_UNPOLLED: Final = 12
"""How many are shown of each at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NowFigures:
    """The figures at the top."""

    scheduled: int
    started: int
    awaiting: int
    overdue: int
    held: int
    unpolled: int
    machines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceCard:
    """One Maintenance under way, and the sentence about what it waits for."""

    undertaken: Undertaken
    wait: str
    others: int


def show_now(visit: Visit) -> Page:
    """Show what is happening now."""
    survey, now = survey_for(visit.caller), visit.now
    flights = find_flights(survey.snapshot)
    concerns, agenda = find_concerns(survey, flights), find_agenda(survey, now)
    groups = group(flights, survey.snapshot)
    return Page(
        title="Now",
        template="now.html",
        values={
            "lead": _lead(survey, flights, agenda),
            "figures": _figures(survey, flights),
            "concerns": concerns[:_CONCERNS],
            "more_concerns": max(0, len(concerns) - _CONCERNS),
            "tones": TONES,
            "cards": tuple(_cards(survey)),
            "more_maintenances": max(0, len(survey.maintenances) - _MAINTENANCES),
            "groups": groups,
            "flights": len(flights),
            "more_flights": len(flights) - sum(each.count for each in groups),
            "agenda": agenda[:_APPOINTMENTS],
            "more_agenda": max(0, len(agenda) - _APPOINTMENTS),
            "unpolled": survey.unpolled[:_UNPOLLED],
        },
    )


def _figures(survey: Survey, flights: Sequence[Flight]) -> NowFigures:
    started = sum(each.event.event_status is EventStatus.STARTED for each in flights)
    return NowFigures(
        scheduled=len(flights) - started,
        started=started,
        awaiting=sum(each.awaits_approval for each in flights),
        overdue=sum(Trouble.OVERDUE in each.troubles for each in flights),
        held=count_held(survey, flights),
        unpolled=len(survey.unpolled),
        machines=len(survey.snapshot.topology.virtual_machines),
    )


def _cards(survey: Survey) -> Iterator[MaintenanceCard]:
    for undertaken in survey.maintenances[:_MAINTENANCES]:
        standstill = undertaken.explanation.standstill
        kinds = {blocker.kind for blocker in standstill.blockers}
        yield MaintenanceCard(
            undertaken=undertaken,
            wait=say_wait(standstill),
            others=max(0, len(kinds) - 1),
        )


def _lead(survey: Survey, flights: Sequence[Flight], agenda: Sequence[Appointment]) -> str:
    """Return the page in a sentence."""
    if not flights and not survey.maintenances:
        return "Nothing is planned" if not agenda else "Nothing is in flight"
    parts = [f"{count_of(len(flights), 'event')} in flight"] if flights else []
    if survey.maintenances:
        parts.append(f"{count_of(len(survey.maintenances), 'maintenance')} under way")
    return ", ".join(parts)


ROUTES: Final[tuple[ConsoleRoute, ...]] = (PageRoute(path="/", show=show_now),)
