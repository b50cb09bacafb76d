"""What is written is read back, and nothing that is read can do harm."""

import json
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.protocol.dates import read_date, write_date
from forewarn.protocol.document import Document, Event, decode_document, encode_document
from forewarn.protocol.errors import MalformedDocumentError, MalformedStartRequestsError
from forewarn.protocol.start_requests import decode_start_requests, encode_start_requests
from forewarn.protocol.versions import API_VERSIONS, ApiVersion, DateForm
from forewarn.protocol.vocabulary import EventSource, EventStatus, EventType, event_id

EVENT_IDS = st.uuids().map(str).map(event_id)
# RFC 1123 reads years below 100 as those of the last century.
SECONDS = st.integers(-(10**10), 10**11).map(lambda second: datetime.fromtimestamp(second, UTC))
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=20,
)
WIRE_KEYS = st.sampled_from(
    ["DocumentIncarnation", "Events", "StartRequests", "EventId", "NotBefore"]
)
NEARLY_RIGHT = st.recursive(
    ANY_JSON,
    lambda children: st.lists(children) | st.dictionaries(WIRE_KEYS, children),
    max_leaves=20,
)


def documents(version: ApiVersion) -> st.SearchStrategy[Document]:
    """Every document *version* can express."""
    has = version.fields.__contains__
    event = {
        "event_id": EVENT_IDS,
        "event_type": st.sampled_from(sorted(version.event_types)).map(EventType),
        "resources": st.lists(st.text(), min_size=1, max_size=4).map(tuple),
        "description": st.text() if has("Description") else st.just(""),
        "event_source": st.sampled_from(EventSource) if has("EventSource") else st.none(),
        "duration_in_seconds": (
            st.none() | st.integers(0, 10**9) if has("DurationInSeconds") else st.none()
        ),
    }
    events = st.builds(
        Event, event_status=st.just(EventStatus.SCHEDULED), not_before=SECONDS, **event
    ) | st.builds(Event, event_status=st.just(EventStatus.STARTED), **event)
    return st.builds(
        Document,
        document_incarnation=st.integers(0, 2**63),
        events=st.lists(events, max_size=4).map(tuple),
    )


@pytest.mark.parametrize("version", API_VERSIONS, ids=lambda version: str(version.name))
@given(data=st.data())
def test_decoding_gives_back_what_was_encoded(version: ApiVersion, data: st.DataObject) -> None:
    document = data.draw(documents(version))

    assert decode_document(encode_document(document, version)) == document


@pytest.mark.parametrize("version", API_VERSIONS, ids=lambda version: str(version.name))
@given(document=documents(API_VERSIONS[-1]))
def test_each_version_has_its_fields_and_types_and_no_others(
    version: ApiVersion, document: Document
) -> None:
    events = json.loads(encode_document(document, version))["Events"]

    assert all(tuple(event) == version.fields for event in events)
    assert [event["EventId"] for event in events] == [
        event.event_id for event in document.events if event.event_type in version.event_types
    ]


@given(moment=SECONDS, form=st.sampled_from(DateForm))
def test_dates_are_read_back_in_both_forms(moment: datetime, form: DateForm) -> None:
    assert read_date(write_date(moment, form)) == moment


@given(text=st.text() | st.dates().map(str) | st.datetimes().map(str) | ANY_JSON)
def test_no_date_is_too_odd_to_be_read(text: object) -> None:
    assert read_date(text) is None or isinstance(read_date(text), datetime)


@given(ids=st.lists(EVENT_IDS, unique=True))
def test_start_requests_are_read_back(ids: list[str]) -> None:
    wanted = tuple(event_id(text) for text in ids)

    assert decode_start_requests(encode_start_requests(wanted)) == wanted


@given(body=st.binary() | NEARLY_RIGHT.map(json.dumps).map(str.encode))
def test_nothing_on_the_wire_surprises_the_decoders(body: bytes) -> None:
    for decode, error in (
        (decode_document, MalformedDocumentError),
        (decode_start_requests, MalformedStartRequestsError),
    ):
        with suppress(error):
            decode(body)
