"""Gates that are asked without waiting for them.

An answer is for one question and for as long as the gate says: then it is asked again, also if it
was open, because a step may wait for something else meanwhile.
"""

import asyncio
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

import structlog

from forewarn.domain.gate import Answer, GateStatus, Question
from forewarn.domain.names import HostName, MaintenanceId, ScopeId
from forewarn.gates.verdict import Gate, GateVerdict, shut
from forewarn.outbound.client import NoAnswerError, Outbound
from forewarn.ports.clock import Clock, WallClock

log = structlog.get_logger()

LANES: Final = 4
"""How many questions a gate is asked at once."""
_MOST_CASES: Final = 10_000
_UNKNOWN_AGAIN: Final = timedelta(minutes=1)

_Place: TypeAlias = tuple[str, MaintenanceId, tuple[ScopeId, ...], HostName | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownGate:
    """A gate of the file: of which *kind*, and after how much maintenance time to ask again."""

    gate: Gate
    kind: str
    every: timedelta


@dataclass(slots=True, eq=False)
class _Case:
    """A question and what is known of its answer. It is dropped when the next step has another."""

    question: Question
    answer: Answer
    ask_at: datetime | None = None
    is_dropped: bool = False
    answered: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class AskedGates:
    """Every gate of the file. *woken* is called when an answer has come.

    Under virtual time it *waits* for answers: nothing may happen between two moments.
    """

    gates: Mapping[str, KnownGate] = field(kw_only=False)
    outbound: Outbound
    clock: Clock
    wall: WallClock
    woken: Callable[[], None]
    waits: bool = False
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _cases: OrderedDict[_Place, _Case] = field(init=False, default_factory=OrderedDict)
    _lanes: defaultdict[str, asyncio.Semaphore] = field(
        init=False, default_factory=lambda: defaultdict(lambda: asyncio.Semaphore(LANES))
    )
    _asking: set[Future[None]] = field(init=False, default_factory=set)

    def kinds(self) -> Mapping[str, str]:
        """Return the kind of each gate, in the order of the file."""
        return {name: known.kind for name, known in self.gates.items()}

    def ask(self, question: Question) -> Answer:
        """Return the answer so far, and have the question put if it is time to."""
        now = self.clock.now()
        if question.gate not in self.gates:
            output = f"Unknown gate {question.gate!r}; the server's gate file does not define it."
            return Answer(status=GateStatus.SHUT, output=output, ask_again_at=now + _UNKNOWN_AGAIN)
        case = self._case(question, now)
        if self.waits:
            case.answered.wait()
        if case.answer.status is GateStatus.ASKING:
            return replace(case.answer, ask_again_at=now + self.gates[question.gate].every)
        return case.answer

    def test(self, name: str) -> Answer:
        """Ask the gate of that *name* at once, about no Maintenance, and wait for the answer."""
        question = Question(
            gate=name, maintenance_id=MaintenanceId("test"), scope_ids=(), steps_done=0
        )
        return self._read(name, self.outbound.finish(self._put(question)))

    def close(self) -> None:
        """End what is under way."""
        for known in self.gates.values():
            known.gate.close()
        for question in list(self._asking):
            question.cancel()

    def _case(self, question: Question, now: datetime) -> _Case:
        """Return the case of *question*, put anew if there is none or its answer is too old."""
        # Empty hosts have no scopes: without the host, each would drop the question of the other.
        place = (question.gate, question.maintenance_id, question.scope_ids, question.host)
        with self._lock:
            case = self._cases.get(place)
            if case is None or case.question != question:
                if case is not None:
                    case.is_dropped = True
                case = self._cases[place] = self._submit(question, "")
            elif case.ask_at is not None and case.ask_at <= now:
                case = self._cases[place] = self._submit(question, case.answer.output)
            self._cases.move_to_end(place)
            while len(self._cases) > _MOST_CASES:
                self._cases.popitem(last=False)[1].is_dropped = True
            return case

    def _submit(self, question: Question, output: str) -> _Case:
        case = _Case(question, Answer(status=GateStatus.ASKING, output=output))
        try:
            asking = self.outbound.begin(self._answer(case))
        except NoAnswerError:  # the server is about to stop
            case.answered.set()
            return case

        def end(done: Future[None]) -> None:
            self._asking.discard(done)
            case.answered.set()  # also if it was canceled before its turn

        self._asking.add(asking)
        asking.add_done_callback(end)
        return case

    async def _answer(self, case: _Case) -> None:
        async with self._lanes[case.question.gate]:
            if case.is_dropped:
                return
            verdict = await self._put(case.question)
        answer = self._read(case.question.gate, verdict)
        with self._lock:
            case.answer = answer
            case.ask_at = answer.ask_again_at
        if not (self.waits or case.is_dropped):
            self.woken()

    async def _put(self, question: Question) -> GateVerdict:
        try:
            return await self.gates[question.gate].gate.ask(question, now=self.wall.now())
        except Exception as error:
            # A mistake of ours must not open a gate.
            log.exception("gate_failed", gate=question.gate)
            return shut(f"The server failed to ask the gate: {type(error).__name__}.")

    def _read(self, name: str, verdict: GateVerdict) -> Answer:
        wait = verdict.retry_after or self.gates[name].every
        return Answer(
            status=GateStatus.OPEN if verdict.is_open else GateStatus.SHUT,
            output=verdict.output,
            ask_again_at=self.clock.now() + wait,
        )
