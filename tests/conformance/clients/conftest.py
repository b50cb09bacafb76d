"""A server in a process of its own, on loopback or in a network with 169.254.169.254 in it.

Every client talks to the server itself, and to a relay.

The clients are installed by `make test-needs`. One that is not there is skipped, in a line that
says so.
"""

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests import needs
from tests.ports import free_port

ROOT = Path(__file__).parents[3]
SEEDS = ROOT.parent / "shared" / "seeds"
PROGRAMS = Path(__file__).parent / "programs"
INSTALLED = ROOT / ".venv" / "clients"
FOREWARN = Path(sys.executable).parent / "forewarn"

THIS_HOST = socket.gethostname()
NODES = ("node-1", "node-2")
HOST = "kvm-1"
TIMEOUT = 45.0


def run(*command: str | Path, stdin: str = "", timeout: float = TIMEOUT) -> str:
    """Run *command* to its end and return what it printed; anything but success is a failure."""

    done = _run_once(command, stdin, timeout)
    if done is None and command[0] == "mono":
        # Under load the runtime aborts over its own threads at times, or they all wait for each
        # other, and none of them for its connection.
        done = _run_once(command, stdin, timeout)
    words = " ".join(map(str, command))
    assert done is not None, f"{words}: not done in {timeout:.0f} s"
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _run_once(
    command: tuple[str | Path, ...], stdin: str, timeout: float
) -> subprocess.CompletedProcess[str] | None:
    """Return how *command* ended, None if it did not, or came to grief over its threads."""
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    is_mono_at_fault = done.returncode == -signal.SIGABRT and "mono-threads.c" in (
        done.stdout + done.stderr
    )
    return None if is_mono_at_fault else done


def wait_until(is_true: Callable[[], bool], reason: Callable[[], str]) -> None:
    """Wait for something to become true, and give up with *reason*."""
    deadline = time.monotonic() + TIMEOUT
    while not is_true():
        assert time.monotonic() < deadline, f"after {TIMEOUT:.0f} s: {reason()}"
        time.sleep(0.05)


def need(*tools: str | Path) -> None:
    """Skip the test if one of *tools* is not installed."""
    for tool in tools:
        if isinstance(tool, str):
            needs.need(tool)
        elif shutil.which(tool) is None:
            needs.skip_without(tool.relative_to(INSTALLED).parts[0])


def find_pythons() -> dict[str, tuple[str, ...]]:
    """Return the Pythons that are here: this one, and a Python 2 if there is one."""
    python2 = ("env", "PYENV_VERSION=2.7", "python2")  # pyenv hides it unless told the version
    found = {"python3": (sys.executable,)}
    return found | ({"python2": python2} if _succeeds((*python2, "-c", "import urllib2")) else {})


def compile_csharp(source: Path, directory: Path) -> Path:
    """Return *source* as a program for mono."""
    need("mcs", "mono")
    json_net = sorted(Path("/usr/lib/cli").glob("Newtonsoft.Json-*/Newtonsoft.Json.dll"))
    program = directory / source.with_suffix(".exe").name
    references = [f"-r:{assembly}" for assembly in json_net[:1]]
    run("mcs", "-nologo", *references, f"-out:{program}", source)
    return program


@dataclass(frozen=True)
class Namespace:
    """A network and a host name of its own, that last as long as the process that holds them."""

    pid: int
    flags: Sequence[str]

    def enter(self, *command: str | Path) -> tuple[str | Path, ...]:
        """Return *command* as one that runs in here."""
        return ("nsenter", f"--target={self.pid}", *self.flags, "--net", "--uts", *command)


@dataclass(frozen=True, kw_only=True)
class Server:
    """A running server, driven over its control API.

    It is on the virtual clock. What clients talk to at *metadata* is a relay if the server itself
    answers virtual machines *elsewhere*: the same ones, by their addresses, at these places of
    their own.
    """

    metadata: str
    control: str
    directory: Path
    elsewhere: Mapping[str, Namespace | None] = field(default_factory=dict)
    namespace: Namespace | None = None

    def inside(self, *command: str | Path) -> tuple[str | Path, ...]:
        """Return *command* as one that runs where the server runs."""
        return self.namespace.enter(*command) if self.namespace else command

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the answer of the control API."""
        token = (self.directory / "admin.token").read_text(encoding="ascii").strip()
        url = f"http://{self.control}/api/v1/{path}"
        headers = ["-H", f"Authorization: Bearer {token}", "-H", "Content-Type: application/json"]
        data = [] if body is None else ["-d", json.dumps(body)]
        curl = ("curl", "-sS", "--fail-with-body", "-m", "10", "-X", method, *headers, *data, url)
        answer = json.loads(run(*self.inside(*curl)))
        self._await_shown()
        return answer

    def _await_shown(self) -> None:
        """Return when a relay shows what the server does."""

        def differing() -> list[str]:
            return [
                place
                for place, within in self.elsewhere.items()
                if _document(self.metadata, within) != _document(place, within)
            ]

        wait_until(lambda: not differing(), lambda: f"the relay is not like {differing()}")

    def restart(self, vm: str) -> dict[str, Any]:
        """Announce a Reboot, as its owner would, and return the event."""
        event: dict[str, Any] = self.call("POST", f"virtual-machines/{vm}/restart")
        return event

    def announce(self, event_type: str, vm: str) -> dict[str, Any]:
        """Announce an event, as the operator would, and return it."""
        order = {"event_type": event_type, "resources": [vm]}
        event: dict[str, Any] = self.call("POST", "events", order)["events"][0]
        return event

    def show(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return *event* as it is now."""
        now: dict[str, Any] = self.call("GET", f"events/{event['event_id']}")
        return now

    def await_start(self, event: Mapping[str, Any]) -> None:
        """Return when *event* is Started; on the virtual clock it is at once."""
        wait_until(
            lambda: bool(self.show(event)["event_status"] == "Started"),
            lambda: f"not Started: {self.show(event)}",
        )

    def approvers(self, event: Mapping[str, Any]) -> list[str]:
        """Return the virtual machines that have approved *event*."""
        return [approval["name"] for approval in self.show(event)["approvals"]]

    def let_impact_end(self) -> None:
        """Let enough time pass for what is Started to complete."""
        self.call("POST", "clock/advance", {"duration": "10m"})

    def clear(self) -> None:
        """End everything a test has left."""
        for event in self.call("GET", "events?status=Scheduled")["events"]:
            self.call("POST", f"events/{event['event_id']}/cancel")
        self.call("POST", "events/complete-all")


@contextmanager
def serving(server: Server, fleet: str) -> Iterator[None]:
    """Run *server* with *fleet* until the end of the block."""
    (server.directory / "fleet.toml").write_text(fleet, encoding="utf-8")
    log = server.directory / "server.log"
    options = {
        "--database": f"sqlite:///{server.directory / 'forewarn.db'}",
        "--control": server.control,
        "--fleet": str(server.directory / "fleet.toml"),
        "--executor": "simulated",
        "--clock": "virtual",
    }
    words = [word for option in options.items() for word in option]
    for place in server.elsewhere or (server.metadata,):
        words += ["--metadata", place]
    ready = server.inside("curl", "-sf", "-m", "2", f"http://{server.control}/readyz")

    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            server.inside(FOREWARN, "serve", *words),
            cwd=server.directory,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(
            lambda: process.poll() is not None or _succeeds(ready),
            lambda: f"the server is not ready: {log.read_text(encoding='utf-8')}",
        )
        assert process.poll() is None, log.read_text(encoding="utf-8")
        with relaying(server) if server.elsewhere else nullcontext():
            yield
    finally:
        process.terminate()
        try:
            process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def relaying(server: Server) -> Iterator[None]:
    """Run a relay of *server* until the end of the block."""
    order = {"name": "relay", "role": "relay", "host": HOST}
    token = server.directory / "relay.token"
    token.touch(mode=0o600)
    without = replace(server, elsewhere={})
    token.write_text(without.call("POST", "tokens", order)["secret"], encoding="ascii")
    options = {
        "--server": f"http://{server.control}",
        "--token-file": str(token),
        "--metadata": server.metadata,
        "--state-dir": str(server.directory / "relay"),
    }
    words = [word for option in options.items() for word in option]
    with (server.directory / "relay.log").open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            server.inside(FOREWARN, "relay", *words), stdout=output, stderr=subprocess.STDOUT
        )
    try:
        server.call("GET", "events")  # which waits until all is shown
        yield
    finally:
        process.terminate()
        process.wait(TIMEOUT)


def _document(address: str, within: Namespace | None) -> str:
    """Return what is served at *address*, nothing if nobody answers."""
    url = f"http://{address}/metadata/scheduledevents?api-version=2020-07-01"
    curl = ("curl", "-sf", "-m", "10", "-H", "Metadata: true", url)
    done = subprocess.run(
        within.enter(*curl) if within else curl, capture_output=True, text=True, check=False
    )
    return done.stdout or f"{done.returncode} from {address}"


each_way = pytest.fixture(scope="session", params=("server", "relay"))
"""For what every client talks to."""


@each_way
def loopback_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    need("curl")
    metadata, control, elsewhere = _free_addresses(3)
    server = Server(
        metadata=metadata,
        control=control,
        directory=tmp_path_factory.mktemp("loopback"),
        elsewhere={elsewhere: None} if request.param == "relay" else {},
    )
    fleet = (
        f'[[virtual_machine]]\nname = "{THIS_HOST}"\naddresses = ["127.0.0.1"]\nhost = "{HOST}"\n'
    )
    with serving(server, fleet):
        yield server


@pytest.fixture
def server(loopback_server: Server) -> Iterator[Server]:
    """A server on loopback with nothing announced; to it we are THIS_HOST."""
    yield loopback_server
    loopback_server.clear()


@dataclass(frozen=True, kw_only=True)
class Network:
    """A host with a server on 169.254.169.254:80, and two machines that reach it by a wire."""

    server: Server
    machines: Mapping[str, Namespace]


@each_way
def wired_network(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Network]:
    need("curl", "ip", "unshare", "nsenter")
    with ExitStack() as stack:
        host = make_host(stack)
        machines = {name: stack.enter_context(holding(host)) for name in NODES}
        run_in(host, "ip link set lo up", "ip address add 169.254.169.254/32 dev lo")
        for number, (name, machine) in enumerate(machines.items()):
            _wire(host, machine, number, name)
        server = Server(
            metadata="169.254.169.254:80",
            control="127.0.0.1:8170",
            directory=tmp_path_factory.mktemp("network"),
            elsewhere={
                f"10.77.{number}.1:8169": machine
                for number, machine in enumerate(machines.values())
            }
            if request.param == "relay"
            else {},
            namespace=host,
        )
        fleet = '[[availability_set]]\nname = "cluster"\n' + "".join(
            f'[[virtual_machine]]\nname = "{name}"\navailability_set = "cluster"\n'
            f'update_domain = {number}\naddresses = ["10.77.{number}.2"]\nhost = "{HOST}"\n'
            for number, name in enumerate(NODES)
        )
        stack.enter_context(serving(server, fleet))
        yield Network(server=server, machines=machines)


@pytest.fixture
def network(wired_network: Network) -> Iterator[Network]:
    """The network with nothing announced."""
    yield wired_network
    wired_network.server.clear()


def make_host(stack: ExitStack) -> Namespace:
    """Make a namespace that lasts as long as *stack*, or skip the test."""
    needs.need("ip", "unshare", path=needs.PATH)
    # Root can always; others can in a user namespace, where the system allows that.
    for flags in ((), ("--user", "--map-root-user")):
        if _succeeds(("unshare", *flags, "--net", "--uts", "ip", "link", "set", "lo", "up")):
            return stack.enter_context(holding(None, flags))
    pytest.skip("no network namespace can be made here; run as root, or allow user namespaces")


@contextmanager
def holding(within: Namespace | None, flags: Sequence[str] = ()) -> Iterator[Namespace]:
    """Make a namespace, inside the user namespace of *within*, until the end of the block."""
    # The holder ends with its standard input, so that nothing remains even if we are killed.
    command: Sequence[str | Path] = (
        *("unshare", *flags, "--net", "--uts"),
        *("sh", "-c", "echo held; exec cat"),
    )
    process = subprocess.Popen(
        within.enter(*command) if within else command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n", "the namespace was not made"
        entering = ("--user", "--preserve-credentials") if flags else ()
        yield Namespace(process.pid, within.flags if within else entering)


def _wire(host: Namespace, machine: Namespace, number: int, name: str) -> None:
    run_in(
        host,
        f"ip link add wire{number} type veth peer name eth0 netns {machine.pid}",
        f"ip address add 10.77.{number}.1/24 dev wire{number}",
        f"ip link set wire{number} up",
    )
    run_in(
        machine,
        "ip link set lo up",
        f"ip address add 10.77.{number}.2/24 dev eth0",
        "ip link set eth0 up",
        f"ip route add 169.254.169.254/32 via 10.77.{number}.1",
        f"hostname {name}",
    )


def run_in(namespace: Namespace, *lines: str) -> None:
    """Run *lines* of shell in *namespace*."""
    run(*namespace.enter("sh", "-ec", "\n".join(lines)))


def _succeeds(command: Sequence[str | Path]) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0


def _free_addresses(count: int) -> list[str]:
    return [f"127.0.0.1:{free_port()}" for _ in range(count)]
