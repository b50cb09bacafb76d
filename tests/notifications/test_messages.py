"""Every phase has words for people."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from forewarn.domain.notification import Notification, Phase, Topic
from forewarn.notifications.messages import SENTENCES, cloud_event, text_of, title_of
from forewarn.operations.notifications import example_notification

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)


def test_every_phase_has_a_sentence() -> None:
    assert set(SENTENCES) == set(Phase)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase.topic is Topic.EVENT])
def test_message_says_what_and_when_and_who(message: Notification, phase: Phase) -> None:
    told = replace(message, phase=phase)

    text = text_of(told)

    assert text.startswith("Reboot of example ")
    assert text.endswith(f"By: alice\nEventId: {message.event_id}")
    assert title_of(told) == f"[forewarn] Reboot {phase}: example"
    assert "None" not in text


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase.topic is Topic.MAINTENANCE])
def test_message_about_a_maintenance_says_which(phase: Phase) -> None:
    told = example_notification(
        "ops", notification_id="n", who="alice", now=NOW, at=NOW, phase=phase
    )
    told = replace(told, data={**told.data, "places": {"nothing_to_do": 3, "failed": 0}})

    text = text_of(told)

    assert text.startswith("Reboot maintenance ")
    assert "Places: 3 nothing to do\nBy: alice\n" in text
    assert text.endswith(f"Maintenance: {told.maintenance_id}")
    assert title_of(told).startswith(f"[forewarn] Reboot maintenance {phase.replace('_', ' ')}: ")
    assert "None" not in text


def test_message_about_a_schedule_says_which_and_why() -> None:
    told = example_notification(
        "ops", notification_id="n", who="alice", now=NOW, at=NOW, phase=Phase.SKIPPED
    )

    assert (told.event_id, told.maintenance_id, told.schedule) == (None, None, "example")
    assert title_of(told) == "[forewarn] Reboot maintenance skipped: example"
    assert text_of(told).splitlines() == [
        "Reboot maintenance of schedule example did not start at 2026-01-05 08:00:00 UTC.",
        "Description: A test of the notification target ops: nothing will happen.",
        "Detail: test",
        "By: alice",
    ]
    assert cloud_event(told, "/forewarn")["type"] == "io.forewarn.schedule.skipped"
