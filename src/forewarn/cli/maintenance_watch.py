"""Following a Maintenance: a line each time that a host or scope, or its status, changes."""

import time
from collections.abc import Iterator
from typing import Final, TypeAlias

from forewarn.cli.following import Persistent
from forewarn.cli.output import Row, print_line, print_one_of_many, time_of
from forewarn.cli.place_tables import Line, changed_lines
from forewarn.cli.session import Session

_ASK_EVERY: Final = 0.5

Told: TypeAlias = dict[str, str]
"""What was said last of each place."""


def watch_maintenance(session: Session, maintenance_id: str) -> None:
    """Print what changes until the Maintenance is over; across restarts of the server."""
    told: Told = {}
    status = ""
    for maintenance, now in _states(session, maintenance_id):
        lines = changed_lines(maintenance, told)
        if maintenance["status"] != status:
            status = maintenance["status"]
            lines.append({"status": status})
        for line in lines:
            print_one_of_many({"at": now, **line}, session.output, _print_change)
        if maintenance["finished_at"] is not None:
            return


def _states(session: Session, maintenance_id: str) -> Iterator[tuple[Row, str]]:
    """Yield where the Maintenance is, and what time it is there, again and again."""
    look = Persistent(
        lambda: (session.get("maintenances", maintenance_id), session.get("clock")["now"])
    )
    while True:
        if seen := look():
            yield seen
        time.sleep(_ASK_EVERY)


def _print_change(line: Line) -> None:
    if "status" in line:
        said = f"The maintenance is {line['status']}."
    else:
        approved = f"{line['approved']} approved" if line["approved"] else ""
        said = "  ".join(filter(None, (line["place"], line["said"], approved, line["waits"])))
    print_line(f"{time_of(line['at'])}  {said}")
