"""The journal of requests, as a test of somebody's code reads it."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from forewarn.testing import EmulatedVm, Emulator


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as running:
        yield running


def ask(vm: EmulatedVm, body: object = None, *, metadata: str = "true") -> int:
    url = f"{vm.scheduled_events_url}?api-version=2020-07-01"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Metadata": metadata})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            answer.read()
            status: int = answer.status
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code
    return status


def test_requests_are_those_of_the_machine_in_their_order(emulator: Emulator) -> None:
    web, other = emulator.vm("web-0"), emulator.vm("web-1")
    ask(web)
    ask(other)
    ask(web, {"StartRequests": [{"EventId": "mistyped"}]})

    assert [(entry.method, entry.status) for entry in web.requests] == [("GET", 200), ("POST", 400)]
    assert web.requests[1].error == "Bad request. EventId is unknown"
    assert [entry.vm for entry in emulator.requests] == ["web-0", "web-1", "web-0"]


def test_requests_are_stamped_with_virtual_time(emulator: Emulator) -> None:
    web = emulator.vm("web-0")
    emulator.clock.advance(hours=5)

    ask(web)

    assert web.requests[0].maintenance_time == emulator.clock.now
