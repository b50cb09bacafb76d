"""`forewarn fleet`: all virtual machines at once."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

from forewarn.cli.catalogue import noun
from forewarn.cli.errors import CommandError, ExitCode
from forewarn.cli.failures import ServerRefusedError
from forewarn.cli.files import name_file, read_text, refuse_lines
from forewarn.cli.options import (
    AS_IS,
    DRY_RUN,
    YES,
    Flag,
    Given,
    argument,
    option,
    taking,
    text,
    toggle,
)
from forewarn.cli.output import (
    Columns,
    Row,
    print_line,
    print_toml,
    table_of,
    time_of,
    with_options,
)
from forewarn.cli.session import Session, command
from forewarn.cli.times import duration_option
from forewarn.cli.vm import COLUMNS
from forewarn.discovery.vocabulary import AddressPlace
from forewarn.wording.differences import SIGNS, difference_line, entry_noun

app = noun("fleet")

_ARROW: Final = "→"
_SKIPPED: Final = (":virtual-machine-busy", ":host-busy", ":host-closed", ":host-under-way")
"""The problems that --skip-busy avoids."""
_MANNER: Final = {
    "prune": toggle("--prune", "Remove machines, hosts and sets that are not in FILE."),
    "skip_busy": toggle(
        "--skip-busy", "Skip changes that an event, Maintenance or closed host prevents."
    ),
    "allow_removals": Flag(
        kind=int,
        option=option("N", "Maximum number of virtual machines that --prune removes.", min=0),
        default=0,
    ),
    "as_is": AS_IS,
}
_SOURCE_COLUMNS: Final[Columns] = {
    "source": "name",
    "kind": "kind",
    "state": lambda row: "failed" if row["problem"] else "working",
    "since": lambda row: time_of(row["since"]),
    "machines": "machines",
    "missing": "missing",
}


class ImportKind(StrEnum):
    """Whose virtual machines can be imported."""

    LIBVIRT = "libvirt"


IMPORTING: Final = {
    "host": text("NAME", "Name of the host; needs a single URI."),
    "mapping": Flag(kind=Path, option=option("FILE", "Mapping file: names to sets and labels.")),
    "addresses": Flag(
        kind=list[AddressPlace],
        option=option("PLACE", "Address source: lease, agent or arp; repeatable (default: lease)."),
    ),
    "timeout": Flag(option=duration_option("Timeout for each host."), default="30s"),
    "apply": toggle("--apply", "Apply the fleet instead of printing it."),
}


@command(app, "apply", DRY_RUN, YES)
@taking(_MANNER)
def apply(
    session: Session,
    manner: Given,
    *,
    file: Annotated[Path, argument("FILE", "Fleet file, or - for standard input.")],
) -> None:
    """Apply a fleet file, completely or not at all.

    Example: forewarn fleet apply fleet.toml --dry-run
    """
    text = read_text(file, command="fleet apply")
    fleet = _decode(file, text)
    if manner["prune"]:
        removed = f"every virtual machine, host, set and service that is not in {name_file(file)}"
        session.confirm(f"Remove {removed}?")
    body = {"fleet": fleet, "dry_run": session.dry_run, **manner}
    try:
        with _shown_progress() as note:
            answer = session.post_followed("fleet", body=body, note=note)
    except ServerRefusedError as refusal:
        raise _with_lines(refusal, file, text) from None
    session.show(answer, _print_rehearsed_change if session.dry_run else _print_change)


@command(app, "export")
def export(session: Session) -> None:
    """Print the fleet as a fleet file.

    Example: forewarn fleet export > fleet.toml
    """
    from forewarn.files.fleet import write_fleet_file  # noqa: PLC0415 - slow to load

    session.show(session.get("fleet"), lambda fleet: print_toml(write_fleet_file(fleet)))


@command(app, "import", DRY_RUN)
@taking(IMPORTING)
def import_fleet(
    session: Session,
    given: Given,
    *,
    kind: Annotated[ImportKind, argument("KIND", "Kind of hypervisor: libvirt.")],  # noqa: ARG001 - of one
    uris: Annotated[list[str], argument("URI", "Connection URI of each host.")],
) -> None:
    """Print a fleet file of the machines on hypervisors, or apply it.

    Example: forewarn fleet import libvirt qemu+ssh://root@kvm-1/system
    """
    from forewarn.cli.importing import (  # noqa: PLC0415 - slow
        list_domains,
        with_known_addresses,
        without_known_sets,
    )

    found = list_domains(uris, given)
    for remark in found.remarks:
        print_line(f"forewarn: {remark}", err=True)
    if not (given["apply"] or session.dry_run):
        from forewarn.files.fleet import write_fleet_file  # noqa: PLC0415 - slow to load

        session.show(found.content, lambda fleet: print_toml(write_fleet_file(fleet)))
        return
    known = session.get("fleet")
    fleet = with_known_addresses(without_known_sets(found.content, known), known)
    # Where they are has happened, and what is busy is as good as it can be until then.
    body = {"fleet": fleet, "dry_run": session.dry_run, "as_is": True, "skip_busy": True}
    with _shown_progress() as note:
        answer = session.post_followed("fleet", body=body, note=note)
    session.show(answer, _print_rehearsed_change if session.dry_run else _print_change)


@command(app, "sources")
def sources(session: Session) -> None:
    """Show the sources that the fleet follows.

    Example: forewarn fleet sources
    """
    session.show(session.get("discovery"), _print_sources)


@command(app, "show")
def show(session: Session) -> None:
    """Show every virtual machine and where it is.

    With -o json, the output has the keys of the fleet file.

    Example: forewarn fleet show
    """
    print_all = table_of("virtual_machines", COLUMNS)
    session.show(session.get("fleet"), lambda _: print_all(session.list("virtual-machines")))


@contextmanager
def _shown_progress() -> Iterator[Callable[[Row], None]]:
    """Give what shows how far it is, on a terminal, and take it away at the end."""
    from rich.console import Console  # noqa: PLC0415 - slow to load, and not for scripts

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("sending") as status:
        yield lambda row: status.update(f"{row['step']} {row['entries']:,}")


def _decode(file: Path, text: str) -> object:
    from forewarn.files.fleet_lines import FleetLines  # noqa: PLC0415 - slow to load
    from forewarn.files.toml import NotTomlError, decode  # noqa: PLC0415

    try:
        fleet = decode(text)
    except NotTomlError as error:
        raise refuse_lines(file, [(error.line, str(error))], ExitCode.REFUSED) from None
    dates = list(_find_dates(fleet))
    if dates:
        lines = FleetLines(text)
        placed = [
            (lines.find(found), f"{found['key']} is a date or time; write text in quotes.")
            for found in dates
        ]
        raise refuse_lines(file, placed, ExitCode.REFUSED)
    return fleet


def _find_dates(fleet: Row) -> Iterator[Row]:
    """Find what JSON has no word for, by the entry that has it."""
    for table, entries in fleet.items():
        for index, entry in enumerate(entries if isinstance(entries, list) else [entries]):
            values = entry if isinstance(entry, dict) else {table: entry}
            for key, value in values.items():
                try:
                    json.dumps(value)
                except TypeError:
                    yield {"table": table, "index": index, "key": key}


def _with_lines(refusal: ServerRefusedError, file: Path, text: str) -> CommandError:
    from forewarn.files.fleet_lines import FleetLines  # noqa: PLC0415 - slow to load

    lines = FleetLines(text)
    mistakes = refusal.problem.get("mistakes") or [refusal.problem]
    placed = [(lines.find(mistake), str(mistake["detail"])) for mistake in mistakes]
    can_be_skipped = str(refusal.problem.get("type")).endswith(_SKIPPED)
    more = ", or add --skip-busy to leave it unchanged" if can_be_skipped else ""
    return refuse_lines(file, placed, refusal.code, refusal.hint + more)


def _print_sources(answer: Row) -> None:
    """Print how each source is, and what it could not do."""
    table_of("sources", _SOURCE_COLUMNS)(answer)
    for each in answer["sources"]:
        for sentence in filter(None, (each["problem"], *each["remarks"])):
            print_line(f"! {each['name']}: {sentence}")


def _print_change(change: Row) -> None:
    """Print one line for each difference, and the counts."""
    for difference in change["differences"]:
        print_line(_line(difference))
    # One closed host is the reason for all who would have come there.
    for reason in dict.fromkeys(skipped["reason"] for skipped in change["skipped"]):
        print_line(f"! skipped: {with_options(reason)}")
    for host in change["undeclared_hosts"]:
        print_line(f"Note: host {host} is new and not declared")
    print_line(_counts(change))


def _print_rehearsed_change(change: Row) -> None:
    """Print *change* and what it takes to go ahead with it."""
    _print_change(change)
    if change["needed_removals"]:
        print_line(f"Applying this needs --allow-removals {change['needed_removals']}.")


def _line(difference: Row) -> str:
    fields = ((each["field"], each["before"], each["after"]) for each in difference["fields"])
    alteration, table, name = (difference[key] for key in ("alteration", "table", "name"))
    return difference_line(alteration, table, name, fields, arrow=_arrow())


def _arrow() -> str:
    try:
        _ARROW.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        return "->"  # on a console that knows only the letters of one country
    return _ARROW


def _counts(change: Row) -> str:
    machines = ", ".join(f"{len(change[alteration])} {alteration}" for alteration in SIGNS)
    if change["skipped"]:
        machines += f", {len(change['skipped'])} skipped"
    others = Counter(
        (noun, each["alteration"])
        for each in change["differences"]
        if (noun := entry_noun(each["table"]))
    )
    counted = ", ".join(
        f"{number} {noun}{'s' * (number > 1)} {alteration}"
        for (noun, alteration), number in others.items()
    )
    return f"{machines}; {counted}" if counted else machines
