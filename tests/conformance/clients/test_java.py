"""Java's HttpClient at its defaults, which offers `Upgrade: h2c` with every request."""

import json

import pytest
from tests.conformance.clients.conftest import PROGRAMS, THIS_HOST, Server, need, run

pytestmark = pytest.mark.timeout(300)


def test_java_approves_an_event(server: Server) -> None:
    need("java")
    event = server.restart(THIS_HOST)

    document = json.loads(run("java", PROGRAMS / "Approve.java", server.metadata))

    assert [each["EventId"] for each in document["Events"]] == [event["event_id"]]
    server.await_start(event)
    assert server.approvers(event) == [THIS_HOST]
