"""What each fault does to a document, one after the other and all together."""

import json
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import pytest

from forewarn.domain.fault import FAULTS, Fault, FaultKind, FaultPart
from forewarn.metadata.faulty_answers import ALTERATIONS, alter_document

EVENT: dict[str, Any] = {
    "EventId": "AB-1",
    "EventStatus": "Scheduled",
    "EventType": "Reboot",
    "ResourceType": "VirtualMachine",
    "Resources": ["web-0"],
    "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT",
    "Description": "New kernel",
    "EventSource": "Platform",
    "DurationInSeconds": -1,
}
STARTED = {**EVENT, "EventId": "AB-2", "EventStatus": "Started", "NotBefore": ""}
DOCUMENT: dict[str, Any] = {"DocumentIncarnation": 5, "Events": [EVENT, STARTED]}
KEPT_BY_FAULTS = {
    FaultKind.PUBLISH_DELAY,
    FaultKind.STALE,
    FaultKind.INCARNATION_RESET,
    FaultKind.INCARNATION_JUMP,
}
"""These choose a document or its number: emulator/faults.py."""
EXTRA = {"ImpactScore": 5, "Region": {"Name": "nowhere", "Zones": []}}


def make_fault(kind: FaultKind, **parameters: Any) -> Fault:
    needed = {"seconds": 90} if "seconds" in FAULTS[kind].needed else {}
    return Fault(kind=kind, **{**needed, **parameters})


def alter(kind: FaultKind, content: Mapping[str, Any] = DOCUMENT, **parameters: Any) -> Any:
    return alter_document(content, {kind: make_fault(kind, **parameters)})


def test_every_fault_of_documents_is_in_the_table() -> None:
    of_documents = {kind for kind in FaultKind if FAULTS[kind].part is FaultPart.DOCUMENT}

    assert ALTERATIONS.keys() | KEPT_BY_FAULTS == of_documents
    assert ALTERATIONS.keys() & KEPT_BY_FAULTS == set()


CHANGES: dict[FaultKind, dict[str, Any]] = {
    FaultKind.SECOND_IMPACT: {},
    FaultKind.NOT_BEFORE_SLIP: {"NotBefore": "Mon, 19 Sep 2016 18:31:17 GMT"},
    FaultKind.SHORT_NOTICE: {"NotBefore": "Mon, 19 Sep 2016 18:28:17 GMT"},
    FaultKind.WRONG_WEEKDAY: {"NotBefore": "Tue, 19 Sep 2016 18:29:47 GMT"},
    FaultKind.ISO_DATE: {"NotBefore": "2016-09-19T18:29:47Z"},
    FaultKind.EMPTY_NOT_BEFORE: {"NotBefore": ""},
    FaultKind.UNKNOWN_TYPE: {"EventType": "Hibernate"},
    FaultKind.UNKNOWN_STATUS: {"EventStatus": "Deferred"},
    FaultKind.LOWER_CASE_IDS: {"EventId": "ab-1"},
    FaultKind.EXTRA_FIELDS: EXTRA,
}
"""What is different in an event that is Scheduled."""


@pytest.mark.parametrize(("kind", "changes"), CHANGES.items(), ids=CHANGES)
def test_scheduled_event_is_altered(kind: FaultKind, changes: dict[str, Any]) -> None:
    assert alter(kind)["Events"][0] == {**EVENT, **changes}


STARTED_CHANGES: dict[FaultKind, dict[str, Any]] = {
    **CHANGES,
    **{kind: {} for kind, changes in CHANGES.items() if "NotBefore" in changes},
    FaultKind.SECOND_IMPACT: {"EventStatus": "Scheduled"},
    FaultKind.LOWER_CASE_IDS: {"EventId": "ab-2"},
}


@pytest.mark.parametrize(("kind", "changes"), STARTED_CHANGES.items(), ids=STARTED_CHANGES)
def test_started_event_is_altered(kind: FaultKind, changes: dict[str, Any]) -> None:
    assert alter(kind)["Events"][1] == {**STARTED, **changes}


def test_events_vanish() -> None:
    assert alter(FaultKind.VANISH) == {"DocumentIncarnation": 5, "Events": []}


def test_events_are_null() -> None:
    assert alter(FaultKind.NULL_EVENTS) == {"DocumentIncarnation": 5, "Events": None}


def test_events_come_twice() -> None:
    assert alter(FaultKind.DUPLICATE_EVENTS)["Events"] == [EVENT, STARTED, EVENT, STARTED]


def test_only_what_an_event_is_nothing_without_is_left() -> None:
    first, second = alter(FaultKind.MISSING_FIELDS)["Events"]

    assert first == {
        "EventId": "AB-1",
        "EventStatus": "Scheduled",
        "EventType": "Reboot",
        "Resources": ["web-0"],
    }
    assert first.keys() == second.keys()


def test_incarnation_is_a_string() -> None:
    assert alter(FaultKind.STRING_INCARNATION) == {**DOCUMENT, "DocumentIncarnation": "5"}


def test_document_has_fields_that_nobody_knows() -> None:
    altered = alter(FaultKind.EXTRA_FIELDS)

    assert {name: altered[name] for name in EXTRA} == EXTRA


def test_names_begin_small_and_values_stay() -> None:
    altered = alter(FaultKind.CAMEL_CASE)

    assert altered["documentIncarnation"] == 5
    assert altered["events"][0]["notBefore"] == EVENT["NotBefore"]
    assert altered["events"][0]["resources"] == ["web-0"]
    assert altered["events"][0].keys().isdisjoint(EVENT)


def test_unknown_type_can_be_chosen() -> None:
    assert alter(FaultKind.UNKNOWN_TYPE, event_type="Nap")["Events"][1]["EventType"] == "Nap"


@pytest.mark.parametrize(
    ("kind", "date"),
    [
        (FaultKind.NOT_BEFORE_SLIP, "2016-09-19T18:31:17Z"),
        (FaultKind.SHORT_NOTICE, "2016-09-19T18:28:17Z"),
        (FaultKind.WRONG_WEEKDAY, "2016-09-19T18:29:47Z"),
        (FaultKind.ISO_DATE, "2016-09-19T18:29:47Z"),
    ],
)
def test_date_of_the_oldest_version_keeps_its_form(kind: FaultKind, date: str) -> None:
    event = {**EVENT, "NotBefore": "2016-09-19T18:29:47Z"}

    (altered,) = alter(kind, {"DocumentIncarnation": 5, "Events": [event]})["Events"]

    assert altered["NotBefore"] == date


def test_sunday_is_taken_for_a_monday() -> None:
    event = {**EVENT, "NotBefore": "Sun, 18 Sep 2016 18:29:47 GMT"}

    (altered,) = alter(FaultKind.WRONG_WEEKDAY, {"Events": [event]})["Events"]

    assert altered["NotBefore"] == "Mon, 18 Sep 2016 18:29:47 GMT"


@pytest.mark.parametrize("kind", ALTERATIONS)
def test_what_is_right_is_left_alone(kind: FaultKind) -> None:
    right = {**DOCUMENT, "Events": [dict(EVENT), dict(STARTED)]}

    altered = alter(kind, right)

    assert altered != right
    assert right == DOCUMENT


@pytest.mark.parametrize(("first", "second"), list(combinations(ALTERATIONS, 2)))
def test_any_two_go_together(first: FaultKind, second: FaultKind) -> None:
    altered = alter_document(DOCUMENT, {kind: make_fault(kind) for kind in (second, first)})

    assert json.loads(json.dumps(altered)) == altered
    assert len(altered) >= len(DOCUMENT)


def test_all_go_together() -> None:
    altered = alter_document(DOCUMENT, {kind: make_fault(kind) for kind in ALTERATIONS})

    assert altered["documentIncarnation"] == "5"
    assert altered["events"] is None
