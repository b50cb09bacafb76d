"""`forewarn schedule`: Maintenances that begin by themselves when their window opens."""

from datetime import date
from typing import Annotated, Final

import typer

from forewarn.cli.arguments import ScheduleArgument
from forewarn.cli.catalogue import noun
from forewarn.cli.maintenance_options import CHANGES, COURSE, ORDER, check_written
from forewarn.cli.options import DRY_RUN, REQUIRED, YES, Flag, Given, argument, option, taking, text
from forewarn.cli.output import (
    Columns,
    Row,
    print_fields,
    print_parts,
    print_table,
    table_of,
    time_of,
)
from forewarn.cli.patches import make_patch
from forewarn.cli.session import Session, command

app = noun("schedule")


def _check_date(text: str | None) -> str | None:
    try:
        return text and str(date.fromisoformat(text))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not YYYY-MM-DD") from None


def _check_every(text: str | None) -> str | None:
    from forewarn.domain.recurrence import read_recurrence  # noqa: PLC0415 - slow to load

    check_written(read_recurrence, () if text is None else (text,))
    return text


_EVERY: Final = option(
    "DAYS",
    "Recurrence: day, Tue, 'first Tue', 'last Sun', 'day 15', '2 weeks'.",
    callback=_check_every,
)
_UNTIL: Final = text("DATE", "Last day (default: none).", key="until_date", callback=_check_date)
_ORDER: Final = {
    **ORDER,
    "every": Flag(option=_EVERY, default=REQUIRED),
    "from_date": text("DATE", "First day (default: today).", "--from", callback=_check_date),
    "until": _UNTIL,
}
_CHANGES: Final = {**CHANGES, "every": Flag(option=_EVERY), "until": _UNTIL}

_COLUMNS: Final[Columns] = {
    "schedule": "name",
    "status": "status",
    "every": "every",
    "type": lambda row: row["order"]["event_type"],
    "next": lambda row: time_of(row["next"] and row["next"]["opens_at"]),
    "last": lambda row: time_of(row["last"] and row["last"]["opens_at"]),
    "outcome": lambda row: _describe_last(row["last"]),
}
_FIELDS: Final[Columns] = {
    "schedule": "name",
    "status": "status",
    "waits": "waits_for",
    "every": "every",
    "from": "from_date",
    "until": "until_date",
    "type": "event_type",
    "description": "description",
    "scopes": "scopes",
    "virtual machines": "virtual_machines",
    "labels": "labels",
    "hosts": "hosts",
    "host labels": "host_labels",
    **COURSE,
    "last maintenance": "maintenance_id",
}
_DATES: Final[Columns] = {
    "next": lambda row: time_of(row["opens_at"]),
    "day": "day",
    "closes": lambda row: time_of(row["closes_at"]),
    "blackout": "blackout",
}
_OCCURRENCES: Final[Columns] = {
    "opened": lambda row: time_of(row["opens_at"]),
    "outcome": "outcome",
    "maintenance": "maintenance_id",
    "reason": "reason",
}


@command(app, "create", DRY_RUN)
@taking(_ORDER)
def create(
    session: Session,
    order: Given,
    *,
    name: Annotated[str, argument("NAME", "Name of the schedule.")],
) -> None:
    """Create a schedule that starts a Maintenance on recurring dates.

    The Maintenance starts when its window opens.

    Example: forewarn schedule create patches --every 'first Tue' --type Reboot
    --host-label rack=a --window 'Tue 22:00-04:00 Europe/Berlin'
    """
    session.show(session.post("schedules", body={**order, "name": name}), _print_one)


@command(app, "list")
def list_all(session: Session) -> None:
    """List all schedules with their next and previous dates.

    Example: forewarn schedule list
    """
    session.show(session.list("schedules"), table_of("schedules", _COLUMNS))


@command(app, "show")
def show(session: Session, name: ScheduleArgument) -> None:
    """Show a schedule, its next dates and its last outcome.

    Example: forewarn schedule show patches
    """
    session.show(session.get("schedules", name), _print_one)


@command(app, "next")
def next_dates(
    session: Session,
    name: ScheduleArgument,
    *,
    count: Annotated[int, option("N", "Number of dates to show.", min=1, max=1000)] = 10,
) -> None:
    """Show the next dates of a schedule.

    Example: forewarn schedule next patches --count 24
    """
    shown = session.get("schedules", name, upcoming=count)
    session.show(shown["upcoming"], lambda got: print_table(got, _DATES))


@command(app, "set", DRY_RUN)
@taking(_CHANGES)
def change(session: Session, given: Given, *, name: ScheduleArgument) -> None:
    """Change options from the next date on; an empty value clears one.

    Example: forewarn schedule set patches --every 'second Tue' --at-once 4
    """
    patch = make_patch("schedule set", given)
    session.show(session.patch("schedules", name, body=patch), _print_one)


@command(app, "pause", DRY_RUN)
def pause(session: Session, name: ScheduleArgument) -> None:
    """Pause a schedule and skip its dates until it is resumed.

    Example: forewarn schedule pause patches
    """
    session.show(session.post("schedules", name, "pause"), _print_one)


@command(app, "resume", DRY_RUN)
def resume(session: Session, name: ScheduleArgument) -> None:
    """Resume a paused schedule from its next date on.

    Example: forewarn schedule resume patches
    """
    session.show(session.post("schedules", name, "resume"), _print_one)


@command(app, "remove", YES, DRY_RUN)
def remove(session: Session, name: ScheduleArgument) -> None:
    """Remove a schedule; a Maintenance it has started continues.

    Example: forewarn schedule remove patches --yes
    """
    session.confirm(f"Remove the schedule {name}?")
    removed = session.delete("schedules", name)
    session.show_removed(removed, removed["name"])


def _print_one(schedule: Row) -> None:
    print_fields({**schedule["order"], **schedule}, _FIELDS)
    print_parts((schedule["upcoming"], _DATES), (schedule["occurrences"], _OCCURRENCES))


def _describe_last(last: Row | None) -> str:
    if last is None:
        return ""
    return f"{last['outcome']}: {last['reason']}" if last["reason"] else str(last["outcome"])
