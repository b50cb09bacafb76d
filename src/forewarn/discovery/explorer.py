"""Asks the sources again and again, and has the fleet follow what they say.

A source that takes its time is waited for on a thread of its own, so that it holds up no other.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Final

import structlog

from forewarn.discovery.sources import KnownSource, SourceError
from forewarn.domain.errors import DomainError
from forewarn.domain.names import VmName
from forewarn.operations.context import Context
from forewarn.operations.discovery import (
    MOST_REMARKS,
    SourceStatus,
    Synchronisation,
    find_sources,
    follow_census,
    look_at_census,
    put_sources,
)
from forewarn.operations.inventory import FleetChange
from forewarn.operations.reconciling import Census, owned_by
from forewarn.ports.clock import WallClock
from forewarn.ports.store import Store, StoreError, Transaction
from forewarn.rounds import Rounds

log = structlog.get_logger()

_LONGEST_WAIT: Final = 60.0
_BROKEN: Final = "It failed unexpectedly; the details are in the server log."


@dataclass(slots=True)
class _Errand:
    """What is known of one source, until its file is read again and it is told to *stop*."""

    known: KnownSource
    stop: threading.Event = field(default_factory=threading.Event)
    due: float = 0.0
    is_under_way: bool = False
    absences: Mapping[VmName, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What has come of an errand: a census, or a problem."""

    known: KnownSource
    census: Census | None = None
    problem: str = ""


class Explorer:
    """Has the fleet follow *sources*, which may be others from one moment to the next.

    Whatever it writes carries the lease *epoch*; *changed* is called when the fleet has changed.
    """

    def __init__(
        self,
        sources: Callable[[], Sequence[KnownSource]],
        *,
        store: Store,
        context: Callable[[str], Context],
        wall: WallClock,
        epoch: int,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._sources = sources
        self._store = store
        self._context = context
        self._wall = wall
        self._epoch = epoch
        self._changed = changed
        self._errands: dict[str, _Errand] = {}
        self._statuses: dict[str, SourceStatus] = {}
        self._stored: tuple[SourceStatus, ...] | None = None
        self._outcomes = SimpleQueue[_Outcome]()
        self._stopping = threading.Event()
        self._rounds = Rounds("discovery", self._work)

    def run(self) -> None:
        """Ask the sources when they are due, until stopped."""
        self._rounds.run()

    def stop(self) -> None:
        """Ask nobody any more, and end what runs."""
        self._stopping.set()
        for errand in self._errands.values():  # never changed, but replaced
            errand.stop.set()
        self._rounds.stop()

    def wake(self) -> None:
        """Look at once which sources there are."""
        self._rounds.wake()

    def _work(self) -> float:
        if self._stored is None:
            self._stored = self._store.read(find_sources)
            self._statuses = {status.name: status for status in self._stored}
        self._take_sources()
        self._take_outcomes()
        for errand in self._errands.values():
            is_due = not errand.is_under_way and errand.due <= time.monotonic()
            if is_due and not self._stopping.is_set():
                self._begin(errand)
        self._put_statuses()
        waiting = [each.due for each in self._errands.values() if not each.is_under_way]
        return max(0.0, min(waiting) - time.monotonic()) if waiting else _LONGEST_WAIT

    def _take_sources(self) -> None:
        """Begin anew with all sources when their file was read again."""
        former, errands = self._errands, dict[str, _Errand]()
        for known in self._sources():
            errand = former.get(known.name)
            is_same = errand is not None and errand.known is known
            errands[known.name] = errand if errand and is_same else _Errand(known)
        self._errands = errands
        for errand in former.values():
            if errands.get(errand.known.name) is not errand:
                errand.stop.set()

    def _begin(self, errand: _Errand) -> None:
        errand.is_under_way = True
        errand.due = time.monotonic() + errand.known.every.total_seconds()
        name = f"source-{errand.known.name}"
        threading.Thread(target=self._count, args=(errand,), name=name, daemon=True).start()

    def _count(self, errand: _Errand) -> None:
        known = errand.known
        try:
            outcome = _Outcome(known, known.source.count(errand.stop))
        except SourceError as error:
            outcome = _Outcome(known, problem=str(error))
        except Exception:
            log.exception("discovery_broken", source=known.name)
            outcome = _Outcome(known, problem=_BROKEN)
        self._outcomes.put(outcome)
        self._rounds.wake()

    def _take_outcomes(self) -> None:
        while not self._stopping.is_set():
            try:
                outcome = self._outcomes.get_nowait()
            except Empty:
                return
            errand = self._errands.get(outcome.known.name)
            if errand is None or errand.known is not outcome.known:
                continue  # the file was read again meanwhile
            errand.is_under_way = False
            before = self._statuses.get(outcome.known.name)
            after = self._follow(errand, outcome, before)
            self._statuses[after.name] = after
            _log_news(before, after)

    def _follow(
        self, errand: _Errand, outcome: _Outcome, before: SourceStatus | None
    ) -> SourceStatus:
        known, problem = errand.known, outcome.problem
        remarks: Sequence[str] = before.remarks if before else ()
        if outcome.census is not None:
            try:
                problem, remarks = self._synchronise(errand, outcome.census)
            except StoreError:
                raise
            except Exception:
                # A mistake of ours about one source must not keep the fleet from following others.
                log.exception("discovery_broken", source=known.name)
                problem = _BROKEN
        own = self._store.read(lambda reading: owned_by(reading.topology(), known.name))
        is_news = before is None or bool(before.problem) != bool(problem)
        return SourceStatus(
            name=known.name,
            kind=known.kind,
            problem=problem,
            since=self._wall.now() if before is None or is_news else before.since,
            machines=len(own),
            missing=len(errand.absences),
            remarks=tuple(remarks[:MOST_REMARKS]),
        )

    def _synchronise(self, errand: _Errand, census: Census) -> tuple[str, Sequence[str]]:
        """Have the fleet follow *census*; return what is wrong with that, and remarks."""
        terms, absences = errand.known.terms, errand.absences
        found = self._store.read(lambda reading: look_at_census(reading, census, terms, absences))
        remarks: Sequence[str] = found.remarks
        if found.is_needed:

            def write(tx: Transaction) -> Synchronisation:
                tx.check_epoch(self._epoch)
                # The time is taken in here, so that it never runs backwards between two.
                context = self._context(f"discovery {terms.source}")
                return follow_census(tx, context, census, terms, absences)

            try:
                done = self._store.write(write)
            except DomainError as error:
                return str(error), remarks
            found, remarks = done.reconciliation, done.remarks
            self._tell_change(terms.source, done.change)
        errand.absences = found.absences
        return found.refusal or census.trouble, remarks

    def _tell_change(self, source: str, change: FleetChange) -> None:
        if change.differences:
            # What is written under the lease is no news for the scheduler, but events can be.
            self._changed()
            counts = {name: len(getattr(change, name)) for name in ("added", "changed", "removed")}
            log.info("discovery_changed_fleet", source=source, **counts)

    def _put_statuses(self) -> None:
        """Write down how the sources are, if that is not what is written there."""
        named = (self._statuses.get(name) for name in self._errands)
        statuses = tuple(status for status in named if status is not None)
        if statuses == self._stored:
            return

        def put(tx: Transaction) -> None:
            tx.check_epoch(self._epoch)
            put_sources(tx, statuses)

        self._store.write(put)
        self._stored = statuses


def _log_news(before: SourceStatus | None, after: SourceStatus) -> None:
    """Log what has changed; nobody wants to read the same again every half minute."""
    former = before.problem if before else ""
    if after.problem and after.problem != former:
        log.warning("discovery_failed", source=after.name, problem=after.problem)
    elif former and not after.problem:
        log.info("discovery_recovered", source=after.name)
    known = before.remarks if before else ()
    for remark in after.remarks:
        if remark not in known:
            log.warning("discovery_remark", source=after.name, remark=remark)
