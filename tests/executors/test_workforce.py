"""Who carries maintenance out, on virtual machines and on hosts, as the settings say."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.executors.conftest import EVENT, NOW, WEB_0, WEB_1, ask_until, is_over
from tests.executors.host_work import WORK
from tests.web_site import OUTBOUND

from forewarn.bootstrap.start import new_id
from forewarn.bootstrap.workforce import ReloadableWorkforce, Workforce, choose_workforce
from forewarn.clocks import SystemClock, VirtualClock
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.host_work import HostTaskKind, HostWorkRule
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName
from forewarn.executors.manual import BY_HAND
from forewarn.files.fleet import read_fleet_file
from forewarn.files.tables import TablesError
from forewarn.operations.context import Context
from forewarn.operations.inventory import apply_fleet
from forewarn.ports.store import Transaction
from forewarn.settings import Settings, make_settings
from forewarn.settings_table import ClockKind, ExecutorKind
from forewarn.storage.sqlite import open_sqlite
from forewarn.testing.engine import start_engine

FLEET = """
[[host]]
name = "kvm-0"
labels = { cluster = "a" }

[[host]]
name = "kvm-1"
labels = { cluster = "a", simulated-work-failure = "no power" }
"""
MACHINES = """
[[host]]
name = "kvm-0"
labels = { cluster = "a" }

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
FAILED = Impact(status=ImpactStatus.FAILED, reason="no power")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "executors.toml"
    path.write_text(HOST_WORK, encoding="utf-8")
    return path


def settings_of(folder: Path, **more: object) -> Settings:
    return make_settings({"database": f"sqlite:///{folder / 'forewarn.db'}", **more})


def put(tx: Transaction, event: ScheduledEvent) -> None:
    tx.put_event(event)


@contextmanager
def workforce_of(settings: Settings, *events: ScheduledEvent) -> Iterator[Workforce]:
    store = open_sqlite(settings.database_path)
    fleet = read_fleet_file(MACHINES)
    context = Context(who="test", now=NOW, at=NOW, new_id=new_id)
    store.write(lambda tx: apply_fleet(tx, context, fleet))
    for event in events:
        store.write(partial(put, event=event))
    store.write(lambda tx: tx.next_epoch())
    with choose_workforce(settings, OUTBOUND)(store, SystemClock()) as workforce:
        yield workforce
    store.close()


def test_hosts_have_no_work_unless_a_file_says_so(tmp_path: Path) -> None:
    with workforce_of(settings_of(tmp_path)) as workforce:
        assert workforce.host_worker is None


@pytest.mark.parametrize("executor", [ExecutorKind.MANUAL, ExecutorKind.SIMULATED])
def test_file_without_host_work_gives_hosts_none(
    tmp_path: Path, file: Path, executor: ExecutorKind
) -> None:
    file.write_text('[[command]]\nrun = ["true"]\n', encoding="utf-8")

    with workforce_of(settings_of(tmp_path, executor_file=file, executor=executor)) as workforce:
        assert workforce.host_worker is None


def test_hosts_are_worked_on_whoever_carries_impacts_out(tmp_path: Path, file: Path) -> None:
    with workforce_of(settings_of(tmp_path, executor_file=file)) as workforce:
        worker = workforce.host_worker
        assert worker is not None
        worker.begin(WORK, epoch=1)
        impact = ask_until(lambda: worker.inquire(WORK), is_over)

        assert workforce.executor.begin(EVENT, WEB_0, epoch=1) == BY_HAND

    assert tuple(worker.rules) == (RULE,)
    assert impact.reason == "exit code 3: kvm-0"
    assert (tmp_path / "host-work" / WORK.operation_id / "work.ended").exists()


SCRIPT = 'run = ["sh", "-c", "echo $EVENT_TYPE of $EVENT_VM; exit 3"]\n'
CHOICES = f"""
[[manual]]
hosts = ["KVM-1"]

[[command]]
labels = {{ cluster = "a" }}
event_types = ["Freeze"]
{SCRIPT}
[[webhook]]
event_types = ["Freeze"]
url = "http://127.0.0.1:1"

[[command]]
event_types = ["Reboot"]
labels = {{ cluster = "a" }}
{SCRIPT}
"""


def test_first_table_that_fits_event_host_and_labels_is_used(tmp_path: Path, file: Path) -> None:
    file.write_text(CHOICES, encoding="utf-8")

    with workforce_of(settings_of(tmp_path, executor_file=file), EVENT) as workforce:
        executor = workforce.executor
        executor.begin(EVENT, WEB_0, epoch=1)
        first = ask_until(lambda: executor.inquire(EVENT.event_id, WEB_0), is_over)

        assert first.reason == "exit code 3: Reboot of web-0"
        assert executor.begin(EVENT, WEB_1, epoch=1) == BY_HAND
        assert executor.inquire(EVENT.event_id, WEB_1) == BY_HAND


def test_what_has_begun_stays_with_whom_it_was_given_when_the_file_changes(
    tmp_path: Path, file: Path
) -> None:
    go = tmp_path / "go"
    waits = f"while [ ! -e {go} ]; do sleep 0.02; done; exit 3"
    file.write_text(f"[[command]]\nrun = ['sh', '-c', '{waits}']\n", encoding="utf-8")
    settings = settings_of(tmp_path, executor_file=file)

    with workforce_of(settings, EVENT) as workforce:
        workforce.executor.begin(EVENT, WEB_0, epoch=1)
        inquire = partial(workforce.executor.inquire, EVENT.event_id, WEB_0)
        ask_until(inquire, lambda _: (tmp_path / "impacts" / EVENT.event_id).exists())
    file.write_text("[[manual]]\n", encoding="utf-8")
    with workforce_of(settings, EVENT) as workforce:
        executor = workforce.executor
        assert not executor.inquire(EVENT.event_id, WEB_0).is_by_hand
        go.touch()
        ended = ask_until(lambda: executor.inquire(EVENT.event_id, WEB_0), is_over)

    assert ended.status is ImpactStatus.FAILED


def test_what_was_simulated_is_not_done_when_there_is_an_executor_for_it(
    tmp_path: Path, file: Path
) -> None:
    file.write_text(f"[[command]]\nrun = ['touch', '{tmp_path}/done']\n", encoding="utf-8")
    simulated = settings_of(tmp_path, executor=ExecutorKind.SIMULATED)

    with workforce_of(simulated, EVENT) as workforce:
        begun = workforce.executor.begin(EVENT, WEB_0, epoch=1)
    with workforce_of(settings_of(tmp_path, executor_file=file), EVENT) as workforce:
        found = workforce.executor.inquire(EVENT.event_id, WEB_0)
        again = workforce.executor.begin(EVENT, WEB_0, epoch=2)

    assert (found, again) == (begun, begun)
    assert not (tmp_path / "done").exists()


def test_impact_of_an_event_that_is_not_there_is_unknown(tmp_path: Path, file: Path) -> None:
    with workforce_of(settings_of(tmp_path, executor_file=file)) as workforce:
        assert workforce.executor.inquire(EVENT.event_id, WEB_0).is_lost


def test_webhook_and_command_may_be_in_one_file(tmp_path: Path, file: Path) -> None:
    file.write_text(f'[[host_work]]\nhosts = ["x"]\nurl = "http://127.0.0.1:1"\n{HOST_WORK}')

    with workforce_of(settings_of(tmp_path, executor_file=file)) as workforce:
        worker = workforce.host_worker
        assert worker is not None
        worker.begin(WORK, epoch=1)
        assert ask_until(lambda: worker.inquire(WORK), is_over).reason == "exit code 3: kvm-0"


def test_simulated_executor_works_on_no_host_but_takes_the_time(file: Path) -> None:
    settings = {"executor": ExecutorKind.SIMULATED, "executor_file": file}
    engine = start_engine(settings, read_fleet_file(FLEET), NOW)
    try:
        replica = engine.replica
        clock = replica.clock
        assert isinstance(clock, VirtualClock)
        assert replica.context("test").rules.host_works == (RULE,)
        store, failing = replica.store, replace(WORK, host=HostName("kvm-1"))
        with choose_workforce(replica.settings, OUTBOUND)(store, clock) as workforce:
            worker = workforce.host_worker
            assert worker is not None
            begun = worker.begin(failing, epoch=replica.candidate.epoch)
            assert begun.ask_again_at is not None
            clock.move_to(begun.ask_again_at)
            assert worker.inquire(failing) == FAILED
            verify = replace(failing, kind=HostTaskKind.VERIFY)
            done = worker.begin(verify, epoch=replica.candidate.epoch)
            assert done == Impact(status=ImpactStatus.DONE)
    finally:
        engine.close()


def test_hosts_are_not_worked_on_in_virtual_time(tmp_path: Path, file: Path) -> None:
    settings = settings_of(tmp_path, executor_file=file, clock=ClockKind.VIRTUAL)

    with pytest.raises(TablesError, match=r"virtual clock; use the executor simulated\.$"):
        choose_workforce(settings, OUTBOUND)


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
    tmp_path: Path, file: Path, text: str, reason: str
) -> None:
    file.write_text(text, encoding="utf-8")
    settings = settings_of(tmp_path, executor_file=file)
    store = open_sqlite(settings.database_path)

    workforce = ReloadableWorkforce(settings, store, SystemClock(), OUTBOUND)

    assert workforce.unknown().reason == reason.format(
        path=file, known="command, webhook, libvirt, manual, host_work"
    )
    assert len(workforce.problem.splitlines()) == len(text.splitlines())
    store.close()
