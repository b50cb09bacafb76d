"""Events, as a test holds them in its hands."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NoReturn, TypedDict, TypeVar

from forewarn.clocks import SystemClock
from forewarn.domain.event import Happening, Outcome, ScheduledEvent
from forewarn.domain.names import VmName, name_key
from forewarn.operations.events import (
    EventOrder,
    approve_event,
    cancel_event,
    complete_event,
    create_events,
    find_event,
    start_event,
)
from forewarn.ports.entries import LedgerEntry
from forewarn.protocol.vocabulary import EventId, EventStatus, EventType
from forewarn.testing.conduct import Evidence
from forewarn.testing.engine import Engine
from forewarn.testing.reports import ALL, describe_event, request_lines, title_of

__tracebackhide__ = True

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


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedApproval:
    """Somebody's word that an event may start."""

    event_id: EventId
    by: str
    at: datetime


@dataclass(frozen=True, slots=True, repr=False)
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
    def seen_by(self) -> tuple[VmName, ...]:
        """The machines that have read of it, as far as the journal goes back."""
        requests = self._engine.replica.journal.requests()
        shown = (entry.vm for entry in requests if entry.shows(self.event_id))
        return tuple(dict.fromkeys(vm for vm in shown if vm is not None))

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
        if self.event_status is not choose(EventStatus, status):
            self.fail(f"is {self.event_status}, not {status}")

    def assert_approved(self, *, by: str | None = None) -> None:
        """Fail, with the document and the ledger, unless it was approved, by *by* if given."""
        approvers = [name_key(approval.by) for approval in self.approvals]
        if by is not None and name_key(by) not in approvers:
            wanted = self._engine.find_vm(by).name
            but = f", but {self._say_by_whom()}" if approvers else ""
            self.fail(f"was not approved by {wanted}{but}", wanted)
        if not approvers:
            self.fail("was not approved")

    def assert_not_approved(self, *, even_if_silent: bool = False) -> None:
        """Fail, with the document and the ledger, if somebody approved it.

        Also fail if no machine of its delivery scope has read its document since it was announced:
        then the program under test could not approve it, and may not even be running. For a test
        of just that, say *even_if_silent*.
        """
        if self.approvals:
            self._fail(f"was approved {self._say_by_whom()}")
        if not even_if_silent and not self._could_be_approved():
            problem = "was not approved, but no virtual machine polled"
            self.fail(f"{problem} (even_if_silent=True accepts that)")

    def fail(self, problem: str, *vms: VmName) -> NoReturn:
        """Fail because of *problem*, and show what there is to know.

        The first line says what *vms* asked for: those that the event happens to, unless given.
        """
        conduct = gather(self._engine).describe(vms or self.record.resources, self.event_id)
        self._fail(f"{problem}; {conduct}")

    def _could_be_approved(self) -> bool:
        """Tell whether a machine of its delivery scope has read its document since it was there."""
        announced_at, scope_id = self._engine.announced_at[self.event_id], self.record.scope_id
        vms = self._engine.read(lambda reading: reading.topology().virtual_machines)
        readers = {name for name, vm in vms.items() if vm.scope_id == scope_id}
        return any(
            entry.has_read and (entry.at >= announced_at or entry.shows(self.event_id))
            for entry in self._engine.replica.journal.requests()
            if entry.vm in readers
        )

    def _fail(self, problem: str) -> NoReturn:
        raise AssertionError(f"{title_of(self.record)} {problem}\n{self}")

    def _say_by_whom(self) -> str:
        """Return who approved it, and whether they are others than it happens to."""
        own = self.record.resources
        vms = self._engine.read(lambda reading: reading.topology().virtual_machines)
        approvers = dict.fromkeys(approval.by for approval in self.approvals)
        return "by " + ", ".join(
            f"its neighbor {name}" if name in vms and name not in own else name
            for name in approvers
        )

    def __str__(self) -> str:
        now, requests = self._engine.replica.clock.now(), self._engine.replica.journal.requests()
        known = self._engine.read(lambda reading: describe_event(reading, self.event_id, now))
        return "\n".join((known, *request_lines(requests)))

    def __repr__(self) -> str:
        if not self._engine.is_running:
            return f"<event {self.event_id} of a closed emulator>"
        event = self.record
        return f"<{title_of(event)}, {event.event_status}: {self.event_id}>"


def announce(
    engine: Engine, event_type: EventType, vms: Sequence[str], details: Details
) -> tuple[EmulatedEvent, ...]:
    """Create what it takes to announce *event_type* for all of *vms*."""
    _check(vms, details)
    order = EventOrder(
        event_type=event_type,
        resources=tuple(vms),
        not_before=details.get("notice"),
        duration_in_seconds=details.get("duration"),
        description=details.get("description"),
        started=details.get("started", False),
    )
    created = engine.write(lambda tx, context: create_events(tx, context, order))
    return tuple(EmulatedEvent(engine, event.event_id) for event in created)


def all_events(engine: Engine) -> tuple[EmulatedEvent, ...]:
    """Return every event there is or was, oldest first."""
    known = engine.read(lambda reading: reading.events(limit=ALL))
    return tuple(EmulatedEvent(engine, event.event_id) for event in known)


def gather(engine: Engine) -> Evidence:
    """Return who has asked what so far, as the message of a failed assertion needs it."""
    known = engine.read(lambda reading: reading.events(limit=ALL))
    return Evidence(
        requests=engine.replica.journal.requests(),
        now=SystemClock().now(),
        titles={event.event_id: title_of(event) for event in known},
    )


def all_approvals(engine: Engine) -> tuple[EmulatedApproval, ...]:
    """Return every approval, in the order in which they were given."""
    given = [approval for event in all_events(engine) for approval in event.approvals]
    audit = engine.read(lambda reading: reading.audit(limit=ALL))
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


def _check(vms: Sequence[str], details: Details) -> None:
    if not vms:
        raise ValueError("An event needs at least one virtual machine.")
    for name in details.keys() - Details.__annotations__.keys():
        raise TypeError(
            f"Unknown detail {name!r} of an event; use {', '.join(Details.__annotations__)}."
        )
    duration, notice = details.get("duration"), details.get("notice")
    if duration is not None and (type(duration) is not int or not 0 <= duration <= _YEAR):
        raise ValueError(f"duration must be a whole number of seconds up to a year: {duration!r}.")
    if notice is not None and not isinstance(notice, timedelta):
        raise TypeError(f"notice must be a timedelta: {notice!r}.")
