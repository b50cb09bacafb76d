"""What a command says and does when its connection breaks after the request was sent."""

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from typer.testing import Result

Run = Callable[..., Result]
TIMEOUT = 20
EVENT = {
    "event_id": "00000000-0000-4000-8000-000000000003",
    "event_type": "Reboot",
    "event_status": "Scheduled",
    "event_source": "User",
    "not_before": "2026-01-05T08:15:00Z",
    "resources": ["solo"],
}


@contextmanager
def answering(*answers: object) -> Iterator[tuple[str, list[str]]]:
    """Serve each of *answers* to one connection, or only hang up for None; then nobody listens."""
    asked: list[str] = []
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(TIMEOUT)

    def serve() -> None:
        with listener:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(TIMEOUT)
                    asked.append(connection.recv(65536).decode())
                    if answer is not None:
                        body = json.dumps(answer).encode()
                        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
                        connection.sendall(head + body)

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"127.0.0.1:{listener.getsockname()[1]}", asked
    thread.join(TIMEOUT)
    assert not thread.is_alive(), "not every answer was asked for"


def keys_of(asked: Sequence[str]) -> list[str]:
    return [key for each in asked for key in re.findall(r"(?im)^idempotency-key: (\S+)\r", each)]


def test_change_is_asked_for_again_with_the_same_key(run: Run) -> None:
    with answering(None, EVENT) as (server, asked):
        result = run("vm", "restart", "solo", FOREWARN_SERVER=server)

    assert result.exit_code == 0
    assert str(EVENT["event_id"]) in result.stdout
    first, second = keys_of(asked)
    assert first == second


def test_every_change_has_a_key_of_its_own(run: Run) -> None:
    with answering(EVENT, EVENT) as (server, asked):
        run("vm", "restart", "solo", FOREWARN_SERVER=server)
        run("vm", "restart", "solo", FOREWARN_SERVER=server)

    assert len(set(keys_of(asked))) == 2


@pytest.mark.parametrize(
    ("command", "connections"),
    [
        ("vm restart solo", 2),
        ("event create --type Reboot --resource solo", 2),
        ("vm remove solo", 1),
        ("token create ada --role viewer", 1),
        ("clock advance 15m", 1),
    ],
)
def test_change_without_an_answer_may_have_been_done(
    run: Run, command: str, connections: int
) -> None:
    """Nobody listens after the last connection; that does not undo what was done before."""
    with answering(*[None] * connections) as (server, asked):
        result = run(*command.split(), FOREWARN_SERVER=server)

    assert len(keys_of(asked)) in {0, 2}
    assert result.exit_code == 1
    assert "it may have done what was asked." in result.stderr
    assert "forewarn audit" in result.stderr


def test_question_without_an_answer_has_done_nothing(run: Run) -> None:
    with answering(None) as (server, _):
        result = run("event", "list", FOREWARN_SERVER=server)

    assert result.exit_code == 1
    assert result.stderr.startswith(f"forewarn: The connection to http://{server} broke")
    assert "may have" not in result.stderr


def test_change_is_unreachable_only_if_it_was_not_sent(run: Run) -> None:
    with answering(None) as (server, _):
        result = run("vm", "restart", "solo", FOREWARN_SERVER=server)

    assert "it may have done what was asked." in result.stderr
