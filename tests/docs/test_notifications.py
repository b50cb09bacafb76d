"""What the page on notifications claims is true today."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.web_site import OUTBOUND

from forewarn.domain.event import Draft, Share, schedule
from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.domain.notice import MINIMUM_NOTICE
from forewarn.domain.notification import Notification, Phase, Retrying
from forewarn.notifications.configuration import (
    AppriseTable,
    NotificationsFile,
    WebhookTargetTable,
    read_notifications,
)
from forewarn.notifications.messages import cloud_event
from forewarn.operations.notifications import example_notification
from forewarn.operations.views import describe_change
from forewarn.outbound.transport import sign
from forewarn.protocol.vocabulary import EventId, EventSource, EventType

PAGE = Path(__file__).parent.parent.parent / "docs/reference/notifications.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)


def fence(language: str) -> str:
    found = FENCE.findall(PAGE.read_text(encoding="utf-8"))
    (text,) = (code for name, code in found if name == language)
    return str(text)


def test_file_of_the_reference_is_one_and_has_every_key(tmp_path: Path) -> None:
    text = fence("toml")
    (tmp_path / "notifications.toml").write_text(text, encoding="utf-8")
    (tmp_path / "ops.key").write_text("hush", encoding="utf-8")

    told = read_notifications(tmp_path / "notifications.toml", OUTBOUND)

    assert [target.name for target in told.targets] == ["ops", "shop-chat", "night-shift"]
    assert told.retrying == Retrying(), "the file shows the defaults"
    keys = {
        *NotificationsFile.model_fields,
        *WebhookTargetTable.model_fields,
        *AppriseTable.model_fields,
    }
    for key in keys - {"target"}:
        assert re.search(rf"^{key} = ", text, re.MULTILINE), key


def test_phases_of_the_reference_are_those_there_are() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert set(rows) == set(Phase)


def test_payload_of_the_reference_is_what_is_sent() -> None:
    event = schedule(
        Draft(
            event_type=EventType.REBOOT,
            event_source=EventSource.PLATFORM,
            share=Share(
                scope_id=ScopeId("availability-set/web"),
                update_domain=0,
                resources=(VmName("web-0"),),
            ),
            description="Kernel 6.12",
            duration_in_seconds=600,
            host=HostName("kvm-0"),
        ),
        event_id=EventId("602D9444-D2CD-49C7-8624-8643E7171297"),
        now=NOW,
        notice=MINIMUM_NOTICE[EventType.REBOOT],
    )
    message = Notification(
        notification_id="1f0c6ad2-0000-4000-8000-000000000001",
        subject=event.event_id,
        phase=Phase.SCHEDULED,
        target="ops",
        data={**describe_change(event), "who": "alice", "detail": ""},
        created_at=NOW,
        maintenance_time=NOW,
        next_attempt_at=NOW,
    )

    assert fence("json") == json.dumps(cloud_event(message, "/forewarn"), indent=2) + "\n"


@pytest.mark.parametrize(
    ("place", "phase", "kind"),
    [
        (0, Phase.HELD, "io.forewarn.maintenance.held"),
        (1, Phase.SKIPPED, "io.forewarn.schedule.skipped"),
    ],
)
def test_data_about_what_is_no_event_is_what_the_reference_lists(
    place: int, phase: Phase, kind: str
) -> None:
    example = example_notification(
        "ops", notification_id="n", who="alice", now=NOW, at=NOW, phase=phase
    )
    listed = re.findall(r"in `data`: (.*?)\.\n\n", PAGE.read_text("utf-8"), re.DOTALL)[place]

    sent = cloud_event(example, "/forewarn")

    assert sent["type"] == kind
    assert set(re.findall(r"`(\w+)`", listed)) == {*sent["data"], *sent["data"].get("places", ())}


@pytest.fixture
def is_genuine() -> Callable[..., bool]:
    """The function of the page."""
    names: dict[str, Any] = {}
    exec(fence("python"), names)  # noqa: S102 - it is ours
    check: Callable[..., bool] = names["is_genuine"]
    return check


def test_signature_is_checked_as_the_reference_says(is_genuine: Callable[..., bool]) -> None:
    header, now = sign("hush", b"body", NOW), NOW.timestamp()

    assert is_genuine("hush", header, b"body", now)
    assert not is_genuine("hush", header, b"bodY", now)
    assert not is_genuine("other", header, b"body", now)
    assert not is_genuine("hush", header, b"body", now + 301)
    assert not is_genuine("hush", header.replace("t=1", "t=2"), b"body", now)
