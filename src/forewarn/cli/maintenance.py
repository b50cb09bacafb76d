"""`forewarn maintenance`: many virtual machines, one update domain at a time."""

from typing import Annotated, Final

import typer

from forewarn.cli.arguments import HostArgument, MaintenanceArgument
from forewarn.cli.catalogue import noun
from forewarn.cli.errors import CommandError, ExitCode
from forewarn.cli.ids import complete_id
from forewarn.cli.maintenance_options import CHANGES, ORDER
from forewarn.cli.maintenance_progress import (
    require_walked,
    wait_for_maintenance,
    watch_maintenance,
)
from forewarn.cli.maintenance_tables import (
    count_names,
    print_blockers,
    print_maintenance,
    print_plan,
)
from forewarn.cli.options import BEGINS, DRY_RUN, TIMEOUT, YES, Given, argument, taking
from forewarn.cli.output import Columns, Row, print_line, table_of, wall_time_of, with_options
from forewarn.cli.patches import make_patch
from forewarn.cli.place_tables import By, Detail, say_places
from forewarn.cli.session import Session, command
from forewarn.domain.phrases import count_of, say_names

app = noun("maintenance")

_COLUMNS: Final[Columns] = {
    "maintenance": "maintenance_id",
    "type": "event_type",
    "status": "status_text",
    "targets": lambda row: (
        count_names(row["hosts"], "host") or count_names(row["resources"], "virtual machine")
    ),
    "progress": say_places,
}

Places = Annotated[
    list[str] | None, argument("HOST|SCOPE", "Hosts or scopes (default: all that failed).")
]


@command(app, "plan")
@taking(ORDER)
def plan(session: Session, order: Given, *, by: By = Detail.PLACE) -> None:
    """Show what a Maintenance would do, when, and what prevents it.

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


@command(app, "start", *BEGINS)
@taking(ORDER)
def start(session: Session, order: Given) -> None:
    """Start a Maintenance of scopes and virtual machines, or of hosts.

    Example: forewarn maintenance start --type Freeze --scope web
    """
    begun = session.post("maintenances", body=order)
    for warning in begun["warnings"]:
        print_line(f"Warning: {with_options(warning)}", err=True)
    if session.dry_run:
        session.show(begun, lambda got: print_maintenance({**got, "maintenance_id": None}))
    elif session.wait:
        _show_end(session, begun["maintenance_id"])
    else:
        session.show(begun, print_maintenance)


@command(app, "set", DRY_RUN)
@taking(CHANGES)
def change(session: Session, given: Given, *, maintenance_id: MaintenanceArgument) -> None:
    """Change options of remaining steps; an empty value clears one.

    Example: forewarn maintenance set 5c2bd0a4-6a50-4e4b-9b4f-3f4f0f6a3c11 --at-once 4
    """
    patch = make_patch("maintenance set", given)
    session.show(session.patch("maintenances", maintenance_id, body=patch), print_maintenance)


@command(app, "pause")
def pause(session: Session, maintenance_id: MaintenanceArgument) -> None:
    """Start no further steps; announced events continue.

    Example: forewarn maintenance pause 5c2bd0a4-6a50-4e4b-9b4f-3f4f0f6a3c11
    """
    _steer(session, maintenance_id, "pause")


@command(app, "resume")
def resume(session: Session, maintenance_id: MaintenanceArgument) -> None:
    """End a pause and ask shut gates again; failures need retry or skip.

    Example: forewarn maintenance resume 5c2bd0a4-6a50-4e4b-9b4f-3f4f0f6a3c11
    """
    resumed = _steer(session, maintenance_id, "resume")
    failed = list(dict.fromkeys(failure["place"] for failure in resumed["failures"]))
    if failed:
        print_line(
            f"Failed or canceled places still hold the Maintenance: {say_names(failed)}. Retry "
            f"them with: forewarn maintenance retry {maintenance_id}; "
            f"skip them with: forewarn maintenance skip {maintenance_id}",
            err=True,
        )


@command(app, "retry")
def retry(session: Session, maintenance_id: MaintenanceArgument, places: Places = None) -> None:
    """Retry failed hosts or scopes, with new events and full notice.

    Example: forewarn maintenance retry 5c2bd0a4-6a50-4e4b-9b4f-3f4f0f6a3c11 kvm-3
    """
    _steer(session, maintenance_id, "retry", {"places": places or []})


@command(app, "complete", YES)
def complete(session: Session, maintenance_id: MaintenanceArgument, host: HostArgument) -> None:
    """Record that the work on a host is done.

    Tasks that have not begun are withdrawn, and unknown ones are settled as done. The
    events of the host end when no task of it is running any more.

    Example: forewarn maintenance complete 5c2bd0a4-6a50-4e4b-9b4f-3f4f0f6a3c11 kvm-3 --yes
    """
    _end_turn(session, maintenance_id, host, "complete", "as done")


@command(app, "fail", YES)
def fail(session: Session, maintenance_id: MaintenanceArgument, host: HostArgument) -> None:
    """Record that the work on a host has failed.

    Tasks that have not begun are withdrawn, and unknown ones are settled as failed. When
    no task of the host is running any more, retry or skip it.

    Example: forewarn maintenance fail 5c2bd0a4-6a50-4e4b-9b4f-3f4f0f6a3c11 kvm-3 --yes
    """
    _end_turn(session, maintenance_id, host, "fail", "as failed")


def _end_turn(session: Session, maintenance_id: str, host: str, verb: str, outcome: str) -> None:
    maintenance_id = complete_id(session.get, "maintenances", maintenance_id)
    session.confirm(f"Record the work on {host} in {maintenance_id} {outcome}?")
    _steer(session, maintenance_id, verb, {"host": host})
    _tell_running(session, maintenance_id, host=host)


def _tell_running(session: Session, maintenance_id: str, **place: str) -> None:
    """Say what keeps hosts and virtual machines busy although it was ended."""
    for task in session.get("tasks", maintenance_id=maintenance_id, **place)["tasks"]:
        may = "may still be" if task["state"] == "unknown" else "is still"
        print_line(
            f"{task['task_id']} {may} running (owner: {task['owner']}); "
            f"{task['host'] or task['vm']} stays busy until {_say_end(task)}.",
            err=True,
        )


def _say_end(task: Row) -> str:
    at = wall_time_of(task["times_out_at"])
    ends = f"it ends, or times out at {at}" if at else "it ends"
    return "you settle it with forewarn task settle" if task["can_settle"] else ends


@command(app, "skip", YES)
def skip(session: Session, maintenance_id: MaintenanceArgument, places: Places = None) -> None:
    """Skip failed hosts or scopes; they stay as they are.

    Example: forewarn maintenance skip 5c2bd0a4-6a50-4e4b-9b4f-3f4f0f6a3c11 kvm-3 --yes
    """
    wanted = say_names(places) if places else "everything that failed"
    maintenance_id = complete_id(session.get, "maintenances", maintenance_id)
    session.confirm(f"Skip {wanted} in {maintenance_id}?")
    _steer(session, maintenance_id, "skip", {"places": places or []})
    for place in places or ():
        _tell_running(session, maintenance_id, host=place)


@command(app, "abort", YES)
def abort(session: Session, maintenance_id: MaintenanceArgument) -> None:
    """Start no further steps, and withdraw events that have not started.

    Example: forewarn maintenance abort 5c2bd0a4-6a50-4e4b-9b4f-3f4f0f6a3c11 --yes
    """
    maintenance_id = complete_id(session.get, "maintenances", maintenance_id)
    session.confirm(f"Abort {maintenance_id} and withdraw the events that have not started?")
    _steer(session, maintenance_id, "abort")
    _tell_running(session, maintenance_id)


@command(app, "status")
def status(session: Session, maintenance_id: MaintenanceArgument, *, by: By = Detail.PLACE) -> None:
    """Show what a Maintenance has done, what remains and what holds it.

    Example: forewarn maintenance status 5c2bd0a4-6a50-4e4b-9b4f-3f4f0f6a3c11
    """
    found = session.get("maintenances", maintenance_id)
    session.show(found, lambda got: print_maintenance(got, by))


@command(app, "explain")
def explain(
    session: Session, maintenance_id: MaintenanceArgument, *, by: By = Detail.PLACE
) -> None:
    """Explain what holds a Maintenance, and until when.

    Example: forewarn maintenance explain 5c2bd0a4-6a50-4e4b-9b4f-3f4f0f6a3c11
    """
    found = session.get("maintenances", maintenance_id, "explain")
    session.show(found, lambda got: print_blockers(got, by))


@command(app, "watch")
def watch(session: Session, maintenance_id: MaintenanceArgument) -> None:
    """Print each change to a Maintenance until it ends.

    Example: forewarn maintenance watch 5c2bd0a4-6a50-4e4b-9b4f-3f4f0f6a3c11
    """
    try:
        watch_maintenance(session, complete_id(session.get, "maintenances", maintenance_id))
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None


@command(app, "wait", TIMEOUT)
def wait_for(session: Session, maintenance_id: MaintenanceArgument) -> None:
    """Wait until a Maintenance ends, is held or is stuck.

    The command fails unless the Maintenance is completed.

    Example: forewarn maintenance wait 5c2bd0a4-6a50-4e4b-9b4f-3f4f0f6a3c11 --timeout 8h
    """
    _show_end(session, complete_id(session.get, "maintenances", maintenance_id))


@command(app, "list")
def list_all(session: Session) -> None:
    """List every Maintenance, oldest first.

    Example: forewarn maintenance list
    """
    session.show(session.list("maintenances"), table_of("maintenances", _COLUMNS))


def _steer(session: Session, maintenance_id: str, verb: str, body: object = None) -> Row:
    answer: Row = session.post("maintenances", maintenance_id, verb, body=body)
    session.show(answer, print_maintenance)
    return answer


def _show_end(session: Session, maintenance_id: str) -> None:
    """Wait until a Maintenance is over, held or stuck, show it, and fail unless it is completed."""
    ended = wait_for_maintenance(session, maintenance_id)
    session.show(ended, print_maintenance)
    require_walked(ended)
