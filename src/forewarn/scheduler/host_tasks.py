"""The work on hosts, as far as whoever does it has said."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Final

import structlog
from structlog.typing import FilteringBoundLogger

from forewarn.domain.actions import BeginTask, InquireTask
from forewarn.domain.host_operation import HostOperation
from forewarn.domain.host_work import HostTask, HostWorkRule
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import OperationId
from forewarn.operations.context import Context
from forewarn.ports.host_worker import HostWorker
from forewarn.scheduler.answers import hear
from forewarn.scheduler.reports import report_impact

log = structlog.get_logger()

_NOBODY: Final = Impact(
    status=ImpactStatus.UNKNOWN, reason="the executor file no longer defines work for this host"
)


@dataclass(slots=True, eq=False)
class HostTasks:
    """Has tasks of host operations done, and remembers what was said of each."""

    worker: HostWorker | None
    reports: FilteringBoundLogger
    epoch: int = field(kw_only=True)
    _said: dict[HostTask, Impact] = field(default_factory=dict)
    _rules: tuple[HostWorkRule, ...] = ()

    @property
    def tasks(self) -> Mapping[HostTask, Impact]:
        """What was said last; to be looked up in, from any thread."""
        return MappingProxyType(self._said)

    def note(self, said: Mapping[HostTask, Impact]) -> None:
        """Remember what was *said*, as it is written down."""
        self._said = {**self._said, **said}

    def keep(self, operations: Mapping[OperationId, HostOperation]) -> None:
        """Forget the tasks of operations that are over."""
        self._said = {
            task: impact
            for task, impact in self._said.items()
            if task.operation_id in operations and not operations[task.operation_id].is_over
        }

    def follow(self, rules: tuple[HostWorkRule, ...]) -> None:
        """Ask about what is unknown again if the *rules* are others: there may be an answer now."""
        if rules != self._rules:
            self._rules = rules
            self._said = {
                task: impact
                for task, impact in self._said.items()
                if impact.status is not ImpactStatus.UNKNOWN
            }

    def perform(self, effect: InquireTask | BeginTask, context: Context) -> None:
        """Begin a task or ask about it."""
        task = effect.task
        known = self._said.get(task)
        complain = partial(log.exception, "host_worker_failed", host=task.host, task=task.kind)
        said = hear(partial(self._ask, effect), known, context.now, complain)
        report_impact(
            self.reports,
            "host_task_changed",
            known,
            said,
            maintenance_id=task.maintenance_id,
            host=task.host,
            task=task.kind.value,
            vm=task.vm,
            attempt=task.attempt,
        )
        self._said[task] = said

    def _ask(self, effect: InquireTask | BeginTask) -> Impact:
        if self.worker is None:
            return _NOBODY
        if isinstance(effect, BeginTask):
            return self.worker.begin(effect.task, epoch=self.epoch)
        return self.worker.inquire(effect.task)
