"""The hot path and the long way answer with the same bytes, whatever is asked."""

import re
import socket
from collections.abc import Generator
from contextlib import ExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.http.metadata.conftest import SECRET, TIMEOUT, VERSION, Service, running, sign

from forewarn.metadata.plain_polls import read_head

_VOLATILE = re.compile(rb"(x-ms-request-id|Date): [^\r]*\r\n")
_ID = "5E0D4C7A-0000-4000-8000-000000000001"

targets = st.one_of(
    st.sampled_from(
        [
            f"/metadata/scheduledevents?api-version={VERSION}",
            f"/vm/web-0/metadata/scheduledevents?api-version={VERSION}",
            f"/vm/WEB-0/metadata/scheduledevents?api-version={VERSION}",
            f"/VM/web-0/metadata/scheduledevents?api-version={VERSION}",
            f"/vm/web%2D0/metadata/scheduledevents?api-version={VERSION}",
            f"/vm/nobody/metadata/scheduledevents?api-version={VERSION}",
            f"/vm//metadata/scheduledevents?api-version={VERSION}",
            f"/metadata/ScheduledEvents?api-version={VERSION}",
            f"/metadata/scheduledevents/?api-version={VERSION}",
            f"/metadata/scheduledevents?api-version={VERSION}&x=1",
            f"/metadata/scheduledevents?api-version={VERSION}&api-version={VERSION}",
            "/metadata/scheduledevents?api-version=2017-03-01",
            "/metadata/scheduledevents?api-version=1999-01-01",
            "/metadata/scheduledevents",
            "/metadata/instance?api-version=2021-02-01",
            "/",
        ]
    ),
    st.text("/metadatscheduledevents?api-version=0123456789%", max_size=40).map(
        lambda it: f"/{it}"
    ),
)
header_lines = st.lists(
    st.sampled_from(
        [
            "Metadata: true",
            "metadata:true",
            "METADATA:   true  ",
            "Metadata: True",
            "Metadata: false",
            "Host: 169.254.169.254",
            "User-Agent: curl/8.5.0",
            "Accept: */*",
            "Connection: close",
            "Connection: keep-alive",
            "Connection: upgrade",
            "Upgrade: h2c",
            "If-None-Match: 0",
            "If-None-Match: 1",
            'If-None-Match: W/"1", "2"',
            "If-None-Match: *",
            "If-None-Match:",
            "Prefer: wait=0",
            "Origin: http://somewhere",
            "X-Forwarded-For: 10.0.0.1",
            "Via: 1.1 proxy",
            f"X-Instance-ID: {_ID}",
            f"X-Instance-ID-Signature: {sign(_ID)}",
            f"X-Instance-ID-Signature: {sign(_ID, SECRET[::-1])}",
            "Content-Length: 0",
            "Expect: 100-continue",
            "X-Filler: " + "x" * 900,
        ]
    ),
    max_size=9,
)
requests = st.builds(
    lambda method, target, protocol, lines: "\r\n".join(
        [f"{method} {target} HTTP/{protocol}", *lines, "", ""]
    ).encode(),
    st.sampled_from(["GET", "GET", "GET", "HEAD", "OPTIONS", "get"]),
    targets,
    st.sampled_from(["1.1", "1.1", "1.1", "1.0"]),
    header_lines,
)
sources = st.sampled_from(["127.0.0.10", "127.0.0.11", "127.0.0.12", "127.0.0.66"])
pytestmark = pytest.mark.parametrize("_road", [True], indirect=True, scope="module")  # has both
SETTINGS = [
    {"trust_path": False},
    {"trust_path": True, "default_vm": "here"},
    {"trust_path": False, "trusted_proxies": ("127.0.0.66",)},
]


@pytest.fixture(scope="module", params=SETTINGS, ids=["address", "path or default", "proxy"])
def roads(request: pytest.FixtureRequest) -> Generator[tuple[Service, Service], None, None]:
    """Run two services that differ only in their roads."""
    with ExitStack() as stack:
        services = []
        for is_hot in (True, False):
            Service.is_hot = is_hot
            services.append(stack.enter_context(running(**request.param)))
        yield services[0], services[1]


def exchange(service: Service, source: str, request: bytes, times: int) -> list[bytes]:
    """Send *request* as often on one connection as that allows; return the answers."""
    answers = []
    with service.connect(source) as connection:
        for _ in range(times):
            connection.sendall(request)
            answers.append(_read(connection, request))
            if b"\r\nConnection: close\r\n" in answers[-1]:
                assert connection.recv(1) == b"", "the connection is closed"
                break
    return [_VOLATILE.sub(b"", answer) for answer in answers]


def _read(connection: socket.socket, request: bytes) -> bytes:
    connection.settimeout(TIMEOUT)
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"\r\nContent-Length: ([0-9]+)", head)
    if request.startswith(b"HEAD") or length is None:
        return received
    while len(body) < int(length[1]):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@settings(max_examples=150, deadline=None)
@given(request=requests, source=sources)
def test_both_roads_give_the_same_bytes(
    roads: tuple[Service, Service], request: bytes, source: str
) -> None:
    hot, long = (exchange(service, source, request, 3) for service in roads)

    assert hot == long


@given(
    st.binary(max_size=400) | requests.map(lambda it: it + it) | requests.map(lambda it: it[:-1])
)
def test_only_one_whole_request_is_read_at_once(data: bytes) -> None:
    assert read_head(data) is None
