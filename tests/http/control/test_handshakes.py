"""The control listener over TLS: whoever does not get to speak TLS holds no more than others."""

import socket
import ssl
import subprocess
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fastapi import FastAPI
from structlog.testing import capture_logs
from tests.http.control.test_connections import Listener, compose, listening, read_reply
from tests.needs import need

from forewarn.bootstrap.tls import Certificate
from forewarn.connections.limits import Limits

LIMITS = Limits(connections=4, connections_per_origin=4)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a certificate for 127.0.0.1 and its key."""
    need("openssl")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=x -days 2 "
        f"-addext subjectAltName=IP:127.0.0.1 -keyout {path} -out {path}.certificate"
    )
    subprocess.run(command.split(), check=True, capture_output=True, timeout=30)
    path.write_bytes(path.read_bytes() + Path(f"{path}.certificate").read_bytes())
    return path


@pytest.fixture
def client(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certificate)


@pytest.fixture
def listener(app: FastAPI, certificate: Path) -> Generator[Listener]:
    with listening(app, LIMITS, Certificate(certificate, certificate).context) as made:
        yield made


def ask(listener: Listener, client: ssl.SSLContext) -> int:
    with client.wrap_socket(listener.connect(), server_hostname="127.0.0.1") as connection:
        connection.sendall(compose("GET", "/healthz"))
        return read_reply(connection)[0]


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_silent_connections_take_no_more_than_their_share(
    listener: Listener, client: ssl.SSLContext
) -> None:
    with ExitStack() as opened:
        silent = [opened.enter_context(listener.connect()) for _ in range(6)]

        assert all(is_closed(connection) for connection in silent[:2])
        assert ask(listener, client) == 200


def test_handshake_has_to_end_in_time(app: FastAPI, certificate: Path) -> None:
    limits = Limits(connections=4, connections_per_origin=4, head_seconds=0.1)
    with (
        listening(app, limits, Certificate(certificate, certificate).context) as listener,
        listener.connect() as connection,
    ):
        connection.sendall(b"\x16\x03\x01")  # how a ClientHello begins

        assert is_closed(connection)


def test_request_may_come_with_the_end_of_the_handshake(
    listener: Listener, client: ssl.SSLContext
) -> None:
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    end = client.wrap_bio(received, sent, server_hostname="127.0.0.1")
    with listener.connect() as connection:
        while True:
            try:
                end.do_handshake()
                break
            except ssl.SSLWantReadError:
                connection.sendall(sent.read())
                received.write(connection.recv(65_536))
        end.write(compose("GET", "/healthz"))
        connection.sendall(sent.read())
        answer = b""
        while not answer:
            received.write(connection.recv(65_536))
            try:
                answer = end.read()
            except ssl.SSLWantReadError:  # session tickets come first
                continue

    assert answer.startswith(b"HTTP/1.1 200 ")


def test_plain_http_is_counted_as_trouble(listener: Listener, client: ssl.SSLContext) -> None:
    with capture_logs() as lines:
        for _ in range(2):
            with listener.connect() as connection:
                connection.sendall(compose("GET", "/healthz"))

                assert is_closed(connection)

    assert [line["problem"] for line in lines] == ["TLS handshake"]
    assert ask(listener, client) == 200


def test_handshake_does_not_keep_the_server_from_stopping(app: FastAPI, certificate: Path) -> None:
    context = Certificate(certificate, certificate).context
    with ExitStack() as opened:
        with listening(app, LIMITS, context) as listener:
            connection = opened.enter_context(listener.connect())
            assert ask(listener, ssl.create_default_context(cafile=certificate)) == 200

        assert is_closed(connection)
