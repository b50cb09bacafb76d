"""Figures for Prometheus. What there is, is in one table, and nothing is told apart by name."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate, product
from threading import Lock
from typing import Final, TypeAlias, TypeVar

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from forewarn.domain.event import Happening, Outcome, ScheduledEvent
from forewarn.domain.finding import Finding
from forewarn.domain.maintenance import MaintenanceOutcome
from forewarn.domain.notification import NotificationStatus
from forewarn.domain.policy import Policy, approved_at
from forewarn.domain.schedule import OccurrenceOutcome
from forewarn.domain.standing import NOT_OVER, MaintenanceStatus
from forewarn.domain.topology import Topology
from forewarn.operations.discovery import SourceStatus
from forewarn.operations.findings import CHECKS
from forewarn.ports.clock import WallClock
from forewarn.ports.entries import Figures
from forewarn.ports.metrics import Distribution, Tally
from forewarn.ports.replicas import Replicas, RollCall
from forewarn.ports.store import Reading, Store, StoreError
from forewarn.protocol.errors import ERROR_ANSWERS
from forewarn.protocol.vocabulary import EventStatus, EventType

_log = structlog.get_logger(__name__)

ENDS: Final = (*(outcome.value for outcome in Outcome), EventStatus.CANCELED.lower())
"""How an event can end, as metrics say it."""

_ENDED: Final = frozenset({Happening.COMPLETED, Happening.CANCELED})
_SECONDS: Final = (1, 5, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400, 604800)
_PAGE: Final = 500

_Deed: TypeAlias = tuple[str, ScheduledEvent, Policy]
LabelValues: TypeAlias = str | tuple[str, ...]
"""What a value is told apart by: the one label there is, several, or none."""
_L = TypeVar("_L", bound=LabelValues)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: what kind it is, what it tells, and by what it is told apart."""

    kind: str
    help: str
    labels: tuple[str, ...] = ()


METRICS: Final[Mapping[str, Family]] = {
    "forewarn_build_info": Family("gauge", "Always 1; the label is the version.", ("version",)),
    "forewarn_virtual_machines": Family("gauge", "Virtual machines in the fleet."),
    "forewarn_delivery_scopes": Family("gauge", "Delivery scopes in the fleet."),
    "forewarn_events_in_flight": Family(
        "gauge", "Events that are Scheduled or Started.", ("event_type", "event_status")
    ),
    "forewarn_events_overdue": Family("gauge", "Events in flight that are overdue."),
    "forewarn_events_ended_total": Family(
        "counter", "Events that ended: succeeded, failed or canceled.", ("event_type", "outcome")
    ),
    "forewarn_maintenances": Family("gauge", "Maintenances in progress, by status.", ("status",)),
    "forewarn_maintenances_ended_total": Family(
        "counter", "Maintenances that ended: succeeded, incomplete or aborted.", ("outcome",)
    ),
    "forewarn_schedule_occurrences_total": Family(
        "counter", "Dates of schedules: started, skipped or missed.", ("outcome",)
    ),
    "forewarn_gates_shut": Family("gauge", "Gates that hold a Maintenance."),
    "forewarn_notice_promised_seconds": Family(
        "histogram",
        "Time from creation to NotBefore, for announced events that started.",
        ("event_type",),
    ),
    "forewarn_notice_given_seconds": Family(
        "histogram", "Time from creation to start, for the same events.", ("event_type",)
    ),
    "forewarn_time_to_approve_seconds": Family(
        "histogram", "Time from creation to the approval that started an event.", ("event_type",)
    ),
    "forewarn_polls_total": Family("counter", "GET requests for the document.", ("api_version",)),
    "forewarn_parked_polls": Family("gauge", "Polls that wait for a change."),
    "forewarn_metadata_posts_total": Family("counter", "POST requests from virtual machines."),
    "forewarn_metadata_refusals_total": Family(
        "counter", "Requests from virtual machines that were refused.", ("status",)
    ),
    "forewarn_control_refusals_total": Family(
        "counter", "Requests from operators that were refused.", ("problem",)
    ),
    "forewarn_event_watchers": Family("gauge", "Operators that follow events."),
    "forewarn_feed_followers": Family("gauge", "Relays that follow this server."),
    "forewarn_outbox_messages": Family(
        "gauge", "Notifications that are waiting or have failed.", ("status",)
    ),
    "forewarn_outbox_oldest_seconds": Family(
        "gauge", "Age of the oldest waiting notification; 0 if none."
    ),
    "forewarn_scheduler_lateness_seconds": Family(
        "histogram", "How late the scheduler was for due work."
    ),
    "forewarn_loop_failures_total": Family(
        "counter", "Server loops that failed and were restarted.", ("loop",)
    ),
    "forewarn_clock_jumps_total": Family(
        "counter", "Jumps of the machine's clock by more than 3 seconds."
    ),
    "forewarn_clock_offset_seconds": Family(
        "gauge", "How far the machine's clock is ahead of the database's."
    ),
    "forewarn_certificate_expiry_timestamp_seconds": Family(
        "gauge", "When the certificate of the control API expires; missing without TLS."
    ),
    "forewarn_lease_epoch": Family("gauge", "Lease epoch of this server."),
    "forewarn_discovery_working": Family(
        "gauge", "1 unless the last query of a source failed.", ("source",)
    ),
    "forewarn_discovery_machines": Family(
        "gauge", "Virtual machines in the fleet from a source.", ("source",)
    ),
    "forewarn_server_paused": Family("gauge", "1 if the server is paused."),
    "forewarn_leader": Family("gauge", "1 while this server holds the lease."),
    "forewarn_replicas": Family("gauge", "Replicas that were seen in the last 10 seconds."),
    "forewarn_changes_behind": Family(
        "gauge", "Changes that this replica had not received at its last report."
    ),
    "forewarn_store_group_size": Family(
        "histogram", "Writes per commit (sum: writes, count: commits)."
    ),
    "forewarn_store_writable": Family(
        "gauge", "1 unless the last write failed or the database file moved."
    ),
    "forewarn_store_readable": Family("gauge", "1 if the counts in the database could be read."),
    "forewarn_findings": Family(
        "gauge", "Findings of all replicas, by check: fail or warn.", ("check", "verdict")
    ),
}
"""Every metric of this server; those of its process (process_…) come on top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureSources:
    """Where the figures come from; all of it can be read on any thread."""

    version: str
    store: Store
    wall: WallClock
    topology: Callable[[], Topology]
    tally: Tally
    parked: Callable[[], int]
    watchers: Callable[[], int]
    followers: Callable[[], int]
    lateness: Distribution
    epoch: Callable[[], int]
    is_paused: Callable[[], bool]
    discovered: Callable[[], Sequence[SourceStatus]]
    maintenances: Callable[[], Mapping[MaintenanceStatus, int]]
    endings: Mapping[MaintenanceOutcome, int]
    occurrences: Mapping[OccurrenceOutcome, int]
    gates_shut: Callable[[], int]
    loop_failures: Mapping[str, int]
    jumps: Callable[[], int]
    clock_offset: Callable[[], timedelta]
    expires_at: Callable[[], datetime | None]
    refused: Mapping[str, int]
    replicas: Replicas
    findings: Callable[[RollCall, Figures], Iterable[Finding]]


def exporter(sources: FigureSources) -> Callable[[], bytes]:
    """Return what writes the figures in the text format of Prometheus."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_Figures(sources))
    return lambda: generate_latest(registry)


class _Figures(Collector):
    """The figures at the moment they are asked for."""

    def __init__(self, sources: FigureSources) -> None:
        self._from = sources
        self._lives = EventLives(sources.store)
        self._trouble = ""

    def describe(self) -> Iterable[Metric]:
        """Name nothing, so that nothing is counted before somebody asks."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Look at everything once. With the database away, what only it knows is left out."""
        # Once: whoever gains the lease meanwhile is not told to lead under the epoch before.
        epoch = self._from.epoch()
        yield _values("forewarn_lease_epoch", epoch)
        yield from self._of_memory()
        try:
            figures = self._from.store.figures()
            is_paused, sources = self._from.is_paused(), self._from.discovered()
            roll = self._from.replicas.call_roll()
            findings = self._from.findings(roll, figures)
            self._lives.catch_up()
        except StoreError as error:
            if self._trouble != str(error):
                _log.warning("metrics_incomplete", error=str(error))
            self._trouble = str(error)
            yield _values("forewarn_store_readable", 0)
            yield _of_findings(self._from.replicas.examine())
            return
        self._trouble = ""
        yield _values("forewarn_store_readable", 1)
        yield _of_findings(findings)
        yield _values("forewarn_server_paused", is_paused)
        working = {each.name: not each.problem for each in sources}
        yield _by("forewarn_discovery_working", working)
        yield _by("forewarn_discovery_machines", {each.name: each.machines for each in sources})
        yield from self._of_store(figures)
        yield from self._of_replicas(figures, roll, epoch)
        yield from self._of_lives()

    def _of_memory(self) -> Iterator[Metric]:
        here = self._from
        topology, tally = here.topology(), here.tally
        yield _by("forewarn_build_info", {here.version: 1})
        yield _values("forewarn_virtual_machines", len(topology.virtual_machines))
        yield _values("forewarn_delivery_scopes", len(topology.scopes))
        yield _by("forewarn_polls_total", tally.polls)
        yield _values("forewarn_parked_polls", here.parked())
        yield _values("forewarn_metadata_posts_total", tally.posts)
        known = {int(answer.status) for answer in ERROR_ANSWERS.values()}
        refusals = dict.fromkeys(sorted(known), 0) | dict(tally.refusals)
        yield _by("forewarn_metadata_refusals_total", {str(s): n for s, n in refusals.items()})
        yield _by("forewarn_control_refusals_total", here.refused)
        yield _values("forewarn_event_watchers", here.watchers())
        yield _values("forewarn_feed_followers", here.followers())
        yield _distributions("forewarn_scheduler_lateness_seconds", {(): here.lateness})
        yield from self._of_maintenances()
        yield _by("forewarn_loop_failures_total", here.loop_failures)
        yield _values("forewarn_clock_jumps_total", here.jumps())
        end = here.expires_at()
        ends = {} if end is None else {(): end.timestamp()}
        yield _by("forewarn_certificate_expiry_timestamp_seconds", ends)
        yield _values("forewarn_clock_offset_seconds", here.clock_offset().total_seconds())
        yield _distributions("forewarn_store_group_size", {(): here.store.commits})
        yield _values("forewarn_store_writable", here.store.is_writable())

    def _of_maintenances(self) -> Iterator[Metric]:
        here = self._from
        yield _each("forewarn_maintenances", NOT_OVER, here.maintenances())
        yield _each("forewarn_maintenances_ended_total", MaintenanceOutcome, here.endings)
        yield _each("forewarn_schedule_occurrences_total", OccurrenceOutcome, here.occurrences)
        yield _values("forewarn_gates_shut", here.gates_shut())

    def _of_store(self, figures: Figures) -> Iterator[Metric]:
        visible = [status for status in EventStatus if status.is_visible]
        kinds = product(EventType, visible)
        yield _each("forewarn_events_in_flight", kinds, figures.events_in_flight)
        yield _values("forewarn_events_overdue", figures.events_overdue)
        undelivered = (NotificationStatus.WAITING, NotificationStatus.FAILED)
        yield _each("forewarn_outbox_messages", undelivered, figures.notifications)
        since = figures.waiting_since
        age = 0.0 if since is None else (self._from.wall.now() - since).total_seconds()
        yield _values("forewarn_outbox_oldest_seconds", max(age, 0.0))

    def _of_replicas(self, figures: Figures, roll: RollCall, epoch: int) -> Iterator[Metric]:
        here = self._from
        us = here.replicas.itself.replica_id
        ours = [each for each in roll.replicas if each.identity.replica_id == us]
        # It may not know yet that its lease is over.
        leads = figures.epoch == epoch and any(each.is_leader for each in ours)
        yield _values("forewarn_leader", leads)
        yield _values("forewarn_replicas", len(roll.present))
        yield _values("forewarn_changes_behind", sum(each.changes_behind for each in ours))

    def _of_lives(self) -> Iterator[Metric]:
        lives = self._lives
        yield _each("forewarn_events_ended_total", product(EventType, ENDS), lives.ended)
        yield _distributions("forewarn_notice_promised_seconds", lives.promised)
        yield _distributions("forewarn_notice_given_seconds", lives.given)
        yield _distributions("forewarn_time_to_approve_seconds", lives.approving)


def _of_findings(findings: Iterable[Finding]) -> Metric:
    counted = Counter((each.check, each.verdict.value) for each in findings)
    return _each("forewarn_findings", product(CHECKS, ("fail", "warn")), counted)


def _values(name: str, value: float) -> Metric:
    return _by(name, {(): value})


def _each(name: str, kinds: Iterable[_L], counts: Mapping[_L, int]) -> Metric:
    """Return how many there are of each of *kinds*, also of those that nobody has counted."""
    return _by(name, {kind: counts.get(kind, 0) for kind in kinds})


def _by(name: str, values: Mapping[_L, float]) -> Metric:
    family = METRICS[name]
    make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = make(name, family.help, labels=family.labels)
    # A copy, made in one go: a kind may be seen for the first time meanwhile.
    for labels, value in dict(values).items():
        metric.add_metric(_several(labels), value)
    return metric


def _distributions(name: str, distributions: Mapping[_L, Distribution]) -> Metric:
    family = METRICS[name]
    metric = HistogramMetricFamily(name, family.help, labels=family.labels)
    for labels, seen in distributions.items():
        bounds = (*map(str, map(float, seen.bounds)), "+Inf")
        metric.add_metric(
            _several(labels), list(zip(bounds, accumulate(seen.counts), strict=True)), seen.total
        )
    return metric


def _several(labels: LabelValues) -> tuple[str, ...]:
    return (labels,) if isinstance(labels, str) else labels


class EventLives:
    """Counts what has happened to events since it was made, for what that says about notice.

    It is read from the ledger when somebody asks: counting costs those who write nothing, and what
    is counted was committed.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last = store.read(lambda reading: reading.last_sequence())
        self._turn = Lock()
        self.promised = _by_type()
        """From creation to NotBefore, of events that had notice and have started."""
        self.given = _by_type()
        """Time from creation to start, for the same events."""
        self.approving = _by_type()
        """From creation to the approval that let it start, of those that were approved."""
        self.ended: Counter[tuple[EventType, str]] = Counter()
        """How many ended, and how."""

    def catch_up(self) -> None:
        """Count what was written since the last time."""
        with self._turn:
            while (page := self._store.read(self._read)) is not None:
                self._last, deeds = page
                for what, event, policy in deeds:
                    self._count(what, event, policy)

    def _read(self, reading: Reading) -> tuple[int, list[_Deed]] | None:
        lines = reading.ledger_after(self._last, limit=_PAGE)
        if not lines:
            return None
        scopes = reading.topology().scopes
        deeds: list[_Deed] = []
        for line in lines:
            if line.what is not Happening.STARTED and line.what not in _ENDED:
                continue
            event = reading.event(line.event_id)
            if event is not None:
                scope = scopes.get(event.scope_id)
                deeds.append((line.what, event, scope.policy if scope else Policy()))
        return lines[-1].sequence, deeds

    def _count(self, what: str, event: ScheduledEvent, policy: Policy) -> None:
        kind = event.event_type
        if what in _ENDED:
            self.ended[kind, event.outcome or EventStatus.CANCELED.lower()] += 1
        elif event.is_announced:
            self.promised[kind].observe(_seconds_from_creation(event, event.not_before))
            self.given[kind].observe(_seconds_from_creation(event, event.started_at))
            if at := approved_at(event, policy):
                self.approving[kind].observe(_seconds_from_creation(event, at))


def _by_type() -> Mapping[EventType, Distribution]:
    return {kind: Distribution(_SECONDS) for kind in EventType}


def _seconds_from_creation(event: ScheduledEvent, moment: datetime | None) -> float:
    return 0.0 if moment is None else (moment - event.created_at).total_seconds()
