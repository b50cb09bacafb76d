"""Work on hosts: what scripts and targets are told, and who does which task."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.executors.conftest import (
    begin,
    begin_when_there_is_a_place,
    is_over,
    run_and_be_killed,
    script,
    wait_for,
    wait_until,
)
from tests.executors.host_work import (
    RULE,
    TASKS,
    WORK,
    host_order,
    host_work,
    make_host_command,
    make_host_webhook,
)
from tests.executors.target import OrderTarget, say

from forewarn.domain.host_work import HostTask, HostTaskKind
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import VmName
from forewarn.executors.command import Command
from forewarn.executors.configuration import HostWork
from forewarn.executors.processes import ProcessRunner
from forewarn.executors.webhook import WebhookRunner, WebhookTarget

# A server that begins a task and is killed while the script runs.
SERVER = """
import os, signal, sys
from pathlib import Path
from tests.executors.conftest import begin, wait_until
from tests.executors.host_work import host_order, host_work, make_host_command
from forewarn.executors.command import Command
folder = Path(sys.argv[1])
begin(make_host_command(folder, host_work(Command(run=(sys.argv[2],)))), host_order())
wait_until((folder / "ran").exists, "the script does not run")
os.kill(os.getpid(), signal.SIGKILL)
"""
RETURN = replace(WORK, kind=HostTaskKind.RETURN, vm=VmName("web-0"))


@pytest.fixture
def target() -> Iterator[OrderTarget]:
    made = OrderTarget()
    with made.listening():
        yield made


ORDER = host_order()


def do(runner: ProcessRunner[Command] | WebhookRunner, task: HostTask = WORK) -> Impact:
    """Begin, return how it ended, and close."""
    order = host_order(task, epoch=7)
    with closing(runner):
        begin(runner, order)
        return wait_for(runner, is_over, order)


def test_script_is_told_about_the_task(tmp_path: Path) -> None:
    path = script(tmp_path, f"env > {tmp_path}/env; cat > {tmp_path}/stdin")

    impact = do(make_host_command(tmp_path, host_work(Command(run=(str(path),)))), RETURN)

    assert impact == Impact(status=ImpactStatus.DONE)
    lines = (tmp_path / "env").read_text(encoding="utf-8").splitlines()
    told = {line for line in lines if line.startswith(("OPERATION_", "MAINTENANCE_", "EVENT_"))}
    assert told == {
        f"OPERATION_ID={WORK.operation_id}",
        "OPERATION_TASK=return",
        "OPERATION_HOST=kvm-0",
        "OPERATION_ATTEMPT=1",
        "OPERATION_VM=web-0",
        "OPERATION_EPOCH=7",
        "MAINTENANCE_ID=kernel",
        "EVENT_TYPE=Reboot",
    }
    assert json.loads((tmp_path / "stdin").read_text(encoding="utf-8")) == {
        "operation_id": WORK.operation_id,
        "maintenance_id": "kernel",
        "event_type": "Reboot",
        "host": "kvm-0",
        "task": "return",
        "attempt": 1,
        "vm": "web-0",
        "epoch": 7,
    }


def test_target_is_told_about_the_task(tmp_path: Path, target: OrderTarget) -> None:
    target.end("work", "done")

    impact = do(make_host_webhook(tmp_path, host_work(WebhookTarget(url=target.url))))

    assert impact == Impact(status=ImpactStatus.DONE)
    order = target.asked[0]
    content = json.loads(order.body)
    assert (content["task"], content["host"], content["vm"]) == ("work", "kvm-0", None)
    for asked in target.asked:
        assert asked.headers["forewarn-operation-id"] == WORK.operation_id
        assert asked.headers["forewarn-operation-task"] == "work"
        assert asked.headers["forewarn-epoch"] == "7"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo 'kernel panic' >&2; exit 3", "exit code 3: kernel panic"),
        ("exit 1", "exit code 1"),
        ("printf '\\377\\n'; exit 1", "exit code 1: \ufffd"),
        ("sleep 300", "it did not end within 1s and was stopped"),
    ],
)
def test_script_that_fails_says_why(tmp_path: Path, text: str, reason: str) -> None:
    command = Command(run=(str(script(tmp_path, text)),), timeout=timedelta(seconds=1))

    impact = do(make_host_command(tmp_path, host_work(command)))

    assert impact == Impact(status=ImpactStatus.FAILED, reason=reason)


def test_target_that_never_tells_fails_in_time(tmp_path: Path, target: OrderTarget) -> None:
    target.on_post = lambda _: say(202)
    worker = make_host_webhook(
        tmp_path, host_work(WebhookTarget(url=target.url, timeout=timedelta(seconds=1)))
    )

    begin(worker, ORDER)
    running = wait_for(worker, lambda impact: bool(impact.reason), ORDER)

    untold = "the target gave no status URL, so its result will not be known"
    assert (running.status, running.reason) == (ImpactStatus.RUNNING, untold)
    with closing(worker):
        assert (
            wait_for(worker, is_over, ORDER).reason == f"no result was reported within 1s: {untold}"
        )


def test_target_that_has_forgotten_the_task_is_never_told_again(
    tmp_path: Path, target: OrderTarget
) -> None:
    worker = make_host_webhook(tmp_path, host_work(WebhookTarget(url=target.url)))
    begin(worker, ORDER)
    wait_for(worker, lambda impact: impact.reason == "working", ORDER)
    target.on_get = lambda _: say(404)

    impact = wait_for(worker, is_unknown, ORDER)
    begin(worker, ORDER)
    worker.close()

    assert impact.reason == "the target accepted it, but no longer knows it"
    assert [asked.method for asked in target.asked].count("POST") == 1


def is_unknown(impact: Impact) -> bool:
    return impact.status is ImpactStatus.UNKNOWN


def test_script_whose_attendant_is_killed_has_an_end_that_nobody_knows(tmp_path: Path) -> None:
    path = script(tmp_path, f"echo $PPID > {tmp_path}/draft; mv {tmp_path}/draft {tmp_path}/pid")
    path.write_text(f"{path.read_text()}\nsleep 1\n")
    worker = make_host_command(tmp_path, host_work(Command(run=(str(path),))))
    begin(worker, ORDER)
    wait_until((tmp_path / "pid").exists, "the script does not run")

    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)

    impact = wait_for(worker, is_unknown, ORDER)
    worker.close()
    assert impact.reason.startswith("it was begun, but the process running it stopped")
    assert impact.reason.endswith("check the host, then settle the task")
    assert impact.needs_somebody


@pytest.mark.parametrize("make", [make_host_command, make_host_webhook])
def test_task_that_nobody_is_named_for_fails(
    tmp_path: Path, make: Callable[..., ProcessRunner[Command] | WebhookRunner]
) -> None:
    work = HostWork(rule=RULE, executors={HostTaskKind.WORK: Command(run=("/bin/true",))})

    impact = do(make(tmp_path, work), RETURN)

    reason = "the executor file has no return for host kvm-0"
    assert impact == Impact(status=ImpactStatus.FAILED, reason=reason)


def test_script_survives_a_server_that_is_killed_and_runs_once(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        f"echo ran >> {tmp_path}/ran; while [ ! -e {tmp_path}/end ]; do sleep 0.02; done; exit 3",
    )
    run_and_be_killed(SERVER, tmp_path, path)

    worker = make_host_command(tmp_path, host_work(Command(run=(str(path),))))
    with closing(worker):
        assert worker.inquire(ORDER).status is ImpactStatus.RUNNING
        again = begin(worker, ORDER)
        assert again is not None
        assert again.status is ImpactStatus.RUNNING
        (tmp_path / "end").touch()
        assert wait_for(worker, is_over, ORDER).reason == "exit code 3"
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_only_so_many_scripts_run_at_once(tmp_path: Path) -> None:
    command = Command(run=("/bin/sh", "-c", f"while [ ! -e {tmp_path}/end ]; do sleep 0.02; done"))
    worker = make_host_command(tmp_path, host_work(command), places=1)
    orders = [host_order(task) for task in TASKS[:2]]

    said = [begin(worker, order) for order in orders]
    (tmp_path / "end").touch()

    reason = "it is waiting: at most 1 run at once"
    assert said == [None, Impact(status=ImpactStatus.NOT_BEGUN, reason=reason)]
    with closing(worker):
        for order in orders:
            begin_when_there_is_a_place(worker, order)
            assert wait_for(worker, is_over, order).status is ImpactStatus.DONE
