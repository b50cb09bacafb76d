"""The wire described for machines: a JSON Schema and an OpenAPI document per api-version."""

from collections.abc import Mapping
from typing import Any, Final

from forewarn.protocol.errors import ERROR_ANSWERS, Refusal
from forewarn.protocol.versions import ApiVersion, DateForm
from forewarn.protocol.vocabulary import METADATA_HEADER, EventSource, EventStatus, ResourceType

_GUID: Final = "[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}"
_NOT_BEFORE: Final[Mapping[DateForm, str]] = {
    DateForm.ISO_8601: r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z",
    DateForm.RFC_1123: (
        r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), [0-9]{2} "
        r"(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT"
    ),
}
_REFUSED_ON_ANY_METHOD: Final = (
    Refusal.FORWARDED,
    Refusal.SIGNATURE_INVALID,
    Refusal.API_VERSION_MISSING,
    Refusal.API_VERSION_LATEST,
    Refusal.API_VERSION_UNKNOWN,
    Refusal.NOT_FOUND,
)


def document_schema(version: ApiVersion) -> dict[str, Any]:
    """Return the JSON Schema of a document of *version*."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Scheduled Events document, api-version {version.name}",
        **_document(version),
    }


def openapi(version: ApiVersion) -> dict[str, Any]:
    """Return the OpenAPI description of `/metadata/scheduledevents` at *version*."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Scheduled Events",
            "version": version.name,
            "description": "What a virtual machine can ask about the maintenance ahead of it.",
        },
        "servers": [{"url": "http://169.254.169.254"}],
        "paths": {
            "/metadata/scheduledevents": {
                "parameters": [_api_version_parameter(version)],
                "get": _get(),
                "post": _post(version),
            }
        },
        "components": {
            "schemas": {
                "Document": _document(version),
                "StartRequests": _start_requests(),
                "Error": _error(),
            }
        },
    }


def _document(version: ApiVersion) -> dict[str, Any]:
    event = {name: _field(name, version) for name in version.fields}
    return _closed_object(
        {
            "DocumentIncarnation": {
                "type": "integer",
                "minimum": 0,
                "description": "Grows with every change; equal numbers mean equal documents.",
            },
            "Events": {"type": "array", "items": _closed_object(event)},
        }
    )


def _field(name: str, version: ApiVersion) -> dict[str, Any]:
    event_types = sorted(version.event_types)
    fields: Mapping[str, dict[str, Any]] = {
        "EventId": {"type": "string", "pattern": f"^{_GUID}$"},
        "EventStatus": {
            "type": "string",
            "enum": [status for status in EventStatus if status.is_visible],
        },
        "EventType": {"type": "string", "enum": event_types},
        "ResourceType": {"type": "string", "enum": list(ResourceType)},
        "Resources": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "NotBefore": {
            "type": "string",
            "pattern": f"^({_NOT_BEFORE[version.not_before]})?$",
            "description": "In GMT, and empty once the event has started.",
        },
        "Description": {"type": "string"},
        "EventSource": {"type": "string", "enum": list(EventSource)},
        "DurationInSeconds": {
            "type": "integer",
            "minimum": -1,
            "description": "The expected interruption; -1 when it is not known.",
        },
    }
    return fields[name]


def _start_requests() -> dict[str, Any]:
    # Open on purpose: clients add DocumentIncarnation as a number or a string; it never matters.
    request = {
        "type": "object",
        "required": ["EventId"],
        "properties": {"EventId": {"type": "string", "description": "In either case."}},
    }
    return {
        "type": "object",
        "required": ["StartRequests"],
        "properties": {"StartRequests": {"type": "array", "items": request}},
    }


def _error() -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {"type": "string"},
            "newest-versions": {"type": "array", "items": {"type": "string"}},
        },
    }


def _closed_object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(properties),
        "properties": dict(properties),
        "additionalProperties": False,
    }


def _api_version_parameter(version: ApiVersion) -> dict[str, Any]:
    return {
        "name": "api-version",
        "in": "query",
        "required": True,
        "schema": {"type": "string", "const": version.name},
    }


def _metadata_header(*, required: bool) -> dict[str, Any]:
    return {
        "name": METADATA_HEADER,
        "in": "header",
        "required": required,
        "schema": {"type": "string", "pattern": "^[Tt][Rr][Uu][Ee]$"},
    }


def _get() -> dict[str, Any]:
    return {
        "summary": "Read what is about to happen",
        "operationId": "getScheduledEvents",
        "parameters": [
            _metadata_header(required=True),
            {"name": "If-None-Match", "in": "header", "schema": {"type": "string"}},
        ],
        "responses": {
            "200": {
                "description": "The document of the caller's delivery scope.",
                "headers": {
                    "ETag": {
                        "description": "The bare DocumentIncarnation.",
                        "schema": {"type": "string"},
                    }
                },
                "content": _json("Document"),
            },
            "304": {"description": "The document still is the one If-None-Match names."},
            **_refusals(Refusal.METADATA_HEADER_MISSING),
        },
    }


def _post(version: ApiVersion) -> dict[str, Any]:
    return {
        "summary": "Request the start of events",
        "operationId": "startScheduledEvents",
        "parameters": [_metadata_header(required=version.metadata_header_on_post)],
        "requestBody": {"required": True, "content": _body("StartRequests", "*/*")},
        "responses": {
            "200": {
                "description": "Every named event is known, and is approved or already past that."
            },
            **_refusals(
                *([Refusal.METADATA_HEADER_MISSING] if version.metadata_header_on_post else []),
                Refusal.BODY_MALFORMED,
                Refusal.EVENT_UNKNOWN,
                Refusal.BODY_TOO_LARGE,
                Refusal.UNAVAILABLE,
            ),
        },
    }


def _refusals(*refusals: Refusal) -> dict[str, Any]:
    reasons: dict[int, list[str]] = {}
    for refusal in (*_REFUSED_ON_ANY_METHOD, *refusals):
        reasons.setdefault(ERROR_ANSWERS[refusal].status, []).append(refusal.value)
    return {
        str(status): {"description": "; ".join(texts), "content": _json("Error")}
        for status, texts in sorted(reasons.items())
    }


def _json(schema: str) -> dict[str, Any]:
    return _body(schema, "application/json")


def _body(schema: str, media_type: str) -> dict[str, Any]:
    return {media_type: {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
