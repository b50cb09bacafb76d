"""Events, cases and changes in few words, and an agent whose surroundings are written down."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from forewarn.agent.agent import Agent, Looked
from forewarn.agent.cases import Case, Cases
from forewarn.agent.decisions import Mandate, Now, RunHook
from forewarn.agent.errors import StateError
from forewarn.agent.hooks import Hook
from forewarn.agent.performer import Answered, HookEnded
from forewarn.agent.rules import Rule
from forewarn.agent.vocabulary import ApprovalMode, HookOutcome, HookPhase, RuleVerdict
from forewarn.client import Change, ChangeKind, ClientError
from forewarn.protocol.document import Event
from forewarn.protocol.identity import Identity
from forewarn.protocol.vocabulary import EventStatus, EventType, event_id

ME: Final = Identity(name="web-0", host_name="web-0.example")
NOON: Final = datetime(2027, 1, 4, 12, tzinfo=UTC)
QUARTER: Final = timedelta(minutes=15)
ID: Final = event_id("00000000-0000-4000-8000-000000000001")


def make_event(number: int = 1, **fields: Any) -> Event:
    made = Event(
        event_id=event_id(f"00000000-0000-4000-8000-{number:012X}"),
        event_status=EventStatus.SCHEDULED,
        event_type=EventType.REBOOT,
        resources=("web-0",),
        not_before=NOON + QUARTER,
    )
    return replace(made, **fields)


def make_change(kind: ChangeKind = ChangeKind.SCHEDULED, **fields: Any) -> Change:
    if kind is not ChangeKind.SCHEDULED:
        fields = {"event_status": EventStatus.STARTED, "not_before": None, **fields}
    return Change(kind=kind, event=make_event(**fields), document_incarnation=1)


def make_case(phase: HookPhase = HookPhase.SCHEDULED, **fields: Any) -> Case:
    case = Case(event=make_event(), verdict=RuleVerdict.HANDLE, phase=phase)
    return replace(case, **fields)


def make_hooks(**names: str) -> dict[HookPhase, tuple[Hook, ...]]:
    """Return hooks by phase, given as `scheduled="first second"`."""
    return {
        phase: tuple(
            Hook(name=name, command=(name,)) for name in names.get(phase.value, "").split()
        )
        for phase in HookPhase
    }


def make_mandate(**fields: Any) -> Mandate:
    mandate = Mandate(
        me=ME,
        approval=ApprovalMode.WHEN_READY,
        timeout=timedelta(minutes=10),
        postpone=timedelta(minutes=5),
        ask_again=10.0,
    )
    return replace(mandate, **fields)


class FakeProcess:
    """A hook that runs until somebody ends it."""

    def __init__(self) -> None:
        self.signals: list[str] = []
        self.has_ended = False

    def terminate(self) -> bool:
        self.signals.append("terminate")
        return not self.has_ended

    def kill(self) -> None:
        self.signals.append("kill")


@dataclass
class Stage:
    """An agent, and all it does: nothing happens before the test says so."""

    approval: ApprovalMode = ApprovalMode.WHEN_READY
    rules: tuple[Rule, ...] = ()
    hooks: dict[HookPhase, tuple[Hook, ...]] = field(default_factory=make_hooks)
    is_disk_full: bool = False
    saved: Cases = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    process: FakeProcess = field(default_factory=FakeProcess)
    now: Now = field(default_factory=lambda: Now(wall=NOON, steady=1000.0))

    def start(self, *, has_looked: bool = True) -> Agent:
        """Return an agent that finds what was saved."""
        agent = Agent(
            mandate=make_mandate(approval=self.approval, rules=self.rules),
            find_hooks=lambda: self.hooks,
            cases=self.saved,
            memory=self,
            performer=self,
        )
        if has_looked:
            agent.take(Looked(), self.now)
        return agent

    def save(self, cases: Cases) -> None:
        if self.is_disk_full:
            raise StateError("No space is left.")
        self.saved = cases

    def run_hook(self, event: Event, action: RunHook) -> FakeProcess:
        outcome = self.saved[event.event_id].outcome(action.phase, action.hook.name)
        assert outcome is HookOutcome.RUNNING, "begun before it was recorded"
        self.begun.append(f"{action.phase} {action.hook.name}")
        return self.process

    def approve(self, events: tuple[Event, ...]) -> None:
        self.asked.append(" ".join(("approve", *(event.event_id[-1] for event in events))))

    def postpone(self, event: Event, not_before: datetime) -> None:
        self.asked.append(f"postpone {event.event_id[-1]} to {not_before:%H:%M:%S}")

    def pass_time(self, seconds: float) -> None:
        self.now = Now(
            wall=self.now.wall + timedelta(seconds=seconds), steady=self.now.steady + seconds
        )

    def tell(self, agent: Agent, news: Change | HookEnded | Answered | Looked) -> None:
        agent.take(news, self.now)
        agent.act(self.now)

    def end_hook(self, agent: Agent, status: int = 0, number: int = 1) -> None:
        """Let the hook that was begun last end."""
        phase, _, name = self.begun[-1].partition(" ")
        identifier = make_event(number).event_id
        ended = HookEnded(event_id=identifier, phase=HookPhase(phase), hook=name, status=status)
        self.tell(agent, ended)

    def answer(
        self, agent: Agent, error: ClientError | None = None, not_before: datetime | None = None
    ) -> None:
        event = agent.cases[ID].event
        self.tell(agent, Answered(event=event, not_before=not_before, error=error))


StageMaker = Callable[..., Stage]


@pytest.fixture
def stage() -> Stage:
    """An agent with two hooks for what is scheduled and one for everything else."""
    return Stage(
        hooks=make_hooks(
            scheduled="first second", started="go", recovered="back", canceled="undo", notify="tell"
        )
    )
