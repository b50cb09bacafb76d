"""How events are printed: in tables, one by one, and line by line as things happen."""

from collections.abc import Sequence
from typing import Final

from forewarn.cli.output import Columns, Row, pick, print_fields, print_line, print_table, time_of

_FIELDS: Final[Columns] = {
    "event id": "event_id",
    "type": "event_type",
    "status": "event_status",
    "source": "event_source",
    "scope": "scope_id",
    "update domain": "update_domain",
    "resources": "resources",
    "description": "description",
    "duration": lambda event: (
        "" if event["duration_in_seconds"] is None else f"{event['duration_in_seconds']} s"
    ),
    "maintenance": "maintenance_id",
    "host": "host",
    "created": lambda event: time_of(event["created_at"]),
    "not before": lambda event: time_of(event["not_before"]),
    "approved by": lambda event: [approval["name"] for approval in event["approvals"]],
    "started": lambda event: time_of(event["started_at"]),
    "overdue": lambda event: time_of(event["overdue_at"]),
    "ended": lambda event: time_of(event["ended_at"]),
    "outcome": "outcome",
    "reason": "reason",
}
EVENT_COLUMNS: Final = pick(
    _FIELDS, "event id", "type", "status", "source", "not before", "resources"
)
REHEARSED: Final = pick(
    _FIELDS, "type", "status", "not before", "scope", "update domain", "resources"
)
"""For events of which none is there, and so none has an id."""
HISTORY: Final = pick(
    _FIELDS, "event id", "type", "status", "outcome", "ended", "resources", "reason"
)
_LEDGER: Final[Columns] = {
    "at": lambda entry: time_of(entry["at"]),
    "what": "what",
    "who": "who",
    "where": "where",
    "detail": "detail",
}


def say_how_split(events: Sequence[Row]) -> None:
    """Say that what was asked for has become several *events*, if it has."""
    if len(events) > 1:
        said = f"Split into {len(events)} events: no event spans two update domains or scopes."
        print_line(said, err=True)


def print_event(event: Row) -> None:
    """Print everything about *event*."""
    print_fields(event, _FIELDS)
    print_line()
    print_table(event["ledger"], _LEDGER)


def print_reasons(explanation: Row) -> None:
    """Print why an event is where it is; what it waits for has a dash."""
    print_line(f"{explanation['event_id']} is {explanation['event_status']}.")
    for reason in explanation["reasons"]:
        print_line(f"{'-' if reason['holds'] else ' '} {reason['sentence']}")


def one_line(line: Row) -> str:
    """Return a *line* of the ledger as people read it."""
    of = f"{line['event_type']} of {','.join(line['resources'])}"
    detail = f": {line['detail']}" if line["detail"] else ""
    said = f"{line['what']} by {line['who']}"
    return f"{time_of(line['at'])}  {line['event_id']}  {said}  {of}{detail}"
