"""What a metadata server may do without anybody noticing."""

import socket
import time
from dataclasses import replace

import pytest
from tests.ports import free_port
from tests.sdk.conftest import (
    TIMEOUT,
    Behaviour,
    ClientMaker,
    Handler,
    Metadata,
    answer_well,
    answer_with,
    close_silently,
    event,
    reset,
    say_nothing,
)

from forewarn.client import ChangeKind, RefusedError, UnavailableError
from forewarn.client._transport import LARGEST_BODY

pytestmark = pytest.mark.usefixtures("in_haste")

QUICK = 0.5
"""The time-out of clients: enough for an answer on a busy machine, and little to wait for."""


def cut_in_the_middle(handler: Handler) -> None:
    handler.answer(b'{"Docum', Content_Length="500")
    handler.close_connection = True


def drip(handler: Handler) -> None:
    """Send a byte now and then, so that no single read ever times out."""
    while not handler.server.stopping.wait(0.05):
        handler.wfile.write(b" ")


def drip_a_body(handler: Handler) -> None:
    handler.answer(b"", Content_Length="500")
    drip(handler)


def babble(handler: Handler) -> None:
    handler.wfile.write(b"220 mail.example ESMTP\r\n")
    handler.close_connection = True


TROUBLES: dict[str, Behaviour] = {
    "empty body": answer_with(),
    "page of a proxy": answer_with(b"<html>Access denied</html>"),
    "not a document": answer_with(b'{"hello": "world"}'),
    "redirect": answer_with(status=302, Location="http://proxy.example/"),
    **{str(status): answer_with(status=status) for status in (404, 408, 410, 429, 500, 503, 504)},
    "retry after": answer_with(status=429, Retry_After="0"),
    "closed without an answer": close_silently,
    "reset": reset,
    "cut in the middle": cut_in_the_middle,
    "chunks that are none": answer_with(b"zz\r\n", Transfer_Encoding="chunked"),
    "a chunk of a negative size": answer_with(b"-5\r\n{}\r\n", Transfer_Encoding="chunked"),
    "silence": say_nothing,
    "dripping": drip,
    "dripping body": drip_a_body,
    "not HTTP": babble,
    "a body without end": answer_with(b" " * (LARGEST_BODY + 1)),
}


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
def test_call_survives(make_client: ClientMaker, metadata: Metadata, trouble: Behaviour) -> None:
    metadata.script = [trouble, trouble]

    document = make_client(metadata.endpoint, timeout=QUICK).document()

    assert document.document_incarnation == 1


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
def test_watch_survives(make_client: ClientMaker, metadata: Metadata, trouble: Behaviour) -> None:
    changes = make_client(metadata.endpoint, timeout=QUICK, patience=0).watch()
    metadata.events = [event(1)]
    metadata.script = [answer_well, trouble]
    assert next(changes).kind is ChangeKind.SCHEDULED

    metadata.events, metadata.incarnation = [event(1, "Started")], 2

    assert next(changes).kind is ChangeKind.STARTED


def answer_slowly(handler: Handler) -> None:
    """Answer a poll that waits, and say nothing before the last byte."""
    handler.answer(b'{"DocumentIncarnation":', Content_Length="500")
    handler.server.stopping.wait(TIMEOUT)


def let_wait(handler: Handler) -> None:
    body = b'{"DocumentIncarnation":1,"Events":[]}'
    handler.answer(body, ETag="1", Preference_Applied="wait=60")


@pytest.mark.parametrize("trouble", [answer_slowly, drip_a_body], ids=["silent", "dripping"])
def test_answer_that_has_begun_has_as_long_as_any_other(
    make_client: ClientMaker, metadata: Metadata, trouble: Behaviour
) -> None:
    changes = make_client(metadata.endpoint, timeout=QUICK, patience=0).watch()
    metadata.events = [event(1)]
    metadata.script = [let_wait, let_wait, trouble]

    began = time.monotonic()
    assert next(changes).kind is ChangeKind.SCHEDULED

    assert metadata.seen[2].headers["prefer"] == "wait=60"
    assert time.monotonic() - began < TIMEOUT / 2


def test_server_may_be_away_for_a_while(make_client: ClientMaker, metadata: Metadata) -> None:
    client = make_client(metadata.endpoint, patience=0.1)
    changes = client.watch()
    metadata.events = [event(1)]
    assert next(changes).kind is ChangeKind.SCHEDULED

    metadata.stop()
    with pytest.raises(UnavailableError, match="it refuses connections"):
        client.document()
    back = Metadata(metadata.server_port)
    try:
        back.events = [event(1, "Started")]
        assert next(changes).kind is ChangeKind.STARTED
        assert client.events()[0].event_status == "Started"
    finally:
        back.stop()


def test_kept_connection_is_used_again(make_client: ClientMaker, metadata: Metadata) -> None:
    client = make_client(metadata.endpoint)

    for _ in range(3):
        client.document()

    assert len({seen.connection for seen in metadata.seen}) == 1


@pytest.mark.parametrize("verb", ["document", "approve"])
def test_dead_connection_is_replaced_without_a_word(
    make_client: ClientMaker,
    metadata: Metadata,
    verb: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = make_client(metadata.endpoint, patience=0)
    client.document()
    metadata.close_connections()

    client.document() if verb == "document" else client.approve("an-id")

    assert len({seen.connection for seen in metadata.seen}) == 2
    assert caplog.records == []


def test_connection_that_dies_under_a_request_is_replaced(
    make_client: ClientMaker, metadata: Metadata
) -> None:
    client = make_client(metadata.endpoint, patience=0)
    metadata.script = [answer_well, close_silently]

    client.document()
    client.approve("an-id")

    assert [seen.method for seen in metadata.seen] == ["GET", "POST", "POST"]


def test_answer_that_closes_the_connection_is_an_answer(
    make_client: ClientMaker, metadata: Metadata
) -> None:
    client = make_client(metadata.endpoint, patience=0)
    metadata.script = [answer_with(b'{"DocumentIncarnation":9,"Events":[]}', Connection="close")]

    assert client.document().document_incarnation == 9
    assert client.document().document_incarnation == 1


def test_incarnation_may_begin_anew(make_client: ClientMaker, metadata: Metadata) -> None:
    metadata.events, metadata.incarnation = [event(1)], 900
    changes = make_client(metadata.endpoint).watch()
    assert next(changes).kind is ChangeKind.SCHEDULED

    metadata.events, metadata.incarnation = [event(1), event(2)], 1

    change = next(changes)
    assert (change.kind, change.document_incarnation) == (ChangeKind.SCHEDULED, 1)
    assert change.event.event_id.endswith("2")


def test_unknown_words_and_both_dates_come_through(
    make_client: ClientMaker, metadata: Metadata
) -> None:
    metadata.events = [
        event(1, EventType="SpotRebalanceRecommendation"),
        event(2, NotBefore="2016-09-19T18:29:47Z"),
        event(3, "Dreaming"),
        {"EventType": "without an id"},
    ]
    client = make_client(metadata.endpoint)

    odd, iso, dreaming = client.events()
    changes = client.watch()

    assert odd.event_type == "SpotRebalanceRecommendation"
    assert dreaming.event_status == "Dreaming"
    assert odd.not_before == iso.not_before is not None
    assert [next(changes).event, next(changes).event] == [odd, iso]


@pytest.mark.parametrize(("status", "body"), [(200, b"Approved"), (202, b"{}"), (204, b"")])
def test_approval_is_answered_in_any_way(
    make_client: ClientMaker, metadata: Metadata, status: int, body: bytes
) -> None:
    metadata.script = [answer_with(body, status)]

    make_client(metadata.endpoint, patience=0).approve("an-id")

    assert [seen.method for seen in metadata.seen] == ["POST"]


def test_event_that_left_plain_azure_is_gone(make_client: ClientMaker, metadata: Metadata) -> None:
    metadata.events = [event(1)]
    changes = make_client(metadata.endpoint).watch()
    scheduled = next(changes)

    metadata.events, metadata.incarnation = [], 2

    assert next(changes) == replace(scheduled, kind=ChangeKind.GONE, document_incarnation=2)


@pytest.mark.parametrize("status", [400, 403, 405])
def test_refusal_is_told_at_once(make_client: ClientMaker, metadata: Metadata, status: int) -> None:
    metadata.script = [answer_with(b'{ "error": "Bad request. X" }', status)]

    with pytest.raises(RefusedError, match=f"{status}: 'Bad request. X'"):
        make_client(metadata.endpoint).document()

    assert len(metadata.seen) == 1


def test_patience_ends(make_client: ClientMaker, metadata: Metadata) -> None:
    metadata.script = [answer_with(status=503)] * 1000
    began = time.monotonic()

    with pytest.raises(UnavailableError, match=f"{metadata.endpoint}: it answered 503"):
        make_client(metadata.endpoint, patience=0.2).document()

    assert time.monotonic() - began >= 0.2
    assert metadata.script, "it is not asked for as long as it answers"


def test_name_that_nobody_knows_is_trouble(make_client: ClientMaker) -> None:
    with pytest.raises(UnavailableError, match="its host name cannot be resolved"):
        make_client("nowhere.invalid", patience=0).document()


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_proxies_of_the_environment_are_not_used(
    make_client: ClientMaker, metadata: Metadata, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)

    assert make_client(metadata.endpoint, patience=0).document().document_incarnation == 1


def test_azure_is_asked_who_we_are_by_instance_metadata(
    make_client: ClientMaker, metadata: Metadata
) -> None:
    compute = b'{"compute": {"name": "web-0", "vmId": "v", "platformUpdateDomain": "1"}}'
    metadata.script = [answer_with(b'{ "error": "Not found" }', 404), answer_with(compute)]

    me = make_client(metadata.endpoint).whoami()

    assert (me.name, me.vm_id, me.update_domain, me.fault_domain) == ("web-0", "v", 1, None)
    assert me.host_name == socket.gethostname()
    assert [seen.headers["metadata"] for seen in metadata.seen] == ["true", "true"]
