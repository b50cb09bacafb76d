import json

import pytest

from forewarn.protocol.errors import (
    ERROR_ANSWERS,
    ForewarnError,
    MalformedDocumentError,
    MalformedStartRequestsError,
    ProtocolError,
    Refusal,
)


@pytest.mark.parametrize("error", [MalformedDocumentError, MalformedStartRequestsError])
def test_decoding_error_is_a_protocol_error_of_forewarn(error: type[Exception]) -> None:
    assert issubclass(error, ProtocolError)
    assert issubclass(error, ForewarnError)


@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        (Refusal.METADATA_HEADER_MISSING, 400),
        (Refusal.FORWARDED, 400),
        (Refusal.API_VERSION_MISSING, 400),
        (Refusal.API_VERSION_LATEST, 400),
        (Refusal.API_VERSION_UNKNOWN, 404),
        (Refusal.BODY_MALFORMED, 400),
        (Refusal.BODY_TOO_LARGE, 413),
        (Refusal.EVENT_UNKNOWN, 400),
        (Refusal.TOO_MANY_WAITING, 429),
        (Refusal.NOT_FOUND, 404),
        (Refusal.IDENTITY_UNKNOWN, 400),
        (Refusal.NOT_ATTESTED, 404),
        (Refusal.METHOD_NOT_ALLOWED, 405),
        (Refusal.FAILED, 500),
        (Refusal.SIGNATURE_INVALID, 403),
        (Refusal.UNAVAILABLE, 503),
    ],
)
def test_refusal_has_its_status(refusal: Refusal, status: int) -> None:
    assert ERROR_ANSWERS[refusal].status == status


def test_every_refusal_has_an_answer() -> None:
    assert set(ERROR_ANSWERS) == set(Refusal)


@pytest.mark.parametrize(
    ("refusal", "body"),
    [
        (
            Refusal.IDENTITY_UNKNOWN,
            b'{"error":"invalid_request","error_description":"Identity not found"}',
        ),
        (
            Refusal.METADATA_HEADER_MISSING,
            b'{ "error": "Bad request: . Required metadata header not specified" }',
        ),
        (
            Refusal.API_VERSION_MISSING,
            (
                b'{"error":"Bad request. '
                b"api-version is invalid or was not specified in the request. "
                b'For more information refer to aka.ms/azureimds",'
                b'"newest-versions":["2020-07-01","2019-08-01","2019-04-01"]}'
            ),
        ),
        (Refusal.API_VERSION_UNKNOWN, b'{ "error": "Not found. Invalid version requested" }'),
        (Refusal.NOT_FOUND, b'{ "error": "Not found" }'),
    ],
)
def test_captured_error_body_is_repeated_byte_for_byte(refusal: Refusal, body: bytes) -> None:
    assert ERROR_ANSWERS[refusal].body == body


@pytest.mark.parametrize(
    "refusal",
    [
        each
        for each in Refusal
        if each not in {Refusal.API_VERSION_MISSING, Refusal.IDENTITY_UNKNOWN}
    ],
)
def test_error_body_has_a_blank_inside_each_brace(refusal: Refusal) -> None:
    body = ERROR_ANSWERS[refusal].body

    assert body.startswith(b'{ "error": "')
    assert body.endswith(b'" }')


@pytest.mark.parametrize("refusal", Refusal)
def test_error_body_is_an_object_with_a_sentence(refusal: Refusal) -> None:
    content = json.loads(ERROR_ANSWERS[refusal].body)

    assert isinstance(content["error"], str)
    assert content["error"]


def test_answer_to_latest_says_that_it_is_no_longer_supported() -> None:
    body = ERROR_ANSWERS[Refusal.API_VERSION_LATEST].body

    assert b"no longer supported" in body
