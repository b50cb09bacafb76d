"""/maintenances/ID: what a Maintenance has done, what remains, what holds it, and what to do."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import Final, TypeAlias

from forewarn.console.maintenance_form import course_fields
from forewarn.console.maintenance_places import (
    TONES,
    PlaceLine,
    count_standings,
    list_places,
)
from forewarn.console.remedies import Way, find_ways
from forewarn.console.visit import Page, Visit
from forewarn.desk.explanations import explain_maintenance_to
from forewarn.domain.blockers import Blocker, Release
from forewarn.domain.course import Course, knobs_of
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.failures import Failure
from forewarn.domain.host_operation import HostOperation
from forewarn.domain.phrases import count_of
from forewarn.domain.planning import ForeseenStep
from forewarn.domain.progress import WalkProgress, measure_progress
from forewarn.domain.standing import NEEDS_OPERATOR, Standing
from forewarn.domain.standstill import Standstill
from forewarn.domain.why import OF_HOST, OF_MAINTENANCES, ReasonKind, Verb
from forewarn.operations.maintenances import MaintenanceReport, report_maintenance
from forewarn.operations.planning import foresee_maintenance
from forewarn.ports.store import Reading
from forewarn.wording.durations import format_duration

PLACES_SHOWN: Final = 50
_BLOCKERS_SHOWN: Final = 12
_FAILURES_SHOWN: Final = 20
_EVENTS_SHOWN: Final = 30
_REMEDIES_SHOWN: Final = 8
_NAMED: Final = 10
_STEPS_FORESEEN: Final = 200
"""Going through more takes longer than a page may."""
_OF_EVENTS: Final = frozenset(ReasonKind) - OF_HOST

_Foreseen: TypeAlias = tuple[ForeseenStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindrance:
    """One thing that holds a Maintenance, and how many more are held alike."""

    sentence: str
    release: Release
    more: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """All that the page shows; of long lists, the first."""

    report: MaintenanceReport
    progress: tuple[WalkProgress, ...]
    standstill: Standstill
    counts: tuple[tuple[Standing, int], ...]
    places: tuple[PlaceLine, ...]
    hindrances: tuple[Hindrance, ...]
    likely_end: datetime | None

    @property
    def failures(self) -> tuple[Failure, ...]:
        return self.report.failures[:_FAILURES_SHOWN]

    @property
    def failed_places(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(failure.place for failure in self.report.failures))

    @property
    def events(self) -> tuple[ScheduledEvent, ...]:
        """Those in flight first, then the newest."""
        newest = reversed(self.report.events)
        return tuple(sorted(newest, key=lambda event: not event.is_in_flight))[:_EVENTS_SHOWN]

    @property
    def operations(self) -> tuple[HostOperation, ...]:
        newest = reversed(self.report.operations)
        return tuple(sorted(newest, key=lambda each: each.is_over))[:_EVENTS_SHOWN]

    @property
    def given_up(self) -> tuple[str, ...]:
        """The hosts that have not failed, but that somebody may give up."""
        skipped = (
            remedy.ids[-1]
            for remedy in chain.from_iterable(self.standstill.verdict.remedies)
            if remedy.verb is Verb.SKIP
        )
        places = dict.fromkeys(place for place in skipped if place not in self.failed_places)
        return tuple(places)[:_REMEDIES_SHOWN]

    @property
    def ways(self) -> tuple[Way, ...]:
        """What has to be done on other pages."""
        elsewhere = tuple(
            tuple(remedy for remedy in choice if remedy.verb not in OF_MAINTENANCES)
            for choice in self.standstill.verdict.remedies
        )
        return find_ways(elsewhere)[:_REMEDIES_SHOWN]


def show_maintenance(visit: Visit) -> Page:
    """Show one Maintenance."""
    wanted = visit.path_values["maintenance_id"].lower()
    standing = visit.query.text("standing")
    if standing not in set(Standing):
        standing = ""
    context = visit.caller.context()

    def look(reading: Reading) -> tuple[MaintenanceReport, tuple[WalkProgress, ...], _Foreseen]:
        report = report_maintenance(reading, context, wanted)
        progress = measure_progress(
            report.maintenance, reading.topology(), report.events, report.standings
        )
        is_short = len(report.stages) <= _STEPS_FORESEEN
        return report, progress, foresee_maintenance(reading, context, wanted) if is_short else ()

    report, progress, foreseen = visit.read(look)
    explained = explain_maintenance_to(visit.caller, wanted)
    standstill = explained.standstill
    if explained.status in NEEDS_OPERATOR:
        foreseen = ()
    seen = Seen(
        report=report,
        progress=progress,
        standstill=standstill,
        counts=count_standings(report),
        places=list_places(report, foreseen, standing=standing, most=PLACES_SHOWN),
        hindrances=tuple(_hindrances(standstill.blockers))[:_BLOCKERS_SHOWN],
        likely_end=_likely_end(report, foreseen),
    )
    maintenance = report.maintenance
    values = {
        "seen": seen,
        "maintenance": maintenance,
        "state": explained.state,
        "tones": TONES,
        "chosen": standing,
        "is_over": bool(maintenance.is_aborted or maintenance.finished_at),
        "is_held": standstill.verdict.needs_operator,
        "course": tuple(describe_course(maintenance.course)),
        "noun": "host" if maintenance.hosts else "scope",
        "ways": seen.ways,
        "shown_of": dict(seen.counts).get(Standing(standing), 0)
        if standing
        else len(report.standings),
    }
    return Page(
        title=f"{maintenance.event_type} maintenance", template="maintenance.html", values=values
    )


def describe_course(course: Course) -> Iterator[tuple[str, str]]:
    """Yield the label and the value of each field of *course* that is not as usual."""
    said, usual = knobs_of(course), knobs_of(Course())
    for each in course_fields():
        value = said[each.name]
        if value != usual[each.name]:
            yield each.label, _say(value, each.name)


def _say(value: object, name: str) -> str:
    match value:
        case bool():
            return "Yes" if value else "No"
        case tuple():
            more = f" and {len(value) - _NAMED} more" if len(value) > _NAMED else ""
            between = "; " if name in {"windows", "blackouts"} else ", "
            return between.join(value[:_NAMED]) + more
        case timedelta():
            return format_duration(value)
        case _:
            return f"{value} %" if name == "min_available" else str(value)


def _likely_end(report: MaintenanceReport, foreseen: _Foreseen) -> datetime | None:
    """Return when the last step ends, in all likelihood, if each has a likely time."""
    ends = [each.likely.ends for each in foreseen if each.likely.ends]
    return max(ends) if ends and len(ends) == len(report.stages) else None


def _hindrances(blockers: Iterable[Blocker]) -> Iterator[Hindrance]:
    # What holds events is alike but for their names; what holds steps is already said once.
    alike: dict[object, list[Blocker]] = {}
    for number, blocker in enumerate(blockers):
        is_of_event = blocker.kind in _OF_EVENTS and blocker.event_ids
        key = (blocker.kind, blocker.release, blocker.until) if is_of_event else number
        alike.setdefault(key, []).append(blocker)
    for first, *others in alike.values():
        events = sum(len(blocker.event_ids) for blocker in others)
        wait = "waits" if events == 1 else "wait"
        more = f"{count_of(events, 'more event')} {wait} for the same reason." if others else ""
        yield Hindrance(sentence=first.sentence, release=first.release, more=more)
