"""`forewarn schedule`: Maintenances that begin by themselves when their window opens."""

from datetime import date
from typing import Annotated, Final

import typer

from forewarn.cli import maintenance_options as options
from forewarn.cli.catalogue import noun
from forewarn.cli.completing import schedule_names
from forewarn.cli.errors import confirm
from forewarn.cli.event import Yes
from forewarn.cli.maintenance_tables import COURSE
from forewarn.cli.output import Columns, Row, print_fields, print_line, print_table, time_of
from forewarn.cli.patches import make_patch
from forewarn.cli.rehearsal import DryRun, show_changed
from forewarn.cli.session import Session, command

app = noun("schedule")


def _check_date(text: str | None) -> str | None:
    try:
        return text and str(date.fromisoformat(text))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not YYYY-MM-DD") from None


def _check_every(text: str | None) -> str | None:
    from forewarn.domain.recurrence import read_recurrence  # noqa: PLC0415 - slow to load

    options.check_written(read_recurrence, () if text is None else (text,))
    return text


Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The schedule.", autocompletion=schedule_names)
]
_EVERY = typer.Option(
    metavar="DAYS",
    help="day, Tue, 'first Tue', 'last Sun', 'day 15', '2 weeks' or such.",
    callback=_check_every,
)
Every = Annotated[str, _EVERY]
NewEvery = Annotated[str | None, _EVERY]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="DATE", help="The first day; else today.", callback=_check_date),
]
Until = Annotated[
    str | None, typer.Option(metavar="DATE", help="The last day.", callback=_check_date)
]
Count = Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="How many dates.")]

_COLUMNS: Final[Columns] = {
    "SCHEDULE": "name",
    "STATUS": "status",
    "EVERY": "every",
    "TYPE": lambda row: row["order"]["event_type"],
    "NEXT": lambda row: time_of(row["next"] and row["next"]["opens_at"]),
    "LAST": lambda row: time_of(row["last"] and row["last"]["opens_at"]),
    "OUTCOME": lambda row: _describe_last(row["last"]),
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
    "NEXT": lambda row: time_of(row["opens_at"]),
    "DAY": "day",
    "CLOSES": lambda row: time_of(row["closes_at"]),
    "BLACKOUT": "blackout",
}
_OCCURRENCES: Final[Columns] = {
    "OPENED": lambda row: time_of(row["opens_at"]),
    "OUTCOME": "outcome",
    "MAINTENANCE": "maintenance_id",
    "REASON": "reason",
}


@command(app, "create")
@options.ordering
def create(  # noqa: PLR0913 - one for each flag
    session: Session,
    order: options.Order,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")],
    every: Every,
    from_date: From = None,
    until: Until = None,
    dry_run: DryRun = False,
) -> None:
    """Create a schedule that starts a Maintenance on recurring dates.

    The Maintenance starts when its window opens.

    Example: forewarn schedule create patches --every 'first Tue' --type Reboot
    --host-label rack=a --window 'Tue 22:00-04:00 Europe/Berlin'
    """
    wanted = {
        **order,
        "name": name,
        "every": every,
        "from_date": from_date,
        "until_date": until,
    }
    made = session.post("schedules", body=wanted, dry_run=dry_run)
    show_changed(session, made, _print_one, dry_run=dry_run)


@command(app, "list")
def list_all(session: Session) -> None:
    """List every schedule with its next date and its last.

    Example: forewarn schedule list
    """
    found = session.list("schedules", "schedules")
    session.show(found, lambda got: print_table(got["schedules"], _COLUMNS))


@command(app, "show")
def show(session: Session, name: Name) -> None:
    """Show a schedule, its next dates and what became of the last.

    Example: forewarn schedule show patches
    """
    session.show(session.get("schedules", name), _print_one)


@command(app, "next")
def next_dates(session: Session, name: Name, *, count: Count = 10) -> None:
    """Show the next dates of a schedule.

    Example: forewarn schedule next patches --count 24
    """
    shown = session.get("schedules", name, upcoming=count)
    session.show(shown["upcoming"], lambda got: print_table(got, _DATES))


@command(app, "set")
@options.changing
def change(
    session: Session,
    course: options.Order,
    *,
    name: Name,
    every: NewEvery = None,
    until: Until = None,
    dry_run: DryRun = False,
) -> None:
    """Change a schedule from the next date on; an empty text clears.

    Example: forewarn schedule set patches --every 'second Tue' --at-once 4
    """
    patch = make_patch("schedule set", **course, every=every, until_date=until)
    changed = session.patch("schedules", name, body=patch, dry_run=dry_run)
    show_changed(session, changed, _print_one, dry_run=dry_run)


@command(app, "pause")
def pause(session: Session, name: Name, *, dry_run: DryRun = False) -> None:
    """Skip every date until the schedule is resumed.

    Example: forewarn schedule pause patches
    """
    _steer(session, name, "pause", dry_run=dry_run)


@command(app, "resume")
def resume(session: Session, name: Name, *, dry_run: DryRun = False) -> None:
    """Start again from the next date on.

    Example: forewarn schedule resume patches
    """
    _steer(session, name, "resume", dry_run=dry_run)


@command(app, "remove")
def remove(session: Session, name: Name, *, yes: Yes = False, dry_run: DryRun = False) -> None:
    """Remove a schedule; a Maintenance that it has begun continues.

    Example: forewarn schedule remove patches --yes
    """
    confirm(f"Remove the schedule {name}?", yes=yes or dry_run)
    removed = session.delete("schedules", name, dry_run=dry_run)
    said = "would remove" if dry_run else "removed"
    show_changed(session, removed, lambda got: print_line(f"{said} {got['name']}"), dry_run=dry_run)


def _steer(session: Session, name: str, verb: str, *, dry_run: bool) -> None:
    steered = session.post("schedules", name, verb, dry_run=dry_run)
    show_changed(session, steered, _print_one, dry_run=dry_run)


def _print_one(schedule: Row) -> None:
    print_fields({**schedule["order"], **schedule}, _FIELDS)
    if schedule["upcoming"]:
        print_line()
        print_table(schedule["upcoming"], _DATES)
    if schedule["occurrences"]:
        print_line()
        print_table(schedule["occurrences"], _OCCURRENCES)


def _describe_last(last: Row | None) -> str:
    if last is None:
        return ""
    return f"{last['outcome']}: {last['reason']}" if last["reason"] else str(last["outcome"])
