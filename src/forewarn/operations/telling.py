"""Telling people about Maintenances and schedules: messages for the outbox, each written once."""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import MaintenanceId
from forewarn.domain.news import (
    News,
    Told,
    count_places,
    failure_news,
    find_failed_places,
    find_news,
    scopes_of,
)
from forewarn.domain.notification import Phase
from forewarn.domain.schedule import Schedule
from forewarn.domain.snapshot import Snapshot
from forewarn.operations.context import Context
from forewarn.operations.recording import new_notification
from forewarn.operations.views import describe_maintenance, describe_occurrence
from forewarn.ports.store import Reading, Transaction

_VERBS: Final = {
    Phase.STARTED: ("maintenance start",),
    Phase.PAUSED: ("maintenance pause",),
    Phase.RESUMED: ("maintenance resume", "maintenance retry", "maintenance skip"),
    Phase.ABORTED: ("maintenance abort",),
}
"""What an operator does that has this phase for its news."""
_RECENT: Final = 100


Tidings: TypeAlias = tuple[Maintenance, Phase]
"""What has become of which Maintenance."""


def has_news(reading: Reading, context: Context, snapshot: Snapshot) -> bool:
    """Tell whether `tell_news` would write anything."""
    known = find_told(reading, snapshot)
    return any(
        find_news(maintenance, known[key], snapshot, context.now)[0] != known[key]
        for key, maintenance in snapshot.maintenances.items()
    )


def tell_news(tx: Transaction, context: Context, snapshot: Snapshot) -> tuple[Tidings, ...]:
    """Write messages about what has become of Maintenances since the last time, and return it."""
    known = find_told(tx, snapshot)
    tidings: list[Tidings] = []
    for key, maintenance in snapshot.maintenances.items():
        told, news = find_news(maintenance, known[key], snapshot, context.now)
        if told != known[key]:
            tx.put_told(told)
            _tell(tx, context, snapshot, maintenance, news)
            tidings += ((maintenance, each.phase) for each in news)
    return tuple(tidings)


def tell_ending(
    tx: Transaction, context: Context, snapshot: Snapshot, maintenance: Maintenance
) -> None:
    """Write messages that *maintenance* has ended, and about failures of which nobody knows."""
    told = find_told(tx, snapshot)[maintenance.maintenance_id]
    failures = find_failed_places(maintenance, snapshot)
    ending = Phase.ABORTED if maintenance.is_aborted else Phase.COMPLETED
    news = (*failure_news(told, failures), News(phase=ending))
    _tell(tx, context, snapshot, maintenance, news)


def tell_skipped(tx: Transaction, context: Context, schedule: Schedule) -> None:
    """Write messages that the last occurrence of *schedule* did not start.

    Nobody knows which scopes it would have touched, so targets that name some are not told.
    """
    data = {**describe_occurrence(schedule), "who": context.who}
    for target in context.rules.targets:
        if target.wants(Phase.SKIPPED, schedule.order.event_type, ()):
            message = new_notification(context, schedule.name, Phase.SKIPPED, target.name, data)
            tx.put_notification(message)


def describe_news(described: Mapping[str, object], news: News, who: str) -> dict[str, object]:
    """Return the data of a message about *news* of a Maintenance that is *described*."""
    about = {"place": news.place, "gate": news.gate, "who": who, "detail": news.detail}
    return {**described, **about}


def find_doer(reading: Reading, context: Context, maintenance: Maintenance, phase: Phase) -> str:
    """Return the operator whose doing *phase* is, or else who found out."""
    deeds = [
        entry
        for verb in _VERBS.get(phase, ())
        for entry in reading.audit(action=verb, limit=_RECENT)
        if entry.subject == maintenance.maintenance_id
    ]
    return max(deeds, key=lambda entry: entry.sequence).who if deeds else context.who


def find_told(reading: Reading, snapshot: Snapshot) -> Mapping[MaintenanceId, Told]:
    """Return what people know of each Maintenance of *snapshot*."""
    nothing = {key: Told(maintenance_id=key) for key in snapshot.maintenances}
    return {**nothing, **{told.maintenance_id: told for told in reading.told()}}


def _tell(
    tx: Transaction,
    context: Context,
    snapshot: Snapshot,
    maintenance: Maintenance,
    news: Iterable[News],
) -> None:
    if not context.rules.targets:
        return
    scope_ids = scopes_of(maintenance, snapshot)
    described = describe_maintenance(maintenance, count_places(maintenance, snapshot))
    for each in news:
        data = describe_news(described, each, find_doer(tx, context, maintenance, each.phase))
        for target in context.rules.targets:
            if target.wants(each.phase, maintenance.event_type, scope_ids):
                subject = maintenance.maintenance_id
                message = new_notification(context, subject, each.phase, target.name, data)
                tx.put_notification(message)
