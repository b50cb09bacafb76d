"""How the plan of a Maintenance is printed, and what holds one."""

from collections.abc import Iterable, Iterator
from typing import Final

import typer

from forewarn.cli.output import Columns, Row, print_line, print_table, time_of

_COLUMNS: Final[Columns] = {
    "STEP": "number",
    "HOST": "host",
    "SCOPE": "scope_id",
    "UPDATE DOMAIN": "update_domain",
    "RESOURCES": "resources",
    "BEGINS": lambda row: time_of(row["earliest"]["begins"]),
    "ENDS": lambda row: time_of(row["earliest"]["ends"]),
    "LATEST BEGIN": lambda row: time_of(row["latest"]["begins"]),
    "LATEST END": lambda row: time_of(row["latest"]["ends"]),
    "AVAILABLE": lambda row: f"{row['available']} of {row['members']}",
}
_NEVER: Final[Row] = {"begins": None, "ends": None}


def print_plan(made: Row) -> None:
    """Print the walk, then what matters of it."""
    if made["steps"]:
        print_table(_shares(made["steps"]), _COLUMNS)
        typer.echo()
    _print_lines("", made["summary"])
    _print_lines("Warning: ", made["warnings"])
    _print_lines("Conflict: ", (conflict["sentence"] for conflict in made["conflicts"]))
    _print_lines("Note: ", made["remarks"])
    _print_lines("Error: ", (error["detail"] for error in made["errors"]))


def print_blockers(found: Row) -> None:
    """Print what holds a Maintenance, then what becomes of it."""
    typer.echo(f"{found['maintenance_id']} is {found['status']}.")
    _print_lines("- ", (blocker["sentence"] for blocker in found["blockers"]))
    print_line(found["verdict"]["sentence"])


def _print_lines(title: str, lines: Iterable[str]) -> None:
    for line in lines:
        print_line(f"{title}{line}")


def _shares(steps: Iterable[Row]) -> Iterator[Row]:
    for step in steps:
        times = {pace: step[pace] or _NEVER for pace in ("earliest", "latest")}
        for share in step["shares"]:
            yield {**step, **times, **share}
