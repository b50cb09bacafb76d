from enum import StrEnum

import pytest

from forewarn.protocol.vocabulary import (
    METADATA_HEADER,
    EventSource,
    EventStatus,
    EventType,
    ResourceType,
    event_id,
)


@pytest.mark.parametrize(
    ("words", "spelling"),
    [
        (EventType, ["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"]),
        (EventStatus, ["Scheduled", "Started", "Completed", "Canceled"]),
        (EventSource, ["Platform", "User"]),
        (ResourceType, ["VirtualMachine"]),
    ],
)
def test_words_are_spelled_as_on_the_wire(words: type[StrEnum], spelling: list[str]) -> None:
    assert [word.value for word in words] == spelling


def test_header_is_called_metadata() -> None:
    assert METADATA_HEADER == "Metadata"


def test_only_scheduled_and_started_are_visible() -> None:
    visible = {status for status in EventStatus if status.is_visible}

    assert visible == {EventStatus.SCHEDULED, EventStatus.STARTED}


@pytest.mark.parametrize(
    "text",
    [
        "F020BA2E-3BC0-4C40-A10B-86575A9EABD5",
        "f020ba2e-3bc0-4c40-a10b-86575a9eabd5",
        "f020BA2E-3bc0-4C40-a10b-86575a9EABD5",
    ],
)
def test_event_id_is_upper_case_in_whatever_case_it_was_written(text: str) -> None:
    assert event_id(text) == "F020BA2E-3BC0-4C40-A10B-86575A9EABD5"
