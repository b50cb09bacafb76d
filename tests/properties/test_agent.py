"""Whatever happens, and however often it is killed: the agent takes nothing out twice."""

from collections.abc import Callable
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.agent.conftest import ID, NOON, Stage, make_change, make_event, make_hooks

from forewarn.agent.agent import Agent, Looked
from forewarn.agent.performer import Answered
from forewarn.client import ChangeKind, RefusedError, UnavailableError

HOOKS = make_hooks(
    scheduled="first second", started="go", recovered="back", canceled="undo", notify="tell"
)
ERRORS = st.sampled_from(
    [
        None,
        RefusedError("http://host", 400, "Unknown"),
        UnavailableError("http://host", "it refuses connections"),
    ]
)


class AgentLife(RuleBasedStateMachine):
    """One event, an agent that is killed now and then, and hooks that end as they like."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(hooks=HOOKS)
        self.agent: Agent = self.stage.start()
        self.has_started = self.is_gone = False
        self.is_running = False
        self.has_looked = True
        self.statuses: dict[str, int] = {}
        self.not_before = NOON + timedelta(minutes=15)

    @precondition(lambda self: not self.is_gone)
    @rule(
        kind=st.sampled_from(
            [ChangeKind.SCHEDULED, ChangeKind.STARTED, ChangeKind.GONE, ChangeKind.CANCELED]
        )
    )
    def tell(self, kind: ChangeKind) -> None:
        if kind is ChangeKind.SCHEDULED and self.has_started:
            return  # no event goes back
        self.has_started |= kind is ChangeKind.STARTED
        self.is_gone = kind in {ChangeKind.GONE, ChangeKind.CANCELED}
        fields = {"not_before": self.not_before} if kind is ChangeKind.SCHEDULED else {}
        self._do(lambda: self.stage.tell(self.agent, make_change(kind, **fields)))

    @rule()
    def postpone(self) -> None:
        self.not_before += timedelta(minutes=1)

    @precondition(lambda self: self.is_running)
    @rule(status=st.sampled_from([0, 0, 1, 75]))
    def end(self, status: int) -> None:
        self.is_running = False
        self.statuses[self.stage.begun[-1]] = -15 if self.stage.process.signals else status
        self._do(lambda: self.stage.end_hook(self.agent, status))
        self.stage.process.signals.clear()

    @rule(seconds=st.sampled_from([1, 10, 601]))
    def wait(self, seconds: float) -> None:
        self.stage.pass_time(seconds)
        self._do(lambda: self.agent.act(self.stage.now))

    @precondition(lambda self: ID in self.agent.cases)
    @rule(error=ERRORS)
    def answer(self, error: RefusedError | UnavailableError | None) -> None:
        event = make_event(not_before=self.not_before)
        self._do(lambda: self.stage.tell(self.agent, Answered(event=event, error=error)))

    @rule()
    def kill(self) -> None:
        self.is_running = False
        self.stage.process.signals.clear()
        self.has_looked = False
        self.agent = self.stage.start(has_looked=False)
        self._do(lambda: self.agent.act(self.stage.now))

    @rule()
    def look(self) -> None:
        self.has_looked = True
        self._do(lambda: self.stage.tell(self.agent, Looked()))

    @rule(is_full=st.booleans())
    def fill_the_disk(self, is_full: bool) -> None:  # noqa: FBT001
        self.stage.is_disk_full = is_full

    @invariant()
    def recovers_in_the_end(self) -> None:
        if self.is_gone and not self.agent.cases and not self.stage.saved:
            ends = [self.statuses.get(hook) for hook in ("recovered back", "canceled undo")]
            assert 0 in ends or not self.stage.begun

    def _do(self, step: Callable[[], None]) -> None:
        begun, asked = len(self.stage.begun), len(self.stage.asked)
        step()
        for hook in self.stage.begun[begun:]:
            assert not self.is_running, "two hooks of one event at once"
            assert self.has_looked or self.is_gone, "the event may be over"
            is_repeated = hook in {"recovered back", "canceled undo"}
            is_first = hook not in self.stage.begun[:begun]
            assert is_repeated or is_first or self.statuses.get(hook) == 75
            self.statuses.pop(hook, None)
            self.is_running = True
        if any(word.startswith("approve") for word in self.stage.asked[asked:]):
            assert self.statuses.get("scheduled first") == 0
            assert self.statuses.get("scheduled second") == 0


TestAgentLife = AgentLife.TestCase
