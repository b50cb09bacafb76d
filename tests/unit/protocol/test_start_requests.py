import pytest

from forewarn.protocol.errors import MalformedStartRequestsError
from forewarn.protocol.start_requests import decode_start_requests, encode_start_requests
from forewarn.protocol.vocabulary import EventId

FIRST = EventId("F020BA2E-3BC0-4C40-A10B-86575A9EABD5")
SECOND = EventId("28512AF7-C957-4500-9BC4-842D6FB531E4")

CONVERT_TO_JSON = (
    b'{\r\n    "StartRequests":  [\r\n'
    b"                          {\r\n"
    b'                              "EventId":  "F020BA2E-3BC0-4C40-A10B-86575A9EABD5"\r\n'
    b"                          }\r\n"
    b"                      ],\r\n"
    b'    "DocumentIncarnation":  5\r\n'
    b"}\r\n"
)
TEMPLATE_WITH_TABS = (
    b'\n{\n\t"StartRequests": [\n\t\t{\n'
    b'\t\t\t"EventId": "F020BA2E-3BC0-4C40-A10B-86575A9EABD5"\n'
    b"\t\t}\n\t]\n}\n"
)


@pytest.mark.parametrize(
    ("event_ids", "body"),
    [
        ([], b'{"StartRequests":[]}'),
        ([FIRST], b'{"StartRequests":[{"EventId":"F020BA2E-3BC0-4C40-A10B-86575A9EABD5"}]}'),
        (
            [FIRST, SECOND],
            (
                b'{"StartRequests":[{"EventId":"F020BA2E-3BC0-4C40-A10B-86575A9EABD5"},'
                b'{"EventId":"28512AF7-C957-4500-9BC4-842D6FB531E4"}]}'
            ),
        ),
    ],
    ids=["none", "one", "two"],
)
def test_start_requests_are_written_as_documented(event_ids: list[EventId], body: bytes) -> None:
    assert encode_start_requests(event_ids) == body


def test_written_start_requests_read_back_the_same() -> None:
    body = encode_start_requests(iter([SECOND, FIRST]))

    assert decode_start_requests(body) == (SECOND, FIRST)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            b'{"StartRequests":[{"EventId":"F020BA2E-3BC0-4C40-A10B-86575A9EABD5"}]}', id="plain"
        ),
        pytest.param(
            b'{"StartRequests":[{"EventId":"f020ba2e-3bc0-4c40-a10b-86575a9eabd5"}]}',
            id="lower-case",
        ),
        pytest.param(CONVERT_TO_JSON, id="pretty-printed-crlf"),
        pytest.param(CONVERT_TO_JSON.decode().encode("utf-8-sig"), id="byte-order-mark"),
        pytest.param(CONVERT_TO_JSON.decode().encode("utf-16"), id="utf-16"),
        pytest.param(TEMPLATE_WITH_TABS, id="tabs"),
        pytest.param(
            b'{"Note":"x","StartRequests":'
            b'[{"Reason":null,"EventId":"F020BA2E-3BC0-4C40-A10B-86575A9EABD5","At":1}]}',
            id="unknown-keys",
        ),
    ],
)
def test_start_request_is_read_in_every_form_clients_send(body: bytes) -> None:
    assert decode_start_requests(body) == (FIRST,)


@pytest.mark.parametrize(
    "incarnation",
    ["5", '"5"', "0", "-1", "279", '""', '"stale"', "null", "5.0", "1e400", "true", "[]", "{}"],
)
def test_document_incarnation_of_a_start_request_never_matters(incarnation: str) -> None:
    requests = f'"StartRequests":[{{"EventId":"{FIRST}"}}]'

    before = decode_start_requests(f'{{"DocumentIncarnation":{incarnation},{requests}}}'.encode())
    after = decode_start_requests(f'{{{requests},"DocumentIncarnation":{incarnation}}}'.encode())

    assert before == after == (FIRST,)


def test_several_start_requests_keep_their_order() -> None:
    body = f'{{"StartRequests":[{{"EventId":"{SECOND}"}},{{"EventId":"{FIRST}"}}]}}'.encode()

    assert decode_start_requests(body) == (SECOND, FIRST)


@pytest.mark.parametrize("again", [FIRST, FIRST.lower()])
def test_event_requested_twice_is_read_once(again: str) -> None:
    body = (
        f'{{"StartRequests":[{{"EventId":"{FIRST}"}},'
        f'{{"EventId":"{SECOND}"}},{{"EventId":"{again}"}}]}}'
    ).encode()

    assert decode_start_requests(body) == (FIRST, SECOND)


def test_empty_list_of_start_requests_asks_for_nothing() -> None:
    assert decode_start_requests(b'{"DocumentIncarnation":5,"StartRequests":[]}') == ()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b" \r\n", id="blank"),
        pytest.param(b"StartRequests=F020BA2E", id="form"),
        pytest.param(b"{'StartRequests':[]}", id="single-quotes"),
        pytest.param(b'{"StartRequests":[{"EventId":', id="cut-off"),
        pytest.param(b'{"StartRequests":[]} {}', id="trailing-data"),
        pytest.param(b"\xff\xfe\xfd", id="not-text"),
        pytest.param(b'{"StartRequests":["\xe9"]}', id="not-utf-8"),
        pytest.param(b"[" * 100_000, id="deeply-nested"),
    ],
)
def test_body_that_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedStartRequestsError, match="is not JSON"):
        decode_start_requests(body)


@pytest.mark.parametrize(
    "body", [b"null", b"5", b'"StartRequests"', b'[{"EventId":"F020BA2E"}]', b"NaN"]
)
def test_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedStartRequestsError, match="is not a JSON object"):
        decode_start_requests(body)


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"DocumentIncarnation":5}',
        b'{"StartRequests":null}',
        b'{"StartRequests":{"EventId":"F020BA2E-3BC0-4C40-A10B-86575A9EABD5"}}',
        b'{"StartRequests":"F020BA2E-3BC0-4C40-A10B-86575A9EABD5"}',
        b'{"StartRequests":1}',
    ],
)
def test_body_without_an_array_of_start_requests_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedStartRequestsError, match="missing or not an array"):
        decode_start_requests(body)


@pytest.mark.parametrize(
    "request_text",
    ["{}", '{"EventId":null}', '{"EventId":7}', '{"EventId":["x"]}', "null", "7", '"x"', "[]"],
)
def test_start_request_without_an_event_id_is_refused(request_text: str) -> None:
    body = f'{{"StartRequests":[{{"EventId":"{FIRST}"}},{request_text}]}}'.encode()

    with pytest.raises(MalformedStartRequestsError, match="has no EventId"):
        decode_start_requests(body)
