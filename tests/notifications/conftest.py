"""A message, and a real receiver for it."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.receiver import Receiver

from forewarn.domain.notification import Notification
from forewarn.operations.notifications import example_notification

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)


@pytest.fixture
def message() -> Notification:
    return example_notification("ops", notification_id="n1", who="alice", now=NOW, at=NOW)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Somebody who listens."""
    made = Receiver()
    with made.listening():
        yield made


Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a file of notifications."""

    def write_file(text: str) -> Path:
        path = tmp_path / "notifications.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_file
