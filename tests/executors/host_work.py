"""Tasks of a host operation, and runners of them that remember in a folder."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from tests.executors.conftest import ask_often, log_in
from tests.web_site import OUTBOUND

from forewarn.clocks import SystemClock
from forewarn.domain.host_work import HostTask, HostTaskKind, HostWorkRule
from forewarn.domain.names import HostName, MaintenanceId, OperationId, VmName
from forewarn.domain.topology import Host
from forewarn.executors.command import SCRIPTS, Command
from forewarn.executors.configuration import Executors, FetchedByHost, HostWork
from forewarn.executors.processes import PLACES, ProcessRunner
from forewarn.executors.task_input import TaskInput, host_task_input
from forewarn.executors.webhook import WebhookRunner, WebhookTarget
from forewarn.protocol.vocabulary import EventType

M = TypeVar("M", Command, WebhookTarget)

WORK = HostTask(
    operation_id=OperationId("9F6D1B52-6E70-4E36-8C5A-6B4C8C4E7D10"),
    maintenance_id=MaintenanceId("kernel"),
    event_type=EventType.REBOOT,
    host=HostName("kvm-0"),
    kind=HostTaskKind.WORK,
)
TASKS = (
    WORK,
    replace(WORK, kind=HostTaskKind.VERIFY),
    replace(WORK, kind=HostTaskKind.VERIFY, attempt=2),
    replace(WORK, kind=HostTaskKind.RETURN, vm=VmName("web-0")),
    replace(WORK, kind=HostTaskKind.RETURN, vm=VmName("web-1")),
    replace(WORK, operation_id=OperationId("0A3B3C65-93C3-4B84-9D1B-5B19C5C3C7E5")),
)
RULE = HostWorkRule(hosts=("kvm-*",), has_verify=True, has_return=True)


def host_work(
    executor: Command | WebhookTarget | FetchedByHost, rule: HostWorkRule = RULE
) -> HostWork:
    """Return work of which one *executor* does every task."""
    return HostWork(rule=rule, executors=dict.fromkeys(HostTaskKind, executor))


def host_order(task: HostTask = WORK, *, epoch: int = 1) -> TaskInput:
    """Return *task* as its runner gets it."""
    return host_task_input(task, epoch=epoch)


def find_for_host(kind: type[M], works: Sequence[HostWork]) -> Callable[[TaskInput], M | None]:
    """Return how to find the executor of that *kind* in the first of *works* that fits."""
    executors = Executors(host_works=tuple(works))

    def find(task: TaskInput) -> M | None:
        assert task.host is not None
        assert task.kind is not None
        found = executors.find_host_task(task.kind, Host(name=task.host))
        return found if isinstance(found, kind) else None

    return find


def make_host_command(
    folder: Path, *works: HostWork, places: int = PLACES
) -> ProcessRunner[Command]:
    """Return a runner of scripts about hosts that remembers in *folder*."""
    return ProcessRunner(
        find_for_host(Command, works),
        SCRIPTS,
        log=log_in(folder),
        environment={"PATH": "/usr/bin:/bin"},
        clock=SystemClock(),
        places=places,
    )


def make_host_webhook(folder: Path, *works: HostWork) -> WebhookRunner:
    """Return a runner of webhooks about hosts that remembers in *folder*, and asks often."""
    return WebhookRunner(
        find_for_host(WebhookTarget, works),
        log=log_in(folder),
        outbound=OUTBOUND,
        clock=SystemClock(),
        wall=SystemClock(),
        wait=ask_often,
    )
