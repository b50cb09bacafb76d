"""What a command says and does when its connection breaks after the request was sent."""

import json
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from typer.testing import Result

Run = Callable[..., Result]
TIMEOUT = 45
RESET: Final = object()
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
    """Serve each of *answers* to one connection, or only hang up for None; then nobody listens.

    What is bytes is sent as it is; RESET cuts the connection off.
    """
    asked: list[str] = []
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(TIMEOUT)

    def serve() -> None:
        with listener:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(TIMEOUT)
                    asked.append(connection.recv(65536).decode(errors="replace"))
                    if answer is RESET:
                        linger = struct.pack("ii", 1, 0)
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    elif isinstance(answer, bytes):
                        connection.sendall(answer)
                    elif answer is not None:
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
        ("vm remove solo --yes", 1),
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
    assert "it may have carried out the request." in result.stderr
    assert "forewarn audit" in result.stderr


def test_question_without_an_answer_has_done_nothing(run: Run) -> None:
    with answering(None) as (server, _):
        result = run("event", "list", FOREWARN_SERVER=server)

    assert result.exit_code == 1
    assert result.stderr.startswith(f"forewarn: Lost the connection to http://{server} before")
    assert "may have" not in result.stderr


def test_change_is_unreachable_only_if_it_was_not_sent(run: Run) -> None:
    with answering(None) as (server, _):
        result = run("vm", "restart", "solo", FOREWARN_SERVER=server)

    assert "it may have carried out the request." in result.stderr


@pytest.mark.parametrize("end", [None, RESET], ids=["closed", "reset"])
def test_connection_that_ends_before_tls_is_not_taken_for_a_server_without(
    run: Run, end: object
) -> None:
    """As a load balancer does whose server is gone."""
    with answering(end) as (server, _):
        result = run("vm", "restart", "solo", FOREWARN_SERVER=f"https://{server}")

    assert result.exit_code == 6
    assert f"https://{server} closed the connection" in result.stderr
    assert "http://" not in result.stderr


def test_server_that_answers_in_plain_text_is_said_not_to_speak_tls(run: Run) -> None:
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as (server, _):
        result = run("event", "list", FOREWARN_SERVER=f"https://{server}")

    assert result.exit_code == 6
    assert "does not speak TLS.\n  try: --server http://" in result.stderr


WALKED: Final = {
    "maintenance_id": EVENT["event_id"],
    "status": "completed",
    "status_text": "completed",
    "finished_at": "2026-01-05T09:00:00Z",
    "steps_remaining": 0,
    "hosts": [],
    "places": {"succeeded": 1},
    "standings": {},
    "remaining": [],
    "left_out": [],
    "events": [],
    "operations": [],
    "failures": [],
}
WALKING: Final = {
    **WALKED,
    "status": "running",
    "status_text": "running",
    "finished_at": None,
}
CLOCK: Final = {"kind": "real", "now": "2026-01-05T09:00:00Z"}


def test_wait_goes_on_when_the_server_is_back(run: Run) -> None:
    with answering(WALKING, CLOCK, None, None, None, None, WALKED) as (server, _):
        result = run("maintenance", "wait", "m", "-o", "json", FOREWARN_SERVER=server)

    assert (result.exit_code, json.loads(result.stdout)) == (0, WALKED)
    assert len(re.findall("Reconnecting", result.stderr)) == 1


def test_wait_for_a_server_that_stays_away_ends_with_its_patience(run: Run) -> None:
    with answering(WALKING, CLOCK) as (server, _):
        result = run("maintenance", "wait", "m", "--timeout", "2s", FOREWARN_SERVER=server)

    assert result.exit_code == 5
    assert "Timed out after 2s; the work is still in progress." in result.stderr


def test_watch_goes_on_when_the_server_went_away_between_two_questions(run: Run) -> None:
    with answering(WALKING, CLOCK, WALKED, None, None, WALKED, CLOCK) as (server, _):
        result = run("maintenance", "watch", "m", "--utc", FOREWARN_SERVER=server)

    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "2026-01-05 09:00:00Z  The maintenance is completed."


@pytest.mark.parametrize(
    "cut_off",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
    ],
)
def test_reply_that_is_cut_off_or_not_http_is_none(run: Run, cut_off: bytes) -> None:
    with answering(cut_off) as (server, _):
        result = run("event", "list", FOREWARN_SERVER=server)

    assert result.exit_code == 1
    assert result.stderr.startswith(f"forewarn: Lost the connection to http://{server} before")


STEP: Final = json.dumps({"step": "vm", "done": 1, "total": 2}).encode() + b"\n"


@pytest.mark.parametrize(
    "cut_off",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(STEP), STEP),
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n%s" % STEP,
    ],
)
def test_progress_that_is_cut_off_is_not_taken_for_the_answer(
    run: Run, tmp_path: Path, cut_off: bytes
) -> None:
    (tmp_path / "other.toml").write_text("")

    with answering(cut_off) as (server, _):
        result = run("fleet", "apply", "other.toml", FOREWARN_SERVER=server)

    assert result.exit_code == 1, result.output
    assert "it may have carried out the request." in result.stderr


def test_token_with_a_line_break_is_a_mistake_of_the_command_line(run: Run) -> None:
    result = run("event", "list", "--token", "fw_1\r\nX: y")

    assert result.exit_code == 2
    assert result.stderr.startswith("forewarn: The token contains invalid characters.")
