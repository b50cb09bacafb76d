"""What every executor promises: an impact happens at most once, and its end is told as it was."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import pytest
from tests.executors.conftest import (
    EVENT,
    KEY,
    NOW,
    WEB_0,
    WEB_1,
    is_over,
    make_command,
    make_webhook,
    script,
    wait_for,
    wait_until,
)
from tests.executors.libvirtd import libvirtd, make_libvirt, wait_for_stewards
from tests.executors.target import OrderTarget, say

from forewarn.bootstrap.order_records import IMPACT_ORDERS, OrderRecords
from forewarn.clocks import VirtualClock
from forewarn.domain.event import Outcome
from forewarn.domain.impact import ImpactStatus
from forewarn.domain.names import VmName
from forewarn.executors.command import Command
from forewarn.executors.impacts import ContractedExecutor
from forewarn.executors.libvirt.hypervisors import Hypervisor
from forewarn.executors.libvirt.marks import MarkPhase
from forewarn.executors.manual import ManualExecutor
from forewarn.executors.simulated import SimulatedExecutor
from forewarn.executors.targets import ImpactTarget
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.context import Context
from forewarn.operations.events import EventOrder, complete_event, create_events, find_event
from forewarn.operations.inventory import apply_fleet
from forewarn.ports.entries import SimulatedImpact
from forewarn.ports.executor import Executor
from forewarn.ports.store import SERVER_PAUSE, LeaseLostError, Store
from forewarn.protocol.vocabulary import EventStatus, EventType
from forewarn.scheduler.scheduler import Scheduler

FLEET = """
[[availability_set]]
name = "web"
update_domains = 1

[[virtual_machine]]
name = "web-0"
availability_set = "web"
"""
SCRIPT = """echo "$EVENT_ID $EVENT_VM" >> {folder}/deeds
while [ ! -e {folder}/$EVENT_VM.end ]; do sleep 0.02; done
. {folder}/$EVENT_VM.end"""


class Rig(Protocol):
    """An executor with what it acts on; *fates* says for which machines it is to fail, and why."""

    fates: dict[VmName, str]

    def make(self) -> Executor:
        """Return another executor that finds what the last has left, as after a crash."""
        ...

    def end(self, vm: VmName) -> None:
        """Let the impact on *vm* be over."""
        ...

    def deeds(self) -> Counter[tuple[str, str]]:
        """Return what was really done to whom, and how often."""
        ...


class ManualRig:
    def __init__(self, _store: Store, _folder: Path, _closing: ExitStack) -> None:
        self.fates: dict[VmName, str] = {}

    def make(self) -> Executor:
        return ManualExecutor()

    def end(self, vm: VmName) -> None:
        """Tell nobody."""

    def deeds(self) -> Counter[tuple[str, str]]:
        return Counter()


class SimulatedRig:
    def __init__(self, store: Store, _folder: Path, _closing: ExitStack) -> None:
        self.fates: dict[VmName, str] = {}
        self._store = store
        self._clock = VirtualClock(NOW)

    def make(self) -> Executor:
        return SimulatedExecutor(
            self._store, self._clock, failure_of=lambda _, vm: self.fates.get(vm, "")
        )

    def end(self, vm: VmName) -> None:
        impact = self._impact(vm)
        assert impact is not None
        self._clock.move_to(impact.ends_at)

    def deeds(self) -> Counter[tuple[str, str]]:
        return Counter((EVENT.event_id, vm) for vm in EVENT.resources if self._impact(vm))

    def _impact(self, vm: VmName) -> SimulatedImpact | None:
        return self._store.read(lambda reading: reading.simulated_impact(EVENT.event_id, vm))


class CommandRig:
    def __init__(self, store: Store, folder: Path, _closing: ExitStack) -> None:
        self.fates: dict[VmName, str] = {}
        self.places: dict[VmName, str] = {}
        self._store = store
        self._folder = folder
        self._command = Command(run=(str(script(folder, SCRIPT.format(folder=folder))),))

    def make(self) -> Executor:
        records = OrderRecords(IMPACT_ORDERS, self._folder, self._store).for_scripts()
        return make_command(self._folder, self._command, records=records)

    def end(self, vm: VmName) -> None:
        fate = self.fates.get(vm)
        ending = f"echo {fate}; exit 3" if fate else "exit 0"
        if vm in self.places:
            ending = f"echo {fate}; echo host={self.places[vm]}; exit {3 if fate else 0}"
        (self._folder / "draft").write_text(ending, encoding="utf-8")
        (self._folder / "draft").rename(self._folder / f"{vm}.end")

    def deeds(self) -> Counter[tuple[str, str]]:
        try:
            lines = (self._folder / "deeds").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return Counter()
        return Counter((event, vm) for event, vm in map(str.split, lines))


class WebhookRig:
    def __init__(self, store: Store, folder: Path, closing: ExitStack) -> None:
        self.fates: dict[VmName, str] = {}
        self.places: dict[VmName, str] = {}
        self._store = store
        self.target = OrderTarget()
        self._folder = folder
        self._closing = closing
        closing.enter_context(self.target.listening())

    def make(self) -> Executor:
        records = OrderRecords(IMPACT_ORDERS, self._folder, self._store).for_webhooks()
        made = make_webhook(self._folder, ImpactTarget(url=self.target.url), records=records)
        self._closing.callback(made.close)
        return made

    def end(self, vm: VmName) -> None:
        fate = self.fates.get(vm)
        self.target.end(vm, "failed" if fate else "done", fate or "")
        if vm in self.places:
            self.target.statuses[vm]["host"] = self.places[vm]

    def deeds(self) -> Counter[tuple[str, str]]:
        return Counter(self.target.deeds)


class LibvirtRig:
    """Guests of libvirt's test driver, which restart when the test has them do so."""

    def __init__(self, store: Store, folder: Path, closing: ExitStack) -> None:
        self.fates: dict[VmName, str] = {}
        self._store = store
        self._folder = folder
        self._made = list[ContractedExecutor]()
        self._daemon = closing.enter_context(libvirtd())
        for vm in EVENT.resources:
            self._daemon.define(vm)

    def make(self) -> Executor:
        records = OrderRecords(IMPACT_ORDERS, self._folder, self._store).for_webhooks()
        made = make_libvirt(self._folder, Hypervisor(uri=self._daemon.uri), records=records)
        self._made.append(made)
        return made

    def end(self, vm: VmName) -> None:
        if fate := self.fates.get(vm):
            self._daemon.mark(vm, MarkPhase.FAILED, reason=fate)
        elif self._daemon.state(vm) == RUNNING:
            self._daemon.domain(vm).destroy()

    def finish(self) -> None:
        for each in self._made:
            each.close()
        for vm in EVENT.resources:
            self.end(vm)
        wait_for_stewards(self._folder)

    def deeds(self) -> Counter[tuple[str, str]]:
        calls = self._daemon.deeds()
        return Counter(
            {
                (EVENT.event_id, vm): calls["reboot", vm]
                for vm in EVENT.resources
                if calls["reboot", vm]
            }
        )


RUNNING = 1
RIGS: dict[str, Callable[[Store, Path, ExitStack], Rig]] = {
    "manual": ManualRig,
    "simulated": SimulatedRig,
    "command": CommandRig,
    "webhook": WebhookRig,
    "libvirt": LibvirtRig,
}
TELLING = ("simulated", "command", "webhook", "libvirt")


@pytest.fixture
def rig(request: pytest.FixtureRequest, store: Store, tmp_path: Path) -> Iterator[Rig]:
    """Return what is named by the test, or by default each in turn."""
    with ExitStack() as closing:
        made = RIGS[request.param](store, tmp_path, closing)
        yield made
        for vm in EVENT.resources:  # so that no process outlives its test
            if isinstance(made, CommandRig):
                made.end(vm)
        if isinstance(made, LibvirtRig):
            made.finish()


def each(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("rig", names, indirect=True)


def lead(store: Store) -> int:
    return store.write(lambda tx: tx.next_epoch())


@each(*TELLING)
def test_nothing_is_begun_before_it_is(rig: Rig) -> None:
    assert rig.make().inquire(*KEY).status is ImpactStatus.NOT_BEGUN
    assert rig.deeds() == {}


@each(*RIGS)
def test_begun_impact_runs_and_nobody_says_it_has_not_begun(rig: Rig, store: Store) -> None:
    executor = rig.make()

    begun = executor.begin(EVENT, WEB_0, epoch=lead(store))

    assert begun.status is ImpactStatus.RUNNING
    assert executor.inquire(*KEY).status is ImpactStatus.RUNNING


@each(*RIGS)
def test_impact_that_is_begun_twice_happens_once(rig: Rig, store: Store) -> None:
    executor = rig.make()
    for _ in range(3):
        executor.begin(EVENT, WEB_0, epoch=lead(store))

    rig.make().begin(EVENT, WEB_0, epoch=lead(store))

    if not isinstance(rig, ManualRig):
        rig_does(rig, 1)
        rig.end(WEB_0)
        assert wait_for(executor, is_over).status is ImpactStatus.DONE
        executor.begin(EVENT, WEB_0, epoch=lead(store))
        assert executor.inquire(*KEY).status is ImpactStatus.DONE
        assert set(rig.deeds().values()) == {1}


@each("simulated")
def test_impact_is_not_begun_once_the_server_is_paused(rig: Rig, store: Store) -> None:
    paused = json.dumps({"who": "ops", "since": NOW.isoformat(), "reason": ""})
    store.write(lambda tx: tx.put_setting(SERVER_PAUSE, paused))
    executor, epoch = rig.make(), lead(store)

    assert executor.begin(EVENT, WEB_0, epoch=epoch).status is ImpactStatus.NOT_BEGUN
    store.write(lambda tx: tx.put_setting(SERVER_PAUSE, ""))
    assert executor.begin(EVENT, WEB_0, epoch=epoch).status is ImpactStatus.RUNNING


@each(*TELLING)
def test_leader_whose_lease_is_over_begins_nothing(rig: Rig, store: Store) -> None:
    executor, epoch = rig.make(), lead(store)
    lead(store)

    with pytest.raises(LeaseLostError):
        executor.begin(EVENT, WEB_0, epoch=epoch)

    assert executor.inquire(*KEY).status is ImpactStatus.NOT_BEGUN
    assert rig.deeds() == {}


@each("webhook")
def test_order_that_no_target_took_is_given_anew_by_the_next_leader(rig: Rig, store: Store) -> None:
    assert isinstance(rig, WebhookRig)
    rig.target.on_post = lambda _: say(503)
    executor = rig.make()
    executor.begin(EVENT, WEB_0, epoch=lead(store))
    wait_for(executor, lambda impact: "503" in impact.reason)

    epoch = lead(store)

    assert executor.inquire(*KEY).status is ImpactStatus.NOT_BEGUN
    rig.target.on_post = lambda _: None
    executor.begin(EVENT, WEB_0, epoch=epoch)
    rig.end(WEB_0)
    assert wait_for(executor, is_over).status is ImpactStatus.DONE
    assert {asked.headers["forewarn-epoch"] for asked in rig.target.asked} == {"1", str(epoch)}


@each(*TELLING)
def test_end_is_found_after_a_crash(rig: Rig, store: Store) -> None:
    rig.make().begin(EVENT, WEB_0, epoch=lead(store))
    rig_does(rig, 1)

    second = rig.make()
    if not isinstance(rig, WebhookRig):  # the target may not have been heard by the first
        assert second.inquire(*KEY).status is ImpactStatus.RUNNING
    else:
        wait_for(second, lambda impact: impact.status is ImpactStatus.RUNNING)
    rig.end(WEB_0)

    assert wait_for(second, is_over).status is ImpactStatus.DONE
    assert rig.make().inquire(*KEY).status is ImpactStatus.DONE
    assert set(rig.deeds().values()) == {1}


@each(*TELLING)
def test_machines_of_one_event_have_ends_of_their_own(rig: Rig, store: Store) -> None:
    rig.fates[WEB_1] = "disk-on-fire"
    executor, epoch = rig.make(), lead(store)
    for vm in EVENT.resources:
        executor.begin(EVENT, vm, epoch=epoch)
    rig_does(rig, 2)

    rig.end(WEB_0)
    rig.end(WEB_1)

    assert wait_for(executor, is_over).status is ImpactStatus.DONE
    failed = wait_for(executor, is_over, (EVENT.event_id, WEB_1))
    assert failed.status is ImpactStatus.FAILED
    assert "disk-on-fire" in failed.reason
    assert rig.make().inquire(EVENT.event_id, WEB_1) == failed, "as after a crash"


@each("command", "webhook")
@pytest.mark.parametrize("fate", ["", "disk-on-fire"])
def test_machine_is_where_the_end_says_also_after_a_crash(
    rig: Rig, store: Store, fate: str
) -> None:
    assert isinstance(rig, CommandRig | WebhookRig)
    rig.places[WEB_0] = "kvm-2"
    rig.fates[WEB_0] = fate
    executor, epoch = rig.make(), lead(store)
    for vm in EVENT.resources:
        executor.begin(EVENT, vm, epoch=epoch)
    rig_does(rig, 2)

    rig.end(WEB_0)
    rig.end(WEB_1)

    said = wait_for(executor, is_over)
    assert (said.moved_to, said.status) == (
        "kvm-2",
        ImpactStatus.FAILED if fate else ImpactStatus.DONE,
    )
    assert fate in said.reason
    assert rig.make().inquire(*KEY) == said, "as after a crash"
    assert wait_for(executor, is_over, (EVENT.event_id, WEB_1)).moved_to is None


def rig_does(rig: Rig, number: int) -> None:
    wait_until(lambda: rig.deeds().total() >= number, "nothing is done")


@each(*RIGS)
def test_report_after_the_operator_completed_it_changes_nothing(rig: Rig, store: Store) -> None:
    clock = VirtualClock(NOW)
    rules = Context(who="test", now=NOW, at=NOW, new_id=lambda: EVENT.event_id)

    def context() -> Context:
        return replace(rules, now=clock.now())

    fleet = read_fleet_file(FLEET)
    store.write(lambda tx: apply_fleet(tx, context(), fleet))
    order = EventOrder(event_type=EventType.REBOOT, resources=("web-0",), started=True)
    store.write(lambda tx: create_events(tx, context(), order))
    scheduler = Scheduler(store=store, executor=rig.make(), context=context, epoch=lead(store))
    scheduler.settle()

    store.write(lambda tx: complete_event(tx, context(), EVENT.event_id, Outcome.FAILED, "by hand"))
    if not isinstance(rig, ManualRig):
        rig_does(rig, 1)
    rig.end(WEB_0)
    for _ in range(20):
        clock.move_to(clock.now() + timedelta(seconds=1))
        scheduler.settle()

    event = store.read(lambda reading: find_event(reading, EVENT.event_id))
    assert event.event_status is EventStatus.COMPLETED
    assert (event.outcome, event.reason) == (Outcome.FAILED, "by hand")
