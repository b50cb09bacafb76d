"""Messages as HTTP requests, to a real receiver."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from tests.notifications.conftest import NOW
from tests.receiver import Answer, Received, Receiver

from forewarn.domain.notification import Notification
from forewarn.notifications.webhook import Body, WebhookNotifier, cloud_event_body, template_body

_PLAIN = cloud_event_body("/forewarn")
Notifier = Callable[..., WebhookNotifier]


@pytest.fixture
def notifier(receiver: Receiver) -> Iterator[Notifier]:
    """Return a function that makes a way to the receiver, or to another."""
    with ExitStack() as closing:

        def make(to: Receiver = receiver, body: Body = _PLAIN, **more: Any) -> WebhookNotifier:
            headers = {"Content-Type": "application/cloudevents+json", "X-Team": "shop"}
            way = WebhookNotifier(url=to.url, body=body, headers=headers, **more)
            closing.callback(way.close)
            return way

        yield make


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
        ((500, {}), "The receiver answers 500 Internal Server Error.", False, 0),
        ((302, {"Location": "/x"}), "The receiver answers 302 Found.", False, 0),
        ((410, {}), "The receiver is gone: 410 Gone.", True, 0),
        ((503, {"Retry-After": "7"}), "The receiver answers 503 Service Unavailable.", False, 7),
        ((429, {"Retry-After": "9" * 30}), "The receiver answers 429 Too Many", False, 86_400),
        ((429, {"Retry-After": "999999"}), "The receiver answers 429 Too Many", False, 86_400),
        ((503, {"Retry-After": "soon"}), "The receiver answers 503", False, 0),
        ((503, {"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}), "The receiver", False, 0),
        (
            (503, {"Retry-After": format_datetime(NOW + timedelta(seconds=20), usegmt=True)}),
            "The receiver",
            False,
            20,
        ),
        (None, "The request failed: ", False, 0),
    ],
)
def test_answer_decides_what_comes_next(  # noqa: PLR0913 - a row of the table
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

    assert delivery.answer == "The receiver does not answer in time."


@pytest.mark.parametrize(
    ("at_once", "said"),
    [
        (b"HTTP/1.1 204 No Content\r\nX: ", "The receiver does not answer in time."),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", "200 OK"),
        (
            b"HTTP/1.1 503 Not Now\r\nContent-Length: 99\r\n\r\n",
            "The receiver answers 503 Not Now.",
        ),
    ],
)
def test_receiver_that_drips_is_left_after_the_timeout(
    message: Notification, at_once: bytes, said: str
) -> None:
    with _dripping(at_once) as url:
        way = WebhookNotifier(url=url, body=_PLAIN, headers={}, timeout=0.5)
        began = time.monotonic()

        delivery = way.deliver(message, now=NOW)

        took = time.monotonic() - began
        way.close()

    assert delivery.answer == said
    assert took < 2


@contextmanager
def _dripping(at_once: bytes) -> Iterator[str]:
    """Say *at_once*, and then a byte at a time, always well before anybody could lose patience."""
    stopping = threading.Event()

    def answer() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(at_once)
            while not stopping.wait(0.1):
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/hook"
        finally:
            stopping.set()
            thread.join(10)


def test_name_server_that_says_nothing_does_not_keep_the_process_from_ending() -> None:
    began = time.monotonic()

    done = subprocess.run(
        [sys.executable, "-c", _NO_NAMES], capture_output=True, text=True, timeout=50, check=True
    )

    assert done.stdout == "The receiver does not answer in time.\n"
    assert time.monotonic() - began < 30


_NO_NAMES = """
import socket, threading
socket.getaddrinfo = lambda *_, **__: threading.Event().wait(40)

from datetime import UTC, datetime
from forewarn.notifications.webhook import WebhookNotifier, cloud_event_body
from forewarn.operations.notifications import example_notification

now = datetime(2026, 1, 5, 8, tzinfo=UTC)
message = example_notification("ops", notification_id="n1", who="alice", now=now, at=now)
way = WebhookNotifier(
    url="http://hooks.example/", body=cloud_event_body("/forewarn"), headers={}, timeout=0.2
)
print(way.deliver(message, now=now).answer)
way.close()
"""


def test_nobody_there_is_said_without_the_address(
    notifier: Notifier, message: Notification
) -> None:
    delivery = notifier(Receiver()).deliver(message, now=NOW)

    assert "refused" in delivery.answer
    assert "127.0.0.1" not in delivery.answer


def test_header_that_cannot_be_sent_is_not_repeated(
    receiver: Receiver, message: Notification
) -> None:
    way = WebhookNotifier(url=receiver.url, body=_PLAIN, headers={"Authorization": "Bearer hush "})

    delivery = way.deliver(message, now=NOW)
    way.close()

    assert delivery.answer == "The request failed: LocalProtocolError."


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
    assert delivery.answer.startswith("The template fails: ")
    assert receiver.received == []
