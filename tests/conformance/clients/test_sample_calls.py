"""Clients of our own make the calls of the documented samples, through the life of an event."""

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, Protocol

import pytest
from tests.conformance.clients.conftest import (
    PROGRAMS,
    THIS_HOST,
    TIMEOUT,
    Server,
    compile_csharp,
    find_pythons,
    run,
)

pytestmark = pytest.mark.timeout(300)

PATH = "/metadata/scheduledevents?api-version=2017-03-01"
Events = list[dict[str, Any]]


class Client(Protocol):
    """Somebody who follows the events."""

    def look(self) -> Events: ...

    def approve(self) -> None: ...


@dataclass(frozen=True)
class Curl:
    """The two calls as they are printed, with the incarnation that is printed."""

    url: str

    def look(self) -> Events:
        events: Events = json.loads(run("curl", "-sS", "-H", "Metadata:true", self.url))["Events"]
        return events

    def approve(self) -> None:
        requests = ", ".join(f'{{"EventId": "{event["EventId"]}"}}' for event in self.look())
        body = f'{{"DocumentIncarnation":"5", "StartRequests": [{requests}]}}'
        run("curl", "-sS", "-f", "-H", "Metadata:true", "-X", "POST", "-d", body, self.url)


@dataclass(frozen=True)
class Program:
    """A program of ours in the language of the sample."""

    command: tuple[str | Path, ...]

    def look(self) -> Events:
        events: Events = json.loads(run(*self.command, "look"))["Events"]
        return events

    def approve(self) -> None:
        run(*self.command, "approve")


@dataclass
class PowerShell:
    """The bytes Invoke-RestMethod and ConvertTo-Json would send, over one connection.

    There is no PowerShell to run the sample with; this is its wire form, from descriptions of it. A
    string body is sent as a form, the JSON is indented with CRLF, the incarnation is a number.
    Windows PowerShell keeps a body back until the server has said 100 Continue.
    """

    address: str
    user_agent: str
    approval: str
    expects_continue: bool
    connection: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        host, port = self.address.split(":")
        self.connection = socket.create_connection((host, int(port)), TIMEOUT)

    def look(self) -> Events:
        events: Events = self._get()["Events"]
        return events

    def approve(self) -> None:
        document = self._get()
        incarnation = document["DocumentIncarnation"]
        for event in document["Events"]:
            text = self.approval % (event["EventId"], incarnation)
            self._post(text.replace("\n", "\r\n").encode("ascii"))

    def _get(self) -> dict[str, Any]:
        self.connection.sendall(self._head("GET"))
        document: dict[str, Any] = json.loads(self._answer())
        return document

    def _post(self, body: bytes) -> None:
        fields = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Content-Length": str(len(body)),
        }
        if self.expects_continue:
            self.connection.sendall(self._head("POST", fields | {"Expect": "100-continue"}))
            assert self.connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        else:
            self.connection.sendall(self._head("POST", fields))
        self.connection.sendall(body)
        assert self._answer() == b""

    def _head(self, method: str, fields: Mapping[str, str] | None = None) -> bytes:
        lines = {
            "Metadata": "true",
            "User-Agent": self.user_agent,
            **(fields or {}),
            "Host": self.address,
            "Connection": "Keep-Alive",
        }
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"{method} {PATH} HTTP/1.1\r\n{text}\r\n".encode("ascii")

    def _answer(self) -> bytes:
        response = HTTPResponse(self.connection)
        response.begin()
        body = response.read()
        assert response.status == 200, body
        return body


WINDOWS_JSON = """\
{
    "StartRequests":  [
                          {
                              "EventId":  "%s"
                          }
                      ],
    "DocumentIncarnation":  %d
}"""
CORE_JSON = """\
{
  "StartRequests": [
    {
      "EventId": "%s"
    }
  ],
  "DocumentIncarnation": %d
}"""
WINDOWS = "Mozilla/5.0 (Windows NT; Windows NT 10.0; en-US) WindowsPowerShell/5.1.17763.1"
CORE = "Mozilla/5.0 (Windows NT 10.0; Microsoft Windows 10.0.17763; en-US) PowerShell/7.4.0"

Make = Callable[[str, Path, ExitStack], Client]


def make_curl(address: str, _directory: Path, _stack: ExitStack) -> Client:
    return Curl(f"http://{address}{PATH}")


def make_csharp(address: str, directory: Path, _stack: ExitStack) -> Client:
    program = compile_csharp(PROGRAMS / "SampleClient.cs", directory)
    return Program(("mono", program, address))


def make_python(python: tuple[str, ...]) -> Make:
    program = PROGRAMS / "sample_client.py"
    return lambda address, _directory, _stack: Program((*python, program, address))


def make_powershell(user_agent: str, approval: str, *, expects_continue: bool) -> Make:
    def make(address: str, _directory: Path, stack: ExitStack) -> Client:
        client = PowerShell(address, user_agent, approval, expects_continue)
        stack.enter_context(client.connection)
        return client

    return make


CLIENTS: dict[str, Make] = {
    "curl": make_curl,
    "csharp": make_csharp,
    **{name: make_python(python) for name, python in find_pythons().items()},
    "windows-powershell": make_powershell(WINDOWS, WINDOWS_JSON, expects_continue=True),
    "powershell-7": make_powershell(CORE, CORE_JSON, expects_continue=False),
}


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> Iterator[Client]:
    with ExitStack() as stack:
        yield CLIENTS[request.param](server.metadata, tmp_path, stack)


def test_client_sees_an_event_approves_it_and_sees_it_start_and_go(
    client: Client, server: Server
) -> None:
    event = server.restart(THIS_HOST)

    before = client.look()
    client.approve()
    server.await_start(event)
    after = client.look()
    server.let_impact_end()
    in_the_end = client.look()

    assert before == [as_seen(event, "Scheduled")]
    assert [e | {"NotBefore": e["NotBefore"] or None} for e in after] == [
        as_seen(event, "Started") | {"NotBefore": None}
    ]
    assert in_the_end == []
    assert server.approvers(event) == [THIS_HOST]
    assert server.show(event)["event_status"] == "Completed"


def test_client_that_approves_twice_has_no_trouble(client: Client, server: Server) -> None:
    """Several samples approve whatever they see, Started or not."""
    event = server.restart(THIS_HOST)

    client.approve()
    client.approve()

    server.await_start(event)


def as_seen(event: Mapping[str, Any], status: str) -> dict[str, Any]:
    """Return *event* as a client of 2017-03-01 sees it while it is Scheduled."""
    return {
        "EventId": event["event_id"],
        "EventStatus": status,
        "EventType": event["event_type"],
        "ResourceType": "VirtualMachine",
        "Resources": event["resources"],
        "NotBefore": event["not_before"],
    }
