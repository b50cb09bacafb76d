"""Gates over the control API: seen and tried, never set."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

import httpx2
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from forewarn.control.app import create_app
from forewarn.desk.services import AT_ONCE
from forewarn.domain.gate import Answer, GateStatus


class TwoGates:
    """One that is open, and one that is shut."""

    def __init__(self) -> None:
        self.tested: list[str] = []

    def kinds(self) -> Mapping[str, str]:
        return {"Smoke": "command", "change": "webhook"}

    def test(self, name: str) -> Answer:
        self.tested.append(name)
        is_open = name == "Smoke"
        return Answer(status=GateStatus.OPEN if is_open else GateStatus.SHUT, output=f"I am {name}")


@pytest.fixture
def gates() -> TwoGates:
    return TwoGates()


@pytest.fixture
def gated(app: FastAPI, api: httpx2.Client, gates: TwoGates) -> httpx2.Client:
    more = create_app(replace(app.state.services, gates=gates))
    client = TestClient(more, base_url="http://control/api/v1/", raise_server_exceptions=False)
    client.headers["Authorization"] = api.headers["Authorization"]
    return client


def test_gates_are_listed_in_the_order_of_the_file(gated: httpx2.Client) -> None:
    assert gated.get("gates").json() == {
        "gates": [{"name": "Smoke", "kind": "command"}, {"name": "change", "kind": "webhook"}]
    }


def test_gate_is_asked_once_and_that_is_in_the_audit(gated: httpx2.Client, gates: TwoGates) -> None:
    well, badly = gated.post("gates/smoke/test"), gated.post("gates/change/test")

    assert well.json() == {"gate": "Smoke", "status": "open", "output": "I am Smoke"}
    assert badly.json() == {"gate": "change", "status": "shut", "output": "I am change"}
    assert gates.tested == ["Smoke", "change"]
    refused = gated.post("gates/nobody/test")
    assert (refused.status_code, refused.json()["gate"]) == (404, "nobody")
    lines = gated.get("audit", params={"action": "gate test"}).json()["audit"]
    assert [(line["subject"], line["outcome"]) for line in lines] == [
        ("Smoke", "done"),
        ("change", "done"),
        ("nobody", "refused"),
    ]


@pytest.mark.parametrize("method", ["PUT", "POST", "PATCH", "DELETE"])
def test_no_gate_is_ever_taken_from_the_api(gated: httpx2.Client, method: str) -> None:
    gate = {"name": "evil", "kind": "command", "run": ["true"]}

    assert gated.request(method, "gates", json=gate).status_code == 405
    assert gated.request(method, "gates/evil", json=gate).status_code in {404, 405}


def test_server_without_a_file_has_none(api: httpx2.Client) -> None:
    assert api.get("gates").json() == {"gates": []}
    assert api.post("gates/smoke/test").status_code == 404


def test_gates_are_tested_a_few_at_a_time(app: FastAPI, api: httpx2.Client) -> None:
    gates = TwoGates()
    services = replace(app.state.services, gates=gates)
    client = TestClient(create_app(services), base_url="http://control/api/v1/")
    client.headers["Authorization"] = api.headers["Authorization"]
    with ExitStack() as stack:
        for _ in range(AT_ONCE):
            stack.enter_context(services.slow_verbs.place())

        refused = client.post("gates/Smoke/test")

    assert (refused.status_code, gates.tested) == (429, [])
    assert "Try again" in refused.json()["detail"]
    assert client.post("gates/Smoke/test").status_code == 200
