"""Every command on a real server: the files in golden/ say what it prints and how it ends.

After a change that is meant, `pytest tests/cli/test_golden.py --update-golden` rewrites them.
"""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from uuid import uuid4

import pytest
from tests.cli.golden_script import VIRTUAL_YEAR, Disguise, Ended, Step, play, read_script
from tests.cli.test_help import commands
from tests.needs import PATH, need, need_libvirt
from tests.receiver import Receiver
from typer.testing import CliRunner

from forewarn import commit
from forewarn.bootstrap.listening import Listeners
from forewarn.bootstrap.server import serve_during
from forewarn.cli.app import app
from forewarn.clocks import SystemClock
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName
from forewarn.domain.notification import give_up
from forewarn.domain.task import BY_HAND, MANUAL, Owner, Task, TaskState
from forewarn.files.fleet import read_fleet_file
from forewarn.metadata.http import open_listener
from forewarn.operations.context import Context
from forewarn.operations.discovery import SourceStatus, put_sources
from forewarn.operations.events import EventOrder, create_events
from forewarn.operations.inventory import apply_fleet
from forewarn.operations.notifications import example_notification
from forewarn.ports.store import Transaction
from forewarn.protocol.vocabulary import EventType, event_id
from forewarn.settings import Settings
from forewarn.settings_table import ClockKind, ExecutorKind
from forewarn.storage.sqlite import open_sqlite

TIMEOUT = 45
FOREWARN = Path(sys.executable).with_name("forewarn")
GOLDEN = Path(__file__).with_name("golden")
FLEET = GOLDEN / "files/fleet.toml"
SCRIPTS = sorted(GOLDEN.glob("*.txt"))
START = datetime(VIRTUAL_YEAR, 1, 6, 8, tzinfo=UTC)
GIVEN_UP = ("00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002")
SOURCES = (
    SourceStatus(name="kvm", kind="libvirt", since=START, machines=12, missing=1),
    SourceStatus(
        name="cmdb",
        kind="run",
        problem="It did not answer within 30 seconds.",
        since=START,
        remarks=("db-0: declared elsewhere, so left unchanged.",),
    ),
)

STRANDED = {"task-list", "task-settle", "replica-forget"}
"""The scripts that begin while a replica is away for good."""
EVENT_IDS = "00000000-0000-4000-8000-"
LOST = Impact(status=ImpactStatus.UNKNOWN, reason="replica db-9 is away")

WITHOUT_END = {
    "serve": "tests/e2e/test_service.py",
    "relay": "tests/e2e/test_relay_process.py",
    "demo": "tests/e2e/test_demo.py",
    "emulator run": "tests/e2e/test_emulator.py",
    "conformance run": "tests/conformance/kit/test_battery.py",
    "scenario record": "tests/e2e/test_recording.py",
    "scenario replay": "tests/e2e/test_recording.py",
    "event watch": "tests/cli/test_watch.py",
    "doctor": "tests/cli/test_doctor.py",
    "host setup": "tests/e2e/test_host_setup.py",
    "host work": "tests/e2e/test_fetched_host_work.py",
    "replica hand-over": "tests/e2e/test_hand_over.py",
}
"""Commands whose success does not end, takes long or is of the machine: which test has it."""
ALIKE = {
    "event seen",
    "calendar",
    "completion",
    "version",
    "db upgrade",
    "db backup",
    "db restore",
    "db copy",
    "db mark-restored",
    "token renew-admin",
}
"""Commands that print the same thing however it is asked for."""


@pytest.fixture(scope="session")
def started_database(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A database of a server with a virtual clock, and two messages that were given up."""
    path = tmp_path_factory.mktemp("started") / "forewarn.db"
    store = open_sqlite(path)
    store.write(lambda tx: tx.put_setting("clock", ClockKind.VIRTUAL))
    store.write(lambda tx: tx.put_setting("virtual_now", START.isoformat()))
    store.write(put_messages)
    store.write(lambda tx: put_sources(tx, SOURCES))
    store.close()
    return path.read_bytes()


def put_messages(tx: Transaction) -> None:
    for name in GIVEN_UP:
        message = example_notification(
            "nowhere", notification_id=name, who="admin", now=START, at=START
        )
        # Given up just now: what has ended long ago is forgotten.
        tx.put_notification(give_up(message, "It was away too long.", now=SystemClock().now()))


def strand(path: Path) -> None:
    """Have a replica be away that is in the middle of something, beside what is done by hand."""
    store, now = open_sqlite(path), SystemClock().now()
    numbers = count(1)
    context = Context(
        who="admin",
        now=START,
        at=now,
        new_id=lambda: event_id(f"{EVENT_IDS}{next(numbers):012x}"),
    )

    def work(tx: Transaction) -> None:
        of_machines = replace(context, new_id=lambda: event_id(str(uuid4())))
        apply_fleet(tx, of_machines, read_fleet_file(FLEET.read_text()))
        for number in (8, 9):
            node, name = f"db-{number}:{number:032x}", f"db-{number}"
            tx.put_owner(Owner(node=node, name=name, generation=1, heard_at=START))
        order = EventOrder(event_type=EventType.REBOOT, resources=("web-0", "solo"), started=True)
        for event in create_events(tx, context, order):
            is_by_hand = event.resources == ("solo",)
            tx.put_task(
                Task(
                    subject=event.event_id,
                    name=event.resources[0],
                    vm=event.resources[0],
                    host=None if is_by_hand else HostName("kvm-0"),
                    runner=MANUAL if is_by_hand else "command",
                    state=TaskState.BEGUN if is_by_hand else TaskState.UNKNOWN,
                    node=f"db-9:{9:032x}",
                    epoch=1,
                    said=BY_HAND if is_by_hand else LOST,
                    reserved_at=START,
                    begun_at=START,
                )
            )

    store.write(work)
    store.close()


@pytest.fixture
def server(
    tmp_path: Path,
    started_database: bytes,
    monkeypatch: pytest.MonkeyPatch,
    script: Path,
) -> Iterator[str]:
    """Serve from a folder with the files of golden/files; return where operators are answered."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket, "gethostname", lambda: "kvm-1")
    monkeypatch.setattr(commit, "read_commit", lambda: "c0ffee00")
    shutil.copytree(GOLDEN / "files", tmp_path, dirs_exist_ok=True)
    (tmp_path / "forewarn.db").touch(mode=0o600)
    (tmp_path / "forewarn.db").write_bytes(started_database)
    (tmp_path / "node.id").write_text(f"kvm-1:{1:08x}{0:024x}\n")
    if script.stem in STRANDED:
        strand(tmp_path / "forewarn.db")
    receiver = Receiver()
    (tmp_path / "notifications.toml").write_text(
        f'[[target]]\nname = "ops"\nkind = "webhook"\nurl = "{receiver.url}"\n'
        'phases = ["overdue"]\n'
        '[[target]]\nname = "nowhere"\nkind = "webhook"\nurl = "http://127.0.0.1:1/"\n'
        'scopes = ["web"]\nphases = ["overdue"]\n'
    )
    settings = Settings(
        database="sqlite:///forewarn.db",
        clock=ClockKind.VIRTUAL,
        executor=ExecutorKind.SIMULATED,
        fleet=Path("fleet.toml"),
        notifications=Path("notifications.toml"),
        gates=Path("gates.toml"),
        discovery_file=Path("discovery.toml"),
        journal=True,
    )
    with receiver.listening(), serving(settings) as address:
        yield address


@contextmanager
def serving(settings: Settings, metadata_port: int = 0) -> Iterator[str]:
    started, stopping = threading.Event(), threading.Event()

    async def errand() -> None:
        started.set()
        await asyncio.to_thread(stopping.wait)

    with ExitStack() as closing:
        metadata, control = (
            closing.enter_context(open_listener("127.0.0.1", port)) for port in (metadata_port, 0)
        )
        listeners = Listeners(metadata=(metadata,), control=(control,))
        thread = threading.Thread(target=serve_during, args=(settings, listeners, errand))
        thread.start()
        try:
            assert started.wait(TIMEOUT), "the server did not start"
            yield f"127.0.0.1:{control.getsockname()[1]}"
        finally:
            stopping.set()
            thread.join(TIMEOUT)
        assert not thread.is_alive(), "the server did not stop"


def run_here(arguments: list[str], environment: Mapping[str, str]) -> Ended:
    result = CliRunner().invoke(app, arguments, env=environment, prog_name="forewarn")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)


def run_apart(arguments: list[str], environment: Mapping[str, str]) -> Ended:
    """Run what takes over the logging of its process."""
    ended = subprocess.run(
        [FOREWARN, *arguments],
        env={"PATH": os.defpath, **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_command_does_what_its_script_says(
    script: Path, server: str, request: pytest.FixtureRequest
) -> None:
    if script.stem == "fleet-import":
        need_libvirt()
    if script.stem == "host-setup":
        need("ip", path=PATH)

    def invoke(arguments: list[str], variables: Mapping[str, str]) -> Ended:
        environment = {"FOREWARN_SERVER": server, "COLUMNS": "80", **variables}
        return (run_apart if arguments[0] == "serve" else run_here)(arguments, environment)

    kept = script.read_text(encoding="utf-8")
    played = play(read_script(kept), invoke, Disguise(server))

    if request.config.getoption("--update-golden"):
        script.write_text(played, encoding="utf-8")
    else:
        assert played == kept


def test_every_script_is_of_a_command() -> None:
    assert {script.stem for script in SCRIPTS} <= {"-".join(command) for command in commands()}


@pytest.mark.parametrize("command", tuple(commands()), ids=" ".join)
def test_every_command_has_a_success_and_a_failure(command: tuple[str, ...]) -> None:
    steps = [step for step in steps_of(command) if step.arguments[: len(command)] == [*command]]
    well = [step.arguments for step in steps if step.code == 0]

    assert any(step.code for step in steps)
    name = " ".join(command)
    if name in WITHOUT_END:
        assert (GOLDEN.parents[2] / WITHOUT_END[name]).exists()
    else:
        assert any("-o" not in arguments for arguments in well)
        assert name in ALIKE or any(arguments[-2:] == ["-o", "json"] for arguments in well)


def steps_of(command: tuple[str, ...]) -> list[Step]:
    script = GOLDEN / f"{'-'.join(command)}.txt"
    return list(read_script(script.read_text(encoding="utf-8")))
