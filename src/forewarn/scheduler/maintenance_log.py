"""The log lines about Maintenances: one for each change of where one is, once it is committed."""

from collections.abc import Iterable
from typing import Final

from structlog.typing import FilteringBoundLogger

from forewarn.domain.maintenance import Maintenance, MaintenanceOutcome
from forewarn.domain.names import MaintenanceId
from forewarn.domain.notification import Phase
from forewarn.domain.snapshot import Snapshot
from forewarn.operations.context import Context
from forewarn.operations.telling import Tidings, find_doer
from forewarn.ports.store import Store

_STOPS: Final = frozenset({Phase.PAUSED, Phase.HELD, Phase.RESUMED})
"""What else there is to tell has lines of its own, about events, hosts and gates."""


class MaintenanceLog:
    """Follows Maintenances. Those it finds at first have been logged by an earlier leader."""

    def __init__(self, store: Store, reports: FilteringBoundLogger) -> None:
        self._store = store
        self._reports = reports
        self._aborted: dict[MaintenanceId, bool] | None = None

    def follow(self, seen: Snapshot, context: Context) -> None:
        """Log what was started and what was aborted since the last look."""
        before = self._aborted
        self._aborted = {key: each.is_aborted for key, each in seen.maintenances.items()}
        if before is None or before == self._aborted:
            return
        for key, maintenance in seen.maintenances.items():
            if key not in before:
                self._report(maintenance, Phase.STARTED, context)
            elif maintenance.is_aborted and not before[key]:
                self._report(maintenance, Phase.ABORTED, context)

    def report_stops(self, tidings: Iterable[Tidings], context: Context) -> None:
        """Log which Maintenances were paused, are held or continue."""
        for maintenance, phase in tidings:
            if phase in _STOPS:
                self._report(maintenance, phase, context)

    def report_endings(self, finished: Iterable[Maintenance], context: Context) -> None:
        """Log what is over, and with which outcome."""
        for maintenance in finished:
            self._report(maintenance, Phase.FINISHED, context)

    def _report(self, maintenance: Maintenance, phase: Phase, context: Context) -> None:
        outcome = maintenance.outcome
        is_bad = phase is Phase.HELD or outcome is MaintenanceOutcome.INCOMPLETE
        (self._reports.warning if is_bad else self._reports.info)(
            "maintenance_changed",
            what=phase.value,
            maintenance_id=maintenance.maintenance_id,
            event_type=maintenance.event_type.value,
            outcome=outcome and outcome.value,
            who=self._store.read(lambda reading: find_doer(reading, context, maintenance, phase)),
            at=context.now.isoformat(),
        )
