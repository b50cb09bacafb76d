"""A server, two hosts with a relay each, and guests behind them: all in network namespaces.

centre ── switch ── kvm-1 (relay) ── web-1, solo-1
               └─── kvm-2 (relay) ── web-2, solo-2

They are set up with the blocks of "Run a relay on each host".
"""

import ctypes
import json
import os
import re
import signal
import ssl
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from threading import Event
from typing import Any, Final, TypeVar

from tests.docs.blocks import ROOT, Block, change, read_blocks
from tests.e2e.conftest import ANSWER_SECONDS, FOREWARN, START_SECONDS, STOP_SECONDS, wait_until
from tests.e2e.test_replica_cut_off import ip, opened
from tests.e2e.test_tls import CONFIG, make_pair_in
from tests.needs import need
from typer.testing import CliRunner

from forewarn.cli.app import app

T = TypeVar("T")

METADATA: Final = "169.254.169.254"
CENTRE: Final = "10.90.0.1"
PATH: Final = "/metadata/scheduledevents?api-version=2020-07-01"
NFT: Final = "/usr/sbin/nft"
FLEET: Final = "[[availability_set]]\nname = 'web'\n" + "".join(
    f"""
[[virtual_machine]]
name = "{name}-{number}"
host = "kvm-{number}"
addresses = ["10.9{number}.0.{last}"]
{'availability_set = "web"' if name == "web" else ""}
"""
    for number in (1, 2)
    for name, last in (("web", 11), ("solo", 12))
)
PAGE: Final = ROOT / "docs" / "how-to/run-a-relay-on-each-host.md"
_SERVE, _TOKEN, _OWNER, _ADDRESS, _RULES, _SETTINGS, _, _RELAY, _POLL = (
    block
    for block in read_blocks(PAGE)
    if (block.claim or "").startswith("tests/e2e/test_relay.py::")
)


def typed(block: Block, changes: Mapping[str, str] | None = None) -> list[str]:
    """Return the words of the only command of *block* after its program, with *changes*."""
    ((_, *words),) = block.commands
    return [change(word, changes or {}) for word in words]


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of one poll: an incarnation, or what went wrong."""

    at: float
    incarnation: int = -1
    problem: str = ""


@dataclass(slots=True, kw_only=True)
class Place:
    """A network namespace, and what runs there."""

    name: str
    folder: Path
    environment: Mapping[str, str]
    process: "subprocess.Popen[bytes] | None" = None

    def run(self, call: Callable[[], T]) -> T:
        """Return what *call* does on a thread that is inside."""
        with ThreadPoolExecutor(1, initializer=self.enter) as pool:
            return pool.submit(call).result(START_SECONDS)

    def enter(self) -> None:
        """Move this thread inside."""
        # os.setns came with Python 3.12.
        libc = ctypes.CDLL(None, use_errno=True)
        with opened(Path("/run/netns", self.name)) as descriptor:
            assert libc.setns(descriptor, 0) == 0, os.strerror(ctypes.get_errno())

    def start(self, *command: str) -> None:
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                ["/sbin/ip", "netns", "exec", self.name, FOREWARN, *command],
                env=dict(self.environment),
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """Kill -9 what runs here."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(STOP_SECONDS)

    def said(self) -> str:
        return (self.folder / f"{self.name}.log").read_text(encoding="utf-8")

    def cut(self) -> None:
        """Lose every packet of the uplink, without anybody being told."""
        rules = "".join(
            f"chain {hook} {{ type filter hook {hook} priority 0; {side} eth0 drop\n}}\n"
            for hook, side in (("input", "iifname"), ("output", "oifname"))
        )
        self.nft(f"table inet cut {{\n{rules}}}")

    def mend(self) -> None:
        self.nft("delete table inet cut")

    def nft(self, rules: str) -> None:
        """Load *rules*."""
        command = ["/sbin/ip", "netns", "exec", self.name, NFT, "--file", "-"]
        subprocess.run(command, input=rules, text=True, check=True, timeout=ANSWER_SECONDS)


@dataclass(slots=True, kw_only=True)
class Centre(Place):
    """Where the server runs, with its control API on TLS."""

    def serve(self, *flags: str) -> None:
        here = {
            "10.0.0.5": CENTRE,
            "control.pem": str(self.folder / "certificate.pem"),
            "control.key": str(self.folder / "key.pem"),
        }
        self.start(
            *typed(_SERVE, here), "--database", f"sqlite:///{self.folder}/data/forewarn.db",
            "--fleet", str(self.folder / "fleet.toml"), "--metadata", "127.0.0.1:8169", *flags,
        )  # fmt: skip
        wait_until(self._is_ready, f"no server is ready: {self.said()}", START_SECONDS)

    def _is_ready(self) -> bool:
        try:
            return self.ask("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def ask(
        self, method: str, path: str, body: object = None, *, token: str = ""
    ) -> tuple[int, Any]:
        """Ask the control API, as the admin unless with another *token*."""
        trust = ssl.create_default_context(cafile=self.folder / "certificate.pem")

        def send() -> tuple[int, Any]:
            connection = HTTPSConnection(CENTRE, 8170, context=trust, timeout=ANSWER_SECONDS)
            with closing(connection):
                sent = None if body is None else json.dumps(body)
                headers = {"Content-Type": "application/json"} if sent else {}
                secret = token or self._admin_token()
                headers["Authorization"] = f"Bearer {secret}"
                connection.request(method, path, sent, headers)
                answer = connection.getresponse()
                content = answer.read()
                return answer.status, json.loads(content) if content.startswith(b"{") else content

        return self.run(send)

    def command(self, *words: str) -> str:
        """Have the admin run a command, and return what it prints."""
        where = {
            "FOREWARN_SERVER": f"https://{CENTRE}:8170",
            "FOREWARN_CA_FILE": str(self.folder / "certificate.pem"),
            "FOREWARN_TOKEN": self._admin_token(),
        }
        done = self.run(lambda: CliRunner().invoke(app, words, env=where))
        assert done.exit_code == 0, done.output
        return done.stdout

    def operate(self, method: str, path: str, body: object = None) -> Any:
        """Have the admin do something that has to succeed."""
        status, content = self.ask(method, f"/api/v1/{path}", body)
        assert status in {200, 201}, content
        return content

    def create(self, *vms: str, event_type: str = "Reboot", **more: object) -> str:
        """Announce an event, and return its id."""
        order = {"event_type": event_type, "resources": vms, **more}
        (event,) = self.operate("POST", "events", order)["events"]
        event_id: str = event["event_id"]
        return event_id

    def _admin_token(self) -> str:
        try:
            return (self.folder / "data/admin.token").read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return ""


@dataclass(slots=True, kw_only=True)
class HostPlace(Place):
    """A host with a relay."""

    number: int

    @property
    def host(self) -> str:
        return f"kvm-{self.number}"

    @property
    def token_file(self) -> Path:
        return self.folder / f"{self.host}.token"

    def relay(self, *flags: str) -> None:
        file = self.folder / f"{self.host}.toml"
        here = {
            "https://forewarn.example.com:8170": f"https://{CENTRE}:8170",
            "/etc/forewarn/relay.toml": str(file),
            "/etc/forewarn/relay.token": str(self.token_file),
            "/etc/forewarn/ca.pem": str(self.folder / "certificate.pem"),
            "/var/lib/forewarn-relay": str(self.folder / self.host),
        }
        file.write_text(change(_SETTINGS.text, here), encoding="utf-8")
        self.start(*typed(_RELAY, here), *flags)


@dataclass(slots=True, kw_only=True)
class Guest(Place):
    """A virtual machine. It polls all the time, on a new connection and on a kept one in turn."""

    vm: str
    seen: list[Seen] = field(default_factory=list)
    _stopping: Event = field(default_factory=Event)
    _poller: ThreadPoolExecutor | None = None

    def begin_to_poll(self) -> None:
        self._poller = ThreadPoolExecutor(1, initializer=self.enter)
        self._poller.submit(self._poll_all_the_time)

    def stop_polling(self) -> None:
        self._stopping.set()
        if self._poller is not None:
            self._poller.shutdown()

    def ask(
        self,
        method: str = "GET",
        path: str = PATH,
        body: object = None,
        source: str = "",
        **headers: str,
    ) -> tuple[int, Mapping[str, str], Any]:
        """Ask the metadata service something else than a poll, from an address of its own."""

        def send() -> tuple[int, Mapping[str, str], Any]:
            made = HTTPConnection(METADATA, timeout=ANSWER_SECONDS, source_address=(source, 0))
            with closing(made) as connection:
                sent = None if body is None else json.dumps(body)
                given = {name.replace("_", "-"): value for name, value in headers.items()}
                connection.request(method, path, sent, {"Metadata": "true", **given})
                answer = connection.getresponse()
                content = answer.read()
                decoded = json.loads(content) if content.startswith(b"{") else content
                return answer.status, dict(answer.getheaders()), decoded

        return self.run(send)

    def approve(self, *event_ids: str) -> tuple[int, Mapping[str, str], Any]:
        requests = [{"EventId": event_id} for event_id in event_ids]
        return self.ask("POST", body={"StartRequests": requests})

    def curl(self) -> str:
        """Ask as the page does."""
        command = ["/sbin/ip", "netns", "exec", self.name, "curl", "--silent", *typed(_POLL)]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=ANSWER_SECONDS
        ).stdout

    def document(self) -> Any:
        status, _, document = self.ask()
        assert status == 200, (status, document)
        return document

    def statuses(self) -> dict[str, str]:
        """Return the status of each event that it reads."""
        return {event["EventId"]: event["EventStatus"] for event in self.document()["Events"]}

    def _poll_all_the_time(self) -> None:
        kept = HTTPConnection(METADATA, timeout=ANSWER_SECONDS)
        turn = 0
        while not self._stopping.wait(0.02):
            turn += 1
            if turn % 2:
                kept.close()
            try:
                seen = _poll(kept)
            except (OSError, HTTPException) as error:
                kept.close()
                seen = Seen(time.monotonic(), problem=repr(error))
            self.seen.append(seen)
        kept.close()


def _poll(connection: HTTPConnection) -> Seen:
    connection.request("GET", PATH, headers={"Metadata": "true"})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        return Seen(time.monotonic(), problem=f"{answer.status} {content!r}")
    return Seen(time.monotonic(), json.loads(content)["DocumentIncarnation"])


@dataclass(slots=True, kw_only=True)
class Site:
    """All of them."""

    centre: Centre
    hosts: tuple[HostPlace, ...]
    guests: Mapping[str, Guest]

    def begin(self, *flags: str) -> None:
        """Start the server with *flags*, and the relays; wait until guests are served."""
        self.centre.serve(*flags)
        for host in self.hosts:
            self.give_token(host)
            host.relay()
        for guest in self.guests.values():
            wait_until(lambda g=guest: is_served(g), f"{guest.vm} is not served", START_SECONDS)  # type: ignore[misc]

    def give_token(self, host: HostPlace, name: str = "") -> str:
        words = typed(_TOKEN, {"kvm-1": host.host})
        printed = self.centre.command(*words, *([name] if name else []))
        (secret,) = re.findall(r"^token: *(\S+)$", printed, re.MULTILINE)
        host.token_file.write_text(secret, encoding="ascii")
        *_, (_, mode, _) = _OWNER.commands  # tests have one user
        host.token_file.chmod(int(mode, 8))
        return str(secret)

    def take_address(self, vm: str, address: str) -> None:
        """Have *vm* use an address that is not its own."""
        ip("-netns", self.guests[vm].name, "address", "add", f"{address}/32", "dev", "eth0")
        host = self.hosts[int(vm[-1]) - 1]
        ip("-netns", host.name, "route", "add", f"{address}/32", "dev", "br0")


def is_served(guest: Guest) -> bool:
    """Tell whether *guest* gets its document."""
    try:
        return guest.ask()[0] == 200
    except OSError:
        return False


@contextmanager
def build_site(folder: Path, environment: Mapping[str, str]) -> Generator[Site]:
    """Lay the cables; nothing runs yet."""
    need(NFT)
    (folder / "data").mkdir()
    (folder / "fleet.toml").write_text(FLEET, encoding="utf-8")
    make_pair_in(folder, CONFIG.replace("127.0.0.1", CENTRE))
    common: Any = {"folder": folder, "environment": environment}
    with ExitStack() as stack:
        switch = add_namespace(stack, "switch")
        add_bridge(switch, "br0")
        centre = Centre(name=add_namespace(stack, "centre"), **common)
        plug(switch, "br0", "to-centre", centre.name, f"{CENTRE}/24")
        hosts, guests = [], {}
        for number in (1, 2):
            host = HostPlace(name=add_namespace(stack, f"kvm-{number}"), number=number, **common)
            hosts.append(host)
            plug(switch, "br0", f"to-kvm-{number}", host.name, f"10.90.0.1{number}/24")
            add_bridge(host.name, "br0", f"10.9{number}.0.1/24")
            ip("-netns", host.name, *typed(_ADDRESS))
            for kind, last in (("web", 11), ("solo", 12)):
                vm = f"{kind}-{number}"
                guest = Guest(name=add_namespace(stack, vm), vm=vm, **common)
                guests[vm] = guest
                plug(host.name, "br0", f"to-{vm}", guest.name, f"10.9{number}.0.{last}/24")
                ip("-netns", guest.name, "route", "add", f"{METADATA}/32", "dev", "eth0")
        hosts[0].nft(_RULES.text.replace("vnet0", "to-web-1"))
        for place in (centre, *hosts):
            stack.callback(place.stop)
        for each in guests.values():
            stack.callback(each.stop_polling)
        yield Site(centre=centre, hosts=tuple(hosts), guests=guests)


def add_namespace(stack: ExitStack, name: str) -> str:
    """Make a network namespace that is gone with *stack*; return what it is called."""
    own = f"fw{os.getpid()}-{name}"
    ip("netns", "add", own)
    stack.callback(ip, "netns", "delete", own)
    ip("-netns", own, "link", "set", "lo", "up")
    return own


def add_bridge(namespace: str, name: str, *addresses: str) -> None:
    """Make a bridge on which *namespace* has *addresses*."""
    ip("-netns", namespace, "link", "add", name, "type", "bridge")
    ip("-netns", namespace, "link", "set", name, "up")
    for address in addresses:
        ip("-netns", namespace, "address", "add", address, "dev", name)


def plug(namespace: str, bridge: str, port: str, inside: str, address: str) -> None:
    """Connect *inside*, where it is eth0 with *address*, to the *bridge* of *namespace*."""
    peer = ("type", "veth", "peer", "eth0", "netns", inside)
    ip("-netns", namespace, "link", "add", port, *peer)
    ip("-netns", namespace, "link", "set", port, "master", bridge, "up")
    ip("-netns", inside, "address", "add", address, "dev", "eth0")
    ip("-netns", inside, "link", "set", "eth0", "up")
