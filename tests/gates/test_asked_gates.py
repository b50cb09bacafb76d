"""Many questions at once, some of them to gates that hang."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import structlog
from tests.gates.conftest import NOW, SOON, wait_for
from tests.web_site import OUTBOUND

from forewarn.control.problems import problem_of
from forewarn.domain.gate import Answer, GateStatus, Question
from forewarn.domain.names import HostName, MaintenanceId, ScopeId
from forewarn.gates.asked_gates import AskedGates, KnownGate
from forewarn.gates.command import CommandGate
from forewarn.gates.verdict import Gate, GateVerdict
from forewarn.outbound.client import NoAnswerError, Outbound

EVERY = timedelta(seconds=30)
SHUT = GateVerdict(is_open=False, output="not yet")
OPEN = GateVerdict(is_open=True, output="go")


class HandClock:
    """Maintenance and real time, moved by hand."""

    def __init__(self) -> None:
        self.moment = NOW

    def now(self) -> datetime:
        return self.moment


class Keeper:
    """A gate that says what it is told to, once it is let."""

    def __init__(self) -> None:
        self.verdict = SHUT
        self.asked: list[Question] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.is_closed = False

    async def ask(self, question: Question, *, now: datetime) -> GateVerdict:
        assert now == NOW or now > NOW
        self.asked.append(question)
        if not self.may_answer.is_set():
            await asyncio.to_thread(self.may_answer.wait, 60)
        return self.verdict

    def close(self) -> None:
        self.is_closed = True
        self.may_answer.set()


def asking_only(
    gate: Gate, clock: HandClock, outbound: Outbound = OUTBOUND, *, waits: bool = False
) -> AskedGates:
    """Return what asks *gate*, which is called probe, and wakes nobody."""
    return AskedGates(
        {"probe": KnownGate(gate=gate, kind="http", every=EVERY)},
        outbound=outbound,
        clock=clock,
        wall=clock,
        woken=lambda: None,
        waits=waits,
    )


class Bench:
    """Two gates, a clock, and how often the scheduler was woken."""

    def __init__(self, *, waits: bool = False) -> None:
        self.clock = HandClock()
        self.probe, self.other = Keeper(), Keeper()
        self.wakes = 0
        self.gates = AskedGates(
            {
                "probe": KnownGate(gate=self.probe, kind="http", every=EVERY),
                "other": KnownGate(gate=self.other, kind="command", every=EVERY),
            },
            outbound=OUTBOUND,
            clock=self.clock,
            wall=self.clock,
            woken=self._wake,
            waits=waits,
        )

    def _wake(self) -> None:
        self.wakes += 1

    def answer(self, question: Question) -> Answer:
        """Ask until there is an answer."""
        wait_for(
            lambda: self.gates.ask(question).status is not GateStatus.ASKING, "there is no answer"
        )
        return self.gates.ask(question)


@pytest.fixture
def bench() -> Iterator[Bench]:
    with made() as bench:
        yield bench


@contextmanager
def made(*, waits: bool = False) -> Iterator[Bench]:
    bench = Bench(waits=waits)
    yield bench
    bench.gates.close()


def test_first_it_is_asking_and_then_it_wakes_who_asked(bench: Bench, question: Question) -> None:
    bench.probe.may_answer.clear()

    first = bench.gates.ask(question)
    wait_for(lambda: bench.probe.asked == [question], "nobody is asked")
    again = bench.gates.ask(question)
    bench.probe.may_answer.set()
    wait_for(lambda: bench.wakes == 1, "nobody is woken")

    assert first == again == Answer(status=GateStatus.ASKING, ask_again_at=NOW + EVERY)
    assert bench.gates.ask(question) == Answer(
        status=GateStatus.SHUT, output="not yet", ask_again_at=NOW + EVERY
    )
    assert len(bench.probe.asked) == 1


def test_who_is_shut_is_asked_again_when_it_is_time(bench: Bench, question: Question) -> None:
    bench.answer(question)
    bench.probe.may_answer.clear()
    bench.clock.moment = NOW + EVERY

    asking = bench.gates.ask(question)
    bench.probe.verdict = OPEN
    bench.probe.may_answer.set()

    assert asking == Answer(
        status=GateStatus.ASKING, output="not yet", ask_again_at=NOW + 2 * EVERY
    )
    assert bench.answer(question) == Answer(
        status=GateStatus.OPEN, output="go", ask_again_at=NOW + 2 * EVERY
    )
    assert len(bench.probe.asked) == 2


def test_gate_may_say_when_to_ask_again(bench: Bench, question: Question) -> None:
    bench.probe.verdict = replace(SHUT, retry_after=timedelta(hours=2))

    assert bench.answer(question).ask_again_at == NOW + timedelta(hours=2)


def test_open_does_not_last_for_ever(bench: Bench, question: Question) -> None:
    """Another gate may take longer, and this one shut meanwhile."""
    bench.probe.verdict = OPEN
    bench.answer(question)
    bench.clock.moment = NOW + EVERY - timedelta(seconds=1)
    assert bench.gates.ask(question).status is GateStatus.OPEN
    bench.probe.verdict = SHUT
    bench.clock.moment = NOW + EVERY

    assert bench.answer(question).status is GateStatus.SHUT


def test_next_step_is_another_question(bench: Bench, question: Question) -> None:
    bench.probe.verdict = OPEN
    bench.answer(question)
    bench.probe.may_answer.clear()

    after = bench.gates.ask(replace(question, steps_done=3))

    assert after.status is GateStatus.ASKING
    assert after.output == ""


def test_late_answer_to_the_step_before_is_not_taken(bench: Bench, question: Question) -> None:
    bench.probe.verdict = OPEN
    bench.probe.may_answer.clear()
    bench.gates.ask(question)
    wait_for(lambda: len(bench.probe.asked) == 1, "nobody is asked")
    following = replace(question, steps_done=3)
    bench.gates.ask(following)
    wait_for(lambda: len(bench.probe.asked) == 2, "nobody is asked about the next step")

    bench.probe.verdict = SHUT
    bench.probe.may_answer.set()

    assert bench.answer(following).status is GateStatus.SHUT
    assert [asked.steps_done for asked in bench.probe.asked] == [2, 3]


def test_questions_about_two_empty_hosts_do_not_drop_each_other(
    bench: Bench, question: Question
) -> None:
    bench.probe.verdict = OPEN
    hosts = [replace(question, scope_ids=(), host=HostName(name)) for name in ("kvm-1", "kvm-2")]

    for each in hosts:
        bench.answer(each)

    assert [bench.gates.ask(each).status for each in hosts] == [GateStatus.OPEN] * 2
    assert bench.probe.asked == hosts


def test_gate_that_hangs_is_asked_a_few_questions_and_holds_up_no_other(
    bench: Bench, question: Question
) -> None:
    bench.probe.may_answer.clear()
    for number in range(100):
        bench.gates.ask(replace(question, maintenance_id=MaintenanceId(f"m{number}")))

    other = bench.answer(replace(question, gate="other"))

    assert other.status is GateStatus.SHUT
    assert len(bench.probe.asked) == 4


def test_question_that_was_replaced_before_its_turn_is_not_put(
    bench: Bench, question: Question
) -> None:
    bench.probe.may_answer.clear()
    for number in range(4):
        bench.gates.ask(replace(question, scope_ids=(ScopeId(f"s{number}"),)))
    wait_for(lambda: len(bench.probe.asked) == 4, "the lanes are not full")
    for steps in range(50):
        bench.gates.ask(replace(question, steps_done=steps))

    bench.probe.may_answer.set()
    bench.answer(replace(question, steps_done=49))

    assert [asked.steps_done for asked in bench.probe.asked[4:]] == [49]


def test_gate_that_is_not_in_the_file_is_shut(bench: Bench, question: Question) -> None:
    answer = bench.gates.ask(replace(question, gate="gone"))

    assert (answer.status, answer.ask_again_at) == (GateStatus.SHUT, NOW + timedelta(minutes=1))
    assert "Unknown gate 'gone'" in answer.output


def test_mistake_of_ours_is_shut_and_logged(bench: Bench, question: Question) -> None:
    async def fail(*_: object, **__: object) -> GateVerdict:
        raise ZeroDivisionError

    broken = asking_only(Broken(fail), bench.clock, waits=True)
    with structlog.testing.capture_logs() as logs:
        answer = broken.ask(question)
    broken.close()

    assert answer.status is GateStatus.SHUT
    assert answer.output == "The server failed to ask the gate: ZeroDivisionError."
    assert [line["event"] for line in logs] == ["gate_failed"]


class Broken:
    """A gate with a mistake in it."""

    def __init__(self, fail: Callable[..., Coroutine[object, object, GateVerdict]]) -> None:
        self.ask = fail

    def close(self) -> None:
        """Do nothing."""


def test_under_virtual_time_it_is_waited_for(question: Question) -> None:
    with made(waits=True) as bench:
        bench.probe.verdict = OPEN

        assert bench.gates.ask(question) == Answer(
            status=GateStatus.OPEN, output="go", ask_again_at=NOW + EVERY
        )
        assert bench.wakes == 0


def test_nobody_waits_for_a_server_that_is_closed(question: Question) -> None:
    with made(waits=True) as bench:
        bench.probe.may_answer.clear()
        answers: list[Answer] = []
        asking = threading.Thread(target=lambda: answers.append(bench.gates.ask(question)))
        asking.start()
        wait_for(lambda: bool(bench.probe.asked), "nobody is asked")

        bench.gates.close()
        asking.join(SOON)

        assert len(answers) == 1


def test_nobody_is_asked_when_the_server_is_about_to_stop(question: Question) -> None:
    outbound = Outbound()
    outbound.close()
    probe = Keeper()
    gates = asking_only(probe, HandClock(), outbound, waits=True)

    assert gates.ask(question).status is GateStatus.ASKING
    assert probe.asked == []


def test_test_asks_at_once_about_no_maintenance(bench: Bench) -> None:
    bench.probe.verdict = OPEN

    answer = bench.gates.test("probe")

    assert (answer.status, answer.output) == (GateStatus.OPEN, "go")
    (asked,) = bench.probe.asked
    assert (asked.gate, asked.maintenance_id, asked.scope_ids) == ("probe", "test", ())


def test_test_ends_without_an_answer_when_the_server_stops() -> None:
    outbound, probe = Outbound(), Keeper()
    gates = asking_only(probe, HandClock(), outbound)
    probe.may_answer.clear()
    refusals: list[NoAnswerError] = []

    def test() -> None:
        with pytest.raises(NoAnswerError, match="server is stopping") as refused:
            gates.test("probe")
        refusals.append(refused.value)

    testing = threading.Thread(target=test)
    testing.start()
    wait_for(lambda: bool(probe.asked), "nobody is asked")
    outbound.close()
    testing.join(SOON)
    probe.close()
    test()

    assert [problem_of(each).status for each in refusals] == [503, 503]


def test_gates_are_known_by_name_and_kind(bench: Bench) -> None:
    assert list(bench.gates.kinds().items()) == [("probe", "http"), ("other", "command")]


def test_memory_is_bounded(question: Question) -> None:
    with made() as bench:
        bench.probe.may_answer.clear()
        bench.gates.ask(question)
        for number in range(10_001):
            bench.gates.ask(replace(question, maintenance_id=MaintenanceId(f"x{number}")))
        bench.probe.may_answer.set()
        last = replace(question, maintenance_id=MaintenanceId("x10000"))
        assert bench.answer(last).status is GateStatus.SHUT

        assert bench.gates.ask(question).status is GateStatus.ASKING, "it was forgotten"


def test_closing_ends_programs_and_is_quick(question: Question, tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/pid; exec sleep 60"
    slow = CommandGate(
        ("/bin/sh", "-c", script), timeout=timedelta(seconds=60), environment={"PATH": "/bin"}
    )
    gates = asking_only(slow, HandClock())
    gates.ask(question)
    wait_for((tmp_path / "pid").exists, "nobody asks")
    begun = time.monotonic()

    gates.close()

    assert time.monotonic() - begun < SOON
    pid = (tmp_path / "pid").read_text(encoding="utf-8").strip()
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the program is left")
