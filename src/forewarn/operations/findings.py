"""What the server finds wrong with itself, in the words that every command and page shows."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Final

from forewarn.domain.finding import Finding, doubtful, wrong
from forewarn.domain.names import MaintenanceId
from forewarn.domain.phrases import count_of, say_moment, say_names
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.task import Task, TaskState, say_task
from forewarn.domain.windows import closes_at
from forewarn.operations.context import Context
from forewarn.ports.store import Reading, Transaction

_INCIDENTS: Final = "incidents"
_REPORTED_FOR: Final = timedelta(days=1)
_MOST: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Something that went wrong *at* a moment of real time, and is a finding for a day."""

    at: datetime
    sentence: str
    hint: str


def note_incident(tx: Transaction, incident: Incident) -> None:
    """Store *incident*; of many, only the newest are kept."""
    kept = [*_read_incidents(tx), incident][-_MOST:]
    tx.put_setting(_INCIDENTS, json.dumps([asdict(each) for each in kept], default=str))


def find_findings(
    reading: Reading, context: Context, snapshot: Snapshot, *, has_all_scopes: bool
) -> Iterator[Finding]:
    """Yield what is wrong, the worst first; incidents only for those who can see all scopes."""
    for incident in _read_incidents(reading) if has_all_scopes else ():
        if context.at - incident.at < _REPORTED_FOR:
            sentence = f"{say_moment(incident.at)}: {incident.sentence}"
            yield wrong("tasks", sentence, incident.hint)
    yield from _find_overruns(snapshot, context.now)


def _read_incidents(reading: Reading) -> list[Incident]:
    stored = json.loads(reading.setting(_INCIDENTS) or "[]")
    return [Incident(**{**each, "at": datetime.fromisoformat(each["at"])}) for each in stored]


def _find_overruns(snapshot: Snapshot, now: datetime) -> Iterator[Finding]:
    """Yield each Maintenance with tasks that are not over although its calendar is closed."""
    late: dict[MaintenanceId, list[Task]] = {}
    for task in snapshot.rows.values():
        maintenance_id = snapshot.maintenance_of(task)
        if maintenance_id and task.state in {TaskState.BEGUN, TaskState.UNKNOWN}:
            late.setdefault(maintenance_id, []).append(task)
    for key, tasks in late.items():
        maintenance = snapshot.maintenances.get(key)
        if maintenance and closes_at(maintenance.course.calendar, now) == now:
            those = say_names([say_task(task) for task in tasks])
            number = count_of(len(tasks), "task")
            sentence = f"Maintenance {key} has {number} past its window: {those}."
            yield doubtful("windows", sentence, "wait until they end, or end them where they run")
