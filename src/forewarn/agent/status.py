"""What the agent shows of itself to others: health, readiness, draining, and metrics.

The names of the metrics are those that dashboards know from webdevops' scheduled-events manager.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from forewarn.agent.cases import Case, Cases
from forewarn.agent.vocabulary import Consent, HookOutcome, HookPhase, RuleVerdict
from forewarn.client import Change, ChangeKind, Polled
from forewarn.protocol.dates import write_date
from forewarn.protocol.document import Event
from forewarn.protocol.versions import NEWEST
from forewarn.protocol.vocabulary import EventId

BUCKETS: Final = (0.01, 0.1, 1.0, 10.0, 60.0)
HEARTBEAT_SECONDS: Final = 60.0
"""How long the agent may be silent until it counts as dead."""

_GONE: Final = frozenset({ChangeKind.COMPLETED, ChangeKind.CANCELED, ChangeKind.GONE})


@dataclass(slots=True, kw_only=True)
class Status:
    """What is shown. One thread writes each of these, any may read them.

    So what is in them is never changed, only replaced.
    """

    cases: Cases = field(default_factory=dict)
    events: Mapping[EventId, Event] = field(default_factory=dict)
    heartbeat: float = 0.0
    polls: int = 0
    troubles: int = 0
    seconds: float = 0.0
    buckets: tuple[int, ...] = (0,) * len(BUCKETS)
    document_incarnation: int | None = None
    trouble: str | None = "the agent has not polled yet"
    hooks: Mapping[tuple[HookPhase, HookOutcome], int] = field(default_factory=dict)
    restored: frozenset[EventId] = frozenset()
    """Of which events nobody knows any more when they came to be as they are."""
    drained: Mapping[EventId, Mapping[str, float]] = field(default_factory=dict)
    approved: Mapping[EventId, float] = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        """Whether the last poll brought an answer."""
        return self.trouble is None

    @property
    def is_draining(self) -> bool:
        """Whether this machine is to be left alone: an event is handled and not yet over."""
        return any(case.verdict is RuleVerdict.HANDLE for case in self.cases.values())

    def is_alive(self, steady: float) -> bool:
        """Tell whether the agent has said anything lately."""
        return steady - self.heartbeat < HEARTBEAT_SECONDS

    def note_poll(self, polled: Polled) -> None:
        """Take note of how a poll went."""
        if polled.trouble is not None:
            self.note_trouble(polled.trouble)
            return
        self.trouble = None
        self.document_incarnation = polled.document_incarnation
        self.polls += 1
        self.seconds += polled.seconds
        self.buckets = tuple(
            count + (polled.seconds <= limit)
            for count, limit in zip(self.buckets, BUCKETS, strict=True)
        )

    def note_trouble(self, trouble: str) -> None:
        """Take note that there was no answer."""
        self.trouble = trouble
        self.troubles += 1

    def note_change(self, change: Change) -> None:
        """Take note of an event, this machine's or a neighbour's."""
        others = {key: event for key, event in self.events.items() if key != change.event.event_id}
        is_gone = change.kind in _GONE
        self.events = others if is_gone else {**others, change.event.event_id: change.event}

    def restore(self, cases: Cases) -> None:
        """Take note of the cases that the agent before this one has left."""
        self.cases = cases
        self.restored = frozenset(cases)

    def note_cases(self, cases: Cases, timestamp: float) -> None:
        """Take note of the agent's cases, and when they came to be as they are."""
        self.cases = cases
        self.restored &= cases.keys()
        timed = {key: case for key, case in cases.items() if key not in self.restored}
        self.drained = {
            key: _time_drain(case, self.drained.get(key, {}), timestamp)
            for key, case in timed.items()
            if case.verdict is RuleVerdict.HANDLE
        }
        self.approved = {
            key: self.approved.get(key, timestamp)
            for key, case in timed.items()
            if case.consent is Consent.GIVEN
        }


def write_metrics(status: Status) -> str:
    """Return *status* in the text format of Prometheus."""
    lines: list[str] = []
    for name, (kind, meaning, find_samples) in METRICS.items():
        lines += (f"# HELP {name} {meaning}", f"# TYPE {name} {kind}")
        lines += (
            f"{name}{suffix}{_write_labels(labels)} {value:.15g}"
            for suffix, labels, value in find_samples(status)
        )
    return "\n".join((*lines, ""))


_Sample: TypeAlias = tuple[str, Mapping[str, str], float]


def _find_incarnation(status: Status) -> Iterator[_Sample]:
    if status.document_incarnation is not None:
        yield "", {}, status.document_incarnation


def _find_events(status: Status) -> Iterator[_Sample]:
    for event in status.events.values():
        moment = event.not_before
        text = "" if moment is None else write_date(moment, NEWEST.not_before)
        for resource in event.resources:
            labels = {
                "eventID": event.event_id,
                "eventType": event.event_type,
                "resourceType": event.resource_type,
                "resource": resource,
                "eventStatus": event.event_status,
                "notBefore": text,
                "eventSource": event.event_source or "",
            }
            yield "", labels, 1 if moment is None else moment.timestamp()


def _find_requests(status: Status) -> Iterator[_Sample]:
    for limit, count in zip(BUCKETS, status.buckets, strict=True):
        yield "_bucket", {"le": str(limit)}, count
    yield "_bucket", {"le": "+Inf"}, status.polls
    yield "_sum", {}, status.seconds
    yield "_count", {}, status.polls


METRICS: Final[Mapping[str, tuple[str, str, Callable[[Status], Iterable[_Sample]]]]] = {
    "azure_scheduledevent_document_incarnation": (
        "gauge",
        "Incarnation of the document",
        _find_incarnation,
    ),
    "azure_scheduledevent_event": (
        "gauge",
        "NotBefore of each event in the document; 1 after it has started",
        _find_events,
    ),
    "azure_scheduledevent_event_drain": (
        "gauge",
        "When the hooks of an event started (start) and ended (finish)",
        lambda status: (
            ("", {"eventID": event_id, "type": kind}, moment)
            for event_id, times in status.drained.items()
            for kind, moment in times.items()
        ),
    ),
    "azure_scheduledevent_event_approval": (
        "gauge",
        "When the agent requested the start of an event",
        lambda status: (("", {"eventID": key}, at) for key, at in status.approved.items()),
    ),
    "azure_scheduledevent_request": (
        "histogram",
        "Duration of polls, including the time that the server held them",
        _find_requests,
    ),
    "azure_scheduledevent_request_error": (
        "counter",
        "Polls without a usable answer",
        lambda status: [("", {}, status.troubles)],
    ),
    "forewarn_agent_hooks_total": (
        "counter",
        "Hooks that ended, or were running when the agent was killed",
        lambda status: (
            ("", {"phase": phase, "outcome": outcome}, number)
            for (phase, outcome), number in status.hooks.items()
        ),
    ),
}
"""Every metric: its type, what it means, and where its samples come from."""


def _write_labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _time_drain(case: Case, times: Mapping[str, float], timestamp: float) -> Mapping[str, float]:
    outcomes = case.outcomes.get(HookPhase.SCHEDULED)
    if not outcomes:
        return {}
    start = times.get("start", timestamp)
    if {HookOutcome.RUNNING, HookOutcome.NOT_YET}.isdisjoint(outcomes.values()):
        return {"start": start, "finish": times.get("finish", timestamp)}
    return {"start": start}
