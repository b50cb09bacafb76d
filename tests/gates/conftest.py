"""A question, and a real site that answers it, or does not."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from tests.ports import free_port
from tests.web_site import OUTBOUND, Site

from forewarn.domain.gate import Question
from forewarn.domain.names import MaintenanceId, ScopeId
from forewarn.gates.verdict import Gate, GateVerdict

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
SOON = 30.0
"""Seconds within which what does not hang has ended, on a busy machine too."""


@pytest.fixture
def question() -> Question:
    return Question(
        gate="probe",
        maintenance_id=MaintenanceId("m1"),
        scope_ids=(ScopeId("availability-set/web"), ScopeId("virtual-machine/solo")),
        steps_done=2,
    )


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


@pytest.fixture
def nowhere() -> str:
    """An address at which nobody listens."""
    return f"http://127.0.0.1:{free_port()}"


def put(gate: Gate, question: Question) -> GateVerdict:
    """Ask *gate*, and wait for what it says."""
    return OUTBOUND.begin(gate.ask(question, now=NOW)).result()


def wait_for(condition: Callable[[], bool], reason: str, seconds: float = SOON) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{reason}, after {seconds} seconds"
        time.sleep(0.005)
