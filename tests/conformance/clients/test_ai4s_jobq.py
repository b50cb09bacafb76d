"""ai4s-jobq, unmodified, on a machine that polls 169.254.169.254."""

import subprocess
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.clients.conftest import (
    INSTALLED,
    NODES,
    PROGRAMS,
    TIMEOUT,
    Network,
    need,
    wait_until,
)

pytestmark = pytest.mark.timeout(300)

PYTHON = INSTALLED / "ai4s-jobq" / "bin" / "python"


@pytest.fixture
def last_words(network: Network, tmp_path: Path) -> Iterator[Callable[[], list[str]]]:
    """What the handlers have told last: the events, and whether to shut down."""
    need(PYTHON)
    told, log = tmp_path / "told.txt", tmp_path / "log.txt"
    watch = ("env", "AZ_BATCH_TASK_ID=1", PYTHON, PROGRAMS / "watch_preemption.py")
    with told.open("w", encoding="utf-8") as output, log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            network.machines[NODES[0]].enter(*watch), stdout=output, stderr=errors
        )
    yield lambda: told.read_text(encoding="utf-8").splitlines()[-2:]
    process.terminate()
    process.wait(TIMEOUT)


def test_preemption_asks_for_shutdown_and_its_end_calls_it_off(
    network: Network, last_words: Callable[[], list[str]]
) -> None:
    def expect(events: list[tuple[object, ...]], wanted: str) -> None:
        words = [f"events: {events}", wanted]
        wait_until(lambda: last_words() == words, lambda: f"{last_words()} is not {words}")

    expect([], "no shutdown wanted")
    event = network.server.announce("Preempt", NODES[0])
    expect([as_told(event)], "shutdown wanted")
    network.server.call("POST", f"events/{event['event_id']}/cancel")
    expect([], "no shutdown wanted")


def as_told(event: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the nine fields of a Scheduled event, in the order of its dataclass."""
    return (
        event["event_id"],
        "Scheduled",
        event["event_type"],
        "VirtualMachine",
        event["resources"],
        format_datetime(datetime.fromisoformat(event["not_before"]), usegmt=True),
        event["description"],
        event["event_source"],
        -1,
    )
