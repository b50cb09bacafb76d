"""What a test holds in its hands: a virtual machine, an event, the clock."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NoReturn, TypedDict, TypeVar, Unpack

from forewarn.bootstrap.clock_control import ReplicaClockControl
from forewarn.client import Client
from forewarn.domain.event import Happening, Outcome, ScheduledEvent
from forewarn.domain.fault import Fault, FaultKind
from forewarn.domain.names import ScenarioRunId, VmName, name_key
from forewarn.domain.scenario import ScenarioRunStatus
from forewarn.operations.events import (
    EventOrder,
    approve_event,
    cancel_event,
    complete_event,
    create_events,
    find_event,
    operate,
    start_event,
)
from forewarn.operations.inventory import find_vm
from forewarn.operations.scenarios import ScenarioReport, report_scenario_run, stop_scenario
from forewarn.ports.entries import LedgerEntry
from forewarn.protocol.versions import NEWEST
from forewarn.protocol.vocabulary import EventId, EventStatus, EventType
from forewarn.testing.engine import Engine
from forewarn.testing.reports import describe_event, describe_scope

_ALL: Final = 1_000_000
_YEAR: Final = 31_536_000


class Details(TypedDict, total=False):
    """What may be said of an event that is announced.

    *notice* is how long ahead, the minimum of the type unless given; *duration* is
    DurationInSeconds; with *started* there is no notice at all, as after a failure.
    """

    notice: timedelta | None
    duration: int | None
    description: str
    started: bool


class FaultParameters(TypedDict, total=False):
    """What may be said of a fault; which of it belongs to which kind is a table of its own."""

    times: int
    seconds: float
    status: int
    retry_after: int
    event_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedApproval:
    """Somebody's word that an event may start."""

    event_id: EventId
    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class EmulatedClock:
    """Maintenance time. It stands still until it is advanced."""

    _engine: Engine

    @property
    def now(self) -> datetime:
        """The present moment."""
        return self._engine.replica.clock.now()

    def advance(
        self,
        duration: timedelta | None = None,
        *,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> datetime:
        """Let time pass, with everything that falls due in it, and return the new moment."""
        replica = self._engine.replica
        span = timedelta() if duration is None else duration
        if not isinstance(span, timedelta):
            raise TypeError(f"advance({duration!r}) says no unit; write advance(minutes=15).")
        span += timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if span < timedelta():
            raise ValueError(f"Time does not go back: {span}.")
        return ReplicaClockControl(replica.clock, replica.store, replica.candidate).advance(span)


@dataclass(frozen=True, slots=True)
class EmulatedEvent:
    """One event, as it is whenever you look."""

    _engine: Engine
    event_id: EventId

    @property
    def event_status(self) -> EventStatus:
        """Scheduled, Started, Completed or Canceled."""
        return self.record.event_status

    @property
    def approvals(self) -> tuple[EmulatedApproval, ...]:
        """Who has approved it, in that order."""
        return tuple(
            EmulatedApproval(event_id=self.event_id, by=entry.who, at=entry.at)
            for entry in self.ledger
            if entry.what is Happening.APPROVED
        )

    @property
    def ledger(self) -> tuple[LedgerEntry, ...]:
        """Everything that has happened to it."""
        return self._engine.read(lambda reading: reading.ledger(self.event_id))

    @property
    def record(self) -> ScheduledEvent:
        """All that the server knows about it."""
        return self._engine.read(lambda reading: find_event(reading, self.event_id))

    def approve(self) -> None:
        """Approve it for everybody, as an operator can."""
        self._engine.write(lambda tx, context: approve_event(tx, context, self.event_id))

    def start(self) -> None:
        """Start it now, whoever is not ready."""
        self._engine.write(lambda tx, context: start_event(tx, context, self.event_id))

    def complete(self, *, failed: str = "") -> None:
        """End it now, as if its impact were over, or had *failed* for that reason."""
        outcome = Outcome.FAILED if failed else Outcome.SUCCEEDED
        self._engine.write(
            lambda tx, context: complete_event(tx, context, self.event_id, outcome, failed)
        )

    def cancel(self, reason: str = "") -> None:
        """Withdraw it, which is possible while it is Scheduled."""
        self._engine.write(lambda tx, context: cancel_event(tx, context, self.event_id, reason))

    def assert_status(self, status: EventStatus | str) -> None:
        """Fail, with the document and the ledger, unless it is *status*."""
        __tracebackhide__ = True
        if self.event_status is not choose(EventStatus, status):
            self.fail(f"is {self.event_status}, not {status}")

    def assert_approved(self, *, by: str | None = None) -> None:
        """Fail, with the document and the ledger, unless it was approved, by *by* if given."""
        __tracebackhide__ = True
        approvers = [approval.by for approval in self.approvals]
        if not approvers:
            self.fail("was not approved")
        if by is not None and name_key(by) not in map(name_key, approvers):
            self.fail(f"was not approved by {by}, but by {', '.join(approvers)}")

    def assert_not_approved(self) -> None:
        """Fail, with the document and the ledger, if somebody approved it."""
        __tracebackhide__ = True
        if self.approvals:
            self.fail(f"was approved by {', '.join(approval.by for approval in self.approvals)}")

    def fail(self, problem: str) -> NoReturn:
        """Fail because of *problem*, and show what there is to know."""
        __tracebackhide__ = True
        raise AssertionError(f"Event {self.event_id} {problem}.\n{self}")

    def __str__(self) -> str:
        now = self._engine.replica.clock.now()
        return self._engine.read(lambda reading: describe_event(reading, self.event_id, now))


@dataclass(frozen=True, slots=True)
class EmulatedScenario:
    """One run of a scenario. It goes on as the clock is advanced."""

    _engine: Engine
    run_id: ScenarioRunId

    @property
    def status(self) -> ScenarioRunStatus:
        """Running, stopped or finished."""
        return self._report.run.status

    @property
    def events(self) -> tuple[EmulatedEvent, ...]:
        """The events it has made so far."""
        return tuple(EmulatedEvent(self._engine, event.event_id) for event in self._report.events)

    def stop(self) -> None:
        """Stop a run, and cancel its Scheduled events."""
        self._engine.write(lambda tx, context: stop_scenario(tx, context, self.run_id))

    @property
    def _report(self) -> ScenarioReport:
        return self._engine.read(lambda reading: report_scenario_run(reading, self.run_id))


@dataclass(frozen=True, slots=True)
class EmulatedVm:
    """One virtual machine, and what can be done to it."""

    _engine: Engine
    name: VmName

    @property
    def url(self) -> str:
        """Where this machine finds its metadata: in place of http://169.254.169.254."""
        return f"http://127.0.0.1:{self._engine.port}/vm/{self.name}"

    @property
    def scheduled_events_url(self) -> str:
        """The endpoint itself; `?api-version=` is still to be added."""
        return f"{self.url}/metadata/scheduledevents"

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs in its environment to be this machine to our SDK and agent."""
        return {"FOREWARN_METADATA": self.url}

    @property
    def events(self) -> tuple[EmulatedEvent, ...]:
        """Every event that is or was about this machine, oldest first."""
        known = self._engine.read(lambda reading: reading.events(vm=self.name, limit=_ALL))
        return tuple(EmulatedEvent(self._engine, event.event_id) for event in known)

    @property
    def approvals(self) -> tuple[EmulatedApproval, ...]:
        """What this machine has approved, its own events and its neighbours'."""
        return tuple(given for given in all_approvals(self._engine) if given.by == self.name)

    def document(self, api_version: str = NEWEST.name) -> dict[str, Any]:
        """Return what this machine reads, as it is on the wire."""
        board = self._engine.replica.board
        vm = self._engine.read(lambda reading: find_vm(reading.topology(), self.name))
        if api_version not in board.versions:
            raise ValueError(f"{api_version!r} is not one of {', '.join(board.versions)}.")
        document: dict[str, Any] = json.loads(board.page(vm, api_version).body)
        return document

    def freeze(self, **details: Unpack[Details]) -> EmulatedEvent:
        """Announce a pause; *duration* is how many seconds it says it takes."""
        return self._announce(EventType.FREEZE, details)

    def reboot(self, **details: Unpack[Details]) -> EmulatedEvent:
        """Announce a reboot by the platform."""
        return self._announce(EventType.REBOOT, details)

    def redeploy(self, **details: Unpack[Details]) -> EmulatedEvent:
        """Announce a move to another host by the platform."""
        return self._announce(EventType.REDEPLOY, details)

    def preempt(self, **details: Unpack[Details]) -> EmulatedEvent:
        """Announce the eviction of a spot machine."""
        return self._announce(EventType.PREEMPT, details)

    def terminate(self, **details: Unpack[Details]) -> EmulatedEvent:
        """Announce the deletion of a scale set's machine."""
        return self._announce(EventType.TERMINATE, details)

    def user_reboot(self) -> EmulatedEvent:
        """Restart it as its owner would: EventSource is User."""
        return self._operate(EventType.REBOOT)

    def user_redeploy(self) -> EmulatedEvent:
        """Redeploy it as its owner would: EventSource is User."""
        return self._operate(EventType.REDEPLOY)

    def cancel(self, reason: str = "") -> None:
        """Withdraw every event of this machine that is still Scheduled."""
        for event in self.events:
            if event.event_status is EventStatus.SCHEDULED:
                event.cancel(reason)

    def fault(self, kind: FaultKind | str, **parameters: Unpack[FaultParameters]) -> None:
        """Misbehave towards this machine from now on: docs/reference/faults.md.

        `vm.fault("empty-body", times=1)`, `vm.fault("status", status=410)`.
        """
        self._engine.replica.faults.put(
            self.name, Fault(kind=choose(FaultKind, kind), **parameters)
        )

    def clear_faults(self, kind: FaultKind | str | None = None) -> None:
        """Behave again, in one respect or in all."""
        chosen = None if kind is None else choose(FaultKind, kind)
        self._engine.replica.faults.remove(self.name, chosen)

    def client(self) -> Client:
        """Return a client of the SDK that is this machine; close it."""
        return Client(self.url)

    def _announce(self, event_type: EventType, details: Details) -> EmulatedEvent:
        (event,) = announce(self._engine, event_type, (self.name,), details)
        return event

    def _operate(self, event_type: EventType) -> EmulatedEvent:
        event = self._engine.write(lambda tx, context: operate(tx, context, self.name, event_type))
        return EmulatedEvent(self._engine, event.event_id)

    def __str__(self) -> str:
        return self._engine.read(lambda reading: describe_scope(reading, self.name))


def announce(
    engine: Engine, event_type: EventType, vms: tuple[str, ...], details: Details
) -> tuple[EmulatedEvent, ...]:
    """Create what it takes to announce *event_type* for all of *vms*."""
    _check(vms, details)
    order = EventOrder(
        event_type=event_type,
        resources=vms,
        not_before=details.get("notice"),
        duration_in_seconds=details.get("duration"),
        description=details.get("description"),
        started=details.get("started", False),
    )
    created = engine.write(lambda tx, context: create_events(tx, context, order))
    return tuple(EmulatedEvent(engine, event.event_id) for event in created)


def all_events(engine: Engine) -> tuple[EmulatedEvent, ...]:
    """Return every event there is or was, oldest first."""
    known = engine.read(lambda reading: reading.events(limit=_ALL))
    return tuple(EmulatedEvent(engine, event.event_id) for event in known)


def all_approvals(engine: Engine) -> tuple[EmulatedApproval, ...]:
    """Return every approval, in the order in which they were given."""
    given = [approval for event in all_events(engine) for approval in event.approvals]
    audit = engine.read(lambda reading: reading.audit(limit=_ALL))
    # Virtual time stands still, so the moments of several may be the same.
    turns = {(entry.subject, entry.who): turn for turn, entry in enumerate(audit)}
    return tuple(
        sorted(given, key=lambda each: (each.at, turns.get((each.event_id, each.by), len(turns))))
    )


_Word = TypeVar("_Word", bound=StrEnum)


def choose(words: type[_Word], word: str) -> _Word:
    """Return *word* as one of *words*, or refuse with all of them."""
    try:
        return words(word)
    except ValueError:
        raise ValueError(f"{word!r} is not one of {', '.join(words)}.") from None


def _check(vms: tuple[str, ...], details: Details) -> None:
    if not vms:
        raise ValueError("An event needs a virtual machine to happen to.")
    for name in details.keys() - Details.__annotations__.keys():
        raise TypeError(
            f"An event has no {name!r}; it may have {', '.join(Details.__annotations__)}."
        )
    duration, notice = details.get("duration"), details.get("notice")
    if duration is not None and (type(duration) is not int or not 0 <= duration <= _YEAR):
        raise ValueError(f"duration must be a whole number of seconds up to a year: {duration!r}.")
    if notice is not None and not isinstance(notice, timedelta):
        raise TypeError(f"notice must be a timedelta: {notice!r}.")
