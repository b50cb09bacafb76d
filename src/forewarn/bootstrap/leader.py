"""What only one replica does at a time, as long as it holds the lease."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Final

import structlog
from structlog.typing import FilteringBoundLogger

from forewarn.bootstrap.supervision import SupervisedThread, Supervisor
from forewarn.discovery.explorer import Explorer
from forewarn.domain.standing import MaintenanceStatus
from forewarn.notifications.outbox import Courier
from forewarn.ports.changes import StoreChange
from forewarn.ports.leadership import Leadership, NotLeadingError
from forewarn.ports.store import LeaseLostError
from forewarn.rounds import Rounds
from forewarn.scheduler.scheduler import Scheduler
from forewarn.scheduler.upkeep import Upkeep

log: Final[FilteringBoundLogger] = structlog.get_logger()

_RENEW_SECONDS: Final = 1.0
_REST_SECONDS: Final = 10.0
"""How long a replica that has handed over leaves the lease to others."""
_COURIER_SECONDS: Final = 2.0
"""How long a message or a question under way may take before its thread is left behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The parts that act under one lease *epoch*; they are dropped with it and never reused."""

    epoch: int
    scheduler: Scheduler
    couriers: tuple[Courier, ...]
    upkeep: Upkeep
    explorer: Explorer | None = None


class Candidate:
    """Makes a Leader whenever this replica gains the lease, and drops it when that is lost.

    It does not lead while the clock of this machine and that of the store differ by more than
    *clock_tolerance*, nor while *check_records* says why the task log cannot be written.

    Without a *supervisor* the Leader's loops do not run by themselves: under virtual time, in
    somebody's tests, what is due is done when they say so.
    """

    def __init__(
        self,
        leadership: Leadership,
        make: Callable[[int], Leader],
        supervisor: Supervisor | None = None,
        *,
        clock_tolerance: timedelta = timedelta.max,
        check_records: Callable[[], str] = str,
        reports: FilteringBoundLogger = log,
    ) -> None:
        self._leadership = leadership
        self._make = make
        self._supervisor = supervisor
        self._clock_tolerance = clock_tolerance
        self._check_records = check_records
        self.records_problem = ""
        self._reports = reports
        self._leader: Leader | None = None
        self._resting_until = 0.0
        self.clock_offset = timedelta(0)
        """How far the clock of this machine was ahead of the store's at the last reading."""
        self.is_clock_off = False
        self._readings_off = 0
        self._threads: tuple[SupervisedThread, ...] = ()
        self.rounds: Final = Rounds("leadership", self.look, every=_RENEW_SECONDS)

    @property
    def epoch(self) -> int:
        """The epoch under which this replica leads, or 0."""
        leader = self._leader
        return leader.epoch if leader else 0

    @property
    def is_resting(self) -> bool:
        """Whether this replica leaves the lease and tasks to others.

        It has just handed over, or cannot write its task log.
        """
        return monotonic() < self._resting_until or bool(self.records_problem)

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler, which only a leader has."""
        leader = self._leader
        if leader is None:
            raise NotLeadingError
        return leader.scheduler

    @property
    def shut_gates(self) -> int:
        """How many gates hold a Maintenance back, each counted once for each of these."""
        leader = self._leader
        return leader.scheduler.shut_gates if leader else 0

    def count_maintenances(self) -> Mapping[MaintenanceStatus, int]:
        """Count the Maintenances that are not over, by what they are doing."""
        leader = self._leader
        return leader.scheduler.count_maintenances() if leader else Counter()

    def wake(self) -> None:
        """Have the scheduler look again, if there is one, and whoever asks sources."""
        if leader := self._leader:
            leader.scheduler.wake()
            if leader.explorer is not None:
                leader.explorer.wake()

    def finish_turn(self) -> None:
        """Return when nothing is done here any more that was decided before the last commit."""
        if leader := self._leader:
            leader.scheduler.finish_turn()

    def note(self, change: StoreChange) -> None:
        """Tell the scheduler and the couriers of *change*; one that is made later looks first."""
        if leader := self._leader:
            leader.scheduler.note(change)
            for courier in leader.couriers:
                courier.note(change)

    def campaign(self) -> None:
        """Lead if the lease is to be had and nothing keeps this replica from it."""
        self._examine()
        is_fit = not (self.is_clock_off or self.is_resting)
        epoch = self._leadership.campaign() if is_fit else None
        if epoch is None:
            return
        self._reports.info("lease_gained", epoch=epoch)
        self._leader = self._make(epoch)
        if self._supervisor is not None:
            self._threads = tuple(self._start(self._leader, self._supervisor))

    def hand_over(self) -> None:
        """Let another replica lead: resign, and do not campaign for a while."""
        self._resting_until = monotonic() + _REST_SECONDS
        self.rounds.wake()

    def run(self) -> None:
        """Campaign, and hold on to what was gained, until stopped."""
        self.rounds.run()
        if leader := self._leader:
            self._drop()
            self._leadership.resign(leader.epoch)

    def stop(self) -> None:
        """Let the Leader's loops end after what they are at, and campaign no more."""
        self.rounds.stop()
        for thread in self._threads:
            thread.stop()

    def look(self) -> None:
        """Hold on to the lease, or campaign for it; resign if this replica should not lead."""
        leader, is_held = self._leader, False
        if leader is not None or self.is_resting:
            self._examine()
        if self.is_resting or (leader is not None and self.is_clock_off):
            if leader is not None:
                self._drop()
                self._leadership.resign(leader.epoch)
                self._reports.info("lease_handed_over", epoch=leader.epoch)
            return
        with suppress(LeaseLostError):  # as another replica leads by now
            is_held = leader is None or self._leadership.renew(leader.epoch)
        if leader is not None and not is_held:
            self._reports.warning("lease_lost", epoch=leader.epoch)
            self._drop()
        if self._leader is None and not self.rounds.is_stopping:
            with suppress(LeaseLostError):  # to somebody else, before the Leader was made
                self.campaign()

    def _examine(self) -> None:
        """Note what keeps this replica from leading, and log it when that changes.

        The clock of a leader is off if two readings in a row are.
        """
        known, self.records_problem = self.records_problem, self._check_records()
        if self.records_problem and not known:
            self._reports.warning("state_directory_not_writable", error=self.records_problem)
        if known and not self.records_problem:
            self._reports.info("state_directory_writable")
        if self.is_resting:
            return  # whatever the clock is, and whether or not the store answers
        self.clock_offset = self._leadership.clock_offset()
        is_off = abs(self.clock_offset) > self._clock_tolerance
        self._readings_off = self._readings_off + 1 if is_off else 0
        was_off, needed = self.is_clock_off, 1 if self._leader is None else 2
        self.is_clock_off = self._readings_off >= needed
        if self.is_clock_off and not was_off:
            self._reports.warning("clock_differs", seconds=self.clock_offset.total_seconds())
        if was_off and not self.is_clock_off:
            self._reports.info("clock_agrees", seconds=self.clock_offset.total_seconds())

    def _start(self, leader: Leader, supervisor: Supervisor) -> Iterator[SupervisedThread]:
        # Whoever finds out that the lease is over ends, and has it looked at here at once.
        over = self.rounds.wake
        yield supervisor.start("scheduler", leader.scheduler.rounds, ended=over)
        yield supervisor.start("upkeep", leader.upkeep.rounds, ended=over)
        for courier in leader.couriers:
            name = f"courier-{courier.target}"
            yield supervisor.start(name, courier.rounds, ended=over, patience=_COURIER_SECONDS)
        if leader.explorer is not None:
            patience = _COURIER_SECONDS
            yield supervisor.start("discovery", leader.explorer, ended=over, patience=patience)

    def _drop(self) -> None:
        """Wait until nothing acts under the old epoch any more."""
        for thread in self._threads:
            thread.stop()
        for thread in self._threads:
            thread.join()
        self._leader, self._threads = None, ()
