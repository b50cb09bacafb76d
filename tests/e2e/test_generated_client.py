"""A client that openapi-python-client generates from our document does an operator's work."""

import contextlib
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import START_SECONDS, Server, ServerMaker
from tests.needs import skip_without

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".venv" / "clients" / "openapi-python-client" / "bin"
PROGRAM = Path(__file__).with_name("drive_generated_client.py")


@pytest.fixture
def server(start_server: ServerMaker) -> Server:
    return start_server("--clock", "virtual", "--executor", "simulated")


@pytest.fixture
def answers(server: Server, tmp_path: Path, environment: Mapping[str, str]) -> Any:
    """What a client generated from the document of *server* was answered by it."""
    if not TOOLS.is_dir():
        skip_without("openapi-python-client")
    url = f"http://127.0.0.1:{server.control_port}"
    document = tmp_path / "openapi.json"
    with contextlib.closing(server.operator_client()) as operator:
        document.write_bytes(operator.ask("GET", "/api/openapi.json").body)
    environment = {**environment, "PATH": f"{TOOLS}:{environment['PATH']}"}
    generate = (
        *("openapi-python-client", "generate", "--fail-on-warning", "--path", document),
        *("--meta", "none", "--output-path", tmp_path / "generated"),
    )
    _run(*generate, environment=environment)
    told = _run(
        *(TOOLS / "python", PROGRAM, url, server.token()),
        environment={**environment, "PYTHONPATH": str(tmp_path)},
    )
    return json.loads(told)


def test_generated_client_applies_a_fleet_and_cancels_an_event(
    answers: Mapping[str, Any], server: Server
) -> None:
    event_id = answers["shown"]["content"]["event_id"]
    actual = {name: (each["status"], each["content"]) for name, each in answers.items()}

    assert actual["applied"][0] == 200
    assert actual["applied"][1]["added"] == ["made-0", "made-1"]
    assert actual["announced"][0] == 201
    assert actual["canceled"][0] == 200
    assert actual["canceled"][1]["event_status"] == "Canceled"
    assert actual["again"][0] == 409
    assert actual["again"][1]["type"] == "urn:forewarn:problem:illegal-transition"
    assert actual["shown"][1]["reason"] == "not tonight"
    assert server.event(event_id)["event_status"] == "Canceled"
    assert server.poll("made-0").events == []


def _run(*command: str | Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        command,
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout
