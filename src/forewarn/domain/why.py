"""Why an event waits, each reason in a sentence, and what an operator can do about it.

How it is done depends on where they read it: on a terminal it is a command, in a console a button.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeAlias

from forewarn.domain.names import VmName
from forewarn.domain.phrases import say_moment, say_names
from forewarn.protocol.vocabulary import EventId


class Verb(StrEnum):
    """What an operator can do about something."""

    RESUME_SERVER = "server resume"
    RESUME = "maintenance resume"
    RETRY = "maintenance retry"
    SKIP = "maintenance skip"
    ABORT = "maintenance abort"
    START = "event start"
    COMPLETE = "event complete"
    SETTLE_DONE = "task settle done"
    SETTLE_FAILED = "task settle failed"
    MOVE_AWAY = "move away"
    CORRECT_EXECUTORS = "correct executors"
    ASK_OTHERS = "ask others"


OF_MAINTENANCES: Final = frozenset({Verb.RESUME, Verb.RETRY, Verb.SKIP, Verb.ABORT})
"""What is done to a Maintenance, or to one of its places."""
OF_EVENTS: Final = frozenset({Verb.START, Verb.COMPLETE})
"""What is done to one event at a time."""
OF_TASKS: Final = frozenset({Verb.SETTLE_DONE, Verb.SETTLE_FAILED})
"""What is said of one task at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One thing to do, to what has these *ids*: a Maintenance and its place, events, a host."""

    verb: Verb
    ids: tuple[str, ...] = ()


Remedies: TypeAlias = tuple[tuple[Remedy, ...], ...]
"""What has to be done: all of these, each of which is a choice of one or more."""


def find_remedies(
    verbs: Collection[Verb],
    *,
    task_ids: Iterable[str] = (),
    event_ids: Iterable[str] = (),
    place: tuple[str, ...] = (),
) -> Remedies:
    """Return a choice of *verbs* for each task, or else each event, or else once.

    The subject of an impact's task is its event. *place* is a Maintenance and its host or scope.
    """
    subjects: Iterable[tuple[str, str]] = [("", "")]
    if not OF_TASKS.isdisjoint(verbs):
        subjects = ((each, each.partition("/")[0]) for each in task_ids)
    elif not OF_EVENTS.isdisjoint(verbs):
        subjects = (("", each) for each in event_ids)
    remedies = []
    for task_id, event_id in subjects if verbs else ():
        choice = []
        for verb in verbs:
            if verb in OF_TASKS:
                choice.append(Remedy(verb=verb, ids=(task_id,)))
            elif verb in OF_EVENTS:
                choice.append(Remedy(verb=verb, ids=(event_id,)))
            elif verb not in OF_MAINTENANCES:
                choice.append(Remedy(verb=verb))
            elif place:
                choice.append(Remedy(verb=verb, ids=place))
        remedies.append(tuple(choice))
    return tuple(remedies)


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
    OTHER_TASK = "other-task"
    OTHER_TASK_UNKNOWN = "other-task-unknown"
    WINDOW = "window"
    MAINTENANCE_ABORTED = "maintenance-aborted"
    NOT_BEGUN = "not-begun"
    OTHER_IMPACT = "other-impact"
    RUNNING = "running"
    OWNER_AWAY = "owner-away"
    BY_HAND = "by-hand"
    UNKNOWN = "unknown"
    NO_EXECUTOR = "no-executor"
    HOST_GUESTS = "host-guests"
    HOST_WORK = "host-work"
    HOST_OWNER_AWAY = "host-owner-away"
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
        "The server has been paused by {about} since {since}, and starts nothing."
    ),
    ReasonKind.APPROVAL_OF_ANY: (
        "Not approved yet; one approval is enough{number:| for each event} ({vms})."
    ),
    ReasonKind.APPROVAL_OF_ALL: (
        "Not approved by {vms}; every affected virtual machine must approve."
    ),
    ReasonKind.APPROVAL_OF_LEADER: (
        "Not approved by {vms}, the only virtual {of_vms:machine whose approval counts|machines "
        "whose approvals count}."
    ),
    ReasonKind.HOST_OPERATION: (
        "The event starts together with {events} on {about}, which {of_events:is|are} not approved "
        "by {vms} and {of_events:waits|wait} until {until} at the latest."
    ),
    ReasonKind.HOST_OPERATION_BUSY: (
        "The event starts together with the other events on {about}, which wait for {events} on "
        "{vms} to end."
    ),
    ReasonKind.HOST_OPERATION_ELSEWHERE: (
        "The event starts together with events of other scopes on {about}, which are not ready"
        "{until: and wait for approval until }."
    ),
    ReasonKind.OTHER_EVENT: (
        "{number:The event waits|The events wait} for {events} on {vms} to end: a virtual machine "
        "has one impact at a time."
    ),
    ReasonKind.OTHER_TASK: (
        "{number:The event waits|The events wait} for {about} to end; it is still running."
    ),
    ReasonKind.OTHER_TASK_UNKNOWN: (
        "{number:The event waits|The events wait}: the state of {about} is unknown, and it may "
        "still be running."
    ),
    ReasonKind.WINDOW: (
        "{number:The event starts|The events start} only while the calendar of {number:its|their} "
        "maintenance is open{until:, next at }."
    ),
    ReasonKind.MAINTENANCE_ABORTED: (
        "Maintenance {about} was aborted; {number:the event is|the events are} being withdrawn."
    ),
    ReasonKind.NOT_BEGUN: (
        "{number:The event|The events} started at {since}, but the impact on {vms} has not begun"
        "{about:: }."
    ),
    ReasonKind.OTHER_IMPACT: "The impact on {vms} begins when the impact of {events} has ended.",
    ReasonKind.RUNNING: (
        "The impact on {vms} has been running since {since}{about:: }"
        "{until:; the executor is asked again at }."
    ),
    ReasonKind.OWNER_AWAY: (
        "The impact on {vms} is carried out by {about}, which has been away since {since}; "
        "operators are paged at {until}."
    ),
    ReasonKind.BY_HAND: (
        "{number:The event has|The events have} been waiting since {since} for an operator to "
        "carry out the impact on {vms} and complete {number:it|them}."
    ),
    ReasonKind.UNKNOWN: (
        "The state of the impact on {vms} is unknown{about:: }. An impact is never begun twice, "
        "so the server waits{until: and asks again at }."
    ),
    ReasonKind.NO_EXECUTOR: (
        "The server cannot use its executors: {about} Correct the executor file, then send "
        "SIGHUP to the server."
    ),
    ReasonKind.HOST_GUESTS: (
        "The work on {about} begins after the impacts on its virtual machines; it waits for {vms}."
    ),
    ReasonKind.HOST_WORK: "The work on {about} is under way.",
    ReasonKind.HOST_OWNER_AWAY: (
        "The work on {about}, which has been away since {since}; operators are paged at {until}."
    ),
    ReasonKind.HOST_VERIFY: "{about} must be back by {until}; the server checks it until then.",
    ReasonKind.HOST_RETURN: "The work on {about} is done; {vms} {of_vms:is|are} being returned.",
    ReasonKind.HOST_UNKNOWN: (
        "The state of the work on {about} is unknown. Work is never begun twice, so the server "
        "waits"
        "{until: and asks again at }."
    ),
    ReasonKind.HOST_PAUSED: (
        "Nothing further happens on {about}: the server has been paused since {since}."
    ),
    ReasonKind.OVERDUE: (
        "{number:The event has|The events have} been overdue since {since}: "
        "{number:it takes|they take} longer than announced."
    ),
    ReasonKind.NOT_BEFORE: "The event starts at {until} at the latest.",
    ReasonKind.POSTPONABLE: "The event can be postponed to {until} at the latest.",
    ReasonKind.ABOUT_TO_START: "Nothing holds the event; it is about to start.",
    ReasonKind.IMPACT_DONE: "The impact on {vms} has ended.",
    ReasonKind.IMPACT_FAILED: "The impact on {vms} has failed{about:: }.",
    ReasonKind.MOVED: "The executor reported at {since} that {about}.",
    ReasonKind.ABOUT_TO_COMPLETE: "Nothing holds the event; it is about to complete.",
    ReasonKind.AWAITED: "{events} waits for this event to end on {vms}.",
    ReasonKind.OVERLAP: (
        "At the same time, {events} is in flight for {vms} in another update domain ({about}) "
        "of the same scope."
    ),
    ReasonKind.MAINTENANCE: "The event is a step of maintenance {about}.",
    ReasonKind.MAINTENANCE_PAUSED: (
        "The event is a step of maintenance {about}, which is paused; no further step follows."
    ),
    ReasonKind.SCENARIO: "The event is part of a run of scenario {about}.",
    ReasonKind.SCENARIO_STEP: "The event is part of a run of scenario {about} it at {until}.",
    ReasonKind.SUCCEEDED: "The event completed at {since} and succeeded{about:: }.",
    ReasonKind.FAILED: "The event completed at {since} and failed{about:: }.",
    ReasonKind.CANCELED: "The event was canceled at {since}{about:: }.",
}
"""How each kind is said; what is in braces is filled from the reason, with how it begins."""

_KINDS: Final = tuple(ReasonKind)
HOLDING: Final = frozenset(_KINDS[: _KINDS.index(ReasonKind.OVERDUE)])
"""The kinds for which an event waits; the others are only good to know."""
OF_HOST: Final = HOLDING.difference(_KINDS[: _KINDS.index(ReasonKind.HOST_GUESTS)])
"""The kinds that are about the host operation as a whole, so the same for all of its events."""
OF_OTHERS: Final = frozenset(
    {ReasonKind.OTHER_EVENT, ReasonKind.HOST_OPERATION_BUSY, ReasonKind.OTHER_IMPACT}
)
"""The kinds that are other events on the same virtual machines, which have to end first."""

SETTLE: Final = (Verb.SETTLE_DONE, Verb.SETTLE_FAILED)
REMEDIES: Final[Mapping[ReasonKind, tuple[Verb, ...]]] = {
    ReasonKind.SERVER_PAUSED: (Verb.RESUME_SERVER,),
    ReasonKind.BY_HAND: (Verb.COMPLETE,),
    ReasonKind.UNKNOWN: (*SETTLE, Verb.COMPLETE),
    ReasonKind.HOST_UNKNOWN: (*SETTLE, Verb.SKIP),
    ReasonKind.OTHER_TASK_UNKNOWN: SETTLE,
    ReasonKind.HOST_PAUSED: (Verb.RESUME_SERVER,),
}
"""What an operator can do about each kind: one of these, to each task or event that it names."""


class _Clause(str):
    """Words that a sentence may do without: the template says after the colon how they begin."""

    __slots__ = ()

    def __format__(self, beginning: str) -> str:
        return beginning + self if self else ""


class _Number(int):
    """Chooses words: the template says after the colon those for one, and those for many."""

    __slots__ = ()

    def __format__(self, words: str) -> str:
        return words.split("|")[self != 1]


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
    task_ids: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the event waits for it."""
        return self.kind in HOLDING

    @property
    def remedies(self) -> Remedies:
        """What an operator has to do about it, unless it goes away by itself."""
        is_unknown = self.kind in {ReasonKind.UNKNOWN, ReasonKind.HOST_UNKNOWN}
        verbs = () if is_unknown and self.until else REMEDIES.get(self.kind, ())
        return find_remedies(verbs, task_ids=self.task_ids, event_ids=self.event_ids)

    @property
    def sentence(self) -> str:
        return self.say_of(1)

    def say_of(self, number: int) -> str:
        """Return the sentence about so many events, of which the same is to be said."""
        return SENTENCES[self.kind].format(
            number=_Number(number),
            vms=say_names(self.vms),
            of_vms=_Number(len(self.vms)),
            events=say_names(self.event_ids),
            of_events=_Number(len(self.event_ids)),
            since=say_moment(self.since),
            until=_Clause(say_moment(self.until)),
            about=_Clause(self.about),
        )
