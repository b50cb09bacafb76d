"""A pause or a takeover by one replica, while another is about to begin something."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.executors.conftest import (
    EVENT,
    KEY,
    NOW,
    ORDER,
    find_among,
    log_in,
    make_command,
    make_webhook,
    order_for,
    wait_until,
)
from tests.executors.target import Asked, OrderTarget

from forewarn.clocks import SystemClock
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import VmName
from forewarn.domain.task import Owner, Task, TaskKey, TaskState, assign
from forewarn.executors.command import Command
from forewarn.executors.task_input import PAUSED, Runner, TaskInput
from forewarn.executors.watcher import TaskWatcher
from forewarn.executors.webhook import WebhookTarget
from forewarn.operations.context import Context
from forewarn.operations.pausing import pause_server, resume_server
from forewarn.ports.store import Store
from forewarn.storage.postgres import open_postgres

CONTEXT = Context(who="ops", now=NOW, at=NOW, new_id=lambda: EVENT.event_id)
NODE, ANOTHER = "kvm-8:node", "kvm-9:node"
OWNER = Owner(node=NODE, name="kvm-8", generation=1, heard_at=NOW)


@dataclass(slots=True)
class TwoReplicas:
    """One that owns tasks, and another one, on which an operator or the new leader acts."""

    own: Store
    other: Store

    def reserve(self, vm: VmName) -> Task:
        task = Task(
            subject=EVENT.event_id,
            name=vm,
            vm=vm,
            runner="script",
            node=NODE,
            epoch=1,
            said=Impact(status=ImpactStatus.NOT_BEGUN),
            reserved_at=NOW,
        )
        self.own.write(lambda tx: tx.put_task(task))
        return task

    def task(self, key: TaskKey = KEY) -> Task:
        task = self.other.read(lambda reading: reading.task(key))
        assert task is not None
        return task

    def pause(self) -> None:
        self.other.write(lambda tx: pause_server(tx, CONTEXT))

    def resume(self) -> None:
        self.other.write(lambda tx: resume_server(tx, CONTEXT))

    def take_over(self) -> None:
        """Let the other one give what is reserved to itself, as a new leader does."""
        taken = assign(self.task(), ANOTHER, epoch=2)
        self.other.write(lambda tx: tx.put_task(taken))

    def watch(self, runner: Runner, folder: Path) -> TaskWatcher:
        class Only:
            problem = ""

            def runner(self, _: str) -> Runner:
                return runner

        return TaskWatcher(
            self.own,
            runners=Only(),
            register=lambda: OWNER,
            records=log_in(folder),
            wall=SystemClock(),
        )


@pytest.fixture
def replicas(postgres_url: str) -> Iterator[TwoReplicas]:
    with ExitStack() as stack:
        made = TwoReplicas(
            *(
                stack.enter_context(closing(open_postgres(postgres_url, node=node)))
                for node in (NODE, ANOTHER)
            )
        )
        made.own.write(lambda tx: tx.put_event(EVENT))
        made.own.write(lambda tx: tx.put_owner(OWNER))
        yield made


@pytest.mark.parametrize("happens", ["pause", "take_over"])
def test_script_does_not_begin_after_a_pause_or_takeover_on_another_replica(
    replicas: TwoReplicas, tmp_path: Path, happens: str
) -> None:
    ran, command = tmp_path / "ran", Command(run=("/usr/bin/touch", f"{tmp_path}/ran"))
    meanwhile, found = [getattr(replicas, happens)], find_among([command])

    def find(task: TaskInput) -> Command | None:
        """Let it happen once: after the look of the watcher, before the permit."""
        while meanwhile:
            meanwhile.pop()()
        return found(task)

    runner = replace(make_command(tmp_path), find=find)
    watcher = replicas.watch(runner, tmp_path)
    replicas.reserve(VmName(KEY[1]))

    watcher.attend()
    runner.close()

    assert meanwhile == []
    assert replicas.task().state is TaskState.RESERVED
    assert not ran.exists()
    watcher.attend()
    assert runner.inquire(ORDER).status is ImpactStatus.NOT_BEGUN
    if happens == "pause":
        assert replicas.task().said.reason == PAUSED
        replicas.resume()
        wait_until(lambda: watcher.attend() is None, "it does not end")
        assert replicas.task().said == Impact(status=ImpactStatus.DONE)
        assert ran.exists()


def test_order_that_waits_for_its_turn_is_not_sent_after_a_pause_on_another_replica(
    replicas: TwoReplicas, tmp_path: Path
) -> None:
    release, at_once, target = threading.Event(), 32, OrderTarget()
    last = VmName("vm-last")
    vms = [VmName(f"vm-{number}") for number in range(at_once)]

    def hang(_: Asked) -> None:
        release.wait(60)

    target.on_post = hang
    with target.listening(), ExitStack() as closing_all:
        runner = make_webhook(tmp_path, WebhookTarget(url=target.url))
        closing_all.callback(runner.close)
        closing_all.callback(release.set)
        watcher = replicas.watch(runner, tmp_path)
        for vm in vms:
            replicas.reserve(vm)
        watcher.attend()
        wait_until(lambda: len(target.asked) == at_once, "the target is not told")
        replicas.reserve(last)
        watcher.attend()

        replicas.pause()
        release.set()
        wait_until(lambda: runner.inquire(order_for(last)).status is ImpactStatus.NOT_BEGUN, "")
        watcher.attend()

        key = (EVENT.event_id, last)
        assert replicas.task(key).said == Impact(status=ImpactStatus.NOT_BEGUN, reason=PAUSED)
        assert key not in target.deeds
        replicas.resume()
        watcher.attend()
        wait_until(lambda: key in target.deeds, "it is not sent")
        assert replicas.task(key).state is TaskState.BEGUN
