"""/maintenances: those under way with what each waits for, those that ended, and schedules."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final
from urllib.parse import quote

from forewarn.console.concerns import say_wait
from forewarn.console.maintenance_page import show_maintenance
from forewarn.console.maintenance_places import TONES
from forewarn.console.maintenance_plan import show_form, show_plan, start, suggest
from forewarn.console.visit import ActionRoute, ConsoleRoute, Done, Page, PageRoute, Visit
from forewarn.desk.explanations import undertaken_for
from forewarn.desk.schedules import ScheduleSummaryView, schedule_summary
from forewarn.domain.maintenance import Maintenance, MaintenanceOutcome
from forewarn.domain.roles import Role
from forewarn.operations.context import Context
from forewarn.operations.maintenances import (
    abort_maintenance,
    find_maintenance,
    pause_maintenance,
    resume_maintenance,
    retry_failures,
    skip_failures,
)
from forewarn.operations.pausing import find_pause
from forewarn.ports.store import Reading, Transaction

_PER_PAGE: Final = 25
OUTCOMES: Final[Mapping[MaintenanceOutcome, tuple[str, str]]] = {
    MaintenanceOutcome.SUCCEEDED: ("Completed", "done"),
    MaintenanceOutcome.INCOMPLETE: ("Incomplete", "failed"),
    MaintenanceOutcome.ABORTED: ("Aborted", "canceled"),
}
"""How each outcome is called, and coloured."""


def show_list(visit: Visit) -> Page:
    """Show what is under way first, then schedules, then what has ended."""
    before = visit.query.text("before").lower()
    now = visit.now

    def look(reading: Reading) -> tuple[tuple[Maintenance, ...], list[ScheduleSummaryView]]:
        seen = find_maintenance(reading, before).maintenance_id if before else None
        ended = reading.maintenances(finished=True, older_than=seen, limit=_PER_PAGE + 1)
        pause, every = find_pause(reading), () if before else reading.schedules()
        return ended, [schedule_summary(each, now, pause) for each in every]

    found, schedules = visit.read(look)
    ended = found[-_PER_PAGE:]
    has_more = len(found) > len(ended)
    values = {
        "under_way": () if before else undertaken_for(visit.caller)[::-1],
        "ended": ended[::-1],
        "schedules": schedules,
        "before": before,
        "older_href": f"/maintenances?before={quote(ended[0].maintenance_id)}" if has_more else "",
        "say_wait": say_wait,
        "tones": TONES,
        "outcomes": OUTCOMES,
    }
    return Page(title="Maintenances", template="maintenances.html", values=values)


def _steer(verb: Callable[[Transaction, Context, str], None], message: str, visit: Visit) -> Done:
    wanted = visit.path_values["maintenance_id"].lower()
    visit.caller.write(lambda tx, context: verb(tx, context, wanted))
    return Done(message=message)


def _retry(visit: Visit) -> Done:
    verb = partial(retry_failures, places=visit.form.texts("places"))
    return _steer(verb, "Retrying, with new events and full notice.", visit)


def _skip(visit: Visit) -> Done:
    verb = partial(skip_failures, places=visit.form.texts("places"))
    return _steer(verb, "Skipped. It stays unchanged.", visit)


def _action(name: str, act: Callable[[Visit], Done]) -> ActionRoute:
    return ActionRoute(
        path=f"/maintenances/{{maintenance_id}}/{name}",
        act=act,
        name=f"maintenance {name}",
        subject="maintenance_id",
    )


ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    PageRoute(path="/maintenances", show=show_list),
    # Before a Maintenance that could be called so.
    PageRoute(path="/maintenances/new", show=show_form),
    ActionRoute(path="/maintenances/names/{noun}", act=suggest, role=Role.VIEWER),
    ActionRoute(path="/maintenances/plan", act=show_plan, role=Role.VIEWER),
    ActionRoute(path="/maintenances/start", act=start, name="maintenance start"),
    PageRoute(path="/maintenances/{maintenance_id}", show=show_maintenance),
    _action("pause", partial(_steer, pause_maintenance, "Paused: no further step starts.")),
    _action("resume", partial(_steer, resume_maintenance, "Resumed.")),
    _action("abort", partial(_steer, abort_maintenance, "Aborted: no further step starts.")),
    _action("retry", _retry),
    _action("skip", _skip),
)
