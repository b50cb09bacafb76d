"""Tests of notification targets, asked for in the console."""

from dataclasses import replace
from datetime import datetime
from threading import current_thread

import pytest
from starlette.applications import Starlette
from tests.http.conftest import TOKEN
from tests.http.console.conftest import SignIn

from forewarn.desk.services import Services
from forewarn.domain.notification import Delivery, Notification, Phase, Target
from forewarn.operations.context import Context, Rules

OPS = Target(name="ops", scopes=(), phases=(Phase.SCHEDULED,))


class Notifier:
    """Remembers on which kind of thread it was called."""

    def __init__(self) -> None:
        self.was_daemon: list[bool] = []

    def deliver(self, notification: Notification, *, now: datetime) -> Delivery:
        del notification, now
        self.was_daemon.append(current_thread().daemon)
        return Delivery(is_delivered=len(self.was_daemon) == 1, answer="as told")


@pytest.fixture
def notifier() -> Notifier:
    return Notifier()


@pytest.fixture
def services(services: Services, notifier: Notifier) -> Services:
    """A server with one target."""
    plain = services.context

    def context(who: str) -> Context:
        return replace(plain(who), rules=Rules(targets=(OPS,)))

    return replace(services, context=context, notifiers={"ops": notifier})


def test_target_is_tested_where_nobody_waits_for_it(
    console: Starlette, sign_in: SignIn, notifier: Notifier
) -> None:
    del console
    browser = sign_in(TOKEN)

    taken = browser.post("/notification-targets/ops/test")
    refused = browser.post("/notification-targets/ops/test")
    unknown = browser.post("/notification-targets/nobody/test")

    assert "ops was delivered: as told" in taken.headers["HX-Trigger"]
    assert "ops was not delivered: as told" in refused.text
    assert unknown.status_code == 404
    assert notifier.was_daemon == [True, True]
