import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from forewarn.protocol.document import Document, Event, decode_document, encode_document
from forewarn.protocol.errors import MalformedDocumentError
from forewarn.protocol.versions import (
    API_VERSIONS,
    NEWEST,
    ApiVersion,
)
from forewarn.protocol.vocabulary import (
    EventSource,
    EventStatus,
    EventType,
    ResourceType,
    event_id,
)

GUID = "C7061BAC-AFDC-4513-B24B-AA5F13A16123"
NOT_BEFORE = datetime(2026, 4, 11, 22, 26, 58, tzinfo=UTC)
EVENT = Event(
    event_id=event_id(GUID),
    event_status=EventStatus.SCHEDULED,
    event_type=EventType.FREEZE,
    resources=("web-0", "web-1"),
    not_before=NOT_BEFORE,
    description="Host server is undergoing maintenance.",
    event_source=EventSource.PLATFORM,
    duration_in_seconds=9,
)
INITIAL, WITH_PREEMPT = API_VERSIONS[1], API_VERSIONS[2]


def encoded(*events: Event, version: ApiVersion = NEWEST) -> str:
    return encode_document(Document(document_incarnation=1, events=events), version).decode()


def decoded(body: bytes) -> Document:
    document = decode_document(body)
    assert document is not None
    return document


def decoded_event(**fields: object) -> Event:
    body = {"DocumentIncarnation": 1, "Events": [{"EventId": GUID, **fields}]}
    (event,) = decoded(json.dumps(body).encode()).events
    return event


@pytest.mark.parametrize("version", API_VERSIONS, ids=lambda version: version.name)
def test_empty_document_is_the_exact_text_old_scripts_compare_with(version: ApiVersion) -> None:
    body = encode_document(Document(document_incarnation=0), version)

    assert body == b'{"DocumentIncarnation":0,"Events":[]}'


@pytest.mark.parametrize("version", API_VERSIONS, ids=lambda version: version.name)
def test_event_is_written_with_the_fields_of_the_version_in_order(version: ApiVersion) -> None:
    (event,) = json.loads(encoded(EVENT, version=version))["Events"]

    assert tuple(event) == version.fields


def test_event_is_written_compact() -> None:
    assert encoded(EVENT) == (
        '{"DocumentIncarnation":1,"Events":[{"EventId":"C7061BAC-AFDC-4513-B24B-AA5F13A16123",'
        '"EventStatus":"Scheduled","EventType":"Freeze","ResourceType":"VirtualMachine",'
        '"Resources":["web-0","web-1"],"NotBefore":"Sat, 11 Apr 2026 22:26:58 GMT",'
        '"Description":"Host server is undergoing maintenance.","EventSource":"Platform",'
        '"DurationInSeconds":9}]}'
    )


@pytest.mark.parametrize("version", API_VERSIONS, ids=lambda version: version.name)
def test_started_event_shows_empty_not_before(version: ApiVersion) -> None:
    started = replace(EVENT, event_status=EventStatus.STARTED, not_before=NOT_BEFORE)

    assert '"NotBefore":""' in encoded(started, version=version)


def test_scheduled_event_without_not_before_shows_it_empty() -> None:
    assert '"NotBefore":""' in encoded(replace(EVENT, not_before=None))


def test_preview_shows_not_before_as_its_documents_print_it() -> None:
    assert '"NotBefore":"2026-04-11T22:26:58Z"' in encoded(EVENT, version=API_VERSIONS[0])


@pytest.mark.parametrize(("duration", "number"), [(None, -1), (0, 0), (30, 30)])
def test_duration_is_written_as_a_number(duration: int | None, number: int) -> None:
    event = replace(EVENT, duration_in_seconds=duration)

    assert encoded(event).endswith(f'"DurationInSeconds":{number}}}]}}')


@pytest.mark.parametrize(
    ("source", "word"), [(None, "Platform"), ("Platform", "Platform"), ("User", "User")]
)
def test_event_source_is_the_platform_unless_said(source: str | None, word: str) -> None:
    assert f'"EventSource":"{word}"' in encoded(replace(EVENT, event_source=source))


@pytest.mark.parametrize(
    ("version", "newer"),
    [
        (INITIAL, EventType.PREEMPT),
        (INITIAL, EventType.TERMINATE),
        (WITH_PREEMPT, EventType.TERMINATE),
        (NEWEST, "SpotRebalanceRecommendation"),
    ],
    ids=lambda value: value.name if isinstance(value, ApiVersion) else str(value),
)
def test_event_of_a_newer_type_hides_only_itself(version: ApiVersion, newer: str) -> None:
    body = encoded(EVENT, replace(EVENT, event_type=newer), EVENT, version=version)

    assert [event["EventType"] for event in json.loads(body)["Events"]] == ["Freeze", "Freeze"]


@pytest.mark.parametrize("event_type", EventType)
def test_newest_version_shows_every_type(event_type: EventType) -> None:
    assert f'"EventType":"{event_type}"' in encoded(replace(EVENT, event_type=event_type))


@pytest.mark.parametrize("version", API_VERSIONS, ids=lambda version: version.name)
def test_resources_are_plain_names_in_their_order(version: ApiVersion) -> None:
    event = replace(EVENT, resources=("web-1", "FrontEnd_IN_0", "web-0"))

    assert '"Resources":["web-1","FrontEnd_IN_0","web-0"]' in encoded(event, version=version)


def test_written_document_is_ascii_whatever_the_description() -> None:
    event = replace(EVENT, description='Wartung "später"\n')

    assert r'"Description":"Wartung \"sp\u00e4ter\"\n"' in encoded(event)


def test_document_reads_back_the_same() -> None:
    document = Document(
        document_incarnation=192, events=(EVENT, replace(EVENT, duration_in_seconds=None))
    )

    assert decode_document(encode_document(document, NEWEST)) == document


@pytest.mark.parametrize("body", [b"", b" ", b"\r\n\t"])
def test_empty_body_is_no_document(body: bytes) -> None:
    assert decode_document(body) is None


@pytest.mark.parametrize(
    ("incarnation", "number"),
    [
        ("0", 0),
        ("279", 279),
        ("-1", -1),
        ("9223372036854775808", 2**63),
        ("1" + "0" * 400, 10**400),
        ('"5"', 5),
        ('"0"', 0),
        ('"-1"', -1),
        ('"999999999999999999"', 999_999_999_999_999_999),
    ],
)
def test_incarnation_is_read_as_number_or_string(incarnation: str, number: int) -> None:
    body = f'{{"DocumentIncarnation":{incarnation},"Events":[]}}'.encode()

    assert decode_document(body) == Document(document_incarnation=number)


@pytest.mark.parametrize(
    "text",
    ['{"DocumentIncarnation":4,"Events":[]}', '\r\n{ "Events": [ ],\t"DocumentIncarnation": 4 }'],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_document_is_read_in_any_layout_and_encoding(text: str, encoding: str) -> None:
    assert decode_document(text.encode(encoding)) == Document(document_incarnation=4)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"<html>504 Gateway Timeout</html>", id="page"),
        pytest.param(b'{"DocumentIncarnation":1,"Events":[', id="cut-off"),
        pytest.param(b'{"DocumentIncarnation":1,"Events":[]}{}', id="trailing-data"),
        pytest.param(b"\xff\xfe\xfd", id="not-text"),
        pytest.param(b'{"DocumentIncarnation":1,"Events":["\xe9"]}', id="not-utf-8"),
        pytest.param(b"[" * 100_000, id="deeply-nested"),
        pytest.param(
            b'{"DocumentIncarnation":1,"Events":[],"More":' + b'{"a":' * 100_000, id="deep-inside"
        ),
        pytest.param(
            b'{"DocumentIncarnation":' + b"9" * 5_000 + b',"Events":[]}', id="huge-number"
        ),
    ],
)
def test_body_that_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedDocumentError, match="is not JSON"):
        decode_document(body)


@pytest.mark.parametrize("body", [b"null", b"[]", b"5", b'"text"', b"true", b"NaN"])
def test_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedDocumentError, match="is not a JSON object"):
        decode_document(body)


@pytest.mark.parametrize(
    "incarnation",
    [
        "null",
        "true",
        "1.5",
        "1e400",
        "NaN",
        "[]",
        "{}",
        '""',
        '"five"',
        '"1.5"',
        '"\u0663"',
        '" 5"',
    ],
)
def test_incarnation_that_is_no_whole_number_is_refused(incarnation: str) -> None:
    body = f'{{"DocumentIncarnation":{incarnation},"Events":[]}}'.encode()

    with pytest.raises(MalformedDocumentError, match="DocumentIncarnation"):
        decode_document(body)


def test_document_without_incarnation_is_refused() -> None:
    with pytest.raises(MalformedDocumentError, match="DocumentIncarnation"):
        decode_document(b'{"Events":[]}')


@pytest.mark.parametrize(
    "members", ["", ',"Events":null', ',"Events":{}', ',"Events":"none"', ',"events":[]']
)
def test_document_without_an_array_of_events_is_refused(members: str) -> None:
    with pytest.raises(MalformedDocumentError, match="Events"):
        decode_document(f'{{"DocumentIncarnation":1{members}}}'.encode())


@pytest.mark.parametrize(
    "nameless", ["null", "7", '"text"', "[]", "{}", '{"EventId":null}', '{"EventId":7}']
)
def test_event_without_an_id_does_not_hide_the_others(nameless: str) -> None:
    body = f'{{"DocumentIncarnation":1,"Events":[{nameless},{{"EventId":"{GUID}"}}]}}'.encode()

    assert [event.event_id for event in decoded(body).events] == [GUID]


def test_event_id_is_read_in_upper_case() -> None:
    assert decoded_event(EventId=GUID.lower()).event_id == GUID


def test_every_field_of_the_newest_version_is_read() -> None:
    event = decoded_event(
        EventStatus="Scheduled",
        EventType="Freeze",
        ResourceType="VirtualMachine",
        Resources=["web-0", "web-1"],
        NotBefore="Sat, 11 Apr 2026 22:26:58 GMT",
        Description="Host server is undergoing maintenance.",
        EventSource="Platform",
        DurationInSeconds=9,
    )

    assert event == EVENT


def test_known_words_are_read_as_members_of_the_vocabulary() -> None:
    event = decoded_event(
        EventStatus="Started",
        EventType="Preempt",
        ResourceType="VirtualMachine",
        EventSource="User",
    )

    assert event.event_status is EventStatus.STARTED
    assert event.event_type is EventType.PREEMPT
    assert event.resource_type is ResourceType.VIRTUAL_MACHINE
    assert event.event_source is EventSource.USER


def test_unknown_words_stay_as_they_are() -> None:
    event = decoded_event(
        EventStatus="Paused",
        EventType="SpotRebalanceRecommendation",
        ResourceType="Disk",
        EventSource="Robot",
    )

    words = (event.event_status, event.event_type, event.resource_type, event.event_source)
    assert words == ("Paused", "SpotRebalanceRecommendation", "Disk", "Robot")


def test_unknown_fields_are_overlooked() -> None:
    body = (
        f'{{"Next":{{}},"DocumentIncarnation":1,"Events":[{{"EventId":"{GUID}","Zone":[1]}}]}}'
    ).encode()

    assert decoded(body).events == (decoded_event(),)


@pytest.mark.parametrize(
    "text",
    ["Sat, 11 Apr 2026 22:26:58 GMT", "2026-04-11T22:26:58Z", "Mon, 11 Apr 2026 22:26:58 GMT"],
)
def test_not_before_is_read_in_both_forms(text: str) -> None:
    assert decoded_event(NotBefore=text).not_before == NOT_BEFORE


@pytest.mark.parametrize("value", ["", "soon", None, 0, [], {}])
def test_not_before_that_names_no_moment_is_none(value: object) -> None:
    assert decoded_event(NotBefore=value).not_before is None


@pytest.mark.parametrize(
    ("value", "duration"),
    [
        (9, 9),
        (0, 0),
        ("9", 9),
        (2**70, 2**70),
        (-1, None),
        ("-1", None),
        (-30, None),
        (None, None),
        (1.5, None),
        (True, None),
        ("soon", None),
        ("9" * 41, None),
        ([], None),
    ],
    ids=repr,
)
def test_duration_is_read_unless_it_is_unknown(value: object, duration: int | None) -> None:
    assert decoded_event(DurationInSeconds=value).duration_in_seconds == duration


@pytest.mark.parametrize(
    ("value", "resources"),
    [
        (["web-0"], ("web-0",)),
        (["_web-0", "FrontEnd_IN_0"], ("_web-0", "FrontEnd_IN_0")),
        ([], ()),
        (None, ()),
        ("web-0", ()),
        ({"web-0": 1}, ()),
    ],
)
def test_resources_are_read_from_an_array(value: object, resources: tuple[str, ...]) -> None:
    assert decoded_event(Resources=value).resources == resources


@pytest.mark.parametrize("value", [None, 7, True, [], {}])
def test_source_that_is_no_text_is_none(value: object) -> None:
    assert decoded_event(EventSource=value).event_source is None


@pytest.mark.parametrize("value", [None, 7, True, [], {}])
def test_text_fields_with_odd_values_are_empty(value: object) -> None:
    event = decoded_event(EventStatus=value, EventType=value, Description=value)

    assert (event.event_status, event.event_type, event.description) == ("", "", "")


def test_absent_fields_leave_an_event_with_an_id() -> None:
    event = decoded_event()

    assert event == Event(
        event_id=event_id(GUID), event_status="", event_type="", resource_type="", resources=()
    )
