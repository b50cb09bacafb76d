"""Nothing is done to any machine or host, but it takes as long as if it were.

What is begun is a row that says when it will be over. The unique row keeps it to one.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.host_work import HostTask, HostTaskKind, HostWorkRule
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import VmName
from forewarn.domain.scenario import USUAL_IMPACT, simulated_impact
from forewarn.domain.topology import Topology
from forewarn.operations.pausing import may_begin
from forewarn.ports.clock import Clock
from forewarn.ports.entries import SimulatedImpact
from forewarn.ports.store import Store, Transaction
from forewarn.protocol.vocabulary import EventId


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedExecutor:
    """Begins an impact by writing down when it will be over.

    *failure_of* says why the impact on a virtual machine of the fleet is to fail, or nothing.
    """

    store: Store
    clock: Clock
    _: KW_ONLY
    speed: float = 1
    failure_of: Callable[[Topology, VmName], str] = lambda _fleet, _vm: ""

    def begin(self, event: ScheduledEvent, vm: VmName, *, epoch: int) -> Impact:
        """Write down when the impact will be over, unless it was begun before."""
        return _Rows(self.store, self.clock).begin(
            (event.event_id, vm),
            simulated_impact(event, speed=self.speed),
            lambda fleet: self.failure_of(fleet, vm),
            epoch,
        )

    def inquire(self, event_id: EventId, vm: VmName) -> Impact:
        """Look up when it will be over, or was."""
        return _Rows(self.store, self.clock).inquire((event_id, vm))


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedHostWorker:
    """Works on a host as long as an impact of that type takes; the other tasks take no time.

    *failure_of* says why a task is to fail, or nothing.
    """

    store: Store
    clock: Clock
    _: KW_ONLY
    rules: Sequence[HostWorkRule]
    """Which hosts have work, in the order in which they are tried."""
    speed: float = 1
    failure_of: Callable[[Topology, HostTask], str] = lambda _fleet, _task: ""

    def begin(self, task: HostTask, *, epoch: int) -> Impact:
        """Write down when the task will be over, unless it was begun before."""
        is_work = task.kind is HostTaskKind.WORK
        lasts = USUAL_IMPACT[task.event_type] / self.speed if is_work else timedelta(0)
        return _Rows(self.store, self.clock).begin(
            _key_of(task), lasts, lambda fleet: self.failure_of(fleet, task), epoch
        )

    def inquire(self, task: HostTask) -> Impact:
        """Look up when it will be over, or was."""
        return _Rows(self.store, self.clock).inquire(_key_of(task))


@dataclass(frozen=True, slots=True)
class _Rows:
    """What was begun, and when it will be over."""

    store: Store
    clock: Clock

    def begin(
        self,
        key: tuple[EventId, VmName],
        lasts: timedelta,
        failure_in: Callable[[Topology], str],
        epoch: int,
    ) -> Impact:
        event_id, vm = key
        ends_at = self.clock.now() + lasts

        def remember(tx: Transaction) -> SimulatedImpact | None:
            if not may_begin(tx, epoch):  # paused since the leader decided
                return None
            failure = failure_in(tx.topology())
            impact = SimulatedImpact(event_id=event_id, vm=vm, ends_at=ends_at, failure=failure)
            return impact if tx.put_simulated_impact(impact) else None

        begun = self.store.write(remember)
        return self.inquire(key) if begun is None else self._progress_of(begun)

    def inquire(self, key: tuple[EventId, VmName]) -> Impact:
        impact = self.store.read(lambda reading: reading.simulated_impact(*key))
        if impact is None:
            return Impact(status=ImpactStatus.NOT_BEGUN)
        return self._progress_of(impact)

    def _progress_of(self, impact: SimulatedImpact) -> Impact:
        if self.clock.now() < impact.ends_at:
            return Impact(status=ImpactStatus.RUNNING, ask_again_at=impact.ends_at)
        if impact.failure:
            return Impact(status=ImpactStatus.FAILED, reason=impact.failure)
        return Impact(status=ImpactStatus.DONE)


def _key_of(task: HostTask) -> tuple[EventId, VmName]:
    # A task has a row as an impact has: neither ids nor names of the two can be the same.
    return EventId(task.operation_id), VmName(task.name)
