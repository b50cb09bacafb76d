import json
from collections.abc import Mapping
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from forewarn.protocol.versions import (
    API_VERSIONS,
    NEWEST,
    ApiVersion,
)
from wire_schemas import document_schema, openapi

EVERY_WIRE = [pytest.param(version, id=version.name) for version in API_VERSIONS]
EVENT: Mapping[str, object] = {
    "EventId": "C7061BAC-AFDC-4513-B24B-AA5F13A16123",
    "EventStatus": "Scheduled",
    "EventType": "Freeze",
    "ResourceType": "VirtualMachine",
    "Resources": ["web-0", "FrontEnd_IN_0"],
    "NotBefore": "Sat, 11 Apr 2026 22:26:58 GMT",
    "Description": "",
    "EventSource": "Platform",
    "DurationInSeconds": -1,
}


def accepts(event: Mapping[str, object], version: ApiVersion = NEWEST) -> bool:
    document = {"DocumentIncarnation": 0, "Events": [event]}
    return Draft202012Validator(document_schema(version)).is_valid(document)


def operation(version: ApiVersion, method: str) -> dict[str, Any]:
    found: dict[str, Any] = openapi(version)["paths"]["/metadata/scheduledevents"][method]
    return found


@pytest.mark.parametrize("version", EVERY_WIRE)
def test_document_schema_is_a_schema_that_names_its_version(version: ApiVersion) -> None:
    schema = document_schema(version)

    Draft202012Validator.check_schema(schema)
    assert version.name in schema["title"]


@pytest.mark.parametrize("version", EVERY_WIRE)
def test_schema_wants_exactly_the_fields_of_the_version(version: ApiVersion) -> None:
    event = document_schema(version)["properties"]["Events"]["items"]

    assert tuple(event["properties"]) == version.fields
    assert tuple(event["required"]) == version.fields


def test_schema_accepts_an_event_of_the_newest_version() -> None:
    assert accepts(EVENT)


@pytest.mark.parametrize("field", EVENT)
def test_schema_rejects_an_event_without_one_of_its_fields(field: str) -> None:
    event = {name: value for name, value in EVENT.items() if name != field}

    assert not accepts(event)


def test_schema_rejects_an_event_with_an_extra_field() -> None:
    assert not accepts({**EVENT, "Zone": "1"})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("EventStatus", "Started"),
        ("EventType", "Terminate"),
        ("EventSource", "User"),
        ("NotBefore", ""),
        ("Description", "Host server is undergoing maintenance."),
        ("DurationInSeconds", 0),
        ("DurationInSeconds", 30),
    ],
)
def test_schema_accepts_other_values_of_the_wire(field: str, value: object) -> None:
    assert accepts({**EVENT, field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("EventId", "c7061bac-afdc-4513-b24b-aa5f13a16123"),
        ("EventId", "{C7061BAC-AFDC-4513-B24B-AA5F13A16123}"),
        ("EventStatus", "Completed"),
        ("EventStatus", "Canceled"),
        ("EventStatus", "scheduled"),
        ("EventType", "SpotRebalanceRecommendation"),
        ("EventType", "freeze"),
        ("ResourceType", "Disk"),
        ("Resources", []),
        ("Resources", "web-0"),
        ("Resources", [7]),
        ("NotBefore", None),
        ("NotBefore", "2026-04-11T22:26:58Z"),
        ("NotBefore", "Sat, 11 Apr 2026 22:26:58 +0000"),
        ("NotBefore", "Sat, 1 Apr 2026 22:26:58 GMT"),
        ("Description", None),
        ("EventSource", ""),
        ("EventSource", "Robot"),
        ("DurationInSeconds", "9"),
        ("DurationInSeconds", -2),
        ("DurationInSeconds", 1.5),
    ],
)
def test_schema_rejects_values_that_are_never_on_the_wire(field: str, value: object) -> None:
    assert not accepts({**EVENT, field: value})


@pytest.mark.parametrize(
    ("version", "text"),
    [
        pytest.param(API_VERSIONS[0], "2026-04-11T22:26:58Z", id="2017-03-01"),
        pytest.param(API_VERSIONS[1], "Sat, 11 Apr 2026 22:26:58 GMT", id="2017-08-01"),
    ],
)
def test_schema_accepts_only_the_date_form_of_its_wire(version: ApiVersion, text: str) -> None:
    forms = ["2026-04-11T22:26:58Z", "Sat, 11 Apr 2026 22:26:58 GMT"]
    event = {name: EVENT[name] for name in version.fields}

    accepted = [form for form in forms if accepts({**event, "NotBefore": form}, version)]

    assert accepted == [text]


@pytest.mark.parametrize("version", EVERY_WIRE)
def test_schema_accepts_exactly_the_event_types_of_its_version(version: ApiVersion) -> None:
    event = {name: EVENT[name] for name in version.fields} | {"NotBefore": ""}
    words = ["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate", "Pause"]

    accepted = {word for word in words if accepts({**event, "EventType": word}, version)}

    assert accepted == version.event_types


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"Events": []},
        {"DocumentIncarnation": 0},
        {"DocumentIncarnation": "0", "Events": []},
        {"DocumentIncarnation": -1, "Events": []},
        {"DocumentIncarnation": 0, "Events": None},
        {"DocumentIncarnation": 0, "Events": [], "Next": None},
        [],
    ],
    ids=json.dumps,
)
def test_schema_rejects_what_is_no_document(document: object) -> None:
    assert not Draft202012Validator(document_schema(NEWEST)).is_valid(document)


@pytest.mark.parametrize("version", EVERY_WIRE)
def test_openapi_description_survives_json(version: ApiVersion) -> None:
    description = openapi(version)

    assert json.loads(json.dumps(description)) == description


@pytest.mark.parametrize("version", EVERY_WIRE)
def test_openapi_fixes_the_api_version(version: ApiVersion) -> None:
    (parameter,) = openapi(version)["paths"]["/metadata/scheduledevents"]["parameters"]

    assert parameter["name"] == "api-version"
    assert parameter["required"] is True
    assert parameter["schema"]["const"] == version.name


@pytest.mark.parametrize("version", EVERY_WIRE)
def test_openapi_document_is_that_of_the_document_schema(version: ApiVersion) -> None:
    document = openapi(version)["components"]["schemas"]["Document"]

    assert document.items() <= document_schema(version).items()


@pytest.mark.parametrize("version", EVERY_WIRE)
def test_openapi_wants_the_metadata_header_on_get(version: ApiVersion) -> None:
    header = operation(version, "get")["parameters"][0]

    assert header["name"] == "Metadata"
    assert header["required"] is True


@pytest.mark.parametrize("version", EVERY_WIRE)
def test_openapi_wants_the_metadata_header_on_post_after_the_preview(version: ApiVersion) -> None:
    (header,) = operation(version, "post")["parameters"]

    assert header["name"] == "Metadata"
    assert header["required"] is (version.name != "2017-03-01")


@pytest.mark.parametrize("version", EVERY_WIRE)
def test_openapi_post_lists_the_missing_header_only_where_it_is_wanted(version: ApiVersion) -> None:
    reasons = operation(version, "post")["responses"]["400"]["description"]

    assert ("metadata header missing" in reasons) is (version.name != "2017-03-01")


@pytest.mark.parametrize(
    ("method", "statuses"),
    [
        ("get", {"200", "304", "400", "403", "404"}),
        ("post", {"200", "400", "403", "404", "413", "503"}),
    ],
)
def test_openapi_lists_the_answers_of_each_method(method: str, statuses: set[str]) -> None:
    assert operation(NEWEST, method)["responses"].keys() == statuses


@pytest.mark.parametrize(
    "body",
    [
        {"StartRequests": [{"EventId": "c7061bac-afdc-4513-b24b-aa5f13a16123"}]},
        {"DocumentIncarnation": "5", "StartRequests": [{"EventId": "C7061BAC"}]},
        {"DocumentIncarnation": 5, "StartRequests": []},
    ],
    ids=json.dumps,
)
def test_openapi_takes_every_form_of_start_requests(body: object) -> None:
    schema = openapi(NEWEST)["components"]["schemas"]["StartRequests"]

    assert Draft202012Validator(schema).is_valid(body)


@pytest.mark.parametrize(
    "body", [{}, {"StartRequests": {}}, {"StartRequests": [{}]}], ids=json.dumps
)
def test_openapi_takes_no_malformed_start_requests(body: object) -> None:
    schema = openapi(NEWEST)["components"]["schemas"]["StartRequests"]

    assert not Draft202012Validator(schema).is_valid(body)
