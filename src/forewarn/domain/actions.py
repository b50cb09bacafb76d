"""What can be due: actions are recorded, effects are performed once that is done."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from forewarn.domain.event import Outcome
from forewarn.domain.gate import Question
from forewarn.domain.host_operation import HostOperation
from forewarn.domain.host_work import Undertaking
from forewarn.domain.maintenance import Step
from forewarn.domain.names import HostName, MaintenanceId, ScenarioRunId, VmName
from forewarn.domain.scenario import ScenarioStep
from forewarn.domain.schedule import PassOccurrence, StartOccurrence
from forewarn.domain.task import Task
from forewarn.protocol.vocabulary import EventId


class StartReason(StrEnum):
    """Why an event may start."""

    APPROVED = "approved"
    NOT_BEFORE_REACHED = "NotBefore reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartEvent:
    """Record the event as Started."""

    event_id: EventId
    reason: StartReason


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteOverdue:
    """Record that the event takes longer than expected."""

    event_id: EventId


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowMove:
    """Record that *vm* of the event is on *host* now, as was said of *about*: also in a pause."""

    event_id: EventId
    about: Undertaking
    vm: VmName
    host: HostName


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteEvent:
    """Record the event as Completed."""

    event_id: EventId
    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelEvent:
    """Record the event as Canceled."""

    event_id: EventId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleStep:
    """Announce the events of one step."""

    maintenance_id: MaintenanceId
    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvanceOperation:
    """Record how far a host operation has come."""

    operation: HostOperation


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishMaintenance:
    """Record that there is nothing left to do."""

    maintenance_id: MaintenanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeStep:
    """Do the next step of a scenario."""

    run_id: ScenarioRunId
    step: ScenarioStep


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishScenario:
    """Record that all steps are done and all events have ended."""

    run_id: ScenarioRunId


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveTask:
    """Reserve what is due, so that its owner begins it."""

    about: Undertaking


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTask:
    """Record what becomes of a task by itself."""

    task: Task


@dataclass(frozen=True, slots=True, kw_only=True)
class AskGate:
    """Ask a gate whether a step may begin."""

    question: Question


Action: TypeAlias = (
    StartEvent
    | CompleteEvent
    | CancelEvent
    | NoteOverdue
    | ScheduleStep
    | AdvanceOperation
    | FinishMaintenance
    | TakeStep
    | FinishScenario
    | ReserveTask
    | ChangeTask
)
"""Something to record."""

BEGINS_NOTHING: Final = (
    CompleteEvent,
    CancelEvent,
    NoteOverdue,
    FinishMaintenance,
    FinishScenario,
    ChangeTask,
)
"""What is also done while the server is paused; whatever is not named here waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """What is due now: first record the actions, then perform the effects.

    *moves* come with nothing but the events that end with them. *questions* are those that gates
    are asked at present, answered or not. *occurrences* of schedules are due only when nothing else
    is.
    """

    actions: tuple[Action, ...]
    effects: tuple[AskGate, ...]
    moves: tuple[FollowMove, ...] = ()
    questions: frozenset[Question] = frozenset()
    occurrences: tuple[PassOccurrence | StartOccurrence, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.actions or self.effects or self.moves or self.occurrences)
