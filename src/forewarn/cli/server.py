"""`forewarn pause` and `forewarn resume`: whether the server begins anything."""

from typing import Annotated, Final

from forewarn.cli.catalogue import alone
from forewarn.cli.options import option
from forewarn.cli.output import Columns, fields_of, time_of
from forewarn.cli.session import Session, command

app = alone()

_FIELDS: Final[Columns] = {
    "paused": lambda server: "yes" if server["is_paused"] else "no",
    "since": lambda server: time_of(server["paused_since"]),
    "by": "paused_by",
    "reason": "pause_reason",
}


@command(app, "pause")
def pause(
    session: Session,
    *,
    reason: Annotated[str, option("TEXT", "Reason, for explain and audit.")] = "",
) -> None:
    """Pause the server: it begins nothing until resumed.

    No step is announced, no event starts, no impact begins and no gate is asked, also
    after a restart. Polls and approvals are served, and what has begun runs to its end.

    Example: forewarn pause --reason "storage is failing"
    """
    body = {"reason": reason}
    answer = session.post("server", "pause", body=body, takes_key=False)
    session.show(answer, fields_of(_FIELDS))


@command(app, "resume")
def resume(session: Session) -> None:
    """Resume a paused server, with everything due by now.

    Example: forewarn resume
    """
    answer = session.post("server", "resume", takes_key=False)
    session.show(answer, fields_of(_FIELDS))
