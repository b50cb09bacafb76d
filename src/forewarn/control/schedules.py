"""/schedules: Maintenances that begin by themselves, and what became of each date."""

from collections.abc import Callable
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from forewarn.control.bodies import BodyRoute
from forewarn.control.caller import Operating, Viewing
from forewarn.control.paging import Paged
from forewarn.control.routes import CHANGES, Key, answer_seen, creates, lists, shows
from forewarn.desk.caller import Caller
from forewarn.desk.schedules import (
    UPCOMING,
    ScheduleOrderRequest,
    SchedulePatch,
    ScheduleSummaryView,
    ScheduleView,
    schedule_change,
    schedule_order,
    schedule_summary,
    schedule_view,
)
from forewarn.desk.shapes import several
from forewarn.domain.schedule import Schedule, pause_schedule, resume_schedule
from forewarn.domain.server_pause import ServerPause
from forewarn.operations.context import Context
from forewarn.operations.pausing import find_pause
from forewarn.operations.repeats import RequestKey
from forewarn.operations.schedules import (
    alter_schedule,
    change_schedule,
    create_schedule,
    find_schedule,
    remove_schedule,
)
from forewarn.ports.store import Reading, Transaction

router = APIRouter(prefix="/schedules", tags=["schedules"], route_class=BodyRoute)


@router.get("", **lists(several("schedules", ScheduleSummaryView, "Every schedule, oldest first.")))
def list_schedules(caller: Viewing, paging: Paged) -> Response:
    """Return the schedules, oldest first."""

    def look(reading: Reading) -> tuple[tuple[Schedule, ...], ServerPause | None]:
        every, begin = reading.schedules(), 0
        if paging.after is not None:
            begin = every.index(find_schedule(reading, paging.after)) + 1
        return every[begin:], find_pause(reading)

    schedules, pause = caller.read(look)
    now = caller.services.clock.now()
    return paging.answer(
        "schedules", schedules, lambda schedule: schedule_summary(schedule, now, pause), "name"
    )


@router.post("", name="schedule create", **creates(ScheduleView))
def create(caller: Operating, key: Key, request: ScheduleOrderRequest) -> ScheduleView:
    """Create a schedule, unless its Maintenance could not be started now."""
    services = caller.services
    wanted = schedule_order(request, services)

    def operation(tx: Transaction, context: Context) -> ScheduleView:
        made = create_schedule(tx, context, wanted, gates=services.gates.kinds())
        return schedule_view(tx, made, context.now)

    return caller.write_once(key, ScheduleView, operation)


@router.get("/{name}", **shows(ScheduleView))
def show_schedule(
    caller: Viewing,
    name: str,
    upcoming: Annotated[
        int, Query(ge=1, le=1000, description="Number of next dates to return.")
    ] = UPCOMING,
) -> Response:
    """Return one schedule with its next dates and last outcomes."""
    return answer_seen(caller, lambda reading: _show(caller, reading, name, upcoming))


@router.patch("/{name}", name="schedule set", dependencies=CHANGES)
def change(caller: Operating, key: Key, name: str, request: SchedulePatch) -> ScheduleView:
    """Change a schedule from its next date on; null sets a field to its default."""
    gates = caller.services.gates.kinds()
    return _steer(
        caller, key, name, partial(alter_schedule, change=schedule_change(request), gates=gates)
    )


@router.post("/{name}/pause", name="schedule pause", dependencies=CHANGES)
def pause(caller: Operating, key: Key, name: str) -> ScheduleView:
    """Pause a schedule and skip its dates until it is resumed."""
    return _steer(caller, key, name, partial(change_schedule, change=pause_schedule, verb="pause"))


@router.post("/{name}/resume", name="schedule resume", dependencies=CHANGES)
def resume(caller: Operating, key: Key, name: str) -> ScheduleView:
    """Resume a paused schedule from its next date on."""
    return _steer(
        caller, key, name, partial(change_schedule, change=resume_schedule, verb="resume")
    )


@router.delete("/{name}", name="schedule remove", dependencies=CHANGES)
def remove(caller: Operating, name: str) -> ScheduleView:
    """Remove a schedule; a Maintenance it has started continues."""
    return caller.write(
        lambda tx, context: schedule_view(tx, remove_schedule(tx, context, name), context.now),
        current=lambda reading: _show(caller, reading, name),
    )


def _steer(
    caller: Caller,
    key: RequestKey | None,
    name: str,
    steer: Callable[[Transaction, Context, str], Schedule],
) -> ScheduleView:
    return caller.change(
        key,
        ScheduleView,
        lambda reading: _show(caller, reading, name),
        lambda tx, context: steer(tx, context, name),
    )


def _show(caller: Caller, reading: Reading, name: str, count: int = UPCOMING) -> ScheduleView:
    return schedule_view(reading, find_schedule(reading, name), caller.services.clock.now(), count)
