"""Agents of the simulation: the real decisions, with hooks and answers that take their time.

An agent may die at any point, and starts again with what it had written down. Whatever happens, it
takes its machine out of use once for each event.
"""

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Final

from tests.agent.conftest import make_hooks, make_mandate
from tests.simulation.world import MINUTE, SECOND, Crash, Process, World, to_moment

from forewarn.agent.agent import Agent, Looked
from forewarn.agent.cases import Cases
from forewarn.agent.decisions import Now, RunHook
from forewarn.agent.performer import Answered, HookEnded
from forewarn.agent.vocabulary import HookPhase
from forewarn.client import Change, ChangeKind, ClientError, RefusedError, UnavailableError
from forewarn.protocol.document import Event, decode_document
from forewarn.protocol.identity import Identity
from forewarn.protocol.vocabulary import EventId, EventStatus

_KINDS: Final = {
    EventStatus.SCHEDULED: ChangeKind.SCHEDULED,
    EventStatus.STARTED: ChangeKind.STARTED,
}
HOOKS: Final = make_hooks(
    scheduled="drain", started="stop", recovered="return", canceled="return", notify="tell"
)
Answer = Callable[[str], None]


class _Hook:
    """A hook under way; asked to end, it does."""

    def __init__(self, end: Callable[[int], None]) -> None:
        self._end = end

    def terminate(self) -> bool:
        self._end(-15)
        return True

    def kill(self) -> None:
        self._end(-9)


class SimulatedAgent:
    """The agent of *machine*. *approve* posts for it, and tells it what came of that."""

    def __init__(
        self,
        world: World,
        machine: str,
        *,
        approve: Callable[[EventId, Answer], None],
        fail: Callable[[str], None],
    ) -> None:
        self.world = world
        self.machine = machine
        self.crash_rate = 0.0
        self.ran: Counter[tuple[EventId, HookPhase]] = Counter()
        self.out: set[EventId] = set()
        """The events for which the machine was taken out, and not put back yet."""
        self._post = approve
        self._fail = fail
        self._saved: Cases = {}
        self._shown: dict[EventId, Event] = {}
        self._agent: Agent | None = None
        self.process = Process(machine, is_alive=False)

    def start(self) -> None:
        """Start with what is written down."""
        self.process = Process(self.machine)
        self._shown = {}
        self._agent = Agent(
            mandate=make_mandate(me=Identity(name=self.machine)),
            find_hooks=lambda: HOOKS,
            cases=self._saved,
            memory=self,
            performer=self,
        )

    def start_again(self) -> None:
        """Start, unless it was started meanwhile."""
        if not self.process.is_alive:
            self.start()

    def read(self, content: bytes) -> None:
        """Take in the document that the machine was shown."""
        if not self.process.is_alive:
            self.start()
        document = decode_document(content)
        events = {event.event_id: event for event in document.events} if document else {}
        number = document.document_incarnation if document else 0
        news: list[Change | HookEnded | Answered | Looked] = []
        for key, event in events.items():
            if self._shown.get(key) != event:
                kind = _KINDS[EventStatus(event.event_status)]
                news.append(Change(kind=kind, event=event, document_incarnation=number))
        # What it knew when it started, and what it has seen since.
        known = {**{key: case.event for key, case in self._saved.items()}, **self._shown}
        for key, event in known.items():
            if key not in events:
                gone = ChangeKind.GONE
                news.append(Change(kind=gone, event=event, document_incarnation=number))
        self._shown = events
        self._tell(*news, Looked())

    def _tell(self, *news: Change | HookEnded | Answered | Looked) -> None:
        agent, process = self._agent, self.process
        assert agent is not None
        try:
            for each in news:
                agent.take(each, self._now())
            agent.act(self._now())
        except Crash:
            process.is_alive = False
            self.world.later(MINUTE, self.start_again)
            return
        moment = agent.next_moment()
        if moment < 10**12:
            delay = max(int(moment * SECOND) - self.world.now, SECOND)
            self.world.later(delay, self._look_again, process)

    def _look_again(self) -> None:
        self._tell()

    def _now(self) -> Now:
        return Now(wall=to_moment(self.world.now), steady=self.world.now / SECOND)

    # What it remembers and does.

    def save(self, cases: Cases) -> None:
        self._die()
        self._saved = cases
        self._die()

    def run_hook(self, event: Event, action: RunHook) -> _Hook:
        key, process = event.event_id, self.process
        self._die()
        self.ran[key, action.phase] += 1
        self.world.note(self.machine, f"runs {action.hook.name} for {key}")
        if action.phase is HookPhase.SCHEDULED:
            self.out.add(key)
            if self.ran[key, action.phase] > 1:
                self._fail(f"{self.machine} is taken out twice for {key}")
        has_ended = False

        def end(status: int) -> None:
            nonlocal has_ended
            if has_ended:
                return
            has_ended = True
            if status == 0 and action.phase in {HookPhase.RECOVERED, HookPhase.CANCELED}:
                self.out.discard(key)
            ended = HookEnded(
                event_id=key, phase=action.phase, hook=action.hook.name, status=status
            )
            if process.is_alive:
                # Not at once: the agent that ends it is not done yet.
                self.world.later(1_000, lambda: self._tell(ended), process)

        self._die()
        lasts = self.world.timing.between(SECOND, 3 * MINUTE)
        status = 1 if self.world.faults.happens(self.crash_rate * 5) else 0
        self.world.later(lasts, lambda: end(status), process)
        return _Hook(end)

    def approve(self, events: tuple[Event, ...]) -> None:
        for event in events:
            self._approve(event, self.process)

    def _approve(self, event: Event, process: Process) -> None:
        def answer(problem: str) -> None:
            error: ClientError | None = None
            if problem == "unavailable":
                error = UnavailableError("server", problem)
            elif problem:
                error = RefusedError("server", 404, problem)
            if process.is_alive:
                self._tell(Answered(event=event, error=error))

        self._post(event.event_id, answer)

    def postpone(self, event: Event, not_before: datetime) -> None:
        process = self.process
        refused = RefusedError("server", 409, "its scope does not allow it")
        answered = Answered(event=event, not_before=not_before, error=refused)
        self.world.later(SECOND, lambda: self._tell(answered), process)

    def _die(self) -> None:
        if self.world.faults.happens(self.crash_rate):
            self.world.injected["agent crash"] += 1
            self.world.note(self.machine, "has an agent that dies")
            raise Crash
