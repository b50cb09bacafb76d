"""What comes next, as far as it is known: in the order of time."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import HostName, MaintenanceId, ScopeId
from forewarn.domain.planning import ForeseenStep
from forewarn.domain.schedule import Schedule, upcoming
from forewarn.operations.survey import Survey
from forewarn.protocol.vocabulary import EventStatus, EventType

AHEAD: Final = timedelta(hours=24)


@dataclass(frozen=True, slots=True, kw_only=True)
class Appointment:
    """Something that is to happen at a moment.

    It is one or several *events* of one type or Maintenance, *steps* that this foresees, or an
    opening of a *schedule*.
    """

    key: str
    at: datetime
    event_type: EventType
    maintenance: Maintenance | None = None
    events: tuple[ScheduledEvent, ...] = ()
    steps: tuple[ForeseenStep, ...] = ()
    schedule: Schedule | None = None

    @property
    def machines(self) -> int:
        """How many virtual machines it is about."""
        resources = [len(event.resources) for event in self.events]
        shares = (share for each in self.steps for share in each.step.shares)
        return sum(resources) + sum(len(share.resources) for share in shares)

    @property
    def hosts(self) -> tuple[HostName, ...]:
        found = (
            *(event.host for event in self.events),
            *(each.step.host for each in self.steps),
        )
        return tuple(dict.fromkeys(host for host in found if host))

    @property
    def scope_ids(self) -> tuple[ScopeId, ...]:
        found = [event.scope_id for event in self.events]
        found += [share.scope_id for each in self.steps for share in each.step.shares]
        return tuple(dict.fromkeys(found))

    @property
    def update_domains(self) -> tuple[int, ...]:
        found = [event.update_domain for event in self.events]
        found += [share.update_domain for each in self.steps for share in each.step.shares]
        return tuple(sorted(set(found)))


def find_agenda(survey: Survey, now: datetime) -> tuple[Appointment, ...]:
    """Return what is to happen in the next 24 hours, in the order of time."""
    every = (
        *_of_events(survey.snapshot.events.values(), survey),
        *_of_steps(survey.foreseen, now),
        *_of_schedules(survey.snapshot.schedules.values(), now),
    )
    soon = (each for each in every if now <= each.at <= now + AHEAD)
    return tuple(sorted(soon, key=lambda each: each.at))


def _of_events(events: Iterable[ScheduledEvent], survey: Survey) -> Iterator[Appointment]:
    maintenances = survey.snapshot.maintenances
    together: dict[tuple[str, datetime], list[ScheduledEvent]] = {}
    for event in events:
        if event.event_status is EventStatus.SCHEDULED:
            key = str(event.maintenance_id or event.event_type)
            together.setdefault((key, event.not_before), []).append(event)
    for (key, at), found in together.items():
        yield Appointment(
            key=f"{key}-{at:%Y%m%d%H%M%S}",
            at=at,
            event_type=found[0].event_type,
            maintenance=maintenances.get(MaintenanceId(key)),
            events=tuple(found),
        )


def _of_steps(foreseen: Sequence[ForeseenStep], now: datetime) -> Iterator[Appointment]:
    # A step that could begin now and has not is held by something that a forecast does not know.
    held = {each.maintenance.maintenance_id for each in foreseen if each.likely.begins <= now}
    together: dict[tuple[MaintenanceId, datetime], list[ForeseenStep]] = {}
    for each in foreseen:
        if each.maintenance.maintenance_id in held:
            continue
        begins = each.likely.begins.replace(microsecond=0)
        together.setdefault((each.maintenance.maintenance_id, begins), []).append(each)
    for (key, at), found in together.items():
        yield Appointment(
            key=f"step-{key}-{at:%Y%m%d%H%M%S}",
            at=at,
            event_type=found[0].maintenance.event_type,
            maintenance=found[0].maintenance,
            steps=tuple(found),
        )


def _of_schedules(schedules: Iterable[Schedule], now: datetime) -> Iterator[Appointment]:
    for schedule in schedules:
        if schedule.is_paused:
            continue
        for opening in upcoming(schedule, now, 4):
            if opening.blackout is None:
                yield Appointment(
                    key=f"schedule-{schedule.name}-{opening.opens_at:%Y%m%d%H%M%S}",
                    at=opening.opens_at,
                    event_type=schedule.order.event_type,
                    schedule=schedule,
                )
