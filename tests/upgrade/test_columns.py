"""What lies in the JSON columns is what earlier releases have written there."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from forewarn.domain.course import Course
from forewarn.domain.event import Approval, Approver, Trigger
from forewarn.domain.fault import Fault, FaultKind
from forewarn.domain.maintenance import MaintenanceOrder
from forewarn.domain.scenario import Announcement, ClearStep, FaultStep, Intervention
from forewarn.domain.schedule import Occurrence, OccurrenceOutcome
from forewarn.domain.windows import Calendar, read_blackout, read_window
from forewarn.protocol.vocabulary import EventSource, EventType
from forewarn.storage.columns import (
    Approvals,
    CourseColumn,
    Kept,
    Occurrences,
    OrderColumn,
    Timeline,
)

AT = datetime(2026, 1, 5, 8, 15, tzinfo=UTC)
COURSE = Course(
    canary=("web",),
    soak=timedelta(minutes=1),
    gates=("smoke",),
    calendar=Calendar(
        windows=(read_window("Sat,Sun 22:00-06:00 Europe/Berlin"),),
        blackouts=(read_blackout("2026-12-24..2027-01-02 UTC Christmas"),),
    ),
)
KEPT_COURSE = {
    "canary": ["web"],
    "at_once": None,
    "soak": 60_000_000,
    "min_available": 0,
    "gates": ["smoke"],
    "gate_patience": 3_600_000_000,
    "windows": [
        {"days": [5, 6], "opens": "22:00:00", "closes": "06:00:00", "zone": "Europe/Berlin"}
    ],
    "blackouts": [
        {"first": "2026-12-24", "last": "2027-01-02", "zone": "UTC", "name": "Christmas"}
    ],
    "hold_all": True,
    "in_order": False,
    "notice_outside": False,
}


@pytest.mark.parametrize(
    ("column", "value", "kept"),
    [
        (CourseColumn, COURSE, KEPT_COURSE),
        (
            OrderColumn,
            MaintenanceOrder(
                event_type=EventType.REBOOT, scopes=("web",), labels={"a": "b"}, course=COURSE
            ),
            {
                "event_type": "Reboot",
                "scopes": ["web"],
                "virtual_machines": [],
                "labels": {"a": "b"},
                "hosts": [],
                "host_labels": {},
                "description": "Host server is undergoing maintenance.",
                "duration_in_seconds": None,
                "course": KEPT_COURSE,
            },
        ),
        (
            Timeline,
            (
                Announcement(
                    at=timedelta(0),
                    label="one",
                    event_type=EventType.FREEZE,
                    event_source=EventSource.PLATFORM,
                    description="",
                    duration_in_seconds=9,
                    notice=None,
                    impact=timedelta(seconds=5),
                ),
                Intervention(at=timedelta(seconds=1), label="one", trigger=Trigger.CANCEL),
                FaultStep(at=timedelta(seconds=1), fault=Fault(kind=FaultKind.RESET, times=2)),
                ClearStep(at=timedelta(seconds=1), kind=FaultKind.RESET),
            ),
            [
                {
                    "at": 0,
                    "label": "one",
                    "event_type": "Freeze",
                    "event_source": "Platform",
                    "description": "",
                    "duration_in_seconds": 9,
                    "notice": None,
                    "impact": 5_000_000,
                },
                {"at": 1_000_000, "label": "one", "trigger": "cancel"},
                {
                    "at": 1_000_000,
                    "fault": {
                        "kind": "reset",
                        "times": 2,
                        "seconds": None,
                        "status": None,
                        "retry_after": None,
                        "event_type": None,
                    },
                },
                {"at": 1_000_000, "kind": "reset"},
            ],
        ),
        (
            Approvals,
            (Approval(approver=Approver.VIRTUAL_MACHINE, name="web-0", approved_at=AT),),
            [
                {
                    "approver": "virtual machine",
                    "name": "web-0",
                    "approved_at": 1_767_600_900_000_000,
                }
            ],
        ),
        (
            Occurrences,
            (Occurrence(opens_at=AT, met_at=AT, outcome=OccurrenceOutcome.MISSED),),
            [
                {
                    "opens_at": 1_767_600_900_000_000,
                    "met_at": 1_767_600_900_000_000,
                    "outcome": "missed",
                    "reason": "",
                    "maintenance_id": None,
                }
            ],
        ),
    ],
)
def test_json_lies_in_its_column_as_ever(column: Kept[Any], value: object, kept: object) -> None:
    assert json.dumps(column.write(value)) == json.dumps(kept)
    assert column.read(kept) == value
