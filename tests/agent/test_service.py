"""The service as a process, with a server that is away."""

import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

from tests.agent.conftest import ID, make_case
from tests.e2e.conftest import free_port, wait_until

from forewarn.agent.state import StateFile

SECONDS = 20


def ask(port: int, path: str) -> int | None:
    """Return what the listener answers, None if there is none yet."""
    connection = HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except ConnectionRefusedError:
        return None
    finally:
        connection.close()


def test_machine_that_was_drained_stays_so_while_the_server_is_away(tmp_path: Path) -> None:
    with StateFile(tmp_path) as state:
        state.save({ID: make_case()})
    port = free_port()
    file = tmp_path / "agent.toml"
    file.write_text(
        f'listen = "127.0.0.1:{port}"\nendpoint = "http://127.0.0.1:{free_port()}"\n'
        f'state_dir = "{tmp_path}"\n',
        encoding="utf-8",
    )

    with subprocess.Popen([sys.executable, "-m", "forewarn.agent", "run", "--config", file]) as run:
        try:
            wait_until(lambda: ask(port, "/drainz") is not None, "nobody listens", SECONDS)
            answer = ask(port, "/drainz")
        finally:
            run.kill()

    assert answer == 503
