"""What an operator wants done: now, or each time a schedule comes round."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from forewarn.domain.course import Course
from forewarn.protocol.vocabulary import EventType


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceOrder:
    """What an operator wants done, and to what: to virtual machines or scopes, or to hosts.

    Those are selected by name, and those that carry all of *labels* or *host_labels* besides.
    """

    event_type: EventType
    scopes: tuple[str, ...] = ()
    virtual_machines: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    host_labels: Mapping[str, str] = field(default_factory=dict)
    description: str = "Host server is undergoing maintenance."
    duration_in_seconds: int | None = None
    course: Course = field(default_factory=Course)
