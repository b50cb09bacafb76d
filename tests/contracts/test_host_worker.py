"""What everybody who works on hosts promises: a task is done at most once, and its end is told."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest
from tests.executors.conftest import NOW, ask_until, is_over, script, wait_until
from tests.executors.host_work import RULE, TASKS, WORK, host_work, make_host_worker
from tests.executors.target import OrderTarget
from tests.host_worker.own_host import OwnHost, put_operation

from forewarn.clocks import VirtualClock
from forewarn.domain.host_work import HostTask, HostTaskKind
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import VmName
from forewarn.executors.command import Command
from forewarn.executors.fetched import FetchedByHost
from forewarn.executors.simulated import SimulatedHostWorker
from forewarn.executors.targets import ImpactTarget
from forewarn.ports.host_worker import HostWorker
from forewarn.ports.store import LeaseLostError, Store
from forewarn.protocol.vocabulary import EventId

SCRIPT = """name=$OPERATION_TASK
[ $name = verify ] && name=$name-$OPERATION_ATTEMPT
[ $name = return ] && name=$name-$OPERATION_VM
echo "$OPERATION_ID $name" >> {folder}/deeds
while [ ! -e {folder}/$name.end ]; do sleep 0.02; done
. {folder}/$name.end"""


class Rig(Protocol):
    """A worker with what it acts on; *fates* says which tasks are to fail, by name, and why."""

    fates: dict[str, str]

    def make(self) -> HostWorker:
        """Return another worker that finds what the last has left, as after a crash."""
        ...

    def end(self, task: HostTask) -> None:
        """Let the task be over."""
        ...

    def deeds(self) -> Counter[tuple[str, str]]:
        """Return which tasks were really done, and how often."""
        ...


class SimulatedRig:
    def __init__(self, store: Store, _folder: Path, _closing: ExitStack) -> None:
        self.fates: dict[str, str] = {}
        self._store = store
        self._clock = VirtualClock(NOW)

    def make(self) -> HostWorker:
        return SimulatedHostWorker(
            self._store,
            self._clock,
            rules=(RULE,),
            failure_of=lambda _, task: self.fates.get(task.name, ""),
        )

    def end(self, task: HostTask) -> None:
        impact = self.make().inquire(task)
        if impact.ask_again_at is not None:
            self._clock.move_to(impact.ask_again_at)

    def deeds(self) -> Counter[tuple[str, str]]:
        return Counter((task.operation_id, task.name) for task in TASKS if self._has(task))

    def _has(self, task: HostTask) -> bool:
        key = EventId(task.operation_id), VmName(task.name)
        return self._store.read(lambda reading: reading.simulated_impact(*key)) is not None


class CommandRig:
    def __init__(self, store: Store, folder: Path, closing: ExitStack) -> None:
        self.fates: dict[str, str] = {}
        self._store = store
        self._folder = folder
        self._command = Command(run=(str(script(folder, SCRIPT.format(folder=folder))),))
        self._closing = closing
        for task in TASKS:  # so that no script outlives its test
            closing.callback(self.end, task)

    def make(self) -> HostWorker:
        made = make_host_worker(self._folder, host_work(self._command), store=self._store)
        self._closing.callback(made.close)
        return made

    def end(self, task: HostTask) -> None:
        fate = self.fates.get(task.name)
        ending = f"echo {fate}; exit 3" if fate else "exit 0"
        (self._folder / "draft").write_text(ending, encoding="utf-8")
        (self._folder / "draft").rename(self._folder / f"{task.name}.end")

    def deeds(self) -> Counter[tuple[str, str]]:
        try:
            lines = (self._folder / "deeds").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return Counter()
        return Counter((operation, name) for operation, name in map(str.split, lines))


class WebhookRig:
    def __init__(self, store: Store, folder: Path, closing: ExitStack) -> None:
        self.fates: dict[str, str] = {}
        self._store = store
        self.target = OrderTarget()
        self._folder = folder
        self._closing = closing
        closing.enter_context(self.target.listening())

    def make(self) -> HostWorker:
        work = host_work(ImpactTarget(url=self.target.url))
        made = make_host_worker(self._folder, work, store=self._store)
        self._closing.callback(made.close)
        return made

    def end(self, task: HostTask) -> None:
        fate = self.fates.get(task.name)
        self.target.end(task.name, "failed" if fate else "done", fate or "")

    def deeds(self) -> Counter[tuple[str, str]]:
        return Counter(self.target.deeds)


class FetchedRig:
    """The host is a thread that fetches what any of the servers offers, with a disk of its own."""

    def __init__(self, store: Store, folder: Path, closing: ExitStack) -> None:
        (folder / "host").mkdir()
        self._scripts = CommandRig(store, folder / "host", closing)
        self.fates = self._scripts.fates
        self._store = store
        self._folder = folder
        self._closing = closing
        for task in TASKS:
            put_operation(store, task)
        command = Command(run=(str(folder / "host/script"),))
        host = OwnHost(store, folder / "host", dict.fromkeys(HostTaskKind, command))
        closing.enter_context(host.working())

    def make(self) -> HostWorker:
        work = host_work(FetchedByHost())
        made = make_host_worker(self._folder, work, store=self._store)
        self._closing.callback(made.close)
        return made

    def end(self, task: HostTask) -> None:
        self._scripts.end(task)

    def deeds(self) -> Counter[tuple[str, str]]:
        return self._scripts.deeds()


RIGS: dict[str, Callable[[Store, Path, ExitStack], Rig]] = {
    "simulated": SimulatedRig,
    "command": CommandRig,
    "webhook": WebhookRig,
    "fetched": FetchedRig,
}


@pytest.fixture(params=RIGS)
def rig(request: pytest.FixtureRequest, store: Store, tmp_path: Path) -> Iterator[Rig]:
    """Return each in turn."""
    with ExitStack() as closing:
        yield RIGS[request.param](store, tmp_path, closing)


def lead(store: Store) -> int:
    return store.write(lambda tx: tx.next_epoch())


def wait_for_end(worker: HostWorker, task: HostTask = WORK) -> Impact:
    return ask_until(lambda: worker.inquire(task), is_over)


def rig_does(rig: Rig, number: int) -> None:
    wait_until(lambda: rig.deeds().total() >= number, "nothing is done")


def test_rules_are_told(rig: Rig) -> None:
    assert tuple(rig.make().rules) == (RULE,)


def test_nothing_is_begun_before_it_is(rig: Rig) -> None:
    assert rig.make().inquire(WORK).status is ImpactStatus.NOT_BEGUN
    assert rig.deeds() == {}


def test_work_that_is_begun_runs_and_says_when_to_ask_again(rig: Rig, store: Store) -> None:
    worker = rig.make()

    begun = worker.begin(WORK, epoch=lead(store))

    assert begun.status is ImpactStatus.RUNNING
    assert begun.ask_again_at is not None
    assert worker.inquire(WORK).status is ImpactStatus.RUNNING


def test_task_that_is_begun_twice_is_done_once(rig: Rig, store: Store) -> None:
    worker = rig.make()
    for _ in range(3):
        worker.begin(WORK, epoch=lead(store))
    rig_does(rig, 1)
    rig.make().begin(WORK, epoch=lead(store))

    rig.end(WORK)

    assert wait_for_end(worker).status is ImpactStatus.DONE
    assert worker.begin(WORK, epoch=lead(store)).status is ImpactStatus.DONE
    assert rig.deeds() == {(WORK.operation_id, "work"): 1}


def test_leaders_that_begin_at_the_same_moment_do_it_once(rig: Rig, store: Store) -> None:
    workers, ready, epoch = [rig.make() for _ in range(4)], threading.Barrier(4), lead(store)

    def begin(worker: HostWorker) -> None:
        ready.wait(60)
        worker.begin(WORK, epoch=epoch)

    leaders = [threading.Thread(target=begin, args=(worker,)) for worker in workers]
    for leader in leaders:
        leader.start()
    for leader in leaders:
        leader.join(60)
    rig_does(rig, 1)
    rig.end(WORK)

    for worker in workers:
        assert wait_for_end(worker).status is ImpactStatus.DONE
    assert rig.deeds() == {(WORK.operation_id, "work"): 1}


def test_leader_whose_lease_is_over_begins_nothing(rig: Rig, store: Store) -> None:
    worker, epoch = rig.make(), lead(store)
    lead(store)

    with pytest.raises(LeaseLostError):
        worker.begin(WORK, epoch=epoch)

    assert worker.inquire(WORK).status is ImpactStatus.NOT_BEGUN
    assert rig.deeds() == {}


def test_end_is_found_after_a_crash(rig: Rig, store: Store) -> None:
    first = rig.make()
    first.begin(WORK, epoch=lead(store))
    rig_does(rig, 1)
    ask_until(lambda: first.inquire(WORK), is_heard_of(rig))

    second = rig.make()
    assert second.inquire(WORK).status is ImpactStatus.RUNNING
    rig.end(WORK)

    assert wait_for_end(second).status is ImpactStatus.DONE
    assert rig.make().inquire(WORK).status is ImpactStatus.DONE
    assert set(rig.deeds().values()) == {1}


def is_heard_of(rig: Rig) -> Callable[[Impact], bool]:
    """Tell when the target of a webhook is known to have taken the order."""
    return lambda impact: not isinstance(rig, WebhookRig) or impact.reason == "working"


def test_tasks_have_ends_of_their_own(rig: Rig, store: Store) -> None:
    rig.fates["verify-1"] = "not-yet"
    worker, epoch = rig.make(), lead(store)
    for task in TASKS:
        worker.begin(task, epoch=epoch)
    rig_does(rig, len(TASKS))

    for task in TASKS:
        rig.end(task)
    ends = {task: wait_for_end(worker, task) for task in TASKS}

    bad = {task.name: impact for task, impact in ends.items() if impact.reason}
    assert list(bad) == ["verify-1"]
    assert bad["verify-1"].status is ImpactStatus.FAILED
    assert "not-yet" in bad["verify-1"].reason
    assert {task: rig.make().inquire(task) for task in TASKS} == ends, "as after a crash"
    assert rig.deeds() == {(task.operation_id, task.name): 1 for task in TASKS}
