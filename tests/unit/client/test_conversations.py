import json
import logging

import pytest
from tests.unit.client.conftest import Answer, Scene, document, event, reply, seeded

from forewarn.client import RefusedError, UnavailableError
from forewarn.client._endpoints import Endpoint
from forewarn.client._messages import Conversation, NoAnswer, Pause, Response
from forewarn.protocol.document import Document, Event
from forewarn.protocol.vocabulary import event_id

ID = "0000000A-0000-4000-8000-000000000001"
OTHER_ID = "0000000A-0000-4000-8000-000000000002"
REFUSED = NoAnswer("it refuses connections")


def test_document_is_asked_for_as_the_protocol_wants_it(scene: Scene) -> None:
    conversations = scene.conversations("http://127.0.0.1:8169/vm/web-0")

    read = scene.play(conversations.document(), document(7))

    (request,) = scene.requests
    assert read == Document(document_incarnation=7)
    assert str(request.endpoint) == "http://127.0.0.1:8169/vm/web-0"
    assert request.path == "/metadata/scheduledevents?api-version=2020-07-01"
    assert (request.method, request.headers, request.body) == ("GET", {"Metadata": "true"}, None)
    assert request.timeout == 10


@pytest.mark.parametrize(
    "trouble",
    [
        Response(status=200),
        Response(status=200, body=b" \r\n"),
        Response(status=200, body=b"<html>Blocked by policy</html>"),
        Response(status=200, body=b"[" * 100_000),
        reply(["no", "document"]),
        reply({"DocumentIncarnation": 1}),
        Response(status=204),
        Response(status=302, headers={"location": "http://proxy/login"}),
        Response(status=304),
        *(Response(status=status) for status in (404, 408, 410, 429, 500, 502, 503, 504, 599)),
        REFUSED,
    ],
    ids=str,
)
def test_trouble_is_overcome_by_asking_again(scene: Scene, trouble: Answer) -> None:
    read = scene.play(scene.conversations().document(), trouble, trouble, document(7))

    assert read.document_incarnation == 7
    assert scene.pauses == [1, 2]


def test_pauses_grow_to_3_seconds_until_patience_ends(scene: Scene) -> None:
    conversations = scene.conversations(patience=14)

    with pytest.raises(UnavailableError):
        scene.play(conversations.document(), *[REFUSED] * 7)

    assert scene.pauses == [1, 2, 3, 3, 3, 2]


def test_pauses_are_never_the_same_for_a_whole_fleet(scene: Scene) -> None:
    with pytest.raises(UnavailableError):
        scene.play(scene.conversations(patience=8, random=seeded(1)).document(), *[REFUSED] * 5)

    assert scene.pauses[:3] == pytest.approx([1, 2, 3], rel=0.2)
    assert scene.pauses[:3] != pytest.approx([1, 2, 3], rel=0.01)


def test_error_tells_the_endpoint_and_the_last_trouble(scene: Scene) -> None:
    down = reply({"error": "Not found. Invalid version requested"}, status=404)

    with pytest.raises(UnavailableError) as raised:
        scene.play(scene.conversations(patience=1).document(), REFUSED, down)

    assert str(raised.value) == (
        "No usable answer from http://host: it answered 404, 'Not found. Invalid version "
        "requested'."
    )
    assert (raised.value.endpoint, raised.value.status) == ("http://host", 404)


def test_patience_of_nothing_asks_once(scene: Scene) -> None:
    with pytest.raises(UnavailableError):
        scene.play(scene.conversations(patience=0).document(), REFUSED)

    assert scene.pauses == []


@pytest.mark.parametrize(
    ("headers", "pause"),
    [
        ({"retry-after": "5"}, 5),
        ({"retry-after": "0"}, 1),
        ({"retry-after": "soon"}, 1),
        ({"retry-after": "9" * 30}, 1),
        (
            {
                "retry-after": "Mon, 19 Sep 2016 18:29:53 GMT",
                "date": "Mon, 19 Sep 2016 18:29:47 GMT",
            },
            6,
        ),
        ({"retry-after": "Mon, 19 Sep 2016 18:29:53 GMT"}, 1),
    ],
)
def test_retry_after_is_honoured(scene: Scene, headers: dict[str, str], pause: float) -> None:
    busy = Response(status=429, headers=headers)

    scene.play(scene.conversations().document(), busy, document(1))

    assert scene.pauses == [pause]


def test_retry_after_beyond_patience_is_not_waited_for(scene: Scene) -> None:
    busy = Response(status=429, headers={"retry-after": "31"})

    with pytest.raises(UnavailableError) as raised:
        scene.play(scene.conversations().document(), busy)

    assert raised.value.retry_after == 31
    assert scene.pauses == []


@pytest.mark.parametrize("status", [400, 401, 403, 405, 413, 418])
def test_refusal_is_told_at_once(scene: Scene, status: int) -> None:
    refusal = reply({"error": "Bad request. X"}, status=status)

    with pytest.raises(RefusedError) as raised:
        scene.play(scene.conversations().document(), refusal)

    assert (raised.value.status, raised.value.sentence) == (status, "Bad request. X")
    assert str(raised.value) == f"http://host refused the request with {status}: 'Bad request. X'."


@pytest.mark.parametrize(("status", "error"), [(403, RefusedError), (503, UnavailableError)])
def test_sentence_of_a_server_cannot_disturb_a_terminal(
    scene: Scene, status: int, error: type[Exception]
) -> None:
    answer = reply({"error": "a\nb\x1b[31m\u202e" + "x" * 10_000}, status=status)

    with pytest.raises(error) as raised:
        scene.play(scene.conversations(patience=0).document(), answer)

    text = str(raised.value)
    assert r"'a\nb\x1b[31m\u202exxx" in text
    assert text.isprintable()
    assert len(text) < 300


def test_refusal_has_the_sentence_as_it_was_sent(scene: Scene) -> None:
    with pytest.raises(RefusedError) as raised:
        scene.play(scene.conversations().document(), reply({"error": "a\nb" * 999}, status=400))

    assert raised.value.sentence == "a\nb" * 999


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"error": 5}', b"[]"])
def test_refusal_without_a_sentence_is_one_too(scene: Scene, body: bytes) -> None:
    with pytest.raises(RefusedError, match="no reason given"):
        scene.play(scene.conversations().document(), Response(status=403, body=body))


def test_trouble_is_logged_when_it_changes(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "forewarn.client")
    busy = Response(status=503)

    scene.play(scene.conversations().document(), REFUSED, REFUSED, busy, document(1))

    assert [record.message for record in caplog.records] == [
        "metadata_unavailable endpoint=http://host trouble='it refuses connections'",
        "metadata_unavailable endpoint=http://host trouble='it answered 503'",
        "metadata_available_again",
    ]


def test_endpoint_is_looked_for_until_it_is_found_and_then_kept(scene: Scene) -> None:
    looks: list[float] = []

    def find() -> Conversation[Endpoint]:
        looks.append(scene.now)
        yield Pause(2)
        if len(looks) < 4:
            raise UnavailableError("http://169.254.169.254", "it did not answer in time")
        return Endpoint(host="10.0.0.4")

    conversations = scene.conversations(None, find_endpoint=find)
    for _ in range(2):
        scene.play(conversations.document(), document(1))

    assert len(looks) == 4
    assert [request.endpoint.host for request in scene.requests] == ["10.0.0.4"] * 2


def test_events_are_approved_in_one_request_each_once(scene: Scene) -> None:
    read = scene.play(scene.conversations().document(), document(1, [event(5)]))

    named: list[Event | str] = [*read.events, ID.lower(), OTHER_ID, event_id(ID)]
    scene.play(scene.conversations().approve(named), Response(status=200))

    request = scene.requests[-1]
    assert request.method == "POST"
    assert request.path == "/metadata/scheduledevents?api-version=2020-07-01"
    assert request.headers == {"Metadata": "true", "Content-Type": "application/json"}
    assert json.loads(request.body or b"") == {
        "StartRequests": [
            {"EventId": "00000000-0000-4000-8000-000000000005"},
            {"EventId": ID},
            {"EventId": OTHER_ID},
        ]
    }


def test_approving_nothing_asks_nothing(scene: Scene) -> None:
    scene.play(scene.conversations().approve(()))

    assert scene.requests == []


def test_approval_is_repeated_like_everything(scene: Scene) -> None:
    scene.play(scene.conversations().approve((ID,)), REFUSED, Response(status=200))

    assert [request.method for request in scene.requests] == ["POST", "POST"]


@pytest.mark.parametrize("body", [b"", b"{}", b"OK"])
def test_approval_is_taken_whatever_a_server_says_about_it(scene: Scene, body: bytes) -> None:
    scene.play(scene.conversations().approve((ID,)), Response(status=200, body=body))

    assert len(scene.requests) == 1


def test_approval_may_be_answered_by_an_empty_page(scene: Scene) -> None:
    empty = Response(status=200, headers={"content-type": "text/html"})

    scene.play(scene.conversations().approve((ID,)), empty)

    assert len(scene.requests) == 1


@pytest.mark.parametrize(
    "portal",
    [
        Response(status=200, body=b"\n<!DOCTYPE html><title>Log in</title>"),
        Response(status=200, body=b"\xef\xbb\xbf<html>"),
        Response(status=200, body=b"Log in", headers={"content-type": "Text/HTML; charset=utf-8"}),
    ],
)
def test_page_of_a_portal_is_no_approval(scene: Scene, portal: Response) -> None:
    with pytest.raises(UnavailableError, match="with an HTML page"):
        scene.play(scene.conversations(patience=0).approve((ID,)), portal)


def test_approval_of_an_unknown_event_is_refused(scene: Scene) -> None:
    refusal = reply({"error": "Bad request. EventId is unknown"}, status=400)

    with pytest.raises(RefusedError, match="EventId is unknown"):
        scene.play(scene.conversations().approve((ID,)), refusal)


def test_forewarn_tells_who_we_are(scene: Scene) -> None:
    told = {"name": "web-0", "vm_id": "id-0", "update_domain": 2, "fault_domain": 0}

    me = scene.play(scene.conversations().whoami("web-0.example"), reply(told))

    assert (me.name, me.vm_id, me.host_name) == ("web-0", "id-0", "web-0.example")
    assert (me.update_domain, me.fault_domain) == (2, 0)
    assert scene.requests[0].path.startswith("/metadata/forewarn/v1/whoami?api-version=")


@pytest.mark.parametrize("status", [404, 400])
def test_azure_tells_who_we_are(scene: Scene, status: int) -> None:
    names = {"name": "vmss_18", "vmId": "id"}
    domains = {"platformUpdateDomain": "3", "platformFaultDomain": ""}

    me = scene.play(
        scene.conversations().whoami("vmss00000i"),
        Response(status=status),
        reply({"compute": names | domains}),
    )

    assert (me.name, me.vm_id, me.update_domain, me.fault_domain) == ("vmss_18", "id", 3, None)
    assert scene.requests[1].path == "/metadata/instance?api-version=2021-02-01"
    assert scene.requests[1].headers == {"Metadata": "true"}


@pytest.mark.parametrize(
    "answer", [reply({"compute": None}), reply({"compute": {"name": ""}}), reply([])], ids=str
)
def test_who_we_are_is_asked_again_when_it_is_not_told(scene: Scene, answer: Answer) -> None:
    missing = Response(status=404)

    me = scene.play(
        scene.conversations().whoami("h"), missing, answer, REFUSED, reply({"name": "web-0"})
    )

    assert me.name == "web-0"
