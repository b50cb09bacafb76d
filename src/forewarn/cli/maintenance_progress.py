"""Waiting for a Maintenance to be over, held or stuck, and following it until then."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack

from forewarn.cli.errors import CommandError, ExitCode
from forewarn.cli.output import Row, print_line, print_one_of_many, time_of
from forewarn.cli.patience import ASK_EVERY, Patience, persist, say_because
from forewarn.cli.place_tables import changed_lines, say_not_done, say_places
from forewarn.cli.session import Session
from forewarn.domain.phrases import count_of
from forewarn.domain.standing import NEEDS_OPERATOR, MaintenanceStatus


def wait_for_maintenance(session: Session, name: str) -> Row:
    """Return the Maintenance *name* as it is when it is over, or does not go on by itself."""
    patience = Patience(session, f"forewarn maintenance status {name}")
    with ExitStack() as drawing:
        tell = drawing.enter_context(_bars()) if sys.stderr.isatty() else None
        return patience.wait(
            lambda: session.get("maintenances", name),
            is_over=lambda row: row["finished_at"] is not None or row["status"] in NEEDS_OPERATOR,
            describe=say_progress,
            tell=tell,
        )


def _bars() -> AbstractContextManager[Callable[[Row], None]]:
    from rich.console import Console  # noqa: PLC0415 - slow to load, and not for scripts

    from forewarn.cli.progress import shown_as_bars  # noqa: PLC0415

    return shown_as_bars(Console(stderr=True))


def say_progress(maintenance: Row) -> str:
    """Say how many of its hosts, or scopes, are where, and how many steps are not begun."""
    name, status = maintenance["maintenance_id"], maintenance["status_text"]
    said = [f"Maintenance {name}: {status}", say_places(maintenance)]
    if maintenance["steps_remaining"]:
        said.append(f"{count_of(maintenance['steps_remaining'], 'step')} to announce")
    return ", ".join(filter(None, said))


def require_walked(maintenance: Row) -> None:
    """Fail if *maintenance*, which has been waited for, was not walked to a good end."""
    name, text = maintenance["maintenance_id"], maintenance["status_text"]
    if maintenance["status"] != MaintenanceStatus.COMPLETED:
        raise CommandError(
            " ".join([f"Maintenance {name} is {text}.", *_say_why(maintenance)]),
            code=ExitCode.FAILED,
            hint=f"try: forewarn maintenance explain {name}",
        )


def _say_why(maintenance: Row) -> Iterator[str]:
    for failure in maintenance["failures"]:
        yield f"{failure['place']} {failure['ending']}{say_because(failure)}."
    yield from say_not_done(maintenance["standings"])


def watch_maintenance(session: Session, maintenance_id: str) -> None:
    """Print a line each time that a host or scope, or the status, changes, until it is over."""
    told: dict[str, str] = {}
    status = ""
    for maintenance, now in _states(session, maintenance_id):
        lines = changed_lines(maintenance, told)
        if maintenance["status_text"] != status:
            status = maintenance["status_text"]
            lines.append({"status": maintenance["status"], "status_text": status})
        for line in lines:
            print_one_of_many({"at": now, **line}, session.output, _print_change)
        if maintenance["finished_at"] is not None:
            return


def _states(session: Session, maintenance_id: str) -> Iterator[tuple[Row, str]]:
    """Yield where the Maintenance is, and what time it is there, again and again."""
    for seen in persist(
        lambda: (session.get("maintenances", maintenance_id), session.get("clock")["now"])
    ):
        if seen:
            yield seen
        time.sleep(ASK_EVERY)


def _print_change(line: Row) -> None:
    if "status" in line:
        said = f"The maintenance is {line['status_text']}."
    else:
        approved = f"{line['approved']} approved" if line["approved"] else ""
        said = "  ".join(filter(None, (line["place"], line["said"], approved, line["waits"])))
    print_line(f"{time_of(line['at'])}  {said}")
