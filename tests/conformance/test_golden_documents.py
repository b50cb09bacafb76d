"""The documents of each api-version, byte for byte, as its specification prints them."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from forewarn.protocol.document import Document, Event, decode_document, encode_document
from forewarn.protocol.versions import API_VERSIONS, VERSIONS_BY_NAME, ApiVersion
from forewarn.protocol.vocabulary import EventSource, EventStatus, EventType, event_id
from wire_schemas import document_schema, openapi

GOLDEN: Final = Path(__file__).parent / "golden"
DOCUMENTS: Final = {
    "empty": Document(document_incarnation=0),
    "scheduled": Document(
        document_incarnation=1,
        events=(
            Event(
                event_id=event_id("4598A8F2-907A-4C57-AB2E-0827BB34E8DE"),
                event_status=EventStatus.SCHEDULED,
                event_type=EventType.REBOOT,
                resources=("web-0",),
                not_before=datetime(2026, 3, 5, 8, 7, 9, tzinfo=UTC),
                description=(
                    "Virtual machine is going to be restarted as requested by authorized user."
                ),
                event_source=EventSource.USER,
            ),
        ),
    ),
    "started": Document(
        document_incarnation=2,
        events=(
            Event(
                event_id=event_id("42DEAF20-256F-4B37-AA4E-3B934177A923"),
                event_status=EventStatus.STARTED,
                event_type=EventType.FREEZE,
                resources=("FrontEnd_IN_0", "BackEnd_IN_0"),
                not_before=datetime(2026, 3, 5, 8, 7, 9, tzinfo=UTC),
                description="Host server is undergoing maintenance.",
                event_source=EventSource.PLATFORM,
                duration_in_seconds=9,
            ),
        ),
    ),
    "several": Document(
        document_incarnation=192,
        events=(
            Event(
                event_id=event_id("45802131-74D9-4288-8CA8-212D78C39F77"),
                event_status=EventStatus.SCHEDULED,
                event_type=EventType.REDEPLOY,
                resources=("sql-primary", "sql-standby"),
                not_before=datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC),
                description="Virtual machine has encountered a failure.",
                event_source=EventSource.PLATFORM,
            ),
            Event(
                event_id=event_id("FC1ABE91-29B1-413C-A94E-2CEBA9A5C92B"),
                event_status=EventStatus.STARTED,
                event_type=EventType.FREEZE,
                resources=("web-1",),
                description="Host Server infrastructure is undergoing maintenance.",
                event_source=EventSource.PLATFORM,
                duration_in_seconds=0,
            ),
            Event(
                event_id=event_id("BBD68B23-2346-49D7-9E62-C59F16C1B3DB"),
                event_status=EventStatus.SCHEDULED,
                event_type=EventType.PREEMPT,
                resources=("myspotvm",),
                not_before=datetime(2026, 2, 28, 0, 58, 46, tzinfo=UTC),
                event_source=EventSource.PLATFORM,
            ),
            Event(
                event_id=event_id("B9878E51-75D6-42F1-AF13-37930D049D34"),
                event_status=EventStatus.STARTED,
                event_type=EventType.REBOOT,
                resources=("aks-pool-12345678-vmss_25", "BackEnd_IN_0"),
                description="Host server is undergoing an emergency repair.",
                event_source=EventSource.PLATFORM,
            ),
        ),
    ),
    "every-type": Document(
        document_incarnation=279,
        events=(
            Event(
                event_id=event_id("31C7138A-4D0F-4150-94C0-6605B491502B"),
                event_status=EventStatus.SCHEDULED,
                event_type=EventType.FREEZE,
                resources=("FrontEnd_IN_0",),
                not_before=datetime(2026, 6, 1, 12, 0, 0, tzinfo=UTC),
                description=(
                    "Virtual machine is being paused because of "
                    "a memory-preserving Live Migration operation."
                ),
                event_source=EventSource.PLATFORM,
                duration_in_seconds=5,
            ),
            Event(
                event_id=event_id("7E36B624-AA39-418A-86F6-1ADDC86EC251"),
                event_status=EventStatus.SCHEDULED,
                event_type=EventType.REBOOT,
                resources=("flatcar-vm1",),
                not_before=datetime(2026, 7, 14, 4, 50, 17, tzinfo=UTC),
                description=(
                    "Virtual machine is going to be restarted as requested by authorized user."
                ),
                event_source=EventSource.USER,
            ),
            Event(
                event_id=event_id("7AE73D43-106D-4D2B-B6DC-1CECD20B70A8"),
                event_status=EventStatus.SCHEDULED,
                event_type=EventType.REDEPLOY,
                resources=("sql-primary",),
                not_before=datetime(2026, 8, 9, 10, 11, 12, tzinfo=UTC),
                description=(
                    "Virtual machine is going to be redeployed as requested by authorized user."
                ),
                event_source=EventSource.USER,
            ),
            Event(
                event_id=event_id("8CEF3747-691B-4D59-BB17-B80E9AD17406"),
                event_status=EventStatus.SCHEDULED,
                event_type=EventType.PREEMPT,
                resources=("myspotvm",),
                not_before=datetime(2026, 11, 20, 0, 0, 30, tzinfo=UTC),
                event_source=EventSource.PLATFORM,
            ),
            Event(
                event_id=event_id("094B4795-08CA-4939-97CD-879FDC639E70"),
                event_status=EventStatus.SCHEDULED,
                event_type=EventType.TERMINATE,
                resources=("controlplane_0",),
                not_before=datetime(2027, 1, 6, 16, 22, 3, tzinfo=UTC),
                event_source=EventSource.USER,
            ),
        ),
    ),
}

CAPTURED_IDLE: Final = b'{"DocumentIncarnation":0,"Events":[]}'
CAPTURED_REBOOT: Final = (
    b'{"DocumentIncarnation":1,"Events":[{"EventId":"8A506C35-679A-4F78-9D76-C16DBE65EE6F",'
    b'"EventStatus":"Scheduled","EventType":"Reboot","ResourceType":"VirtualMachine",'
    b'"Resources":["aks-nodepool1-34166363-1"],"NotBefore":"Mon, 26 Nov 2018 10:52:34 GMT"}]}'
)
CAPTURED_PREEMPT: Final = (
    b'{"DocumentIncarnation":1,"Events":[{"EventId":"A123BC45-1234-5678-AB90-ABCDEF123456",'
    b'"EventStatus":"Scheduled","EventType":"Preempt","ResourceType":"VirtualMachine",'
    b'"Resources":["myspotvm"],"NotBefore":"Tue, 16 Mar 2021 00:58:46 GMT",'
    b'"Description":"","EventSource":"Platform"}]}'
)


def golden(wire: str, case: str) -> bytes:
    return (GOLDEN / wire / f"{case}.json").read_bytes()


def test_every_version_has_its_golden_documents_and_nothing_else_is_there() -> None:
    files = {path.relative_to(GOLDEN).as_posix() for path in GOLDEN.rglob("*") if path.is_file()}

    assert files == {f"{wire}/{case}.json" for wire in VERSIONS_BY_NAME for case in DOCUMENTS}


@pytest.mark.parametrize("case", DOCUMENTS)
@pytest.mark.parametrize("wire", VERSIONS_BY_NAME)
def test_document_is_encoded_as_the_golden_one(wire: str, case: str) -> None:
    assert encode_document(DOCUMENTS[case], VERSIONS_BY_NAME[wire]) == golden(wire, case)


@pytest.mark.parametrize("case", DOCUMENTS)
@pytest.mark.parametrize("name", VERSIONS_BY_NAME)
def test_golden_document_survives_decoding(name: str, case: str) -> None:
    document = decode_document(golden(name, case))

    assert document is not None
    assert encode_document(document, VERSIONS_BY_NAME[name]) == golden(name, case)


@pytest.mark.parametrize("case", DOCUMENTS)
@pytest.mark.parametrize("wire", VERSIONS_BY_NAME)
def test_schema_accepts_the_golden_documents_of_its_version(wire: str, case: str) -> None:
    validator = Draft202012Validator(document_schema(VERSIONS_BY_NAME[wire]))

    assert validator.is_valid(json.loads(golden(wire, case)))


@pytest.mark.parametrize(
    ("name", "wire"),
    [
        ("2017-03-01", "2017-08-01"),
        ("2017-08-01", "2017-03-01"),
        ("2017-08-01", "2017-11-01"),
        ("2017-11-01", "2019-01-01"),
        ("2019-01-01", "2019-04-01"),
        ("2019-04-01", "2019-01-01"),
        ("2019-04-01", "2019-08-01"),
        ("2019-08-01", "2019-04-01"),
        ("2019-08-01", "2020-07-01"),
        ("2020-07-01", "2019-08-01"),
    ],
)
def test_schema_rejects_the_golden_document_of_its_neighbour(name: str, wire: str) -> None:
    validator = Draft202012Validator(document_schema(VERSIONS_BY_NAME[name]))

    assert not validator.is_valid(json.loads(golden(wire, "every-type")))


@pytest.mark.parametrize("wire", VERSIONS_BY_NAME)
def test_openapi_description_is_valid(wire: str) -> None:
    validator = OpenAPIV31SpecValidator(openapi(VERSIONS_BY_NAME[wire]))

    assert list(validator.iter_errors()) == []


@pytest.mark.parametrize(
    ("body", "document"),
    [
        pytest.param(CAPTURED_IDLE, Document(document_incarnation=0), id="idle"),
        pytest.param(
            CAPTURED_REBOOT,
            Document(
                document_incarnation=1,
                events=(
                    Event(
                        event_id=event_id("8A506C35-679A-4F78-9D76-C16DBE65EE6F"),
                        event_status=EventStatus.SCHEDULED,
                        event_type=EventType.REBOOT,
                        resources=("aks-nodepool1-34166363-1",),
                        not_before=datetime(2018, 11, 26, 10, 52, 34, tzinfo=UTC),
                    ),
                ),
            ),
            id="reboot",
        ),
        pytest.param(
            CAPTURED_PREEMPT,
            Document(
                document_incarnation=1,
                events=(
                    Event(
                        event_id=event_id("A123BC45-1234-5678-AB90-ABCDEF123456"),
                        event_status=EventStatus.SCHEDULED,
                        event_type=EventType.PREEMPT,
                        resources=("myspotvm",),
                        not_before=datetime(2021, 3, 16, 0, 58, 46, tzinfo=UTC),
                        event_source=EventSource.PLATFORM,
                    ),
                ),
            ),
            id="preempt",
        ),
    ],
)
def test_captured_response_is_decoded(body: bytes, document: Document) -> None:
    assert decode_document(body) == document


@pytest.mark.parametrize(
    ("body", "version"),
    [
        *(pytest.param(CAPTURED_IDLE, each, id=f"idle-{each.name}") for each in API_VERSIONS),
        pytest.param(CAPTURED_REBOOT, VERSIONS_BY_NAME["2017-08-01"], id="reboot-2017-08-01"),
        pytest.param(CAPTURED_PREEMPT, VERSIONS_BY_NAME["2019-08-01"], id="preempt-2019-08-01"),
    ],
)
def test_captured_response_is_encoded_again_byte_for_byte(body: bytes, version: ApiVersion) -> None:
    document = decode_document(body)

    assert document is not None
    assert encode_document(document, version) == body
