"""Tasks that nothing outside is done for: by hand, or simulated. Rows are all there is to them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.host_work import HostTask, HostTaskKind, HostWorkRule
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import VmName
from forewarn.domain.scenario import USUAL_IMPACT, simulated_impact
from forewarn.domain.task import BY_HAND, MANUAL, SIMULATED
from forewarn.domain.topology import Topology
from forewarn.executors.task_input import Runner
from forewarn.ports.runner import Assignment

MANUALLY: Final = Assignment(runner=MANUAL, said=BY_HAND)
"""An operator does it by hand, and says so with `forewarn event complete`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowsOnly:
    """Runners without anything outside of the database."""

    def runner(self, name: str) -> Runner | None:
        """Return none: the scheduler ends these tasks by itself."""
        del name
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manual(_RowsOnly):
    """Leaves every impact to the operator. No host has work."""

    rules: Sequence[HostWorkRule] = ()

    def assign_impact(
        self, event: ScheduledEvent, vm: VmName, topology: Topology, now: datetime
    ) -> Assignment:
        """Leave it to the operator."""
        del event, vm, topology, now
        return MANUALLY

    def assign_host_task(self, task: HostTask, topology: Topology, now: datetime) -> Assignment:
        """Leave it to the operator."""
        del task, topology, now
        return MANUALLY


def _failure_of_impact(fleet: Topology, name: VmName) -> str:
    vm = fleet.virtual_machines.get(name)
    return vm.labels.get("simulated-failure", "") if vm else ""


def _failure_of_task(fleet: Topology, task: HostTask) -> str:
    host = fleet.hosts.get(task.host)
    return host.labels.get(f"simulated-{task.kind}-failure", "") if host else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated(_RowsOnly):
    """Has impacts and work on hosts take as long as if they were carried out.

    *rules* say which hosts have work; it takes as long as an impact of that type, and the other
    tasks of a host take no time. *failure_of_impact* and *failure_of_task* say why something is to
    fail, or nothing.
    """

    rules: Sequence[HostWorkRule] = ()
    speed: float = 1
    failure_of_impact: Callable[[Topology, VmName], str] = _failure_of_impact
    failure_of_task: Callable[[Topology, HostTask], str] = _failure_of_task

    def assign_impact(
        self, event: ScheduledEvent, vm: VmName, topology: Topology, now: datetime
    ) -> Assignment:
        """Begin it, with the moment at which it ends."""
        lasts = simulated_impact(event, speed=self.speed)
        return _running(now + lasts, self.failure_of_impact(topology, vm))

    def assign_host_task(self, task: HostTask, topology: Topology, now: datetime) -> Assignment:
        """Begin it, with the moment at which it ends."""
        is_work = task.kind is HostTaskKind.WORK
        lasts = USUAL_IMPACT[task.event_type] / self.speed if is_work else timedelta(0)
        return _running(now + lasts, self.failure_of_task(topology, task))


def _running(ends_at: datetime, failure: str) -> Assignment:
    said = Impact(status=ImpactStatus.RUNNING, ask_again_at=ends_at)
    return Assignment(runner=SIMULATED, said=said, details={"failure": failure} if failure else {})
