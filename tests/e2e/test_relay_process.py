"""The process of a relay, beside a server on one machine: small, private, and clear in trouble."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.docs.blocks import Block
from tests.e2e.conftest import (
    FOREWARN,
    START_SECONDS,
    STOP_SECONDS,
    Server,
    ServerMaker,
    wait_until,
)
from tests.needs import need, need_root
from tests.ports import free_port

GUESTS = 50
MOST_MEMORY = 40 * 1024
"""In KiB."""
HEAVY = ("fastapi", "httpx2", "pydantic", "rich", "sqlalchemy", "starlette", "typer", "yaml")
FLEET = "".join(
    f"[[virtual_machine]]\nname = 'guest-{number}'\nhost = 'kvm-1'\n"
    f"addresses = ['127.9.0.{number}']\n"
    for number in range(1, GUESTS + 1)
)
PATH = "/metadata/scheduledevents?api-version=2020-07-01"


@dataclass(slots=True, kw_only=True)
class Relay:
    """`forewarn relay` on a port of loopback."""

    folder: Path
    environment: Mapping[str, str]
    server: str
    token: str = ""
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def state(self) -> Path:
        return self.folder / "relay"

    def start(self, *flags: str, **environment: str) -> None:
        token_file = self.folder / "relay.token"
        token_file.touch(mode=0o600)
        token_file.write_text(self.token, encoding="ascii")
        self.launch(
            "relay", "--server", self.server, "--token-file", token_file,
            "--metadata", f"127.0.0.1:{self.port}", "--state-dir", self.state, *flags,
            **environment,
        )  # fmt: skip

    def launch(self, *words: str | Path, **environment: str) -> None:
        with (self.folder / "relay.log").open("ab") as log:
            self.process = subprocess.Popen(
                [FOREWARN, *words],
                cwd=self.folder,
                env={**self.environment, **environment},
                stdout=log,
                stderr=log,
            )

    def end(self) -> int:
        assert self.process is not None
        return self.process.wait(START_SECONDS)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(STOP_SECONDS) == 0, self.said()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def said(self) -> str:
        return (self.folder / "relay.log").read_text(encoding="utf-8")

    def poll(self, number: int = 1, *, network: int = 0, **headers: str) -> tuple[int, bytes]:
        waiting = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._ask("GET", f"127.9.{network}.{number}", headers=waiting)

    def approve(self, event_id: str, number: int = 1, *, network: int = 0) -> int:
        order = {"StartRequests": [{"EventId": event_id}]}
        return self._ask("POST", f"127.9.{network}.{number}", json.dumps(order))[0]

    def _ask(
        self, method: str, source: str, body: str = "", headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60, source_address=(source, 0))
        with closing(connection):
            connection.request(method, PATH, body, {"Metadata": "true", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def await_status(self, status: int, number: int = 1, *, network: int = 0) -> None:
        def is_so() -> bool:
            try:
                return self.poll(number, network=network)[0] == status
            except OSError:
                return False

        wait_until(is_so, f"no {status}: {self.said()}", START_SECONDS)


@pytest.fixture
def server(make_server: ServerMaker, tmp_path: Path) -> Server:
    (tmp_path / "fleet.toml").write_text(FLEET, encoding="utf-8")
    started = make_server("--fleet", str(tmp_path / "fleet.toml"))
    started.start()
    return started


@pytest.fixture
def relay(server: Server, tmp_path: Path, environment: Mapping[str, str]) -> Generator[Relay]:
    """A relay of kvm-1 that is not started yet."""
    made = Relay(
        folder=tmp_path,
        environment=environment,
        server=f"http://127.0.0.1:{server.control_port}",
        token=token_for(server, name="relay", role="relay", host="kvm-1"),
    )
    yield made
    made.stop()


def token_for(server: Server, **order: str) -> str:
    answer = server.operate("POST", "tokens", order)
    assert answer.status == 201, answer
    secret: str = answer.json()["secret"]
    return secret


def test_relay_of_fifty_guests_is_small(relay: Relay) -> None:
    relay.start()
    relay.await_status(200)
    for number in range(1, GUESTS + 1):
        assert relay.poll(number)[0] == 200

    assert relay.process is not None
    status = Path(f"/proc/{relay.process.pid}/status").read_text(encoding="ascii")
    (memory,) = (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    assert memory <= MOST_MEMORY


def test_process_loads_nothing_heavy(environment: Mapping[str, str]) -> None:
    program = (
        "import json, sys, forewarn.front.relay\n"
        "print(json.dumps([name for name, module in sys.modules.items() if module]))"
    )

    loaded = subprocess.check_output(
        [sys.executable, "-P", "-c", program], env=dict(environment), timeout=START_SECONDS
    )

    assert set(HEAVY).isdisjoint(json.loads(loaded))


def test_systemd_is_told_when_guests_are_served(server: Server, relay: Relay) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(relay.folder / "notify"))
        systemd.settimeout(START_SECONDS)
        relay.start(NOTIFY_SOCKET=str(relay.folder / "notify"))
        assert systemd.recv(1024) == b"READY=1"
        assert relay.poll()[0] == 200

        relay.kill()
        server.kill()
        relay.start(NOTIFY_SOCKET=str(relay.folder / "notify"))
        assert systemd.recv(1024) == b"READY=1", "it serves from disk"
        assert relay.poll()[0] == 200


def test_relays_beside_the_server_answer_the_guests_of_their_hosts(
    make_server: ServerMaker, tmp_path: Path, environment: Mapping[str, str], blocks: list[Block]
) -> None:
    need("jq")
    others = FLEET.replace("guest", "other").replace("kvm-1", "kvm-2").replace("127.9.0", "127.9.1")
    (tmp_path / "fleet.toml").write_text(FLEET + others, encoding="utf-8")
    server = make_server("--fleet", str(tmp_path / "fleet.toml"))
    server.start()
    assert server.process is not None
    address = f"http://127.0.0.1:{server.control_port}"
    tokens, commands = blocks
    asking = {
        **environment,
        "PATH": f"{FOREWARN.parent}:{os.defpath}",
        "FOREWARN_SERVER": address,
        "FOREWARN_TOKEN": server.token(),
    }
    script = tokens.text.replace("$ ", "")
    subprocess.run(["/bin/sh", "-ec", script], cwd=tmp_path, env=asking, check=True)
    with ExitStack() as stack:
        relays = []
        for _, *words in commands.commands:
            relay = Relay(folder=tmp_path, environment=environment, server=address)
            stack.callback(relay.stop)
            listening = words[words.index("--metadata") + 1]
            here = {"http://127.0.0.1:8170": address, listening: f"127.0.0.1:{relay.port}"}
            relay.launch(*(here.get(word, word) for word in words))
            relays.append(relay)
        one, two = relays
        one.await_status(200)
        two.await_status(200, network=1)
        (event,) = server.create("Reboot", "guest-1")
        event_id = event["event_id"]
        wait_until(lambda: event_id.encode() in one.poll()[1], "no event", START_SECONDS)

        assert [one.poll(network=1)[0], two.poll()[0]] == [404, 404], "of the other host"
        assert event_id.encode() not in two.poll(network=1)[1]
        assert one.approve(event_id) == 200
        assert [each["name"] for each in server.event(event_id)["approvals"]] == ["guest-1"]
        server.kill()
        assert [one.poll()[0], two.poll(network=1)[0]] == [200, 200]


def test_poll_that_waits_is_answered_when_the_relay_stops(relay: Relay) -> None:
    relay.start()
    relay.await_status(200)
    parked: list[int] = []
    waiting = threading.Thread(
        target=lambda: parked.append(relay.poll(If_None_Match="0", Prefer="wait=60")[0])
    )
    waiting.start()
    time.sleep(1)

    relay.stop()

    waiting.join(START_SECONDS)
    assert parked == [304]


def test_relay_that_was_told_nothing_says_so_and_no_more(server: Server, relay: Relay) -> None:
    server.stop()

    relay.start()

    relay.await_status(503)
    wait_until(lambda: "feed_lost" in relay.said(), "no line in the log", START_SECONDS)
    server.start()
    relay.await_status(200)
    # It answers as soon as it knows the machine, and says so when it has been told everything.
    wait_until(lambda: "feed_followed" in relay.said(), "no line in the log", START_SECONDS)


def test_damaged_file_is_set_aside_and_told_again(relay: Relay) -> None:
    relay.start()
    relay.await_status(200)
    relay.kill()
    file = relay.state / "feed.ndjson"
    file.write_bytes(file.read_bytes().replace(b'"type"', b'"tipe"', 2))

    relay.start()

    relay.await_status(200)
    assert "feed_file_damaged" in relay.said()
    assert (relay.state / "feed.damaged").exists()


def test_polls_through_a_relay_are_known_to_the_server(server: Server, relay: Relay) -> None:
    relay.start()
    relay.await_status(200, 7)

    def last_poll() -> object:
        return server.operate("GET", "virtual-machines/guest-7").json()["last_polled_at"]

    wait_until(lambda: last_poll() is not None, "the server knows of no poll", START_SECONDS)


@pytest.mark.parametrize(
    ("order", "sentence"),
    [
        ({"role": "operator"}, "This needs the role relay; wrong has the role operator."),
        ({"role": "admin"}, "This needs the role relay; wrong has the role admin."),
        (None, "Unknown token."),
    ],
)
def test_token_that_is_not_one_of_a_relay_is_refused(
    server: Server, relay: Relay, order: dict[str, str] | None, sentence: str
) -> None:
    relay.token = "fw_" + "0" * 43 if order is None else token_for(server, name="wrong", **order)

    relay.start()

    assert relay.end() == 1
    assert sentence in relay.said()
    assert "Traceback" not in relay.said()


def test_state_of_another_host_is_refused(server: Server, relay: Relay) -> None:
    relay.start()
    relay.await_status(200)
    relay.stop()
    relay.token = token_for(server, name="other", role="relay", host="kvm-2")

    relay.start()

    assert relay.end() == 1
    assert "kvm-1" in relay.said()
    assert "kvm-2" in relay.said()
    assert "remove" in relay.said()


class NoFeed(BaseHTTPRequestHandler):
    """A web server that is not forewarn."""

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None: ...


def test_server_without_the_feed_is_refused(relay: Relay) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), NoFeed) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        relay.server = f"http://127.0.0.1:{other.server_port}"

        relay.start()

        assert relay.end() == 1
        assert "has no feed" in relay.said()
        other.shutdown()


def test_server_without_tls_is_refused(server: Server, relay: Relay) -> None:
    relay.server = f"https://127.0.0.1:{server.control_port}"

    relay.start()

    assert relay.end() == 1
    assert "TLS" in relay.said()


@pytest.mark.parametrize(
    ("prepare", "sentence"),
    [
        (lambda path: path.unlink(), "cannot be read: No such file or directory"),
        (lambda path: path.chmod(0o644), "Other users can access"),
        (lambda path: path.write_text("short"), "does not contain a token"),
    ],
)
def test_token_file_that_cannot_be_is_refused(
    relay: Relay, prepare: Callable[[Path], object], sentence: str
) -> None:
    file = relay.folder / "relay.token"
    file.touch(mode=0o600)
    file.write_text(relay.token, encoding="ascii")
    prepare(file)

    done = subprocess.run(
        [
            FOREWARN, "relay", "--server", relay.server, "--token-file", file,
            "--metadata", f"127.0.0.1:{relay.port}", "--state-dir", relay.folder / "new",
        ],
        env=dict(relay.environment),
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )  # fmt: skip

    assert done.returncode == 1
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_address_that_is_not_here_is_refused(relay: Relay) -> None:
    relay.start("--metadata", "192.0.2.1:80")

    assert relay.end() == 1
    assert "ip address add 192.0.2.1/32 dev BRIDGE" in relay.said()


def test_relay_goes_on_when_the_disk_is_full(server: Server, relay: Relay) -> None:
    need_root("mount a disk")
    relay.state.mkdir()
    subprocess.run(
        ["/bin/mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", relay.state], check=True
    )
    try:
        relay.start()
        relay.await_status(200)
        fill(relay.state / "filler")
        last = announce_until_full(server, relay)
        wait_until(lambda: last in relay.poll(GUESTS)[1], "it is not shown", START_SECONDS)

        (relay.state / "filler").unlink()
        wait_until(lambda: is_written(relay), "it is not written again", START_SECONDS)
        server.kill()
        relay.kill()
        relay.start()
        relay.await_status(200)
        assert last in relay.poll(GUESTS)[1]
    finally:
        relay.stop()
        subprocess.run(["/bin/umount", relay.state], check=True)


def is_written(relay: Relay) -> bool:
    """Tell whether the last that it said of its file was that it could write it."""
    return relay.said().rpartition("feed_file_")[2].startswith("written")


def fill(path: Path) -> None:
    with path.open("ab", buffering=0) as file:
        try:
            while file.write(b"x" * 512):
                pass
        except OSError:
            return


def announce_until_full(server: Server, relay: Relay) -> bytes:
    """Announce events until one of them finds no room; return the id of one more."""
    for number in range(1, GUESTS):
        server.create("Reboot", f"guest-{number}")
        if "feed_file_not_written" in relay.said():
            break
    (event,) = server.create("Reboot", f"guest-{GUESTS}")
    event_id: str = event["event_id"]
    return event_id.encode()
