"""Nothing is done to any machine, but it takes as long as if it were."""

from collections.abc import Callable
from datetime import timedelta

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import VmName
from forewarn.domain.scenario import USUAL_IMPACT
from forewarn.ports.clock import Clock
from forewarn.ports.store import SimulatedImpact, Store, Transaction
from forewarn.protocol.vocabulary import EventId


class SimulatedExecutor:
    """Begins an impact by writing down when it will be over. The unique row keeps it to one.

    *failure_of* says why the impact on a virtual machine is to fail, or nothing.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        speed: float = 1,
        failure_of: Callable[[VmName], str] = lambda _: "",
    ) -> None:
        self._store = store
        self._clock = clock
        self._speed = speed
        self._failure_of = failure_of

    def begin(self, event: ScheduledEvent, vm: VmName, *, epoch: int) -> Impact:
        """Write down when the impact will be over, unless it was begun before."""
        impact = SimulatedImpact(
            event_id=event.event_id,
            vm=vm,
            ends_at=self._clock.now() + self._duration_of(event),
            failure=self._failure_of(vm),
        )

        def remember(tx: Transaction) -> bool:
            tx.check_epoch(epoch)
            return tx.put_simulated_impact(impact)

        if self._store.write(remember):
            return self._progress_of(impact)
        return self.inquire(event.event_id, vm)

    def inquire(self, event_id: EventId, vm: VmName) -> Impact:
        """Look up when it will be over, or was."""
        impact = self._store.read(lambda reading: reading.simulated_impact(event_id, vm))
        if impact is None:
            return Impact(status=ImpactStatus.NOT_BEGUN)
        return self._progress_of(impact)

    def _progress_of(self, impact: SimulatedImpact) -> Impact:
        if self._clock.now() < impact.ends_at:
            return Impact(status=ImpactStatus.RUNNING, ask_again_at=impact.ends_at)
        if impact.failure:
            return Impact(status=ImpactStatus.FAILED, reason=impact.failure)
        return Impact(status=ImpactStatus.DONE)

    def _duration_of(self, event: ScheduledEvent) -> timedelta:
        if event.simulated_duration is not None:
            return event.simulated_duration
        return USUAL_IMPACT[event.event_type] / self._speed
