"""Which runner a task is for, as the settings and the executor file say."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.executors.conftest import (
    EVENT,
    NOW,
    ORDER,
    WEB_0,
    WEB_1,
    begin,
    is_over,
    log_in,
    wait_for,
    wait_until,
)
from tests.executors.host_work import WORK, host_order
from tests.web_site import OUTBOUND

from forewarn.bootstrap.runners import ReloadableRunners, Runners, choose_runners
from forewarn.bootstrap.start import new_id
from forewarn.clocks import SystemClock
from forewarn.domain.host_work import HostTask, HostTaskKind, HostWorkRule
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName, VmName
from forewarn.domain.scenario import USUAL_IMPACT
from forewarn.domain.topology import Topology
from forewarn.executors.simulated import MANUALLY
from forewarn.executors.task_input import Runner, TaskInput
from forewarn.files.fleet import read_fleet_file
from forewarn.files.tables import TablesError
from forewarn.operations.context import Context
from forewarn.operations.inventory import apply_fleet
from forewarn.ports.runner import Assignment
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventType
from forewarn.settings import Settings, make_settings
from forewarn.settings_table import ClockKind, ExecutorKind
from forewarn.storage.sqlite import open_sqlite

MACHINES = """
[[host]]
name = "kvm-0"
labels = { cluster = "a" }

[[host]]
name = "kvm-1"
labels = { cluster = "a", simulated-work-failure = "no power" }

[[availability_set]]
name = "web"

[[virtual_machine]]
name = "web-0"
availability_set = "web"
update_domain = 0
host = "kvm-0"

[[virtual_machine]]
name = "web-1"
availability_set = "web"
update_domain = 0
host = "kvm-1"
"""
HOST_WORK = """
[[host_work]]
labels = { cluster = "a" }
run = ["sh", "-c", "echo $OPERATION_HOST; exit 3"]
"""
RULE = HostWorkRule(labels={"cluster": "a"})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "executors.toml"
    path.write_text(HOST_WORK, encoding="utf-8")
    return path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    context = Context(who="test", now=NOW, at=NOW, new_id=new_id)
    with closing(open_sqlite(tmp_path / "forewarn.db")) as opened:
        opened.write(lambda tx: apply_fleet(tx, context, read_fleet_file(MACHINES)))
        yield opened


def settings_of(folder: Path, **more: object) -> Settings:
    return make_settings({"database": f"sqlite:///{folder / 'forewarn.db'}", **more})


@dataclass(frozen=True, slots=True)
class Chosen:
    """Runners with a fleet."""

    runners: Runners
    topology: Topology

    def impact(self, vm: VmName = WEB_0) -> Assignment:
        return self.runners.assign_impact(EVENT, vm, self.topology, NOW)

    def host_task(self, task: HostTask = WORK) -> Assignment:
        return self.runners.assign_host_task(task, self.topology, NOW)

    def runner(self, name: str) -> Runner:
        runner = self.runners.runner(name)
        assert runner is not None
        return runner

    def carry_out(self, assigned: Assignment, order: TaskInput = ORDER) -> Impact:
        runner = self.runner(assigned.runner)
        begin(runner, order)
        return wait_for(runner, is_over, order)


@contextmanager
def chosen(folder: Path, store: Store, **more: object) -> Iterator[Chosen]:
    make = choose_runners(settings_of(folder, **more), OUTBOUND)
    with make(store, SystemClock(), log_in(folder)) as runners:
        yield Chosen(runners, store.read(lambda reading: reading.topology()))


def test_hosts_have_no_work_unless_a_file_says_so(tmp_path: Path, store: Store) -> None:
    with chosen(tmp_path, store) as those:
        assert tuple(those.runners.rules) == ()
        assert those.impact() == MANUALLY


@pytest.mark.parametrize("executor", [ExecutorKind.MANUAL, ExecutorKind.SIMULATED])
def test_file_without_host_work_gives_hosts_none(
    tmp_path: Path, store: Store, file: Path, executor: ExecutorKind
) -> None:
    file.write_text('[[command]]\nrun = ["true"]\n', encoding="utf-8")

    with chosen(tmp_path, store, executor_file=file, executor=executor) as those:
        assert tuple(those.runners.rules) == ()


def test_hosts_are_worked_on_whoever_carries_impacts_out(
    tmp_path: Path, store: Store, file: Path
) -> None:
    with chosen(tmp_path, store, executor_file=file) as those:
        assigned = those.host_task()
        impact = those.carry_out(assigned, host_order())

        assert tuple(those.runners.rules) == (RULE,)
        assert those.impact() == MANUALLY

    assert assigned == Assignment(runner="command", details={"timeout_seconds": 3600.0})
    assert impact.reason == "exit code 3: kvm-0"
    assert (tmp_path / "tasks" / WORK.operation_id / "work.ended").exists()


def test_task_without_a_program_has_failed(tmp_path: Path, store: Store, file: Path) -> None:
    task = replace(WORK, kind=HostTaskKind.VERIFY)

    with chosen(tmp_path, store, executor_file=file) as those:
        assigned = those.host_task(task)

    reason = "the executor file has no verify for host kvm-0"
    assert assigned == Assignment(runner="", said=Impact(status=ImpactStatus.FAILED, reason=reason))


def test_task_that_the_host_fetches_is_for_the_host(
    tmp_path: Path, store: Store, file: Path
) -> None:
    file.write_text('[[host_work]]\nhosts = ["kvm-*"]\nfetched = ["work"]\nfetch_within = "5m"\n')

    with chosen(tmp_path, store, executor_file=file) as those:
        assigned = those.host_task()

        assert those.runners.runner(assigned.runner) is None, "no server begins it"
    assert (assigned.runner, assigned.node) == ("host", "kvm-0:host")
    assert assigned.details["order"]["task"] == "work"


CHOICES = """
[[manual]]
hosts = ["KVM-1"]

[[command]]
labels = { cluster = "a" }
event_types = ["Freeze"]
run = ["false"]

[[webhook]]
event_types = ["Freeze"]
url = "http://127.0.0.1:1"

[[command]]
event_types = ["Reboot"]
labels = { cluster = "a" }
run = ["sh", "-c", "echo $EVENT_TYPE of $EVENT_VM; exit 3"]
"""


def test_first_table_that_fits_event_host_and_labels_is_used(
    tmp_path: Path, store: Store, file: Path
) -> None:
    file.write_text(CHOICES, encoding="utf-8")

    with chosen(tmp_path, store, executor_file=file) as those:
        assert those.carry_out(those.impact()).reason == "exit code 3: Reboot of web-0"
        assert those.impact(WEB_1) == MANUALLY


def test_first_table_that_fits_the_host_is_used(tmp_path: Path, store: Store, file: Path) -> None:
    file.write_text(f'[[host_work]]\nhosts = ["x"]\nurl = "http://127.0.0.1:1"\n{HOST_WORK}')

    with chosen(tmp_path, store, executor_file=file) as those:
        assert those.host_task().runner == "command"
        assert those.host_task(replace(WORK, host=HostName("x"))).runner == "webhook"
        assert those.carry_out(those.host_task(), host_order()).reason == "exit code 3: kvm-0"


@pytest.mark.parametrize(
    ("table", "runner"),
    [
        ("[[command]]\nrun = ['true']\n", "command"),
        ("[[webhook]]\nurl = 'http://127.0.0.1:1'\n", "webhook"),
        ("[[manual]]\n", "manual"),
        ("[[command]]\nevent_types = ['Freeze']\nrun = ['true']\n", "manual"),
    ],
)
def test_table_names_the_runner(
    tmp_path: Path, store: Store, file: Path, table: str, runner: str
) -> None:
    file.write_text(table, encoding="utf-8")

    with chosen(tmp_path, store, executor_file=file) as those:
        assert those.impact().runner == runner
        assert those.impact().said.is_by_hand is (runner == "manual")


def test_machine_that_has_moved_since_is_for_the_runner_of_its_host(
    tmp_path: Path, store: Store, file: Path
) -> None:
    file.write_text('[[manual]]\nhosts = ["kvm-0"]\n[[command]]\nrun = ["true"]\n')
    event = replace(EVENT, host=HostName("kvm-1"))

    with chosen(tmp_path, store, executor_file=file) as those:
        assert those.runners.assign_impact(event, WEB_0, those.topology, NOW) == MANUALLY


def test_what_has_begun_is_found_by_its_runner_when_the_file_has_changed(
    tmp_path: Path, store: Store, file: Path
) -> None:
    go, runs = tmp_path / "go", tmp_path / "runs"
    waits = f"echo run >> {runs}; while [ ! -e {go} ]; do sleep 0.02; done; exit 3"
    file.write_text(f"[[command]]\nrun = ['sh', '-c', '{waits}']\n", encoding="utf-8")

    with chosen(tmp_path, store, executor_file=file) as those:
        begin(those.runner(those.impact().runner))
        wait_until(runs.exists, "it does not run")
    file.write_text("[[manual]]\n", encoding="utf-8")
    with chosen(tmp_path, store, executor_file=file) as those:
        runner = those.runner("command")
        assert runner.inquire(ORDER).status is ImpactStatus.RUNNING
        begin(runner)
        go.touch()
        ended = wait_for(runner, is_over)

    assert ended.reason == "exit code 3"
    assert runs.read_text() == "run\n"


def test_what_was_simulated_has_no_runner_that_could_do_it(
    tmp_path: Path, store: Store, file: Path
) -> None:
    file.write_text(f"[[command]]\nrun = ['touch', '{tmp_path}/done']\n", encoding="utf-8")

    with chosen(tmp_path, store, executor=ExecutorKind.SIMULATED) as those:
        assigned = those.impact()
    with chosen(tmp_path, store, executor_file=file) as those:
        assert those.runners.runner(assigned.runner) is None
        assert those.runners.runner("manual") is None

    assert assigned.said.status is ImpactStatus.RUNNING


def test_simulated_work_takes_the_time_of_an_impact_and_other_tasks_none(
    tmp_path: Path, store: Store, file: Path
) -> None:
    failing = replace(WORK, host=HostName("kvm-1"), event_type=EventType.REDEPLOY)
    verify = replace(failing, kind=HostTaskKind.VERIFY)
    executor = {"executor": ExecutorKind.SIMULATED, "speed": 2}

    with chosen(tmp_path, store, executor_file=file, **executor) as those:
        assert tuple(those.runners.rules) == (RULE,)
        work, check = those.host_task(failing), those.host_task(verify)

    lasts = USUAL_IMPACT[EventType.REDEPLOY] / 2
    assert work.said == Impact(status=ImpactStatus.RUNNING, ask_again_at=NOW + lasts)
    assert work.details == {"failure": "no power"}
    assert check.said == Impact(status=ImpactStatus.RUNNING, ask_again_at=NOW)
    assert check.details == {}


def test_hosts_are_not_worked_on_in_virtual_time(tmp_path: Path, file: Path) -> None:
    settings = settings_of(tmp_path, executor_file=file, clock=ClockKind.VIRTUAL)

    with pytest.raises(TablesError, match=r"virtual clock; use the executor simulated\.$"):
        choose_runners(settings, OUTBOUND)


@contextmanager
def reloadable(folder: Path, store: Store, file: Path) -> Iterator[ReloadableRunners]:
    settings = settings_of(folder, executor_file=file)
    made = ReloadableRunners(settings, store, SystemClock(), log_in(folder), OUTBOUND)
    with closing(made):
        yield made


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "colour = 1\n",
            "{path}:1: colour: unknown key; known keys: {known}.",
        ),
        (
            "colour = 1\nsize = 2\nage = 3\n",
            "{path}:1: colour: unknown key; known keys: {known} (and 2 more).",
        ),
    ],
)
def test_file_with_mistakes_is_a_reason_in_one_sentence(
    tmp_path: Path, store: Store, file: Path, text: str, reason: str
) -> None:
    file.write_text(text, encoding="utf-8")

    with reloadable(tmp_path, store, file) as runners:
        those = Chosen(runners, store.read(lambda reading: reading.topology()))
        assigned = (those.impact(), those.host_task())

        assert tuple(runners.rules) == (HostWorkRule(),), "no host is taken for done"
        assert len(runners.problem.splitlines()) == len(text.splitlines())
    said = Impact(
        status=ImpactStatus.UNKNOWN,
        reason=reason.format(path=file, known="command, webhook, libvirt, manual, host_work"),
        ask_again_at=NOW + timedelta(seconds=10),
        has_no_executor=True,
    )
    assert assigned == (Assignment(runner="", said=said),) * 2


def test_corrected_file_is_used_from_then_on(tmp_path: Path, store: Store, file: Path) -> None:
    file.write_text("colour = 1\n", encoding="utf-8")
    with reloadable(tmp_path, store, file) as runners:
        file.write_text(HOST_WORK, encoding="utf-8")

        runners.reload()

        assert runners.problem == ""
        assert tuple(runners.rules) == (RULE,)
        assert runners.runner("command") is not None


def test_file_that_becomes_wrong_changes_nothing(tmp_path: Path, store: Store, file: Path) -> None:
    with reloadable(tmp_path, store, file) as runners:
        before = runners.runner("command")
        file.write_text("colour = 1\n", encoding="utf-8")

        with capture_logs() as logs:
            runners.reload()

        assert runners.problem == ""
        assert tuple(runners.rules) == (RULE,)
        assert runners.runner("command") is before
    assert [(line["event"], line["works"]) for line in logs] == [("executor_file_wrong", True)]


def test_runner_that_is_made_anew_finds_what_its_predecessor_has_begun(
    tmp_path: Path, store: Store, file: Path
) -> None:
    go, runs = tmp_path / "go", tmp_path / "runs"
    waits = f"echo run >> {runs}; while [ ! -e {go} ]; do sleep 0.02; done"
    file.write_text(f"[[command]]\nrun = ['sh', '-c', '{waits}']\n", encoding="utf-8")
    with reloadable(tmp_path, store, file) as runners:
        former = runners.runner("command")
        assert former is not None
        begin(former)

        runners.reload()
        current = runners.runner("command")
        assert current is not None
        assert current is not former
        begin(current)
        wait_until(runs.exists, "it does not run")
        go.touch()

        assert wait_for(current, is_over).status is ImpactStatus.DONE
    assert runs.read_text() == "run\n"
