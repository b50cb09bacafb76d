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
    failed: Annotated[bool, switch("Only messages whose delivery failed.", "--failed")] = False,
    waiting: Annotated[bool, switch("Only messages that are waiting.", "--waiting")] = False,
    limit: Limit = None,
) -> None:
    """List recent messages, oldest first.

    Example: forewarn notification list --failed
    """
    if failed and waiting:
        message = "--failed and --waiting cannot be used together."
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
    session: Session, target: Annotated[str, argument("TARGET", "Name of the target.")]
) -> None:
    """Send a test message to a target and show its answer.

    Example: forewarn notification test ops
    """
    asking = replace(session, patience=TEST_PATIENCE)
    answer = asking.post("notification-targets", target, "test", takes_key=False)
    if not answer["is_delivered"]:
        raise CommandError(f"Cannot deliver to {target}: {answer['answer']}", code=ExitCode.FAILED)
    session.show(answer, lambda row: print_line(f"Delivered to {row['target']}: {row['answer']}"))


@command(app, "retry")
def retry(
    session: Session, notification_id: Annotated[str, argument("ID", "Id of the message.")]
) -> None:
    """Retry a message whose delivery failed.

    Example: forewarn notification retry 602d9444-d2cd-49c7-8624-8643e7171297
    """
    session.show(session.post("notifications", notification_id, "retry"), fields_of(_DETAILS))
