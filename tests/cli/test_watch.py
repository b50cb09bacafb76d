"""`forewarn event watch`: a line for each thing that happens, until interrupted."""

import json
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from functools import partial

import pytest
import yaml
from typer.testing import Result

Run = Callable[..., Result]
Watch = Callable[..., "subprocess.Popen[str]"]

FIRST = "00000000-0000-4000-8000-000000000003"
TIMEOUT = 45


@pytest.fixture
def watch(run: Run, spawn: Watch) -> Watch:
    """Start watching in a process of its own, with whatever has happened before."""
    assert run("vm", "list").exit_code == 0
    return partial(spawn, "event", "watch", "--after", "0")


def next_line(process: "subprocess.Popen[str]") -> str:
    """Return the next line, or fail after a while."""
    assert process.stdout is not None
    timer = threading.Timer(TIMEOUT, process.kill)
    timer.start()
    line = process.stdout.readline()
    timer.cancel()
    assert line, f"nothing was printed in {TIMEOUT} s"
    return line


def test_watch_prints_a_line_for_each_thing_that_happens(run: Run, watch: Watch) -> None:
    watching = watch("--vm", "web-0")
    run("vm", "restart", "solo")
    run("event", "create", "--type", "Reboot", "--resource", "web-0")
    second = "00000000-0000-4000-8000-000000000004"
    run("event", "cancel", second, "--reason", "not today")

    assert next_line(watching) == (
        f"2026-01-05 08:00:00Z  {second}  scheduled by alice  Reboot of web-0\n"
    )
    assert next_line(watching) == (
        f"2026-01-05 08:00:00Z  {second}  canceled by alice  Reboot of web-0: not today\n"
    )


def test_words_of_others_neither_forge_a_line_nor_reach_the_terminal(
    run: Run, watch: Watch
) -> None:
    run("vm", "restart", "solo")
    run("event", "cancel", FIRST, "--reason", "no\n2026-01-05 \x1b[2Jall is well\x9b")
    watching = watch("--event", FIRST)

    next_line(watching)
    assert next_line(watching).endswith(": no?2026-01-05 ?[2Jall is well?\n")


def test_watch_prints_one_json_object_on_each_line(run: Run, watch: Watch) -> None:
    run("vm", "restart", "solo")
    watching = watch("--event", FIRST, "-o", "json")

    line = json.loads(next_line(watching))
    assert (line["sequence"], line["event_id"], line["what"]) == (1, FIRST, "scheduled")


def test_watch_prints_one_yaml_document_for_each_thing(run: Run, watch: Watch) -> None:
    run("vm", "restart", "solo")
    run("event", "cancel", FIRST)
    watching = watch("--event", FIRST, "-o", "yaml")

    printed = [next_line(watching) for _ in range(2 * 12)]
    documents = list(yaml.safe_load_all("".join(printed)))
    assert [line["what"] for line in documents] == ["scheduled", "canceled"]
    assert printed[0] == "---\n"


def test_interrupted_watch_ends_quietly(run: Run, watch: Watch) -> None:
    run("vm", "restart", "solo")
    watching = watch()
    next_line(watching)

    watching.send_signal(signal.SIGINT)
    _, complaint = watching.communicate(timeout=TIMEOUT)

    assert (watching.returncode, complaint) == (130, "")


def test_watch_without_a_server_is_an_error(run: Run) -> None:
    answer = run("event", "watch", FOREWARN_SERVER="127.0.0.1:1")

    assert answer.exit_code == 6


def test_watch_of_an_event_that_never_existed_is_an_error(run: Run) -> None:
    answer = run("event", "watch", "--event", FIRST)

    assert answer.exit_code == 3
    assert "try: forewarn event list" in answer.stderr


def test_watch_of_a_machine_that_never_was_is_an_error(run: Run) -> None:
    answer = run("event", "watch", "--vm", "nobody")

    assert answer.exit_code == 3
    assert "try: forewarn vm list" in answer.stderr


def test_machine_that_has_left_can_still_be_watched(run: Run, watch: Watch) -> None:
    run("event", "create", "--type", "Reboot", "--resource", "solo")
    run("event", "cancel", FIRST)
    assert run("vm", "remove", "solo", "--yes").exit_code == 0

    assert "scheduled by alice" in next_line(watch("--vm", "SOLO"))


def test_watch_goes_on_where_it_broke_off(watch: Watch) -> None:
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    line: dict[str, object] = {
        "at": "2026-01-05T08:00:00Z",
        "event_id": FIRST,
        "event_type": "Reboot",
    }
    line |= {"resources": ["solo"], "what": "scheduled", "who": "alice", "detail": ""}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT)
        watching = watch("--server", f"127.0.0.1:{listener.getsockname()[1]}")

        for place in (7, 8):
            connection, _ = listener.accept()
            with connection:
                asked = connection.recv(65536).decode()
                event = f"id: {place}\ndata: {json.dumps(line)}\n\nid: {place}\n\n"
                connection.sendall(f"{head}retry: 1000\n{event}".encode())
            assert FIRST in next_line(watching)
            assert f"after={0 if place == 7 else 7} " in asked
        connection, _ = listener.accept()
        connection.close()  # without an answer: it is being restarted
        connection, _ = listener.accept()
        with connection:
            assert "after=8 " in connection.recv(65536).decode()
            connection.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\n{}")

    _, complaint = watching.communicate(timeout=TIMEOUT)
    assert complaint.count("the server closed the connection") == 2
