"""Messages as HTTP requests, to a real receiver."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.notifications.conftest import NOW
from tests.receiver import Answer, Received, Receiver
from tests.web_site import OUTBOUND

from forewarn.domain.notification import Notification
from forewarn.notifications.webhook import Body, WebhookNotifier, cloud_event_body, template_body
from forewarn.outbound.client import OutboundRequest

_PLAIN = cloud_event_body("/forewarn")
Notifier = Callable[..., WebhookNotifier]


@pytest.fixture
def notifier(receiver: Receiver) -> Notifier:
    """Return a function that makes a way to the receiver, or to another."""

    def make(to: Receiver = receiver, body: Body = _PLAIN, **more: Any) -> WebhookNotifier:
        headers = {"Content-Type": "application/cloudevents+json", "X-Team": "shop"}
        more = {"timeout": 10, **more}
        request = OutboundRequest(method="POST", url=to.url, headers=headers, **more)
        return WebhookNotifier(OUTBOUND, request, body)

    return make


def test_message_is_a_cloud_event(
    receiver: Receiver, notifier: Notifier, message: Notification
) -> None:
    delivery = notifier().deliver(message, now=NOW)

    assert (delivery.is_delivered, delivery.answer) == (True, "204 No Content")
    (request,) = receiver.received
    event = request.json()
    # https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md#required-attributes
    assert (event["specversion"], event["id"], event["source"]) == ("1.0", "n1", "/forewarn")
    assert event["type"] == "io.forewarn.event.scheduled"
    assert event["time"] == "2026-01-05T08:00:00Z"
    assert event["subject"] == event["data"]["event_id"]
    assert event["datacontenttype"] == "application/json"
    assert all(name.islower() and name.isalnum() for name in event)
    assert event["data"]["resources"] == ["example"]
    assert request.headers["content-type"] == "application/cloudevents+json"
    assert (request.headers["webhook-id"], request.headers["x-team"]) == ("n1", "shop")
    assert "forewarn-signature" not in request.headers


def test_signature_covers_time_and_body(
    receiver: Receiver, notifier: Notifier, message: Notification
) -> None:
    notifier(secret="hush").deliver(message, now=NOW)  # noqa: S106
    notifier(secret="hush").deliver(message, now=NOW + timedelta(seconds=1))  # noqa: S106

    first, second = (request.headers["forewarn-signature"] for request in receiver.received)
    assert first.startswith("t=1767600000,v1=")
    assert second.startswith("t=1767600001,v1=")
    assert first[-64:] != second[-64:]


def test_connection_is_kept(receiver: Receiver, notifier: Notifier, message: Notification) -> None:
    way = notifier()

    for _ in range(3):
        assert way.deliver(message, now=NOW).is_delivered

    assert len({request.port for request in receiver.received}) == 1


@pytest.mark.parametrize(
    ("answer", "said", "is_final", "seconds"),
    [
        ((500, {}), "The receiver answered 500 Internal Server Error.", False, 0),
        ((302, {"Location": "/x"}), "The receiver answered 302 Found.", False, 0),
        ((410, {}), "The receiver no longer exists: 410 Gone.", True, 0),
        ((503, {"Retry-After": "7"}), "The receiver answered 503 Service Unavailable.", False, 7),
        (None, "The request failed: ", False, 0),
    ],
)
def test_answer_decides_what_comes_next(
    receiver: Receiver,
    notifier: Notifier,
    message: Notification,
    answer: Answer,
    said: str,
    *,
    is_final: bool,
    seconds: int,
) -> None:
    receiver.answer = lambda _: answer

    delivery = notifier().deliver(message, now=NOW)

    assert not delivery.is_delivered
    assert delivery.answer.startswith(said)
    assert (delivery.is_final, delivery.retry_after) == (is_final, timedelta(seconds=seconds))
    assert len(receiver.received) == 1, "a redirect is not followed"


def test_receiver_that_does_not_answer_is_left_after_the_timeout(
    receiver: Receiver, notifier: Notifier, message: Notification
) -> None:
    def slow(_: Received) -> Answer:
        time.sleep(1)
        return 204, {}

    receiver.answer = slow

    delivery = notifier(timeout=0.1).deliver(message, now=NOW)

    assert (delivery.is_delivered, delivery.answer) == (False, "No answer within 0.1 seconds.")


def test_template_writes_the_body(message: Notification) -> None:
    template = '{"text": {{ (title ~ " / " ~ text) | tojson }}, "who": "{{ data.who }}"}'

    body = template_body(template, "/forewarn")(message).decode()

    assert body.startswith(
        '{"text": "[forewarn] Reboot scheduled: example / Reboot of example is scheduled, '
        "not before 2026-01-05 08:15:00 UTC."
    )
    assert body.endswith('"who": "alice"}')


@pytest.mark.parametrize("template", ["{{ data.host.upper() }}", "{{ data.update_domain // 0 }}"])
def test_message_the_template_fails_for_is_given_up(
    receiver: Receiver, notifier: Notifier, message: Notification, template: str
) -> None:
    way = notifier(body=template_body(template, "/forewarn"))

    delivery = way.deliver(message, now=NOW)

    assert (delivery.is_delivered, delivery.is_final) == (False, True)
    assert delivery.answer.startswith("The template failed: ")
    assert receiver.received == []
