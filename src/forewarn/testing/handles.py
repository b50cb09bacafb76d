"""What a test holds in its hands besides events: a virtual machine, a scenario, the clock."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NoReturn, TypedDict, Unpack

from forewarn.bootstrap.clock_control import ReplicaClockControl
from forewarn.client import Client
from forewarn.domain.fault import Fault, FaultKind
from forewarn.domain.names import ScenarioRunId, VmName
from forewarn.domain.scenario import ScenarioRunStatus
from forewarn.emulator.variables import endpoint_variables
from forewarn.operations.events import operate
from forewarn.operations.scenarios import ScenarioReport, report_scenario_run, stop_scenario
from forewarn.ports.journal import JournalEntry
from forewarn.protocol.versions import NEWEST, VERSIONS_BY_NAME
from forewarn.protocol.vocabulary import SCHEDULED_EVENTS_PATH, EventStatus, EventType
from forewarn.testing.engine import Engine, in_one_frame
from forewarn.testing.events import (
    Details,
    EmulatedApproval,
    EmulatedEvent,
    all_approvals,
    announce,
    choose,
    gather,
)
from forewarn.testing.reports import ALL, describe_scope, request_lines

__tracebackhide__ = True


class FaultParameters(TypedDict, total=False):
    """What may be said of a fault; which of it belongs to which kind is a table of its own."""

    times: int
    seconds: float
    status: int
    retry_after: int
    event_type: str


@dataclass(frozen=True, slots=True, repr=False)
class EmulatedClock:
    """Maintenance time. It stands still until it is advanced."""

    _engine: Engine

    @property
    def now(self) -> datetime:
        """The present moment."""
        return self._engine.replica.clock.now()

    @in_one_frame
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
            raise TypeError(f"advance({duration!r}) has no unit; use advance(minutes=15).")
        span += timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if span < timedelta():
            raise ValueError(f"Time cannot go back: {span}.")
        return ReplicaClockControl(replica.clock, replica.candidate).advance(span)

    def __repr__(self) -> str:
        return f"<clock at {self.now}>" if self._engine.is_running else "<clock that was closed>"


@dataclass(frozen=True, slots=True, repr=False)
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

    def __repr__(self) -> str:
        if not self._engine.is_running:
            return f"<scenario run {self.run_id} of a closed emulator>"
        run = self._report.run
        return f"<scenario {run.name} for {', '.join(run.resources)}, {run.status}>"

    @property
    def _report(self) -> ScenarioReport:
        return self._engine.read(lambda reading: report_scenario_run(reading, self.run_id))


@dataclass(frozen=True, slots=True, repr=False)
class EmulatedVm:
    """One virtual machine, and what can be done to it."""

    _engine: Engine
    name: VmName

    @property
    def url(self) -> str:
        """Where this machine finds its metadata: in place of http://169.254.169.254."""
        return f"http://{self._engine.address}/vm/{self.name}"

    @property
    def scheduled_events_url(self) -> str:
        """The endpoint itself; `?api-version=` is still to be added."""
        return f"{self.url}{SCHEDULED_EVENTS_PATH}"

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs in its environment to be this machine."""
        return endpoint_variables(self.url)

    @property
    def events(self) -> tuple[EmulatedEvent, ...]:
        """Every event that is or was about this machine, oldest first."""
        known = self._engine.read(lambda reading: reading.events(vm=self.name, limit=ALL))
        return tuple(EmulatedEvent(self._engine, event.event_id) for event in known)

    @property
    def approvals(self) -> tuple[EmulatedApproval, ...]:
        """What this machine has approved, its own events and its neighbors'."""
        return tuple(given for given in all_approvals(self._engine) if given.by == self.name)

    @property
    def requests(self) -> tuple[JournalEntry, ...]:
        """What this machine has asked, and how it was answered: the last 1,000, oldest first."""
        return self._engine.replica.journal.requests_of(self.name)

    def document(self, api_version: str = NEWEST.name) -> dict[str, Any]:
        """Return what this machine reads, as it is on the wire."""
        board = self._engine.replica.board
        vm = self._engine.find_vm(self.name)
        if api_version not in VERSIONS_BY_NAME:
            raise ValueError(f"{api_version!r} is not one of {', '.join(VERSIONS_BY_NAME)}.")
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

    @in_one_frame
    def fault(self, kind: FaultKind | str, **parameters: Unpack[FaultParameters]) -> None:
        """Misbehave toward this machine from now on: docs/reference/faults.md.

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

    def fail(self, problem: str) -> NoReturn:
        """Fail because of *problem*, and show what there is to know."""
        conduct = gather(self._engine).describe((self.name,))
        lines = (f"{self.name} {problem}; {conduct}", str(self), *request_lines(self.requests))
        raise AssertionError("\n".join(lines))

    def _announce(self, event_type: EventType, details: Details) -> EmulatedEvent:
        (event,) = announce(self._engine, event_type, (self.name,), details)
        return event

    def _operate(self, event_type: EventType) -> EmulatedEvent:
        event = self._engine.write(lambda tx, context: operate(tx, context, self.name, event_type))
        return EmulatedEvent(self._engine, event.event_id)

    def __repr__(self) -> str:
        return f"<virtual machine {self.name}>"

    def __str__(self) -> str:
        return self._engine.read(lambda reading: describe_scope(reading, self.name))
