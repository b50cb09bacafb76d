"""`forewarn notification`: who is told what, and whether it arrived."""

from dataclasses import replace
from typing import Annotated, Final

from forewarn.cli.catalogue import noun
from forewarn.cli.errors import CommandError, ExitCode
from forewarn.cli.options import Limit, argument, switch
from forewarn.cli.output import Columns, Row, fields_of, pick, print_line, table_of, wall_time_of
from forewarn.cli.session import TEST_PATIENCE, Session, command

app = noun("notification")


def _subject(row: Row) -> str:
    """Return the event, the Maintenance or the schedule that a message is about."""
    return str(row["event_id"] or row["maintenance_id"] or row["schedule"])


_COLUMNS: Final[Columns] = {
    "notification id": "notification_id",
    "target": "target",
    "phase": "phase",
    "subject": _subject,
    "status": "status",
    "attempts": "attempts",
    "problem": "problem",
}
_TARGETS: Final[Columns] = {
    "target": "name",
    "scopes": lambda target: target["scopes"] or "all",
    "types": lambda target: target["event_types"] or "all",
    "phases": lambda target: target["phases"] or "all",
}
_DETAILS: Final[Columns] = {
    **pick(_COLUMNS, "notification id", "target", "phase", "subject", "status"),
    "next attempt": lambda row: wall_time_of(row["next_attempt_at"]),
}


@command(app, "list")
def list_some(
    session: Session,
    *,
    failed: Annotated[bool, switch("Only messages that were given up.", "--failed")] = False,
    waiting: Annotated[bool, switch("Only messages that wait.", "--waiting")] = False,
    limit: Limit = None,
) -> None:
    """List the messages of the last days, oldest first.

    Example: forewarn notification list --failed
    """
    if failed and waiting:
        message = "Say --failed or --waiting, and not both."
        hint = "try: forewarn notification list --failed"
        raise CommandError(message, code=ExitCode.USAGE, hint=hint)
    query = {"status": "failed"} if failed else {"status": "waiting"} if waiting else {}
    answer = session.list("notifications", limit=limit, **query)
    session.show(answer, table_of("notifications", _COLUMNS))


@command(app, "targets")
def list_targets(session: Session) -> None:
    """List the notification targets.

    Example: forewarn notification targets
    """
    session.show(session.get("notification-targets"), table_of("targets", _TARGETS))


@command(app, "test")
def test(
    session: Session, target: Annotated[str, argument("TARGET", "The name in the file.")]
) -> None:
    """Send an example to a target at once, and show what it answers.

    Example: forewarn notification test ops
    """
    asking = replace(session, patience=TEST_PATIENCE)
    answer = asking.post("notification-targets", target, "test", takes_key=False)
    if not answer["is_delivered"]:
        raise CommandError(f"{target} was not reached: {answer['answer']}", code=ExitCode.FAILED)
    session.show(answer, lambda row: print_line(f"{row['target']} has it: {row['answer']}"))


@command(app, "retry")
def retry(
    session: Session, notification_id: Annotated[str, argument("ID", "The id in the list.")]
) -> None:
    """Retry a message that was given up.

    Example: forewarn notification retry 602d9444-d2cd-49c7-8624-8643e7171297
    """
    session.show(session.post("notifications", notification_id, "retry"), fields_of(_DETAILS))
