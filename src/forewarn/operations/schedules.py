"""Schedules: making and steering them, and beginning what they order when it is due."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime
from zoneinfo import ZoneInfo

from forewarn.domain.blockers import BrakeKind
from forewarn.domain.errors import ConflictError, NotFoundError, says
from forewarn.domain.maintenance import Maintenance, MaintenanceOrder
from forewarn.domain.names import ScheduleName, name_key
from forewarn.domain.phrases import say_moment
from forewarn.domain.recurrence import Recurrence, describe_recurrence
from forewarn.domain.schedule import (
    Occurrence,
    OccurrenceOutcome,
    PassOccurrence,
    Schedule,
    StartOccurrence,
    check_schedule,
    note,
)
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.walk import Stage, walk
from forewarn.operations.context import Context
from forewarn.operations.courses import describe_course_change
from forewarn.operations.maintenances import draft_maintenance
from forewarn.operations.recording import record_audit
from forewarn.operations.snapshots import look
from forewarn.operations.telling import tell_skipped
from forewarn.ports.store import Reading, Transaction
from forewarn.protocol.errors import ForewarnError


@says("Unknown schedule {name!r}.")
class UnknownScheduleError(NotFoundError):
    """A schedule that does not exist."""

    name: str


@says(
    "A schedule called {name!r} already exists; names are not case-sensitive. "
    "Remove it first, or choose another name."
)
class ScheduleNameTakenError(ConflictError):
    """Two schedules of one name."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOrder:
    """A schedule as it is asked for; it begins today unless *from_date* says otherwise."""

    name: str
    order: MaintenanceOrder
    every: Recurrence
    from_date: date | None = None
    until_date: date | None = None


def create_schedule(
    tx: Transaction, context: Context, wanted: ScheduleOrder, *, gates: Collection[str] = ()
) -> Schedule:
    """Keep a schedule, or refuse one that could start nothing as the fleet is now.

    *gates* are those that the server knows.
    """
    schedule = Schedule(
        name=ScheduleName(wanted.name),
        order=wanted.order,
        every=wanted.every,
        from_date=wanted.from_date or _today(wanted.order, context.now),
        until_date=wanted.until_date,
        created_at=context.now,
        met_until=context.now,
    )
    check_schedule(schedule)
    for known in tx.schedules():
        if name_key(known.name) == name_key(schedule.name):
            raise ScheduleNameTakenError(known.name)
    _draft(look(tx, context), context, schedule, gates)
    tx.put_schedule(schedule)
    record_audit(tx, context, "schedule create", schedule.name)
    return schedule


def change_schedule(
    tx: Transaction,
    context: Context,
    name: str,
    change: Callable[[Schedule], Schedule],
    *,
    verb: str,
) -> Schedule:
    """Pause or resume a schedule: make of it what *change* does."""
    changed = change(find_schedule(tx, name))
    tx.put_schedule(changed)
    record_audit(tx, context, f"schedule {verb}", changed.name)
    return changed


def alter_schedule(
    tx: Transaction,
    context: Context,
    name: str,
    *,
    change: Callable[[Schedule], Schedule],
    gates: Collection[str] = (),
) -> Schedule:
    """Order something else from the next opening on, or refuse as `create_schedule` does.

    Only openings after this moment count: the new days were not those of the schedule before.
    """
    before = find_schedule(tx, name)
    after = change(before)
    if after == before:
        return before
    after = replace(after, met_until=context.now)
    check_schedule(after)
    _draft(look(tx, context), context, after, gates)
    tx.put_schedule(after)
    said = describe_course_change(before.order.course, after.order.course)
    dates = f"every: {describe_recurrence(before.every)} → {describe_recurrence(after.every)}"
    until = f"until: {before.until_date or 'always'} → {after.until_date or 'always'}"
    details = (
        dates if after.every != before.every else "",
        until if after.until_date != before.until_date else "",
        said,
    )
    record_audit(tx, context, "schedule set", after.name, detail="; ".join(filter(None, details)))
    return after


def remove_schedule(tx: Transaction, context: Context, name: str) -> Schedule:
    """Forget a schedule. A Maintenance that it has begun continues."""
    schedule = find_schedule(tx, name)
    tx.remove_schedule(schedule.name)
    record_audit(tx, context, "schedule remove", schedule.name)
    return schedule


def find_schedule(reading: Reading, name: str) -> Schedule:
    """Return the schedule called *name*, in any case, or refuse if there is none."""
    for schedule in reading.schedules():
        if name_key(schedule.name) == name_key(name):
            return schedule
    raise UnknownScheduleError(name)


def meet_occurrences(
    tx: Transaction,
    context: Context,
    snapshot: Snapshot,
    due: Iterable[PassOccurrence | StartOccurrence],
) -> Snapshot:
    """Write down what becomes of the occurrences that are *due*; return *snapshot* after it."""
    maintenances, schedules = dict(snapshot.maintenances), dict(snapshot.schedules)
    for action in due:
        begun: Maintenance | None = None
        if isinstance(action, PassOccurrence):
            met = action.occurrence
        else:
            met, begun = _start(snapshot, context, action)
        if begun is not None:
            maintenances[begun.maintenance_id] = begun
            tx.put_maintenance(begun)
            detail = f"schedule {action.name}"
            record_audit(tx, context, "maintenance start", begun.maintenance_id, detail=detail)
        schedules[action.name] = note(schedules[action.name], met)
        tx.put_schedule(schedules[action.name])
        detail = met.maintenance_id or f"{met.outcome}: {met.reason}"
        verb = "start" if begun else "skip"
        record_audit(tx, context, f"schedule {verb}", action.name, detail=detail)
        if begun is None and not (isinstance(action, PassOccurrence) and action.is_planned):
            tell_skipped(tx, context, schedules[action.name])
    return replace(snapshot, maintenances=maintenances, schedules=schedules)


def _start(
    snapshot: Snapshot, context: Context, action: StartOccurrence
) -> tuple[Occurrence, Maintenance | None]:
    schedule, opening = snapshot.schedules[action.name], action.opening
    met = Occurrence(
        opens_at=opening.opens_at, met_at=context.now, outcome=OccurrenceOutcome.STARTED
    )
    try:
        begun = _draft(snapshot, context, schedule, context.rules.gates)
    except ForewarnError as error:
        return replace(met, outcome=OccurrenceOutcome.SKIPPED, reason=str(error)), None
    if not _begins_before(walk(begun, snapshot, context.now), opening.closes_at):
        reason = f"no step fits before its window closes at {say_moment(opening.closes_at)}"
        return replace(met, outcome=OccurrenceOutcome.MISSED, reason=reason), None
    return replace(met, maintenance_id=begun.maintenance_id), begun


def _draft(
    snapshot: Snapshot, context: Context, schedule: Schedule, gates: Collection[str]
) -> Maintenance:
    """Return the Maintenance that *schedule* would begin now, or refuse."""
    # Who reads the event can find out where it comes from.
    description = f"{schedule.order.description} (schedule {schedule.name})".lstrip()
    order = replace(schedule.order, description=description)
    draft = draft_maintenance(snapshot, context, order, gates=gates)
    for error in draft.errors:
        raise error
    return replace(draft.maintenance, schedule=schedule.name)


def _begins_before(stages: Iterable[Stage], closes_at: datetime) -> bool:
    """Tell whether the calendar lets a step begin before a window closes."""
    return any(
        all(
            brake.kind is not BrakeKind.CALENDAR or (brake.until and brake.until < closes_at)
            for brake in stage.brakes
        )
        for stage in stages
        # What waits for an earlier step has not been compared with the calendar.
        if all(brake.kind is not BrakeKind.EARLIER_STEP for brake in stage.brakes)
    )


def _today(order: MaintenanceOrder, now: datetime) -> date:
    windows = order.course.calendar.windows
    return now.astimezone(ZoneInfo(windows[0].zone)).date() if windows else now.date()
