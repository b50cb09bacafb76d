"""Every phase has words for people."""

from dataclasses import replace

import pytest

from forewarn.domain.notification import Notification, Phase
from forewarn.notifications.messages import SENTENCES, text_of, title_of


def test_every_phase_has_a_sentence() -> None:
    assert set(SENTENCES) == set(Phase)


@pytest.mark.parametrize("phase", Phase)
def test_message_says_what_and_when_and_who(message: Notification, phase: Phase) -> None:
    told = replace(message, phase=phase)

    text = text_of(told)

    assert text.startswith("Reboot of example ")
    assert text.endswith(f"By: alice\nEventId: {message.event_id}")
    assert title_of(told) == f"[forewarn] Reboot {phase}: example"
    assert "None" not in text
