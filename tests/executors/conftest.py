"""An event whose impact is to be carried out, and what it takes to wait for it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from tests.web_site import OUTBOUND

from forewarn.clocks import SystemClock
from forewarn.domain.event import Draft, ScheduledEvent, Share, start_unannounced
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.domain.topology import Host
from forewarn.executors.command import SCRIPTS, Command
from forewarn.executors.libvirt.hypervisors import Hypervisor
from forewarn.executors.processes import PLACES, PLACES_OF_HOST, ProcessRunner
from forewarn.executors.task_input import Runner, TaskInput, impact_input
from forewarn.executors.task_log import TaskLog
from forewarn.executors.webhook import WebhookRunner, WebhookTarget
from forewarn.ports.clock import WallClock
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

M = TypeVar("M", Command, WebhookTarget, Hypervisor)


def wait_until(is_so: Callable[[], bool], reason: str, seconds: float = SECONDS) -> None:
    """Return when *is_so*, or fail with *reason*."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"{reason}, after {seconds} seconds"
        time.sleep(0.01)


def wait_for(
    runner: Runner, is_so: Callable[[Impact], bool], order: TaskInput | None = None
) -> Impact:
    """Ask until the answer *is_so*, and return it."""
    return ask_until(lambda: runner.inquire(order or ORDER), is_so)


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


@dataclass(slots=True)
class Grant:
    """A permit that is given unless the test says otherwise, and counts how often it is asked.

    It is valid for so many looks.
    """

    is_given: bool = True
    asked: int = 0
    looks: int = 0
    is_valid_for: int = 1000
    refusal: ImpactStatus = ImpactStatus.FAILED
    meanwhile: Callable[[], object] = int

    def obtain(self) -> bool:
        self.asked += 1
        self.meanwhile()
        return self.is_given

    def is_valid(self) -> bool:
        self.looks += 1
        return self.is_given and self.looks <= self.is_valid_for


class Withdrawn(Grant):
    """A permit that took so long to arrive that the task belongs to another owner by then."""

    def is_valid(self) -> bool:
        return False


def order_for(vm: VmName = WEB_0, *, event: ScheduledEvent = EVENT, epoch: int = 1) -> TaskInput:
    """Return the impact of *event* on *vm* as an order."""
    return impact_input(event, vm, HOSTS.get(vm), epoch=epoch)


ORDER = order_for()
OTHER = order_for(WEB_1)


def begin(runner: Runner, order: TaskInput = ORDER) -> Impact | None:
    """Begin *order* with a permit."""
    return runner.begin(order, Grant())


def begin_when_there_is_a_place(runner: Runner, order: TaskInput = ORDER) -> None:
    """Begin *order*, again and again while it has to wait, as the server does."""

    def is_begun() -> bool:
        said = begin(runner, order)
        return said is None or said.status is not ImpactStatus.NOT_BEGUN

    wait_until(is_begun, "there is no place")


def log_in(folder: Path) -> TaskLog:
    """Return the records of the runners that work in *folder*."""
    return TaskLog(folder / "tasks")


def find_among(those: Sequence[M]) -> Callable[[TaskInput], M | None]:
    """Return how to find the first of *those* that fits a task."""

    def find(task: TaskInput) -> M | None:
        host = None if task.host is None else host_called(task.host)
        return next((each for each in those if each.selection.fits(task.event_type, host)), None)

    return find


def make_command(
    folder: Path, *commands: Command, places: int = PLACES, places_of_host: int = PLACES_OF_HOST
) -> ProcessRunner[Command]:
    """Return a runner that remembers in *folder*."""
    return ProcessRunner(
        find_among(commands),
        SCRIPTS,
        log=log_in(folder),
        environment={"PATH": "/usr/bin:/bin"},
        clock=SystemClock(),
        places=places,
        places_of_host=places_of_host,
    )


def make_webhook(
    folder: Path, *targets: WebhookTarget, wall: WallClock | None = None
) -> WebhookRunner:
    """Return a runner that remembers in *folder*, and asks often."""
    return WebhookRunner(
        find_among(targets),
        log=log_in(folder),
        outbound=OUTBOUND,
        clock=SystemClock(),
        wall=wall or SystemClock(),
        wait=ask_often,
    )


def ask_often(failures: int) -> timedelta:
    """Return how long to wait until a target is asked again."""
    return timedelta(milliseconds=10 * (failures + 1))
