"""An event whose impact is to be carried out, and what it takes to wait for it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.web_site import OUTBOUND

from forewarn.clocks import SystemClock
from forewarn.domain.event import Draft, Share, start_unannounced
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.domain.topology import Host
from forewarn.executors.command import SCRIPTS, Command
from forewarn.executors.impacts import IMPACTS, ContractedExecutor, find_among
from forewarn.executors.orders import Contractor, Contractors
from forewarn.executors.processes import PLACES, ProcessContractor
from forewarn.executors.records import Records
from forewarn.executors.targets import ImpactTarget
from forewarn.executors.webhook import WebhookContractor
from forewarn.ports.clock import WallClock
from forewarn.ports.executor import Executor
from forewarn.protocol.vocabulary import EventId, EventSource, EventType

ROOT = Path(__file__).parent.parent.parent
NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
WEB_0, WEB_1 = VmName("web-0"), VmName("web-1")
HOSTS = {WEB_0: HostName("kvm-0"), WEB_1: HostName("kvm-1")}
EVENT = start_unannounced(
    Draft(
        event_type=EventType.REBOOT,
        event_source=EventSource.PLATFORM,
        share=Share(
            scope_id=ScopeId("availability-set/web"), update_domain=0, resources=(WEB_0, WEB_1)
        ),
        description="Kernel 6.12 für alle",
        duration_in_seconds=600,
    ),
    event_id=EventId("602D9444-D2CD-49C7-8624-8643E7171297"),
    now=NOW,
)
KEY = (EVENT.event_id, WEB_0)
SECONDS = 45.0
OVER = frozenset({ImpactStatus.DONE, ImpactStatus.FAILED})


def wait_until(is_so: Callable[[], bool], reason: str, seconds: float = SECONDS) -> None:
    """Return when *is_so*, or fail with *reason*."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"{reason}, after {seconds} seconds"
        time.sleep(0.01)


def wait_for(
    executor: Executor, is_so: Callable[[Impact], bool], key: tuple[EventId, VmName] = KEY
) -> Impact:
    """Ask until the answer *is_so*, and return it."""
    return ask_until(lambda: executor.inquire(*key), is_so)


def ask_until(inquire: Callable[[], Impact], is_so: Callable[[Impact], bool]) -> Impact:
    """Inquire until the answer *is_so*, and return it."""
    deadline = time.monotonic() + SECONDS
    while not is_so(said := inquire()):
        assert time.monotonic() < deadline, f"after {SECONDS} seconds still: {said}"
        time.sleep(0.01)
    return said


def is_over(impact: Impact) -> bool:
    return impact.status in OVER


def run_and_be_killed(server: str, *words: str | Path) -> None:
    """Run the Python text of a *server* that kills itself."""
    path = [str(ROOT), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, "-c", server, *words],
        env={"PYTHONPATH": os.pathsep.join(path)},
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL


def script(folder: Path, text: str) -> Path:
    """Write a program."""
    path = folder / "script"
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def host_called(name: HostName) -> Host:
    return Host(name=name)


def always() -> bool:
    return True


def make_command(
    folder: Path,
    *commands: Command,
    places: int = PLACES,
    may_begin: Callable[[], bool] = always,
    records: Records | None = None,
) -> ContractedExecutor:
    """Return an executor that remembers in *folder*, or in its *records*."""
    contractor = ProcessContractor(
        find_among(commands, Command, host_called),
        SCRIPTS,
        kind=IMPACTS,
        records=records or Records(folder / "impacts", may_begin=may_begin),
        environment={"PATH": "/usr/bin:/bin"},
        clock=SystemClock(),
        places=places,
    )
    return contract(contractor)


def make_webhook(
    folder: Path,
    *targets: ImpactTarget,
    may_begin: Callable[[], bool] = always,
    records: Records | None = None,
    wall: WallClock | None = None,
) -> ContractedExecutor:
    """Return an executor that remembers in *folder*, or in its *records*, and asks often."""
    contractor = WebhookContractor(
        find_among(targets, ImpactTarget, host_called),
        kind=IMPACTS,
        records=records or Records(folder / "impacts", may_begin=may_begin),
        outbound=OUTBOUND,
        clock=SystemClock(),
        wall=wall or SystemClock(),
        wait=ask_often,
    )
    return contract(contractor)


def contract(*contractors: Contractor) -> ContractedExecutor:
    return ContractedExecutor(
        Contractors(contractors), event_called={EVENT.event_id: EVENT}.get, host_of=HOSTS.get
    )


def ask_often(failures: int) -> timedelta:
    """Return how long to wait until a target is asked again."""
    return timedelta(milliseconds=10 * (failures + 1))
