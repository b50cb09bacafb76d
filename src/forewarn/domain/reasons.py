"""What there is to say about an event, each in a sentence."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from forewarn.domain.names import VmName
from forewarn.domain.phrases import say_moment
from forewarn.domain.remedy import Remedy, Verb
from forewarn.protocol.vocabulary import EventId


class ReasonKind(StrEnum):
    """What kind of thing there is to say about an event."""

    # What an event waits for comes first; last of that, what its whole host operation waits for.
    SERVER_PAUSED = "server-paused"
    APPROVAL_OF_ANY = "approval-of-any"
    APPROVAL_OF_ALL = "approval-of-all"
    APPROVAL_OF_LEADER = "approval-of-leader"
    HOST_OPERATION = "host-operation"
    HOST_OPERATION_BUSY = "host-operation-busy"
    HOST_OPERATION_ELSEWHERE = "host-operation-elsewhere"
    OTHER_EVENT = "other-event"
    WINDOW = "window"
    MAINTENANCE_ABORTED = "maintenance-aborted"
    NOT_ASKED = "not-asked"
    NOT_BEGUN = "not-begun"
    OTHER_IMPACT = "other-impact"
    RUNNING = "running"
    BY_HAND = "by-hand"
    UNKNOWN = "unknown"
    NO_EXECUTOR = "no-executor"
    HOST_GUESTS = "host-guests"
    HOST_WORK = "host-work"
    HOST_VERIFY = "host-verify"
    HOST_RETURN = "host-return"
    HOST_UNKNOWN = "host-unknown"
    HOST_PAUSED = "host-paused"
    # What is good to know begins here.
    OVERDUE = "overdue"
    NOT_BEFORE = "not-before"
    POSTPONABLE = "postponable"
    ABOUT_TO_START = "about-to-start"
    IMPACT_DONE = "impact-done"
    IMPACT_FAILED = "impact-failed"
    MOVED = "moved"
    ABOUT_TO_COMPLETE = "about-to-complete"
    AWAITED = "awaited"
    OVERLAP = "overlap"
    MAINTENANCE = "maintenance"
    MAINTENANCE_PAUSED = "maintenance-paused"
    SCENARIO = "scenario"
    SCENARIO_STEP = "scenario-step"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


SENTENCES: Final[Mapping[ReasonKind, str]] = {
    ReasonKind.SERVER_PAUSED: (
        "The server has been paused by {about} since {since}, and begins nothing."
    ),
    ReasonKind.APPROVAL_OF_ANY: "Not approved yet; one approval is enough ({vms}).",
    ReasonKind.APPROVAL_OF_ALL: "Not approved by {vms}; all of its virtual machines must approve.",
    ReasonKind.APPROVAL_OF_LEADER: "Not approved by {vms}, whose approval counts.",
    ReasonKind.HOST_OPERATION: (
        "It starts together with {events} on {about}, which is not approved by {vms} "
        "and waits until {until} at most."
    ),
    ReasonKind.HOST_OPERATION_BUSY: (
        "It starts together with the other events on {about}, one of which waits for {events} "
        "on {vms} to end."
    ),
    ReasonKind.HOST_OPERATION_ELSEWHERE: (
        "It starts together with events of other scopes on {about}, which are not ready"
        "{until: and wait for approval until }."
    ),
    ReasonKind.OTHER_EVENT: (
        "It waits for {events} on {vms} to end: a virtual machine has one impact at a time."
    ),
    ReasonKind.WINDOW: (
        "It starts only while the calendar of its maintenance is open{until:, next at }."
    ),
    ReasonKind.MAINTENANCE_ABORTED: "Its maintenance {about} was aborted; it is being withdrawn.",
    ReasonKind.NOT_ASKED: "The executor has not been asked about {vms} since the server started.",
    ReasonKind.NOT_BEGUN: "The impact on {vms} has not begun, though it started at {since}.",
    ReasonKind.OTHER_IMPACT: "The impact on {vms} begins when that of {events} is over.",
    ReasonKind.RUNNING: (
        "The impact on {vms} has been running since {since}{about:: }"
        "{until:; the executor is asked again at }."
    ),
    ReasonKind.BY_HAND: (
        "An operator has to carry it out on {vms}, since {since}, and then complete it."
    ),
    ReasonKind.UNKNOWN: (
        "The state of the impact on {vms} is unknown{about:: }. It is never begun twice, "
        "so it waits{until: and asks again at }."
    ),
    ReasonKind.NO_EXECUTOR: (
        "The server cannot use its executors: {about} Correct the file, "
        "and send the server a SIGHUP."
    ),
    ReasonKind.HOST_GUESTS: (
        "The work on {about} begins when every virtual machine there is out of the way; "
        "it waits for {vms}."
    ),
    ReasonKind.HOST_WORK: "{about} is being worked on.",
    ReasonKind.HOST_VERIFY: "{about} has to be back by {until}; it is checked until then.",
    ReasonKind.HOST_RETURN: "The work on {about} is done; {vms} {are} being returned.",
    ReasonKind.HOST_UNKNOWN: (
        "The state of the work on {about} is unknown. It is never begun twice, so it waits"
        "{until: and asks again at }."
    ),
    ReasonKind.HOST_PAUSED: (
        "Nothing further happens on {about}: the server has been paused since {since}."
    ),
    ReasonKind.OVERDUE: (
        "It has been overdue since {since}: it takes longer than announced and tolerated."
    ),
    ReasonKind.NOT_BEFORE: "It starts at {until} at the latest.",
    ReasonKind.POSTPONABLE: "It may be postponed until {until}, and no further.",
    ReasonKind.ABOUT_TO_START: "Nothing holds it: it is about to start.",
    ReasonKind.IMPACT_DONE: "The impact on {vms} is over.",
    ReasonKind.IMPACT_FAILED: "The impact on {vms} has failed{about:: }.",
    ReasonKind.MOVED: "The executor says that {about}, at {since}.",
    ReasonKind.ABOUT_TO_COMPLETE: "Nothing holds it: it is about to complete.",
    ReasonKind.AWAITED: "{events} waits for it to end on {vms}.",
    ReasonKind.OVERLAP: (
        "Beside it, {events} is in flight for {vms}, of another update domain ({about}) "
        "of the same scope."
    ),
    ReasonKind.MAINTENANCE: "It is a step of maintenance {about}.",
    ReasonKind.MAINTENANCE_PAUSED: (
        "It is a step of maintenance {about}, which is paused: no other step follows it."
    ),
    ReasonKind.SCENARIO: "It is part of a run of scenario {about}.",
    ReasonKind.SCENARIO_STEP: "It is part of a run of scenario {about} it at {until}.",
    ReasonKind.SUCCEEDED: "It completed at {since} and succeeded{about:: }.",
    ReasonKind.FAILED: "It completed at {since} and failed{about:: }.",
    ReasonKind.CANCELED: "It was canceled at {since}{about:: }.",
}
"""How each kind is said; what is in braces is filled from the reason, with how it begins."""

_KINDS: Final = tuple(ReasonKind)
HOLDING: Final = frozenset(_KINDS[: _KINDS.index(ReasonKind.OVERDUE)])
"""The kinds for which an event waits; the others are only good to know."""
OF_HOST: Final = HOLDING.difference(_KINDS[: _KINDS.index(ReasonKind.HOST_GUESTS)])
"""The kinds that are about the host operation as a whole, so the same for all of its events."""

REMEDIES: Final[Mapping[ReasonKind, Verb]] = {
    ReasonKind.SERVER_PAUSED: Verb.RESUME_SERVER,
    ReasonKind.BY_HAND: Verb.COMPLETE,
    ReasonKind.HOST_PAUSED: Verb.RESUME_SERVER,
}
"""What somebody has to do about each kind, to the events it names."""


class _Clause(str):
    """Words that a sentence may do without: the template says after the colon how they begin."""

    __slots__ = ()

    def __format__(self, beginning: str) -> str:
        return beginning + self if self else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One thing to know about an event: its kind, whom and what it concerns, and since when.

    *until* is when it will be over at most, or looked at again. *about* is the name of the host,
    maintenance, scenario or update domain, or the remark that somebody made.
    """

    kind: ReasonKind
    vms: tuple[VmName, ...] = ()
    event_ids: tuple[EventId, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    about: str = ""

    @property
    def holds(self) -> bool:
        """Whether the event waits for it."""
        return self.kind in HOLDING

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        """What somebody has to do about it, if anything."""
        verb = REMEDIES.get(self.kind)
        return () if verb is None else (Remedy(verb=verb, ids=self.event_ids),)

    @property
    def sentence(self) -> str:
        return SENTENCES[self.kind].format(
            vms=", ".join(self.vms),
            are="is" if len(self.vms) == 1 else "are",
            events=", ".join(self.event_ids),
            since=say_moment(self.since),
            until=_Clause(say_moment(self.until)),
            about=_Clause(self.about),
        )
