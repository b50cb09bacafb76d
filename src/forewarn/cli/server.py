"""`forewarn status`, `pause` and `resume`: the server, and whether it begins anything."""

from datetime import datetime, timedelta
from typing import Annotated, Final

from forewarn.cli.catalogue import alone
from forewarn.cli.options import option, switch
from forewarn.cli.output import (
    Columns,
    Row,
    fields_of,
    print_fields,
    print_parts,
    short_node,
    time_of,
    wall_time_of,
)
from forewarn.cli.session import Session, command
from forewarn.domain.finding import FindingVerdict
from forewarn.wording.durations import format_duration

app = alone()

_FIELDS: Final[Columns] = {
    "paused": lambda server: "yes" if server["is_paused"] else "no",
    "since": lambda server: time_of(server["paused_since"]),
    "by": "paused_by",
    "reason": "pause_reason",
}
_JUST_NOW: Final = timedelta(seconds=2)
_REPLICAS: Final[Columns] = {
    "replica": "name",
    "node": short_node,
    "version": "version",
    "leader": lambda replica: f"yes, epoch {replica['epoch']}" if replica["is_leader"] else "no",
    "since": lambda replica: wall_time_of(replica["started_at"]),
    "seen": "seen",
    "behind": "changes_behind",
    "lag": lambda replica: f"{replica['lag_in_milliseconds']} ms",
    "address": "address",
}
_FINDINGS: Final[Columns] = {"finding": "verdict", "problem": "sentence", "hint": "hint"}
_MAINTENANCES: Final[Columns] = {"maintenance": "maintenance_id", "status": "status_text"}


@command(app, "status")
def status(
    session: Session,
    *,
    is_ready: Annotated[
        bool, switch("Only check that the server serves polls; needs no token.", "--ready")
    ] = False,
) -> None:
    """Show the server, its replicas, Maintenances and findings.

    NODE is the beginning of the id of a replica's state directory. BEHIND is the number
    of changes that a replica had not received when it was last seen, and LAG is the age
    of the oldest. With --ready, the command fails unless the server serves polls.

    Example: forewarn status
    """
    if is_ready:
        session.show(session.fetch("readyz").json(), fields_of({"ready": "status"}))
    else:
        session.show(session.get("server"), _print_status)


def _print_status(server: Row) -> None:
    print_fields(server, {"version": "version", "database": "database", **_FIELDS})
    now = datetime.fromisoformat(server["database_time"])
    rows = [
        {**each, "epoch": server["lease_epoch"], "seen": _ago(now, each["seen_at"])}
        for each in server["replicas"]
    ]
    problems = [each for each in server["findings"] if each["verdict"] != FindingVerdict.OK]
    print_parts((rows, _REPLICAS), (server["maintenances"], _MAINTENANCES), (problems, _FINDINGS))


def _ago(now: datetime, moment: str) -> str:
    """Return how long ago a replica was seen, which reports every second."""
    ago = timedelta(seconds=round((now - datetime.fromisoformat(moment)).total_seconds()))
    return "now" if ago <= _JUST_NOW else f"{format_duration(ago)} ago"


@command(app, "pause")
def pause(
    session: Session,
    *,
    reason: Annotated[str, option("TEXT", "Reason, shown by explain and audit.")] = "",
) -> None:
    """Pause the server; it starts nothing until resumed.

    The server announces no step, starts no event and no impact, and asks no gate, even
    after a restart. It still serves polls and approvals, and finishes running impacts.

    Example: forewarn pause --reason "storage is failing"
    """
    body = {"reason": reason}
    answer = session.post("server", "pause", body=body, takes_key=False)
    session.show(answer, fields_of(_FIELDS))


@command(app, "resume")
def resume(session: Session) -> None:
    """Resume a paused server; overdue work starts at once.

    Example: forewarn resume
    """
    answer = session.post("server", "resume", takes_key=False)
    session.show(answer, fields_of(_FIELDS))
