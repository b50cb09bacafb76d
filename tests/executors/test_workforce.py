"""Who carries maintenance out, on virtual machines and on hosts, as the settings say."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.executors.conftest import NOW, ask_until, is_over
from tests.executors.host_work import WORK
from tests.web_site import OUTBOUND

from forewarn.bootstrap.workforce import ReloadableWorkforce, Workforce, choose_workforce
from forewarn.clocks import SystemClock, VirtualClock
from forewarn.domain.amending import build_topology
from forewarn.domain.host_work import HostTaskKind, HostWorkRule
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName
from forewarn.domain.topology import Host
from forewarn.executors.manual import ManualExecutor
from forewarn.files.fleet import read_fleet_file
from forewarn.files.tables import TablesError
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


@contextmanager
def workforce_of(settings: Settings) -> Iterator[Workforce]:
    store = open_sqlite(settings.database_path)
    hosts = (Host(name=HostName("kvm-0"), labels={"cluster": "a"}),)
    store.write(
        lambda tx: tx.put_topology(build_topology(scopes=(), virtual_machines=(), hosts=hosts))
    )
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

    assert isinstance(workforce.executor, ManualExecutor)
    assert tuple(worker.rules) == (RULE,)
    assert impact.reason == "exit code 3: kvm-0"
    assert (tmp_path / "host-work" / WORK.operation_id / "work.ended").exists()


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

    with pytest.raises(TablesError, match=r"clock virtual; use the executor simulated\.$"):
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
        path=file, known="command, webhook, host_work"
    )
    assert len(workforce.problem.splitlines()) == len(text.splitlines())
    store.close()
