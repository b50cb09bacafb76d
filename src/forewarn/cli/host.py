"""`forewarn host`: what carries virtual machines."""

import sys
from pathlib import Path
from typing import Annotated, Final

from forewarn.cli.arguments import HostArgument
from forewarn.cli.catalogue import noun
from forewarn.cli.errors import CommandError, ExitCode, reported_errors
from forewarn.cli.event_tables import EVENT_COLUMNS
from forewarn.cli.host_setup import OPTIONS, setup
from forewarn.cli.options import DRY_RUN, YES, Given, accepting, option, taking
from forewarn.cli.output import (
    Columns,
    Row,
    print_fields,
    print_line,
    print_parts,
    table_of,
    time_of,
)
from forewarn.cli.patches import LABELS, make_patch
from forewarn.cli.session import Session, command
from forewarn.environment import environment_with

app = noun("host")

_WIDEST_LABELS: Final = 20
_WIDEST_MAINTENANCE: Final = 9
"""How much of a text the list shows, so that sixty hosts are sixty lines."""


def _cut(text: str, widest: int) -> str:
    return text if len(text) <= widest else f"{text[: widest - 1]}…"


def _labels(host: Row) -> str:
    labels = ",".join(f"{key}={value}" for key, value in host["labels"].items())
    return _cut(labels, _WIDEST_LABELS)


def _maintenances(host: Row) -> str:
    return ",".join(_cut(name, _WIDEST_MAINTENANCE) for name in host["maintenance_ids"])


_COLUMNS: Final[Columns] = {
    "host": "name",
    "vms": lambda host: len(host["virtual_machines"]),
    "closed": lambda host: time_of(host["closed_at"]),
    "scheduled": lambda host: host["events_scheduled"] or "",
    "started": lambda host: host["events_started"] or "",
    "maintenance": _maintenances,
    "labels": _labels,
}
_FIELDS: Final[Columns] = {
    "host": "name",
    "labels": "labels",
    "virtual machines": lambda host: len(host["virtual_machines"]),
    "closed": lambda host: time_of(host["closed_at"]),
    "closed by": "closed_by",
    "reason": "closed_reason",
    "maintenance": "maintenance_ids",
}
_TASKS: Final[Columns] = {
    "task": "task",
    "status": "status",
    "offered": lambda task: time_of(task["offered_at"]),
    "heard": lambda task: time_of(task["heard_at"]),
    "reason": "reason",
}
_SHARES: Final[Columns] = {
    "scope": "scope_id",
    "update domain": "update_domain",
    "virtual machines": "resources",
}


@command(app, "list")
def list_all(session: Session) -> None:
    """List every host, and the events in flight there.

    Example: forewarn host list
    """
    session.show(session.list("hosts"), table_of("hosts", _COLUMNS))


@command(app, "show")
def show(session: Session, host: HostArgument) -> None:
    """Show one host, its virtual machines, events and tasks.

    Example: forewarn host show kvm-1
    """
    session.show(session.get("hosts", host), _print_host)


@command(app, "set", DRY_RUN)
@taking({"label": LABELS})
def set_labels(session: Session, given: Given, *, host: HostArgument) -> None:
    """Change labels of a host; other labels stay.

    Example: forewarn host set kvm-1 --label rack=a
    """
    session.show(session.patch("hosts", host, body=make_patch("host set", given)), _print_host)


@command(app, "close", DRY_RUN)
def close(
    session: Session,
    host: HostArgument,
    *,
    reason: Annotated[str, option("TEXT", "Reason, for other operators.")] = "",
) -> None:
    """Close a host to new virtual machines; existing ones stay.

    Example: forewarn host close kvm-1 --reason 'new kernel'
    """
    _show_change(session, session.post("hosts", host, "close", body={"reason": reason}))


@command(app, "open", DRY_RUN)
def open_again(session: Session, host: HostArgument) -> None:
    """Open a closed host to virtual machines again.

    Example: forewarn host open kvm-1
    """
    _show_change(session, session.post("hosts", host, "open"))


@command(app, "remove", YES, DRY_RUN)
def remove(session: Session, host: HostArgument) -> None:
    """Remove a host that carries no virtual machines.

    Example: forewarn host remove kvm-9 --yes
    """
    session.confirm(f"Remove the host {host}?")
    removed = session.delete("hosts", host)
    session.show_removed(removed, removed["name"])


app.command("setup")(accepting(*OPTIONS)(setup))


@app.command("work")
def work(*, config: Annotated[Path, option("FILE", "Settings file.")]) -> None:
    """Fetch this host's work from a server, and do it.

    It runs only the programs named in FILE, when the server asks for them, and reports
    their results. It opens no port.

    Example: forewarn host work --config /etc/forewarn/host-work.toml
    """
    with reported_errors("host work"):
        if sys.platform != "linux":
            raise CommandError("forewarn host work needs Linux.", code=ExitCode.USAGE)
        from forewarn.files.tables import TablesError  # noqa: PLC0415 - slow to load
        from forewarn.host_worker.process import do_host_work  # noqa: PLC0415
        from forewarn.host_worker.settings import read_host_work_settings  # noqa: PLC0415
        from forewarn.telemetry.logs import configure_logging  # noqa: PLC0415

        try:
            settings = read_host_work_settings(config, environment_with({}).get("PATH", ""))
        except TablesError as error:
            # Its own exit code: systemd need not try again.
            first, *more = str(error).splitlines()
            raise CommandError(first, code=ExitCode.USAGE, more=more) from None
        configure_logging(settings.log_format, settings.log_level)
        do_host_work(settings)


def _show_change(session: Session, host: Row) -> None:
    verb = "would be" if session.dry_run else "is"
    state = "open to" if host["closed_at"] is None else "closed to new"
    carried = len(host["virtual_machines"])
    said = f"{host['name']} {verb} {state} virtual machines; it carries {carried}."
    session.show(host, lambda _: print_line(said))


def _print_host(host: Row) -> None:
    print_fields(host, _FIELDS)
    print_parts((host["shares"], _SHARES), (host["events"], EVENT_COLUMNS), (host["tasks"], _TASKS))
