"""`forewarn maintenance`: many virtual machines, one update domain at a time."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final

import typer

from forewarn.cli.completing import maintenance_ids, vm_names
from forewarn.cli.event import TypeOption
from forewarn.cli.event_tables import print_events
from forewarn.cli.output import Columns, Row, print_fields, print_table, time_of
from forewarn.cli.rehearsal import DryRun, show_rehearsed
from forewarn.cli.session import Session, command, noun
from forewarn.cli.waiting import Timeout, Wait, require_walked, wait_for_maintenance

app = noun("maintenance", "Walk through many machines, one update domain at a time.")

_COLUMNS: Final[Columns] = {
    "MAINTENANCE": "maintenance_id",
    "TYPE": "event_type",
    "STATUS": "status",
    "IN FLIGHT": "events_in_flight",
    "ENDED": "events_ended",
    "STEPS LEFT": "steps_remaining",
    "OF": lambda row: row["hosts"] or _count(row["resources"]),
}
_FIELDS: Final[Columns] = {
    "maintenance": "maintenance_id",
    "type": "event_type",
    "status": "status",
    "description": "description",
    "hosts": "hosts",
    "virtual machines": "resources",
    "finished": lambda row: time_of(row["finished_at"]),
    "held": "held",
}


@command(app, "start")
def start(  # noqa: PLR0913 - one for each flag
    session: Session,
    *,
    event_type: TypeOption,
    scope: Annotated[
        list[str] | None, typer.Option(help="A set, service or scale set; repeat it.")
    ] = None,
    vm: Annotated[
        list[str] | None,
        typer.Option(help="A virtual machine; repeat it.", autocompletion=vm_names),
    ] = None,
    host: Annotated[
        list[str] | None, typer.Option(help="A host with all it carries; repeat it.")
    ] = None,
    description: Annotated[str | None, typer.Option(metavar="TEXT", help="What it is for.")] = None,
    duration: Annotated[
        int | None, typer.Option(min=0, metavar="S", help="How long each takes, in seconds.")
    ] = None,
    hold_all: Annotated[
        bool, typer.Option("--hold-all", help="Let one failure hold every scope.")
    ] = False,
    dry_run: DryRun = False,
    wait: Wait = False,
    timeout: Timeout = None,
) -> None:
    """Begin a Maintenance of scopes and virtual machines, or of hosts.

    Example: forewarn maintenance start --type Freeze --scope web
    """
    order = {
        "event_type": event_type,
        "scopes": scope or [],
        "virtual_machines": vm or [],
        "hosts": host or [],
        "description": description,
        "duration_in_seconds": duration,
        "hold_all": hold_all,
    }
    begun = session.post("maintenances", body=order, dry_run=dry_run)
    if dry_run:
        show_rehearsed(session, begun, lambda got: _print_one({**got, "maintenance_id": None}))
        return
    if wait:
        begun = wait_for_maintenance(session, begun, timeout)
    session.show(begun, _print_one)
    if wait:
        require_walked(begun)


@command(app, "status")
def status(
    session: Session,
    maintenance_id: Annotated[
        str,
        typer.Argument(metavar="ID", help="The Maintenance.", autocompletion=maintenance_ids),
    ],
) -> None:
    """Show what a Maintenance has done, what remains and what holds it.

    Example: forewarn maintenance status 5c2bd0a4-6a50-4e4b-9b4f-3f4f0f6a3c11
    """
    session.show(session.get("maintenances", maintenance_id), _print_one)


@command(app, "list")
def list_all(session: Session) -> None:
    """List every Maintenance, oldest first.

    Example: forewarn maintenance list
    """
    found = session.list("maintenances", "maintenances")
    session.show(found, lambda got: print_table(got["maintenances"], _COLUMNS))


def _print_one(maintenance: Row) -> None:
    print_fields(maintenance, _FIELDS)
    if maintenance["events"]:
        typer.echo()
        print_events(maintenance["events"])
    if maintenance["remaining"]:
        typer.echo()
        print_table(
            _shares(maintenance["remaining"]),
            {
                "STEP": "step",
                "HOST": "host",
                "SCOPE": "scope_id",
                "UPDATE DOMAIN": "update_domain",
                "RESOURCES": "resources",
            },
        )


def _count(vms: Sequence[str]) -> str:
    return f"{len(vms)} virtual machine{'' if len(vms) == 1 else 's'}"


def _shares(steps: Iterable[Row]) -> Iterator[Row]:
    for number, step in enumerate(steps, 1):
        for share in step["shares"]:
            yield {"step": number, "host": step["host"], **share}
