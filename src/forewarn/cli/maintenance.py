"""`forewarn maintenance`: many virtual machines, one update domain at a time."""

from typing import Annotated, Final

import typer

from forewarn.cli import maintenance_options as options
from forewarn.cli.catalogue import noun
from forewarn.cli.completing import maintenance_ids
from forewarn.cli.errors import CommandError, ExitCode, confirm
from forewarn.cli.event import Yes
from forewarn.cli.ids import complete_id
from forewarn.cli.maintenance_tables import (
    count_names,
    print_blockers,
    print_maintenance,
    print_plan,
)
from forewarn.cli.maintenance_waiting import require_walked, wait_for_maintenance
from forewarn.cli.maintenance_watch import watch_maintenance
from forewarn.cli.output import Columns, print_line, print_table
from forewarn.cli.patches import make_patch
from forewarn.cli.place_tables import By, Detail, say_standings
from forewarn.cli.rehearsal import DryRun, show_changed, show_rehearsed
from forewarn.cli.session import Session, command
from forewarn.cli.waiting import Timeout, Wait
from forewarn.domain.wording import count_of, say_names

app = noun("maintenance")

_COLUMNS: Final[Columns] = {
    "MAINTENANCE": "maintenance_id",
    "TYPE": "event_type",
    "STATUS": "status",
    "OF": lambda row: (
        count_names(row["hosts"], "host") or count_names(row["resources"], "virtual machine")
    ),
    "PROGRESS": lambda row: say_standings(row["places"]),
}


IdArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="Its id, or the beginning of it.", autocompletion=maintenance_ids
    ),
]


Places = Annotated[
    list[str] | None,
    typer.Argument(metavar="HOST|SCOPE", help="Hosts or scopes (default: all that failed)."),
]


@command(app, "plan")
@options.ordering
def plan(session: Session, order: options.Order, *, by: By = Detail.PLACE) -> None:
    """Show what a Maintenance would do and when, and what prevents it.

    Example: forewarn maintenance plan --type Freeze --scope web
    """
    made = session.post("maintenances", "plan", body=order, takes_key=False)
    session.show(made, lambda got: print_plan(got, by))
    errors = len(made["errors"])
    if errors:
        raise CommandError(
            f"This Maintenance cannot be started: {count_of(errors, 'error')}.",
            code=ExitCode.REFUSED,
            hint="try: forewarn maintenance plan --help",
        )


@command(app, "start")
@options.ordering
def start(
    session: Session,
    order: options.Order,
    *,
    dry_run: DryRun = False,
    wait: Wait = False,
    timeout: Timeout = None,
) -> None:
    """Begin a Maintenance of scopes and virtual machines, or of hosts.

    Example: forewarn maintenance start --type Freeze --scope web
    """
    begun = session.post("maintenances", body=order, dry_run=dry_run)
    for warning in begun["warnings"]:
        print_line(f"Warning: {warning}", err=True)
    if dry_run:
        show_rehearsed(
            session, begun, lambda got: print_maintenance({**got, "maintenance_id": None})
        )
        return
    if wait:
        begun = wait_for_maintenance(session, begun["maintenance_id"], timeout)
    session.show(begun, print_maintenance)
    if wait:
        require_walked(begun)


@command(app, "set")
@options.changing
def change(
    session: Session,
    change: options.Order,
    *,
    maintenance_id: IdArgument,
    dry_run: DryRun = False,
) -> None:
    """Change how the remaining steps are done; an empty text clears.

    Example: forewarn maintenance set 5c2bd0a4-6a50-4e4b-9b4f-3f4f0f6a3c11 --at-once 4
    """
    patch = make_patch("maintenance set", **change)
    changed = session.patch("maintenances", maintenance_id, body=patch, dry_run=dry_run)
    show_changed(session, changed, print_maintenance, dry_run=dry_run)


@command(app, "pause")
def pause(session: Session, maintenance_id: IdArgument) -> None:
    """Begin no further step; announced events continue.

    Example: forewarn maintenance pause 5c2bd0a4-6a50-4e4b-9b4f-3f4f0f6a3c11
    """
    session.show(session.post("maintenances", maintenance_id, "pause"), print_maintenance)


@command(app, "resume")
def resume(session: Session, maintenance_id: IdArgument) -> None:
    """Continue after a pause; ask shut gates again. Failures still hold.

    Example: forewarn maintenance resume 5c2bd0a4-6a50-4e4b-9b4f-3f4f0f6a3c11
    """
    resumed = session.post("maintenances", maintenance_id, "resume")
    session.show(resumed, print_maintenance)
    failed = list(dict.fromkeys(failure["place"] for failure in resumed["failures"]))
    if failed:
        print_line(
            f"Still held by what failed or was canceled: {say_names(failed)}. Resuming does not "
            f"change that. Retry with: forewarn maintenance retry {maintenance_id}; "
            f"skip with: forewarn maintenance skip {maintenance_id}",
            err=True,
        )


@command(app, "retry")
def retry(session: Session, maintenance_id: IdArgument, places: Places = None) -> None:
    """Retry failed hosts or scopes, with new events and full notice.

    Example: forewarn maintenance retry 5c2bd0a4-6a50-4e4b-9b4f-3f4f0f6a3c11 kvm-3
    """
    body = {"places": places or []}
    session.show(
        session.post("maintenances", maintenance_id, "retry", body=body), print_maintenance
    )


@command(app, "skip")
def skip(
    session: Session, maintenance_id: IdArgument, places: Places = None, *, yes: Yes = False
) -> None:
    """Skip failed hosts or scopes; they stay as they are.

    Example: forewarn maintenance skip 5c2bd0a4-6a50-4e4b-9b4f-3f4f0f6a3c11 kvm-3 --yes
    """
    wanted = say_names(places) if places else "everything that failed"
    maintenance_id = complete_id(session.get, "maintenances", maintenance_id)
    confirm(f"Skip {wanted} in {maintenance_id}?", yes=yes)
    body = {"places": places or []}
    session.show(session.post("maintenances", maintenance_id, "skip", body=body), print_maintenance)


@command(app, "abort")
def abort(session: Session, maintenance_id: IdArgument, *, yes: Yes = False) -> None:
    """Begin no further step; withdraw events that have not started.

    Example: forewarn maintenance abort 5c2bd0a4-6a50-4e4b-9b4f-3f4f0f6a3c11 --yes
    """
    maintenance_id = complete_id(session.get, "maintenances", maintenance_id)
    confirm(f"Abort {maintenance_id}, and withdraw what it has announced?", yes=yes)
    session.show(session.post("maintenances", maintenance_id, "abort"), print_maintenance)


@command(app, "status")
def status(session: Session, maintenance_id: IdArgument, *, by: By = Detail.PLACE) -> None:
    """Show what a Maintenance has done, what remains and what holds it.

    Example: forewarn maintenance status 5c2bd0a4-6a50-4e4b-9b4f-3f4f0f6a3c11
    """
    found = session.get("maintenances", maintenance_id)
    session.show(found, lambda got: print_maintenance(got, by))


@command(app, "explain")
def explain(session: Session, maintenance_id: IdArgument, *, by: By = Detail.PLACE) -> None:
    """Say what holds a Maintenance, and until when.

    Example: forewarn maintenance explain 5c2bd0a4-6a50-4e4b-9b4f-3f4f0f6a3c11
    """
    found = session.get("maintenances", maintenance_id, "explain")
    session.show(found, lambda got: print_blockers(got, by))


@command(app, "watch")
def watch(session: Session, maintenance_id: IdArgument) -> None:
    """Print each change of a Maintenance until it is over.

    Example: forewarn maintenance watch 5c2bd0a4-6a50-4e4b-9b4f-3f4f0f6a3c11
    """
    try:
        watch_maintenance(session, complete_id(session.get, "maintenances", maintenance_id))
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None


@command(app, "wait")
def wait_for(session: Session, maintenance_id: IdArgument, *, timeout: Timeout = None) -> None:
    """Return when a Maintenance is over or held; fail unless completed.

    Example: forewarn maintenance wait 5c2bd0a4-6a50-4e4b-9b4f-3f4f0f6a3c11 --timeout 8h
    """
    maintenance_id = complete_id(session.get, "maintenances", maintenance_id)
    ended = wait_for_maintenance(session, maintenance_id, timeout)
    session.show(ended, print_maintenance)
    require_walked(ended)


@command(app, "list")
def list_all(session: Session) -> None:
    """List every Maintenance, oldest first.

    Example: forewarn maintenance list
    """
    found = session.list("maintenances", "maintenances")
    session.show(found, lambda got: print_table(got["maintenances"], _COLUMNS))
