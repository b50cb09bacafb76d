"""The command, against a control API on a real store and a real loopback socket."""

import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from tests.loopback import on_loopback
from tests.replicas import ITSELF
from tests.spawning import Spawn, spawning
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.clocks import SystemClock
from forewarn.control.app import create_app
from forewarn.desk.caller import Authenticator
from forewarn.desk.ledger_watch import LedgerWatch
from forewarn.desk.services import Services
from forewarn.domain.publication import FIRST_DOCUMENT
from forewarn.emulator.builtin import built_in_scenarios
from forewarn.emulator.faults import MemoryFaults
from forewarn.environment import environment_with
from forewarn.gates.asked_gates import AskedGates
from forewarn.operations.context import Context, Rules
from forewarn.outbound.client import Outbound
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import event_id
from forewarn.storage.lock import SoleReplica
from forewarn.storage.sqlite import open_sqlite

TIMEOUT = 45
MORNING = datetime(2026, 1, 5, 8, tzinfo=UTC)
TOKEN = "open-sesame-for-tests"  # noqa: S105
FLEET = """
[[availability_set]]
name = "web"
update_domains = 3
postpone_until = "1h"

[[virtual_machine]]
name = "web-0"
availability_set = "web"
host = "kvm-0"
addresses = ["10.0.0.10"]
vm_id = "5f1b6d0e-0000-4000-8000-000000000001"

[[virtual_machine]]
name = "web-1"
availability_set = "web"
host = "kvm-1"

[[virtual_machine]]
name = "solo"
tags = { team = "shop" }
"""


class HandClock:
    """Maintenance time, moved by hand."""

    kind = "virtual"

    def __init__(self) -> None:
        self._now = MORNING

    def now(self) -> datetime:
        return self._now

    def advance(self, duration: timedelta) -> datetime:
        self._now += duration
        return self._now


@pytest.fixture(scope="session")
def new_database(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("new") / "forewarn.db"
    open_sqlite(path).close()
    return path.read_bytes()


@pytest.fixture
def store(tmp_path: Path, new_database: bytes) -> Iterator[Store]:
    (tmp_path / "forewarn.db").write_bytes(new_database)
    opened = open_sqlite(tmp_path / "forewarn.db")
    yield opened
    opened.close()


@pytest.fixture
def rules() -> Rules:
    """What the server is told at start."""
    return Rules()


@pytest.fixture
def server(store: Store, rules: Rules) -> Iterator[str]:
    """The address of a control API."""
    numbers, clock, ledger_watch = count(1), HandClock(), LedgerWatch(store)
    store.listen(ledger_watch.note)
    authenticator = Authenticator(
        store=store, now=lambda: MORNING, admin="alice", admin_secret=lambda: TOKEN
    )
    services = Services(
        store=store,
        context=lambda who: Context(
            who=who,
            now=clock.now(),
            at=MORNING,
            new_id=lambda: event_id(f"00000000-0000-4000-8000-{next(numbers):012x}"),
            rules=rules,
        ),
        clock=clock,
        faults=MemoryFaults(
            document_of=lambda _: FIRST_DOCUMENT, clock=clock, changed=lambda: None
        ),
        authenticate=authenticator.authenticate,
        recognise=authenticator.recognise,
        is_ready=lambda: True,
        settle=lambda: None,
        finish_turn=lambda: None,
        replicas=SoleReplica(store, ITSELF, now=lambda: MORNING),
        database="forewarn.db",
        ledger_watch=ledger_watch,
        scenarios=built_in_scenarios(),
        gates=AskedGates(
            {}, outbound=Outbound(), clock=clock, wall=SystemClock(), woken=lambda: None
        ),
        metrics=bytes,
    )
    with on_loopback(create_app(services)) as address:
        yield address
        ledger_watch.stop()


@pytest.fixture
def environment(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the environment says; the working directory is empty but for the server's state."""
    monkeypatch.chdir(tmp_path)
    return {"FOREWARN_SERVER": server, "FOREWARN_TOKEN": TOKEN, "COLUMNS": "80"}


@pytest.fixture
def empty_run(environment: Mapping[str, str]) -> Callable[..., Result]:
    """Run a command against a server that has no fleet yet."""

    def run(*arguments: str, **variables: str | None) -> Result:
        return CliRunner().invoke(app, arguments, env={**environment, **variables})

    return run


@pytest.fixture
def spawn(environment: Mapping[str, str], tmp_path: Path) -> Iterator[Spawn]:
    """Run commands in processes of their own; those that are left at the end are killed."""
    program = (sys.executable, "-c", "from forewarn.cli import main; main()")
    with spawning(environment_with(environment), tmp_path) as begin:
        yield lambda *arguments: begin(*program, *arguments)


@pytest.fixture
def run(empty_run: Callable[..., Result], tmp_path: Path) -> Callable[..., Result]:
    """Run a command against a server with three virtual machines: web-0, web-1 and solo."""
    (tmp_path / "fleet.toml").write_text(FLEET)
    assert empty_run("fleet", "apply", "fleet.toml").exit_code == 0
    return empty_run
