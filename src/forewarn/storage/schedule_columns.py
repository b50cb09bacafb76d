"""The types of the columns of schedules."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import JSON, Dialect, String, TypeDecorator

from forewarn.domain.order import MaintenanceOrder
from forewarn.domain.recurrence import Recurrence, describe_recurrence, read_recurrence
from forewarn.domain.schedule import Occurrence, OccurrenceOutcome
from forewarn.protocol.vocabulary import EventType
from forewarn.storage.columns import (
    from_microseconds,
    read_course,
    to_microseconds,
    write_course,
)


class RecurrenceColumn(TypeDecorator[Recurrence]):
    """How often a schedule comes round, kept as it would be typed."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: Recurrence | None, dialect: Dialect) -> str | None:
        """Take a recurrence."""
        del dialect
        return None if value is None else describe_recurrence(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Recurrence | None:
        """Give the same."""
        del dialect
        return None if value is None else read_recurrence(value)


class OrderColumn(TypeDecorator[MaintenanceOrder]):
    """What is to be done each time, kept as a JSON object."""

    impl = JSON
    cache_ok = True

    def process_bind_param(
        self, value: MaintenanceOrder | None, dialect: Dialect
    ) -> dict[str, object] | None:
        """Take an order."""
        del dialect
        return None if value is None else _write_order(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> MaintenanceOrder | None:
        """Give the same."""
        del dialect
        return None if value is None else _read_order(value)


class Occurrences(TypeDecorator[tuple[Occurrence, ...]]):
    """What became of the occurrences of a schedule, in order, kept as a JSON array of objects."""

    impl = JSON
    cache_ok = True

    def process_bind_param(
        self, value: tuple[Occurrence, ...] | None, dialect: Dialect
    ) -> list[dict[str, object]]:
        """Take them."""
        del dialect
        return [
            {
                "opens_at": to_microseconds(each.opens_at),
                "met_at": to_microseconds(each.met_at),
                "outcome": each.outcome.value,
                "reason": each.reason,
                "maintenance_id": each.maintenance_id,
            }
            for each in value or ()
        ]

    def process_result_value(self, value: Any | None, dialect: Dialect) -> tuple[Occurrence, ...]:
        """Give them in the same order."""
        del dialect
        return tuple(
            Occurrence(
                opens_at=from_microseconds(kept["opens_at"]),
                met_at=from_microseconds(kept["met_at"]),
                outcome=OccurrenceOutcome(kept["outcome"]),
                reason=kept["reason"],
                maintenance_id=kept["maintenance_id"],
            )
            for kept in value or ()
        )


def _write_order(order: MaintenanceOrder) -> dict[str, object]:
    return {
        "event_type": order.event_type.value,
        "scopes": list(order.scopes),
        "virtual_machines": list(order.virtual_machines),
        "labels": dict(order.labels),
        "hosts": list(order.hosts),
        "host_labels": dict(order.host_labels),
        "description": order.description,
        "duration_in_seconds": order.duration_in_seconds,
        "course": write_course(order.course),
    }


def _read_order(kept: Mapping[str, Any]) -> MaintenanceOrder:
    return MaintenanceOrder(
        event_type=EventType(kept["event_type"]),
        scopes=tuple(kept["scopes"]),
        virtual_machines=tuple(kept["virtual_machines"]),
        labels=kept["labels"],
        hosts=tuple(kept["hosts"]),
        host_labels=kept["host_labels"],
        description=kept["description"],
        duration_in_seconds=kept["duration_in_seconds"],
        course=read_course(kept["course"]),
    )
