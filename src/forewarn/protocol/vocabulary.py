"""The words of the protocol, spelled as they are on the wire."""

import re
from enum import StrEnum
from typing import Final, NewType

EventId = NewType("EventId", str)
"""An upper-case GUID. Make one with `event_id`, so that any spelling compares equal."""

METADATA_HEADER: Final = "Metadata"
SCHEDULED_EVENTS_PATH: Final = "/metadata/scheduledevents"


class EventType(StrEnum):
    """What is about to happen to the virtual machines of an event."""

    FREEZE = "Freeze"
    REBOOT = "Reboot"
    REDEPLOY = "Redeploy"
    PREEMPT = "Preempt"
    TERMINATE = "Terminate"


class EventStatus(StrEnum):
    """Where an event is in its life. Only the first two are ever on the wire."""

    SCHEDULED = "Scheduled"
    STARTED = "Started"
    COMPLETED = "Completed"
    CANCELED = "Canceled"

    @property
    def is_visible(self) -> bool:
        return self in {EventStatus.SCHEDULED, EventStatus.STARTED}


class EventSource(StrEnum):
    """Who asked for the event."""

    PLATFORM = "Platform"
    USER = "User"


class ResourceType(StrEnum):
    """What kind of thing `Resources` names."""

    VIRTUAL_MACHINE = "VirtualMachine"


def role_of(name: str) -> str | None:
    """Return the role that *name* is an instance of in a cloud service: FrontEnd_IN_0."""
    match = re.fullmatch(r"(.+)_IN_[0-9]+", name)
    return match[1] if match else None


def event_id(text: str) -> EventId:
    """Return *text* as an EventId: clients write GUIDs in either case, we in upper case."""
    return EventId(text.upper())
