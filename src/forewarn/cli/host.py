"""`forewarn host`: what carries virtual machines."""

from typing import Annotated, Final

import typer

from forewarn.cli.catalogue import noun
from forewarn.cli.completing import host_names
from forewarn.cli.errors import confirm
from forewarn.cli.event import Yes
from forewarn.cli.event_tables import print_events
from forewarn.cli.output import Columns, Moment, Row, print_fields, print_line, print_table, time_of
from forewarn.cli.patches import Labels, make_patch, read_pairs
from forewarn.cli.rehearsal import DryRun, show_changed
from forewarn.cli.session import Session, command

app = noun("host")

Name = Annotated[str, typer.Argument(metavar="HOST", help="The host.", autocompletion=host_names)]

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


def _closed(host: Row) -> Moment | None:
    return time_of(host["closed_at"])


_COLUMNS: Final[Columns] = {
    "HOST": "name",
    "VMS": lambda host: len(host["virtual_machines"]),
    "CLOSED": _closed,
    "SCHEDULED": lambda host: host["events_scheduled"] or "",
    "STARTED": lambda host: host["events_started"] or "",
    "MAINTENANCE": _maintenances,
    "LABELS": _labels,
}
_FIELDS: Final[Columns] = {
    "host": "name",
    "labels": "labels",
    "virtual machines": lambda host: len(host["virtual_machines"]),
    "closed": _closed,
    "closed by": "closed_by",
    "reason": "closed_reason",
    "maintenance": "maintenance_ids",
}
_SHARES: Final[Columns] = {
    "SCOPE": "scope_id",
    "UPDATE DOMAIN": "update_domain",
    "VIRTUAL MACHINES": "resources",
}


@command(app, "list")
def list_all(session: Session) -> None:
    """List every host, and the events in flight there.

    Example: forewarn host list
    """
    found = session.list("hosts", "hosts")
    session.show(found, lambda got: print_table(got["hosts"], _COLUMNS))


@command(app, "show")
def show(session: Session, host: Name) -> None:
    """Show one host, its virtual machines and its events.

    Example: forewarn host show kvm-1
    """
    session.show(session.get("hosts", host), _print_host)


@command(app, "set")
def set_labels(
    session: Session,
    host: Name,
    *,
    label: Labels = None,
    dry_run: DryRun = False,
) -> None:
    """Change labels of a host; the others stay.

    Example: forewarn host set kvm-1 --label rack=a
    """
    patch = make_patch("host set", labels=read_pairs("--label", label))
    changed = session.patch("hosts", host, body=patch, dry_run=dry_run)
    show_changed(session, changed, _print_host, dry_run=dry_run)


@command(app, "close")
def close(
    session: Session,
    host: Name,
    *,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="The reason, for other operators.")
    ] = "",
    dry_run: DryRun = False,
) -> None:
    """Take no more virtual machines on a host; those it carries stay.

    Example: forewarn host close kvm-1 --reason 'new kernel'
    """
    closed = session.post("hosts", host, "close", body={"reason": reason}, dry_run=dry_run)
    _show_change(session, closed, dry_run=dry_run)


@command(app, "open")
def open_again(session: Session, host: Name, *, dry_run: DryRun = False) -> None:
    """Take virtual machines on a host again.

    Example: forewarn host open kvm-1
    """
    opened = session.post("hosts", host, "open", dry_run=dry_run)
    _show_change(session, opened, dry_run=dry_run)


@command(app, "remove")
def remove(session: Session, host: Name, *, yes: Yes = False, dry_run: DryRun = False) -> None:
    """Remove a host that carries no virtual machines.

    Example: forewarn host remove kvm-9 --yes
    """
    confirm(f"Remove the host {host}?", yes=yes or dry_run)
    removed = session.delete("hosts", host, dry_run=dry_run)
    said = "would remove" if dry_run else "removed"
    show_changed(session, removed, lambda got: print_line(f"{said} {got['name']}"), dry_run=dry_run)


def _show_change(session: Session, host: Row, *, dry_run: bool) -> None:
    verb = "would be" if dry_run else "is"
    show_changed(session, host, lambda got: _print_change(got, verb), dry_run=dry_run)


def _print_change(host: Row, verb: str) -> None:
    state = "open to" if host["closed_at"] is None else "closed to new"
    carried = len(host["virtual_machines"])
    print_line(f"{host['name']} {verb} {state} virtual machines; it carries {carried}.")


def _print_host(host: Row) -> None:
    print_fields(host, _FIELDS)
    if host["shares"]:
        print_line()
        print_table(host["shares"], _SHARES)
    if host["events"]:
        print_line()
        print_events(host["events"])
