"""What a message says: as a CloudEvent for programs, as a title and a text for people."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from forewarn.domain.notification import Notification, Phase, Topic

TYPE_PREFIX: Final = "io.forewarn."

SENTENCES: Final[Mapping[Phase, str]] = {
    Phase.SCHEDULED: "{event_type} of {resources} is scheduled, not before {not_before}.",
    Phase.APPROVED: "{event_type} of {resources} was approved by {approved_by} and starts soon.",
    Phase.POSTPONED: "{event_type} of {resources} was postponed, not before {not_before}.",
    Phase.STARTED: "{event_type} of {resources} has started.",
    Phase.OVERDUE: "{event_type} of {resources} takes longer than expected; started {started_at}.",
    Phase.FINISHED: "{event_type} of {resources} has completed.",
    Phase.FAILED: "{event_type} of {resources} has failed.",
    Phase.CANCELED: "{event_type} of {resources} was canceled.",
    Phase.STEP_FAILED: "{event_type} maintenance has failed on {place}.",
    Phase.GATE_SHUT: "{event_type} maintenance is waiting: gate {gate} is shut.",
    Phase.PAUSED: "{event_type} maintenance is paused.",
    Phase.HELD: "{event_type} maintenance is held and does not continue until an operator acts. "
    "Try: forewarn maintenance explain {maintenance_id}",
    Phase.STUCK: "{event_type} maintenance is stuck and does not end until an operator acts. "
    "Try: forewarn maintenance explain {maintenance_id}",
    Phase.RESUMED: "{event_type} maintenance continues.",
    Phase.COMPLETED: "{event_type} maintenance has ended: {outcome}.",
    Phase.ABORTED: "{event_type} maintenance was aborted.",
    Phase.SKIPPED: "{event_type} maintenance of schedule {schedule} did not start at {opens_at}.",
}
"""What people read first, by phase."""


def cloud_event(notification: Notification, source: str) -> dict[str, Any]:
    """Return *notification* as a CloudEvent 1.0 in structured JSON; the same for each attempt."""
    return {
        "specversion": "1.0",
        "id": notification.notification_id,
        "source": source,
        "type": f"{TYPE_PREFIX}{notification.phase.topic}.{notification.phase}",
        "subject": notification.subject,
        "time": notification.maintenance_time.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "datacontenttype": "application/json",
        "data": {"phase": notification.phase, **notification.data},
    }


def title_of(notification: Notification) -> str:
    """Return one line for people."""
    data = notification.data
    topic = notification.phase.topic
    if topic is Topic.SCHEDULE:
        return f"[forewarn] {data['event_type']} maintenance {data['outcome']}: {data['schedule']}"
    if topic is Topic.MAINTENANCE:
        phase = notification.phase.replace("_", " ")
        about = data["place"] or data["gate"] or data["description"]
        return f"[forewarn] {data['event_type']} maintenance {phase}: {about}"
    return f"[forewarn] {data['event_type']} {notification.phase}: {_listed(data['resources'])}"


def text_of(notification: Notification) -> str:
    """Return all that people need to know, a few lines."""
    data = notification.data
    words = {key: _listed(value) for key, value in data.items()}
    moments = {key: _time(data.get(key)) for key in ("not_before", "started_at", "opens_at")}
    lines = [SENTENCES[notification.phase].format_map({**words, **moments})]
    lines += [f"{name}: {words[key]}" for name, key in _LINES.items() if words.get(key)]
    return "\n".join(lines)


_LINES: Final = {
    "Description": "description",
    "Detail": "detail",
    "Scope": "scope_id",
    "Places": "places",
    "By": "who",
    "EventId": "event_id",
    "Maintenance": "maintenance_id",
}


def _listed(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(
            f"{number} {name.replace('_', ' ')}" for name, number in value.items() if number
        )
    return "" if value is None else str(value)


def _time(value: object) -> str:
    if value is None:
        return ""
    return f"{datetime.fromisoformat(str(value)).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
