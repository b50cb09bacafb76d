"""Incidents: what went wrong once, and what an operator is told for a day."""

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final

from forewarn.ports.store import Reading, Transaction

_INCIDENTS: Final = "incidents"
_MOST: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Something that went wrong *at* a moment of real time, and is a finding for a day.

    Without a *hint* there is nothing to do about it, and the finding is only a warning. A newer one
    replaces those *about* the same.
    """

    at: datetime
    sentence: str
    hint: str
    about: str = ""


def note_incident(tx: Transaction, incident: Incident) -> None:
    """Store *incident*; of many, only the newest are kept."""
    others = [e for e in read_incidents(tx) if not e.about or e.about != incident.about]
    kept = [*others, incident][-_MOST:]
    tx.put_setting(_INCIDENTS, json.dumps([asdict(each) for each in kept], default=str))


def read_incidents(reading: Reading) -> list[Incident]:
    """Return the incidents, oldest first."""
    stored = json.loads(reading.setting(_INCIDENTS) or "[]")
    return [Incident(**{**each, "at": datetime.fromisoformat(each["at"])}) for each in stored]
