"""A real server: a process with its own files on free ports, that can be killed and comes back."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.forks import Forked, Forks, forking
from tests.ports import free_port

FOREWARN = Path(sys.executable).with_name("forewarn")
API_VERSION = "2020-07-01"
ANSWER_SECONDS = 45.0
START_SECONDS = 50.0
STOP_SECONDS = 45.0
KILLS = 12
AGENT_KILLS = 5

FLEET = """
[[availability_set]]
name = "web"
update_domains = 3

[[virtual_machine]]
name = "web-0"
availability_set = "web"

[[virtual_machine]]
name = "web-1"
availability_set = "web"

[[virtual_machine]]
name = "web-2"
availability_set = "web"

[[virtual_machine]]
name = "solo-0"

[[virtual_machine]]
name = "solo-1"
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kills", type=int, default=KILLS, help="how often the server under load is killed"
    )
    parser.addoption(
        "--agent-kills", type=int, default=AGENT_KILLS, help="how often the agent is killed"
    )


@pytest.fixture
def kills(pytestconfig: pytest.Config) -> int:
    # Without tests/e2e on the command line the option is declared after it was read.
    return int(pytestconfig.getoption("kills", default=KILLS))


@pytest.fixture
def agent_kills(pytestconfig: pytest.Config) -> int:
    return int(pytestconfig.getoption("agent_kills", default=AGENT_KILLS))


def wait_until(is_so: Callable[[], bool], reason: str, seconds: float, pause: float = 0.02) -> None:
    """Return when *is_so*, or fail with *reason* after *seconds*."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"{reason}, after {seconds} seconds"
        time.sleep(pause)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events of a polled document."""
        assert self.status == 200, self
        events: list[dict[str, Any]] = self.json()["Events"]
        return events

    @property
    def incarnation(self) -> int:
        assert self.status == 200, self
        return int(self.json()["DocumentIncarnation"])


class Client:
    """One connection to one port. It is kept, and made anew after a failure."""

    def __init__(self, port: int, headers: Mapping[str, str]) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)
        self._headers = headers

    def ask(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        sent = None if body is None else json.dumps(body).encode()
        kind = {} if body is None else {"Content-Type": "application/json"}
        try:
            self._connection.request(
                method, path, sent, {**self._headers, **kind, **(headers or {})}
            )
            answer = self._connection.getresponse()
            lowered = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, lowered, answer.read())
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()


class VmClient(Client):
    """A virtual machine that talks to the metadata endpoint."""

    def poll(self, vm: str, version: str = API_VERSION, **headers: str) -> Answer:
        dashed = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("GET", scheduled_events(vm, version), headers=dashed)

    def approve(self, vm: str, *event_ids: str) -> Answer:
        requests = [{"EventId": event_id} for event_id in event_ids]
        return self.ask("POST", scheduled_events(vm), {"StartRequests": requests})


def scheduled_events(vm: str, version: str = API_VERSION) -> str:
    return f"/vm/{vm}/metadata/scheduledevents?api-version={version}"


@dataclass(slots=True, kw_only=True)
class Server:
    """`forewarn serve` with *flags*. What it says on standard error stays for messages."""

    database: Path
    fleet: Path
    flags: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path
    forks: Forks | None = None
    """What makes its processes, and those of commands; without, each imports all by itself."""
    prefix: tuple[str, ...] = ()
    is_replaced: bool = False
    """Whether *prefix* is another program in the place of forewarn."""
    metadata_port: int = field(default_factory=free_port)
    control_port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | Forked | None = None

    def launch(self) -> None:
        """Start, and do not wait."""
        forks, command = self._forks(), self._command()
        with self.log.open("ab") as log:
            self.process = (
                forks.start(command, self.environment, log)
                if forks
                else subprocess.Popen(command, stdout=log, stderr=log, env=dict(self.environment))
            )

    def start(self) -> None:
        """Start, and return when /readyz says so."""
        self.launch()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Return when /readyz says so."""
        wait_until(self._is_ready, f"{self.log} has no server that is ready", START_SECONDS)

    def run_to_the_end(self) -> subprocess.CompletedProcess[str]:
        """Start where that is refused."""
        return run_script(self._forks(), self._command(), self.environment)

    def kill(self) -> None:
        """Kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(STOP_SECONDS)
            self.process = None

    def terminate(self) -> None:
        """Ask it to stop, and do not wait."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """Ask it to stop, and return what it ends with."""
        assert self.process is not None
        self.terminate()
        return self.wait()

    def wait(self) -> int:
        """Return what the process ends with, soon."""
        assert self.process is not None
        status = self.process.wait(STOP_SECONDS)
        self.process = None
        return status

    def restart(self, *flags: str) -> None:
        """Stop in order and start again, with other flags if any are given."""
        assert self.stop() == 0, self.said()
        self.flags = flags or self.flags
        self.start()

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def vm_client(self) -> VmClient:
        return VmClient(self.metadata_port, {"Metadata": "true"})

    def token(self) -> str:
        return self.database.with_name("admin.token").read_text(encoding="ascii").strip()

    def operator_client(self) -> Client:
        return Client(self.control_port, {"Authorization": f"Bearer {self.token()}"})

    def poll(self, vm: str, version: str = API_VERSION, **headers: str) -> Answer:
        with contextlib.closing(self.vm_client()) as client:
            return client.poll(vm, version, **headers)

    def approve(self, vm: str, *event_ids: str) -> Answer:
        with contextlib.closing(self.vm_client()) as client:
            return client.approve(vm, *event_ids)

    def operate(self, method: str, path: str, body: object = None) -> Answer:
        """Ask the control API for what is at *path*."""
        with contextlib.closing(self.operator_client()) as client:
            return client.ask(method, f"/api/v1/{path}", body)

    def create(self, event_type: str, *vms: str, **more: object) -> list[dict[str, Any]]:
        """Announce an event, and return the events it became."""
        order = {"event_type": event_type, "resources": vms, **more}
        answer = self.operate("POST", "events", order)
        assert answer.status == 201, answer
        created: list[dict[str, Any]] = answer.json()["events"]
        return created

    def event(self, event_id: str) -> dict[str, Any]:
        answer = self.operate("GET", f"events/{event_id}")
        assert answer.status == 200, answer
        event: dict[str, Any] = answer.json()
        return event

    def complete(self, event_id: str) -> None:
        assert self.operate("POST", f"events/{event_id}/complete").status == 200

    def cancel(self, event_id: str) -> None:
        assert self.operate("POST", f"events/{event_id}/cancel").status == 200

    def wait_for(self, event_id: str, event_status: str, seconds: float = ANSWER_SECONDS) -> None:
        """Return when the event has *event_status*."""
        wait_until(
            lambda: self.event(event_id)["event_status"] == event_status,
            f"{event_id} has not become {event_status}",
            seconds,
        )

    def health(self, path: str) -> int:
        with contextlib.closing(Client(self.control_port, {})) as client:
            return client.ask("GET", path).status

    def command(self, *arguments: str) -> Any:
        """Run a command of the CLI as the operator of this server; return the JSON it prints."""
        done = self.try_command(*arguments, "--output", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def try_command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the CLI, whatever comes of it."""
        where = {
            "FOREWARN_SERVER": f"http://127.0.0.1:{self.control_port}",
            "FOREWARN_STATE_DIR": str(self.database.parent),
        }
        return run_script(self.forks, [str(FOREWARN), *arguments], {**self.environment, **where})

    def _forks(self) -> Forks | None:
        """Return what makes its process, unless that is started by or imports something else."""
        is_ours = self.is_replaced or not self.prefix
        return self.forks if is_ours and "PYTHONPATH" not in self.environment else None

    def _command(self) -> list[str]:
        where = {
            "--database": f"sqlite:///{self.database}",
            "--metadata": f"127.0.0.1:{self.metadata_port}",
            "--control": f"127.0.0.1:{self.control_port}",
            "--fleet": str(self.fleet),
        }
        given = [word for name in where if name not in self.flags for word in (name, where[name])]
        program = self.prefix if self.is_replaced else (*self.prefix, str(FOREWARN))
        return [*program, "serve", "--trust-path", *given, *self.flags]

    def _is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"the server has ended: {self.said()}"
        try:
            return self.health("/readyz") == 200
        except OSError:
            return False


def run_script(
    forks: Forks | None,
    command: list[str],
    environment: Mapping[str, str],
    folder: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run *command* to its end in *folder*, as a process of *forks* if there are any."""
    if forks:
        return forks.run(command, environment, START_SECONDS, folder)
    return subprocess.run(
        command,
        cwd=folder,
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Mapping[str, str]:
    """Nothing of ours, and modules compiled once for all processes, which halves their start."""
    own = tmp_path_factory.getbasetemp()
    # The workers of one run have their folders side by side.
    compiled = (own if worker_id == "master" else own.parent) / "compiled"
    home = tmp_path_factory.mktemp("home")
    return {"PATH": os.defpath, "PYTHONPYCACHEPREFIX": str(compiled), "HOME": str(home)}


@pytest.fixture(scope="session")
def forks(environment: Mapping[str, str]) -> Generator[Forks]:
    with forking(environment) as made:
        yield made


ServerMaker = Callable[..., Server]


@pytest.fixture
def make_server(
    tmp_path: Path, environment: Mapping[str, str], forks: Forks
) -> Generator[ServerMaker]:
    """Return a function that makes a server with flags; it is killed after the test."""
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(FLEET, encoding="utf-8")
    (tmp_path / "data").mkdir()
    servers: list[Server] = []

    def make(
        *flags: str,
        database: Path | None = None,
        prefix: tuple[str, ...] = (),
        is_replaced: bool = False,
    ) -> Server:
        server = Server(
            database=database or tmp_path / "data" / "forewarn.db",
            fleet=fleet,
            flags=flags,
            environment=environment,
            log=tmp_path / f"server-{len(servers)}.log",
            forks=forks,
            prefix=prefix,
            is_replaced=is_replaced,
        )
        servers.append(server)
        return server

    yield make
    for server in servers:
        server.kill()


@pytest.fixture
def start_server(make_server: ServerMaker) -> ServerMaker:
    """Return a function that makes a server and starts it."""

    def start(*flags: str, database: Path | None = None) -> Server:
        server = make_server(*flags, database=database)
        server.start()
        return server

    return start
