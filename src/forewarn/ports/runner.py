"""Which runner a task is for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.host_work import HostTask, HostWorkRule
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import VmName
from forewarn.domain.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Which runner a task is for, by the executor file, and what there is to say of it so far.

    A task that is *said* to run already is one that nothing outside has to begin. The owner is the
    leader, unless the task is for another *node*. Without a *runner*, the executor file has to be
    corrected first.
    """

    runner: str
    said: Impact = field(default_factory=lambda: Impact(status=ImpactStatus.NOT_BEGUN))
    node: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


class Assigner(Protocol):
    """Tells which runner a task is for. It looks at settings only."""

    @property
    def rules(self) -> Sequence[HostWorkRule]:
        """Which hosts have work, in the order in which they are tried."""

    def assign_impact(
        self, event: ScheduledEvent, vm: VmName, topology: Topology, now: datetime
    ) -> Assignment:
        """Return the runner for the impact of *event* on *vm*."""

    def assign_host_task(self, task: HostTask, topology: Topology, now: datetime) -> Assignment:
        """Return the runner for *task*."""
