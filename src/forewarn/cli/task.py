"""`forewarn task`: what is carried out and is not over, and what an operator says of it."""

from enum import StrEnum
from typing import Annotated, Final

from forewarn.cli.arguments import host_names, maintenance_ids, owner_names, settleable_tasks
from forewarn.cli.catalogue import noun
from forewarn.cli.errors import CommandError, ExitCode
from forewarn.cli.ids import complete_id
from forewarn.cli.options import DRY_RUN, YES, argument, option
from forewarn.cli.output import Columns, Row, print_line, table_of, wall_time_of
from forewarn.cli.session import Session, command

app = noun("task")

_COLUMNS: Final[Columns] = {
    "task": "task_id",
    "state": "state",
    "runner": "runner",
    "owner": "owner",
    "away since": lambda task: wall_time_of(task["owner_away_since"]),
    "host": "host",
    "begun": lambda task: wall_time_of(task["begun_at"]),
    "settle": lambda task: "yes" if task["can_settle"] else "",
    "reason": "reason",
}

OnHost = Annotated[
    str | None, option("HOST", "Only tasks on this host.", autocompletion=host_names)
]
InMaintenance = Annotated[
    str | None, option("ID", "Only tasks of this Maintenance.", autocompletion=maintenance_ids)
]
OfOwner = Annotated[
    str | None, option("NAME", "Only tasks of this replica or host.", autocompletion=owner_names)
]
TaskArguments = Annotated[
    list[str],
    argument(
        "TASK",
        "Tasks, as listed.",
        autocompletion=settleable_tasks,
        default_factory=list,
        show_default=False,
    ),
]


class Ending(StrEnum):
    """How tasks ended, as an operator says."""

    DONE = "done"
    FAILED = "failed"


EndingArgument = Annotated[Ending, argument("OUTCOME", "How they ended.")]


@command(app, "list")
def list_all(
    session: Session,
    *,
    host: OnHost = None,
    maintenance: InMaintenance = None,
    owner: OfOwner = None,
) -> None:
    """List tasks that are not over, and the owner of each.

    A task is the impact of an event on a virtual machine, or a part of the work on a
    host. Its owner is the replica, the host or the operator that carries it out. SETTLE
    says yes if forewarn task settle ends the task: its state is unknown, or it is done by
    hand.

    Example: forewarn task list
    """
    given = {"host": host, "maintenance_id": _maintenance_of(session, maintenance), "owner": owner}
    query = {name: value for name, value in given.items() if value is not None}
    session.show(session.get("tasks", **query), table_of("tasks", _COLUMNS))


def _maintenance_of(session: Session, typed: str | None) -> str | None:
    return typed and complete_id(session.get, "maintenances", typed)


@command(app, "settle", YES, DRY_RUN)
def settle(
    session: Session,
    task_ids: TaskArguments,
    outcome: EndingArgument,
    *,
    host: OnHost = None,
    maintenance: InMaintenance = None,
    owner: OfOwner = None,
) -> None:
    """Record how unknown tasks ended, after you have checked.

    Name tasks, or select all that can be settled on a host, in a Maintenance or of an
    owner. A task whose owner is present is refused, because it may still be running.
    Then retry or skip what has failed.

    Example: forewarn task settle --host kvm-1 failed
    """
    if not (task_ids or host or maintenance or owner):
        raise CommandError(
            "Name tasks, or select them by host, Maintenance or owner.",
            code=ExitCode.USAGE,
            hint="try: forewarn task settle --help",
        )
    body = {
        "outcome": outcome,
        "task_ids": task_ids,
        "host": host,
        "maintenance_id": _maintenance_of(session, maintenance),
        "owner": owner,
    }
    session.confirm(f"Record the tasks as {outcome}? Make sure that none is still running.")
    session.show(session.post("tasks", "settle", body=body), _print_settled)


def _print_settled(settled: Row) -> None:
    for task in settled["tasks"]:
        print_line(f"{task['task_id']} is settled")
    if not settled["tasks"]:
        print_line(
            "nothing to settle: no such task waits for an operator to say how it ended; "
            "try: forewarn task list"
        )
