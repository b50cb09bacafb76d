"""`forewarn notification` and `forewarn calendar`: what they print and how they fail."""

import json
from collections.abc import Callable
from dataclasses import replace
from textwrap import dedent

import pytest
from tests.cli.conftest import MORNING
from typer.testing import Result

from forewarn.domain.notification import Notification, NotificationStatus, Target
from forewarn.operations.context import Rules
from forewarn.operations.notifications import example_notification
from forewarn.ports.store import Store

Run = Callable[..., Result]


def shown(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def table(text: str) -> str:
    return dedent(text).lstrip("\n")


@pytest.fixture
def failed(store: Store) -> Notification:
    """Put a message that waits and one that was given up into the outbox, and return the last."""
    waiting = example_notification("ops", notification_id="n1", who="a", now=MORNING, at=MORNING)
    given_up = replace(
        waiting,
        notification_id="n2",
        status=NotificationStatus.FAILED,
        attempts=34,
        ended_at=MORNING,
        problem="The receiver answered 503.",
    )
    store.write(lambda tx: tx.put_notification(waiting))
    store.write(lambda tx: tx.put_notification(given_up))
    return given_up


def test_messages_are_listed(run: Run, failed: Notification) -> None:
    columns = "{:<17}{:<8}{:<11}{:<38}{:<9}{:<10}{}\n".format
    assert shown(run("notification", "list")) == "".join(
        (
            columns(
                "NOTIFICATION ID", "TARGET", "PHASE", "SUBJECT", "STATUS", "ATTEMPTS", "PROBLEM"
            ),
            columns("n1", "ops", "scheduled", failed.event_id, "waiting", "0", "").rstrip() + "\n",
            columns("n2", "ops", "scheduled", failed.event_id, "failed", "34", failed.problem),
        )
    )
    only = json.loads(shown(run("notification", "list", "--failed", "-o", "json")))
    assert [message["notification_id"] for message in only["notifications"]] == ["n2"]
    only = json.loads(shown(run("notification", "list", "--waiting", "-o", "json")))
    assert [message["notification_id"] for message in only["notifications"]] == ["n1"]
    assert run("notification", "list", "--failed", "--waiting").exit_code == 2


@pytest.mark.parametrize("rules", [Rules(targets=(Target(name="ops"),))])
def test_failed_message_is_tried_again(run: Run, failed: Notification) -> None:
    assert shown(run("notification", "retry", "n2")) == table(f"""
        notification id:  n2
        target:           ops
        phase:            scheduled
        subject:          {failed.event_id}
        status:           waiting
        next attempt:     2026-01-05 08:00:00Z
        """)
    again = run("notification", "retry", "n2")
    assert again.exit_code == 4
    assert again.stderr == (
        "forewarn: Notification n2 is waiting; only failed notifications can be retried.\n"
        "  try: forewarn notification list --failed\n"
    )
    assert run("notification", "retry", "n3").exit_code == 3


def test_there_may_be_no_target(run: Run) -> None:
    assert shown(run("notification", "targets")) == "TARGET  SCOPES  TYPES  PHASES\n"
    unknown = run("notification", "test", "ops")
    assert unknown.exit_code == 3
    assert unknown.stderr == (
        "forewarn: Unknown notification target 'ops'.\n  try: forewarn notification targets\n"
    )


def test_calendar_is_printed(run: Run) -> None:
    shown(run("event", "create", "--type", "Reboot", "--resource", "web-0"))

    lines = shown(run("calendar", "--scope", "web")).splitlines()

    assert lines[0] == "BEGIN:VCALENDAR"
    assert "SUMMARY:Reboot of web-0" in lines
    assert lines[-1] == "END:VCALENDAR"
    assert run("calendar", "--scope", "nobody").exit_code == 3
