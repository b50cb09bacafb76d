"""What an applied fleet file changes, as lines and counts."""

import sys
from collections import Counter
from typing import Final

from forewarn.cli.output import Row, print_line
from forewarn.operations.difference_lines import SIGNS, difference_line, entry_noun

_ARROW: Final = "→"


def print_change(change: Row) -> None:
    """Print one line for each difference, and the counts."""
    for difference in change["differences"]:
        print_line(_line(difference))
    # One closed host is the reason for all who would have come there.
    for reason in dict.fromkeys(skipped["reason"] for skipped in change["skipped"]):
        print_line(f"! skipped: {reason}")
    for host in change["undeclared_hosts"]:
        print_line(f"Note: host {host} is new and not declared")
    print_line(_counts(change))


def print_rehearsed_change(change: Row) -> None:
    """Print *change* and what it takes to go ahead with it."""
    print_change(change)
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
