"""Maintenances and all that belongs to them, scenarios, and schedules."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Protocol

from forewarn.domain.host_operation import HostOperation
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import (
    MaintenanceId,
    OperationId,
    ScenarioRunId,
    ScheduleName,
    ScopeId,
)
from forewarn.domain.news import Told
from forewarn.domain.scenario import ScenarioRun
from forewarn.domain.schedule import Schedule


class MaintenanceReading(Protocol):
    """A look at Maintenances, scenarios and schedules."""

    def maintenance(self, maintenance_id: MaintenanceId) -> Maintenance | None: ...

    def maintenances(
        self,
        *,
        finished: bool | None = None,
        older_than: MaintenanceId | None = None,
        limit: int | None = None,
    ) -> tuple[Maintenance, ...]:
        """Return the newest *limit* of these, before the one of the page before, or all."""

    def operations_under_way(self) -> tuple[HostOperation, ...]:
        """Return every host operation of a Maintenance that is not finished."""

    def operations_of(
        self, maintenance_ids: Iterable[MaintenanceId]
    ) -> tuple[HostOperation, ...]: ...

    def host_operation(self, operation_id: OperationId) -> HostOperation | None: ...

    def told(self) -> tuple[Told, ...]:
        """Return what people know of Maintenances that are not finished."""

    def soaks(self) -> Mapping[ScopeId, datetime]:
        """Return until when scopes are left alone after a step, some of which may be over."""

    def scenario_run(self, run_id: ScenarioRunId) -> ScenarioRun | None: ...

    def scenario_runs(
        self,
        *,
        finished: bool | None = None,
        older_than: ScenarioRunId | None = None,
        limit: int | None = None,
    ) -> tuple[ScenarioRun, ...]:
        """Return the newest *limit* of these, before the one of the page before, or all."""

    def schedules(self) -> tuple[Schedule, ...]: ...


class MaintenanceWriting(MaintenanceReading, Protocol):
    """A look at Maintenances, scenarios and schedules that may also change them."""

    def put_maintenance(self, maintenance: Maintenance, /) -> None: ...

    def put_operation(self, operation: HostOperation, /) -> None: ...

    def put_told(self, told: Told) -> None:
        """Remember what people know of a Maintenance."""

    def put_soak(self, scope_id: ScopeId, /, until: datetime, *, at: datetime) -> None:
        """Leave the scope alone until then; forget what is over by *at*."""

    def put_scenario_run(self, run: ScenarioRun) -> None: ...

    def put_schedule(self, schedule: Schedule) -> None: ...

    def remove_schedule(self, name: ScheduleName) -> None: ...
