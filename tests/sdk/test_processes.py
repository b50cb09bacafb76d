"""What the SDK does to the process it is in: children, the end, and what is written where."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.sdk.conftest import (
    TIMEOUT,
    Handler,
    Metadata,
    answer_well,
    answer_with,
    event,
    say_nothing,
)

DOCUMENT_IN_A_CHILD = """
import os, sys, threading, time
from forewarn.client import Client

client = Client(sys.argv[1])
assert client.events()
threading.Thread(target=client.events, daemon=True).start()
while not os.path.exists(sys.argv[2]):
    time.sleep(0.001)
child = os.fork()
if child == 0:
    os._exit(0 if len(client.events()) == 1 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

DOCUMENT_IN_AN_ASYNC_CHILD = """
import asyncio, os, sys
from forewarn.client import AsyncClient

client = None

async def count():
    global client
    client = client or AsyncClient(sys.argv[1])
    return len(await client.events())

assert asyncio.run(count()) == 1
child = os.fork()
if child == 0:
    os._exit(0 if asyncio.run(count()) == 1 else 1)
assert asyncio.run(count()) == 1
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

CLOSED_IN_A_CHILD = """
import os, sys
from forewarn.client import Client, ClosedError

client = Client(sys.argv[1])
client.close()
child = os.fork()
if child == 0:
    try:
        client.events()
    except ClosedError:
        os._exit(0)
    os._exit(1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

ENDED_WHILE_IT_ASKS = """
import asyncio, sys
from forewarn.client import AsyncClient

async def ask(client):
    await client.events()

loop = asyncio.new_event_loop()
client = AsyncClient(sys.argv[1], timeout=60)
task = loop.create_task(ask(client))
loop.call_later(0.5, loop.stop)
loop.run_forever()
print("ends", flush=True)
"""

TROUBLED = """
import sys
from forewarn.client import Client, UnavailableError

try:
    Client(sys.argv[1], patience=0.5).events()
except UnavailableError:
    sys.exit(0)
"""


def run(program: str, metadata: Metadata, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, metadata.endpoint, *arguments],
        capture_output=True,
        text=True,
        timeout=3 * TIMEOUT,
        check=False,
    )


@pytest.fixture
def announced(metadata: Metadata) -> Metadata:
    metadata.events = [event(1)]
    return metadata


def test_child_that_is_forked_during_a_call_has_a_connection_of_its_own(
    announced: Metadata, tmp_path: Path
) -> None:
    asked = tmp_path / "asked"

    def be_asked(handler: Handler) -> None:
        asked.touch()
        say_nothing(handler)

    announced.script = [answer_well, be_asked]

    ended = run(DOCUMENT_IN_A_CHILD, announced, str(asked))

    assert ended.returncode == 0, ended.stderr
    first, silent, last = (seen.connection for seen in announced.seen)
    assert first == silent != last


def test_child_of_an_asynchronous_client_has_a_connection_of_its_own(announced: Metadata) -> None:
    ended = run(DOCUMENT_IN_AN_ASYNC_CHILD, announced)

    assert ended.returncode == 0, ended.stderr
    assert len({seen.connection for seen in announced.seen}) == 2


def test_client_that_was_closed_before_the_fork_is_closed_after_it(metadata: Metadata) -> None:
    ended = run(CLOSED_IN_A_CHILD, metadata)

    assert ended.returncode == 0, ended.stderr


def test_process_ends_although_a_question_is_not_answered(metadata: Metadata) -> None:
    metadata.script = [say_nothing]
    command = [sys.executable, "-W", "ignore", "-c", ENDED_WHILE_IT_ASKS, metadata.endpoint]

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ends\n"
        began = time.monotonic()
        process.wait(3 * TIMEOUT)

    assert time.monotonic() - began < TIMEOUT / 2


def test_trouble_is_written_nowhere_unless_logging_is_set_up(metadata: Metadata) -> None:
    metadata.script = [answer_with(b"", 503)] * 5

    ended = run(TROUBLED, metadata)

    assert (ended.returncode, ended.stderr) == (0, "")
