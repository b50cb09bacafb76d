"""Messages by apprise, to a real receiver of its own JSON."""

import logging
import sys
import threading
from collections.abc import Callable
from types import ModuleType

import pytest
from tests.notifications.conftest import NOW
from tests.receiver import Answer, Received, Receiver

from forewarn.domain.notification import Notification
from forewarn.notifications.apprise import AppriseError, AppriseNotifier


def test_apprise_delivers(receiver: Receiver, message: Notification) -> None:
    way = _target(receiver, "people")

    delivery = way.deliver(message, now=NOW)

    assert (delivery.is_delivered, delivery.answer) == (True, "Sent.")
    (request,) = receiver.received
    assert request.path == "/people"
    sent = request.json()
    assert sent["title"] == "[forewarn] Reboot scheduled: example"
    assert "Reboot of example is scheduled, not before 2026-01-05 08:15:00 UTC." in sent["message"]
    assert sent["type"] == "info"


def test_failure_is_told_without_what_is_in_the_url(
    receiver: Receiver, message: Notification, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answer = lambda _: (500, {})
    way = AppriseNotifier(f"json://user:hush-hush@127.0.0.1:{receiver.port}/T0KEN/")

    with caplog.at_level(logging.WARNING):
        delivery = way.deliver(message, now=NOW)

    assert not delivery.is_delivered
    assert "500" in delivery.answer
    for secret in ("hush-hush", "T0KEN"):
        assert secret not in delivery.answer
        assert secret not in caplog.text


def test_failure_is_told_by_a_server_that_logs_only_errors(
    receiver: Receiver, message: Notification, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answer = lambda _: (418, {})

    with caplog.at_level(logging.ERROR):
        delivery = _target(receiver, "people").deliver(message, now=NOW)

    assert "418" in delivery.answer


def test_failure_of_another_target_is_not_told(receiver: Receiver, message: Notification) -> None:
    first = _target(receiver, "first")
    second = _target(receiver, "second")
    said = _AfterTheFirst(lambda: second.deliver(message, now=NOW))

    def refuse(request: Received) -> Answer:
        if request.path == "/second":
            return 500, {}
        logging.getLogger("apprise").addHandler(said)
        return 418, {}

    receiver.answer = refuse

    delivery = first.deliver(message, now=NOW)

    assert [request.path for request in receiver.received] == ["/first", "/second"]
    assert "418" in delivery.answer


class _AfterTheFirst(logging.Handler):
    """Has another thread do something as soon as something was said."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(logging.WARNING)
        self._work = work

    def emit(self, record: logging.LogRecord) -> None:
        del record
        logging.getLogger("apprise").removeHandler(self)
        other = threading.Thread(target=self._work)
        other.start()
        other.join()


def _target(receiver: Receiver, path: str) -> AppriseNotifier:
    """Return one with which apprise has more patience than its four seconds."""
    return AppriseNotifier(f"json://127.0.0.1:{receiver.port}/{path}?cto=60&rto=60")


def test_url_apprise_does_not_know_is_refused_without_repeating_it() -> None:
    with pytest.raises(AppriseError) as refused:
        AppriseNotifier("pigeon://hush")

    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("found", [None, ModuleType("apprise")], ids=["none", "older"])
def test_missing_apprise_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, found: ModuleType | None
) -> None:
    monkeypatch.setitem(sys.modules, "apprise", found)

    with pytest.raises(AppriseError, match=r"pip install 'forewarn\[notify\]'"):
        AppriseNotifier("json://127.0.0.1")
