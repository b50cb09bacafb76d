"""The connection itself, in what no client shows."""

import pytest
from tests.sdk.conftest import Handler, Metadata, answer_well

from forewarn.client._endpoints import Endpoint, parse_endpoint
from forewarn.client._messages import Failure, Request, Response
from forewarn.client._transport import Transport, _Connection


def ask(endpoint: Endpoint) -> Request:
    return Request(endpoint=endpoint, path="/metadata/scheduledevents", timeout=5)


def test_requests_may_go_to_one_server_and_then_to_another(metadata: Metadata) -> None:
    transport, other = Transport(), Metadata()
    try:
        for server in (metadata, other, metadata):
            answer = transport.send(ask(parse_endpoint(server.endpoint)))
            assert isinstance(answer, Response)
        assert (len(metadata.seen), len(other.seen)) == (2, 1)
    finally:
        transport.close()
        other.stop()


def test_server_that_no_way_leads_to_cannot_be_reached() -> None:
    transport = Transport()

    answer = transport.send(ask(Endpoint(host="255.255.255.255")))

    assert isinstance(answer, Failure)
    assert answer.reason.startswith("it cannot be reached, ")


def test_connection_that_was_cut_is_never_made(metadata: Metadata) -> None:
    connection = _Connection(parse_endpoint(metadata.endpoint))
    connection.cut()

    with pytest.raises(ConnectionAbortedError):
        connection.connect()


def test_interrupted_request_leaves_no_answer_for_the_next(
    metadata: Metadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    transport, endpoint = Transport(), parse_endpoint(metadata.endpoint)
    metadata.script = [answer_well, answer_teapot, answer_well]
    transport.send(ask(endpoint))
    with monkeypatch.context() as patched:
        patched.setattr(_Connection, "getresponse", interrupt)
        with pytest.raises(KeyboardInterrupt):
            transport.send(ask(endpoint))

    answer = transport.send(ask(endpoint))

    assert isinstance(answer, Response)
    assert answer.status == 200
    transport.close()


def answer_teapot(handler: Handler) -> None:
    handler.answer(b"", 418)
