"""How a Maintenance is printed: its plan, where it is, and what holds it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from forewarn.cli.event_tables import EVENT_COLUMNS
from forewarn.cli.maintenance_options import COURSE
from forewarn.cli.output import (
    Columns,
    Row,
    print_fields,
    print_line,
    print_parts,
    print_table,
    time_of,
    with_options,
)
from forewarn.cli.place_tables import (
    Detail,
    describe_brake,
    plan_lines,
    say_not_done,
    say_places,
    status_lines,
)
from forewarn.domain.phrases import count_of
from forewarn.domain.why import OF_HOST, ReasonKind

_COLUMNS: Final[Columns] = {
    "step": "number",
    "host": "host",
    "scope": "scope_id",
    "update domain": "update_domain",
    "resources": "resources",
    "begins": lambda row: time_of(row["earliest"]["begins"]),
    "ends": lambda row: time_of(row["earliest"]["ends"]),
    "latest begin": lambda row: time_of(row["latest"]["begins"]),
    "latest end": lambda row: time_of(row["latest"]["ends"]),
    "available": lambda row: f"{row['available']} of {row['members']}" if row["scope_id"] else "",
}
_FIELDS: Final[Columns] = {
    "maintenance": "maintenance_id",
    "type": "event_type",
    "status": "status_text",
    "description": "description",
    "schedule": "schedule",
    "hosts": "hosts",
    "virtual machines": "resources",
    **COURSE,
    "started": lambda row: time_of(row["started_at"]),
    "resumed": lambda row: time_of(row["resumed_at"]),
    "finished": lambda row: time_of(row["finished_at"]),
    "outcome": "outcome",
    "progress": say_places,
}
_COUNTS: Final[Columns] = {
    "hosts": lambda row: len(row["hosts"]) or "",
    "virtual machines": lambda row: len(row["resources"]) or "",
}
"""Instead of names, of which there may be hundreds."""
_REMAINING: Final[Columns] = {
    "step": "step",
    "host": "host",
    "scope": "scope_id",
    "update domain": "update_domain",
    "resources": "resources",
    "waits for": "brakes",
}
_NO_SHARE: Final[Row] = {"scope_id": None, "update_domain": None, "resources": None}
"""What a host without virtual machines shows."""
_OF_EVENTS: Final = frozenset(ReasonKind) - OF_HOST
_NEVER: Final[Row] = {"begins": None, "ends": None}


def print_plan(made: Row, by: Detail = Detail.PLACE) -> None:
    """Print the walk, then what matters of it."""
    if made["steps"]:
        if by is Detail.VM:
            print_table(_planned_shares(made["steps"]), _COLUMNS)
        else:
            columns, lines = plan_lines(made)
            print_table(lines, columns)
        print_line()
    _print_lines("", made["summary"])
    _print_lines("Warning: ", map(with_options, made["warnings"]))
    _print_lines("Conflict: ", (conflict["sentence"] for conflict in made["conflicts"]))
    _print_lines("Note: ", made["remarks"])
    _print_lines("Error: ", (with_options(error["detail"]) for error in made["errors"]))


def print_maintenance(maintenance: Row, by: Detail = Detail.PLACE) -> None:
    """Print what a Maintenance is, and where it is with each host or scope."""
    if by is Detail.VM:
        _print_by_vm(maintenance)
        return
    print_fields(maintenance, {**_FIELDS, **_COUNTS})
    columns, lines = status_lines(maintenance)
    print_parts((lines, columns))


def print_blockers(found: Row, by: Detail = Detail.PLACE) -> None:
    """Print what holds a Maintenance, then what becomes of it."""
    print_line(f"{found['maintenance_id']} is {found['status_text']}.")
    said = _each if by is Detail.VM else _once
    _print_lines("- ", said(found["blockers"]))
    _print_lines("", say_not_done(found["not_done"]))
    print_line(found["verdict"]["sentence"])


def count_names(names: Sequence[str], noun: str) -> str:
    """Return how many there are, if any."""
    return count_of(len(names), noun) if names else ""


def _print_by_vm(maintenance: Row) -> None:
    print_fields(maintenance, _FIELDS)
    remaining = list(_shares(maintenance["remaining"]))
    print_parts((maintenance["events"], EVENT_COLUMNS), (remaining, _REMAINING))


def _each(blockers: Iterable[Row]) -> Iterator[str]:
    return (blocker["sentence"] for blocker in blockers)


def _once(blockers: Iterable[Row]) -> Iterator[str]:
    # What holds events is alike but for their names; what holds steps is already said once.
    alike: dict[object, list[Row]] = {}
    for number, blocker in enumerate(blockers):
        is_of_event = blocker["kind"] in _OF_EVENTS and blocker["event_ids"]
        key = (blocker["kind"], blocker["release"], blocker["until"]) if is_of_event else number
        alike.setdefault(key, []).append(blocker)
    for first, *others in alike.values():
        if not others:
            yield first["sentence"]
            continue
        hosts = {host for blocker in others for host in blocker["hosts"]}
        where = f" on {count_of(len(hosts), 'host')}" if hosts.difference(first["hosts"]) else ""
        more = sum(len(blocker["event_ids"]) for blocker in others)
        wait = "waits" if more == 1 else "wait"
        said = f"{count_of(more, 'more event')}{where} {wait} for the same reason."
        yield f"{first['sentence'].removesuffix('.')}. {said}"


def _print_lines(title: str, lines: Iterable[str]) -> None:
    for line in lines:
        print_line(f"{title}{line}")


def _planned_shares(steps: Iterable[Row]) -> Iterator[Row]:
    for step in steps:
        times = {pace: step[pace] or _NEVER for pace in ("earliest", "latest")}
        for share in step["shares"] or [_NO_SHARE]:
            yield {**step, **times, **share}


def _shares(steps: Iterable[Row]) -> Iterator[Row]:
    for number, step in enumerate(steps, 1):
        brakes = ", ".join(
            describe_brake(brake, ",".join(brake["event_ids"][:1])) for brake in step["brakes"]
        )
        for share in step["shares"] or [_NO_SHARE]:
            yield {"step": number, "host": step["host"], **share, "brakes": brakes}
