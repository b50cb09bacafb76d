"""The loop on a host, against a store: killed, cut off, restarted, lied to."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.executors.conftest import ask_until, script, wait_until
from tests.executors.host_work import TASKS, WORK
from tests.host_worker.own_host import OwnHost, known, put_operation, reserve, store_with

from forewarn.bootstrap.start import new_id
from forewarn.clocks import SystemClock
from forewarn.domain.host_operation import HostPhase
from forewarn.domain.host_work import HostTaskKind
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.task import OWNER_GRACE, Ownership, TaskState, lose
from forewarn.executors.attendant import elapsed_seconds
from forewarn.executors.command import Command
from forewarn.executors.task_input import host_task_input
from forewarn.host_worker import fetcher as fetcher_module
from forewarn.host_worker.fetcher import Exchange, WorkFetcher, WorkRefusedError
from forewarn.operations.context import Context
from forewarn.operations.tasks import TaskSelection, settle_selected
from forewarn.ports.store import Store

KEY = (WORK.operation_id, WORK.name)
RETURN = TASKS[3]
TEXT = """echo $$ $PPID >> {folder}/ran
echo begun
while [ ! -e {folder}/end ]; do sleep 0.02; done
. {folder}/end"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with store_with(WORK, tmp_path) as opened:
        yield opened


@pytest.fixture
def host(store: Store, tmp_path: Path) -> Iterator[OwnHost]:
    folder = tmp_path / "host"
    folder.mkdir()
    command = Command(run=(str(script(folder, TEXT.format(folder=folder))),))
    yield OwnHost(store, folder, {HostTaskKind.WORK: command})
    end(folder)


def end(folder: Path, text: str = "exit 0") -> None:
    (folder / "draft").write_text(text, encoding="utf-8")
    (folder / "draft").rename(folder / "end")


def ran(host: OwnHost) -> list[str]:
    path = host.folder / "ran"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def turn(fetcher: WorkFetcher, store: Store, status: ImpactStatus, reason: str = "") -> Impact:
    """Turn the loop until the server knows that the work is in *status*, for some *reason*."""

    def turn_once() -> Impact:
        fetcher.round()
        return known(store).said

    return ask_until(turn_once, lambda said: said.status is status and reason in said.reason)


def turn_until_it_runs(fetcher: WorkFetcher, host: OwnHost) -> None:
    def runs() -> bool:
        fetcher.round()
        return bool(ran(host))

    wait_until(runs, "the script does not run")


def test_host_tells_how_far_it_is_and_how_it_ended(store: Store, host: OwnHost) -> None:
    reserve(store)
    with host.process() as fetcher:
        turn(fetcher, store, ImpactStatus.RUNNING, "begun")
        end(host.folder, "echo no disk; exit 3")
        ended = turn(fetcher, store, ImpactStatus.FAILED)

    assert ended.reason == "exit code 3: no disk"
    assert len(ran(host)) == 1


def test_process_that_is_killed_finds_its_work_again(store: Store, host: OwnHost) -> None:
    reserve(store)
    with host.process("first") as fetcher:
        turn_until_it_runs(fetcher, host)
    with host.process("second") as fetcher:
        turn(fetcher, store, ImpactStatus.RUNNING)
        end(host.folder)
        turn(fetcher, store, ImpactStatus.DONE)

    assert len(ran(host)) == 1


@pytest.mark.parametrize("restarts_host", [True, False])
def test_server_learns_how_long_to_wait_for_a_host_that_its_work_restarts(
    store: Store, host: OwnHost, *, restarts_host: bool
) -> None:
    host.restarts_host = restarts_host
    reserve(store)
    with host.process() as fetcher:
        turn_until_it_runs(fetcher, host)

    task = known(store)
    ownership = Ownership(node="leader", at=SystemClock().now())

    timeout = host.commands[HostTaskKind.WORK].timeout
    assert task.timeout == timeout
    assert ownership.grace_for(task) == (timeout if restarts_host else OWNER_GRACE)
    end(host.folder)


def test_process_that_is_killed_before_it_wrote_anything_down_leaves_it_unknown(
    store: Store, host: OwnHost
) -> None:
    reserve(store)
    assert Exchange(server=host.routes, ticket="first").take(KEY, {})

    with host.process("second") as fetcher:
        said = turn(fetcher, store, ImpactStatus.UNKNOWN)
        fetcher.round()

    assert said.reason.startswith("the host took it, and has no record of it")
    assert said.needs_somebody
    assert ran(host) == []


@pytest.fixture
def suspended(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return how to have the host be suspended for so many seconds."""
    slept = [0.0]
    monkeypatch.setattr(fetcher_module, "elapsed_seconds", lambda: elapsed_seconds() + slept[0])

    def sleep(seconds: float) -> None:
        slept[0] += seconds

    return sleep


@pytest.mark.parametrize(("seconds", "asks"), [(0.0, 1), (11.0, 2)])
def test_host_begins_what_is_still_its_own_after_a_break(
    store: Store, host: OwnHost, suspended: Callable[[float], None], seconds: float, asks: int
) -> None:
    reserve(store)
    host.routes.after["take"] = lambda: suspended(seconds)
    with host.process() as fetcher:
        turn_until_it_runs(fetcher, host)

    assert host.routes.asked.count("take") == asks
    assert len(ran(host)) == 1


def settle_as_failed(store: Store, operator: Context) -> None:
    lost = lose(known(store), "the host is away", is_final=False)
    store.write(lambda tx: tx.put_task(lost))
    selection = TaskSelection(task_ids=(lost.task_id,))
    later = replace(operator, at=operator.at + timedelta(hours=1))
    store.write(lambda tx: settle_selected(tx, later, selection, is_done=False))


def lose_it(store: Store, operator: Context) -> None:
    del operator
    store.write(lambda tx: tx.put_task(lose(known(store), "the host is away", is_final=False)))


@pytest.mark.parametrize("harm", [settle_as_failed, lose_it])
def test_host_does_not_begin_after_a_break_what_it_may_not_begin_any_more(
    store: Store,
    host: OwnHost,
    suspended: Callable[[float], None],
    harm: Callable[[Store, Context], None],
) -> None:
    reserve(store)
    now = SystemClock().now()
    operator = Context(who="ops", now=now, at=now, new_id=new_id)

    def sleep() -> None:
        harm(store, operator)
        suspended(3600.0)

    host.routes.after["take"] = sleep
    with host.process() as fetcher:

        def gives_it_up() -> bool:
            fetcher.round()
            return host.routes.asked[-3:] == ["host-work"] * 3

        wait_until(gives_it_up, "it does not give it up")

    assert ran(host) == []
    assert host.routes.asked.count("take") == 2
    assert known(store).said.status is not ImpactStatus.RUNNING


def test_host_that_cannot_ask_begins_nothing_after_a_break(
    store: Store, host: OwnHost, suspended: Callable[[float], None]
) -> None:
    reserve(store)

    def sleep() -> None:
        suspended(3600.0)
        host.routes.is_away = True

    host.routes.after["take"] = sleep
    with host.process() as fetcher:
        for _ in range(20):
            fetcher.round()
            time.sleep(0.01)
        assert ran(host) == []

        host.routes.is_away = False
        turn_until_it_runs(fetcher, host)

    assert len(ran(host)) == 1


def test_host_says_only_once_that_it_does_not_know(store: Store, host: OwnHost) -> None:
    reserve(store)
    assert Exchange(server=host.routes, ticket="first").take(KEY, {})
    with host.process("second") as fetcher:
        turn(fetcher, store, ImpactStatus.UNKNOWN)
        store.write(lambda tx: tx.put_task(lose(known(store), known(store).said.reason)))
        host.routes.asked.clear()

        for _ in range(3):
            fetcher.round()

    assert host.routes.asked == ["host-work"] * 3


@pytest.mark.parametrize("verb", ["take", "report", "host-work"])
def test_answer_that_is_lost_is_asked_for_again(store: Store, host: OwnHost, verb: str) -> None:
    host.routes.lost.add(verb)
    reserve(store)
    end(host.folder)

    with host.process() as fetcher:
        turn(fetcher, store, ImpactStatus.DONE)

    assert host.routes.lost == set()
    assert len(ran(host)) == 1


def test_work_goes_on_while_the_server_is_away(store: Store, host: OwnHost) -> None:
    reserve(store)
    with host.process() as fetcher, capture_logs() as logs:
        turn_until_it_runs(fetcher, host)
        host.routes.is_away = True
        waits = [fetcher.round() for _ in range(8)]
        end(host.folder)
        wait_until(lambda: host.records.ended(KEY) is not None, "the script does not end")
        host.routes.is_away = False
        turn(fetcher, store, ImpactStatus.DONE)

    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (0.375, 11.25)
    names = [line["event"] for line in logs]
    assert names.count("server_not_reached") == 1
    assert names.count("server_reached") == 2


@pytest.mark.parametrize("restarts_host", [True, False])
def test_work_of_an_earlier_boot_is_done_if_it_restarts_the_host(
    store: Store, host: OwnHost, *, restarts_host: bool
) -> None:
    host.restarts_host = restarts_host
    reserve(store)
    with host.process() as fetcher:
        turn_until_it_runs(fetcher, host)
    for process in map(int, reversed(ran(host)[0].split())):
        os.kill(process, signal.SIGKILL)

    host.boot_id = "boot-2"
    with host.process() as fetcher:
        said = turn(fetcher, store, ImpactStatus.DONE if restarts_host else ImpactStatus.UNKNOWN)

    assert ("the host restarted before it ended" in said.reason) is not restarts_host
    assert len(ran(host)) == 1


def test_offer_of_a_restored_database_is_not_done_again(store: Store, host: OwnHost) -> None:
    reserve(store)
    end(host.folder)
    with host.process() as fetcher:
        turn(fetcher, store, ImpactStatus.DONE)
    reserve(store)

    with host.process() as fetcher:
        turn(fetcher, store, ImpactStatus.DONE)

    assert len(ran(host)) == 1


def test_host_that_was_silent_for_too_long_still_reports_the_end(
    store: Store, host: OwnHost
) -> None:
    reserve(store)
    with host.process("first") as fetcher:
        turn(fetcher, store, ImpactStatus.RUNNING, "begun")
    lost = lose(known(store), "the host began it, and has been away since then")
    store.write(lambda tx: tx.put_task(lost))

    with host.process("second") as fetcher:
        fetcher.round()
        assert known(store).said == lost.said
        end(host.folder)
        turn(fetcher, store, ImpactStatus.DONE)

    assert known(store).state is TaskState.ENDED
    assert len(ran(host)) == 1


def test_task_for_which_the_host_names_no_program_fails(store: Store, host: OwnHost) -> None:
    put_operation(store, RETURN, HostPhase.RETURN)
    reserve(store, RETURN)

    with host.process() as fetcher:
        said = ask_until(
            lambda: (fetcher.round(), known(store, RETURN).said)[1], lambda said: said.is_over
        )

    assert said.status is ImpactStatus.FAILED
    assert said.reason == "the host work file of the host names no program for return"


def test_work_that_an_operator_has_skipped_is_not_begun(store: Store, host: OwnHost) -> None:
    reserve(store)
    put_operation(store, WORK, HostPhase.OVER)

    with host.process() as fetcher:
        fetcher.round()

    assert host.routes.asked == ["host-work"]
    assert ran(host) == []


def test_disk_that_cannot_be_written_is_said_and_tried_again(store: Store, host: OwnHost) -> None:
    reserve(store)
    (host.folder / "host-work").write_text("in the way", encoding="utf-8")
    with host.process() as fetcher:
        turn(fetcher, store, ImpactStatus.RUNNING, "cannot be begun")
        (host.folder / "host-work").unlink()
        end(host.folder)
        turn(fetcher, store, ImpactStatus.DONE)

    assert len(ran(host)) == 1


@pytest.mark.parametrize("status", [401, 403, 404, 421])
def test_host_that_is_refused_from_the_start_gives_up(host: OwnHost, status: int) -> None:
    host.routes.refusal = status

    with host.process() as fetcher, pytest.raises(WorkRefusedError, match="--relay HOST"):
        fetcher.round()


def test_host_that_is_refused_later_waits(host: OwnHost) -> None:
    with host.process() as fetcher:
        fetcher.round()
        host.routes.refusal = 401
        assert fetcher.round() > 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"operation_id": "../../etc"},
        {"operation_id": None},
        {"host": "kvm 1"},
        {"task": "return", "vm": "../web-0"},
        {"task": "return", "vm": None},
        {"task": "reboot"},
        {"attempt": "x"},
        {"event_type": 7},
    ],
)
def test_order_that_makes_no_sense_is_left_out(wrong: Mapping[str, object]) -> None:
    order = {**host_task_input(WORK, epoch=1).content, **wrong}

    class Liar:
        def ask(self, _method: str, _path: str, _body: object = None) -> object:
            return json.loads(json.dumps({"tasks": [{"order": order, "status": "offered"}, 7]}))

    with capture_logs() as logs:
        assert Exchange(server=Liar(), ticket="x").tasks() == ()
    assert [line["event"] for line in logs] == ["host_task_invalid"] * 2


@pytest.mark.parametrize("answer", [None, [], {"tasks": 7}, "x"])
def test_server_that_answers_nonsense_has_no_tasks(answer: object) -> None:
    class Liar:
        def ask(self, _method: str, _path: str, _body: object = None) -> object:
            return answer

    assert Exchange(server=Liar(), ticket="x").tasks() == ()
