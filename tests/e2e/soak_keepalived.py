"""keepalived moves the address that virtual machines poll. Only `make soak` runs this.

It has what docs/how-to/run-several-replicas.md says, on two machines that are network namespaces.
"""

import os
import re
import signal
import subprocess
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import ProxyHandler, Request, build_opener

from tests.docs.blocks import ROOT
from tests.e2e.conftest import API_VERSION, START_SECONDS, STOP_SECONDS, wait_until
from tests.e2e.test_postgres_access import FOREWARN, make_certificate
from tests.e2e.test_replica_cut_off import Cable, ip
from tests.needs import find_program

PAGE = (ROOT / "docs/how-to/run-several-replicas.md").read_text("utf-8")
(SETTINGS,) = re.findall(r"```text\n(global_defs.*?)```", PAGE, re.DOTALL)
SHARED = "10.0.0.5"
FLEET = '[[virtual_machine]]\nname = "web-0"\naddresses = ["10.0.0.100"]\n'
MOVE_SECONDS = 15.0
"""Four seconds on a machine that has nothing else to do."""


@dataclass(slots=True)
class Machine:
    """A network namespace with a replica of its own and keepalived."""

    name: str
    address: str
    folder: Path
    environment: Mapping[str, str]
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def serve(self) -> None:
        pair = ("--control-certificate", "../control.pem", "--control-key", "../control.key")
        listeners = ("--metadata", f"{SHARED}:80", "--control", f"{self.address}:8170")
        self.run("serve", str(FOREWARN), "serve", "--fleet", "../fleet.toml", *pair, *listeners)

    def keep_alive(self) -> None:
        file = self.folder / "keepalived.conf"
        file.write_text(SETTINGS.replace("10.0.0.11", self.address), encoding="utf-8")
        places = (f"--use-file={file}", "--pid=keepalived.pid", "--vrrp_pid=vrrp.pid")
        self.run("keepalived", find_program("keepalived"), "--dont-fork", "--log-console", *places)

    def run(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                ["/sbin/ip", "netns", "exec", self.name, *command],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the replica."""
        self.processes["serve"].send_signal(number)

    def has_address(self) -> bool:
        shown = subprocess.run(
            ["/sbin/ip", "-netns", self.name, "-brief", "address", "show", "eth0"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        return f"{SHARED}/" in shown

    def is_ready(self) -> bool:
        return "succeeded" in self.said()

    def said(self) -> str:
        return (self.folder / "keepalived.log").read_text(encoding="utf-8")

    def stop(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.processes.values():
            process.wait(STOP_SECONDS)


@contextmanager
def network(names: tuple[str, ...]) -> Generator[Cable]:
    """Make a namespace for each of *names*, all on one switch, and give the one of the switch."""
    switch = f"fw-switch-{os.getpid()}"
    with ExitStack() as stack:
        for name in (switch, *names):
            ip("netns", "add", name)
            stack.callback(ip, "netns", "delete", name)
        ip("-netns", switch, "link", "add", "bridge", "type", "bridge")
        ip("-netns", switch, "link", "set", "bridge", "up")
        ip("-netns", switch, "address", "add", "10.0.0.100/24", "dev", "bridge")
        for number, name in enumerate(names):
            port = f"port-{number}"
            peer = ("type", "veth", "peer", "eth0", "netns", name)
            ip("-netns", switch, "link", "add", port, *peer)
            ip("-netns", switch, "link", "set", port, "master", "bridge", "up")
            for link in ("lo", "eth0"):
                ip("-netns", name, "link", "set", link, "up")
            ip("-netns", name, "address", "add", f"10.0.0.{11 + number}/24", "dev", "eth0")
            bind = "net.ipv4.ip_nonlocal_bind=1"
            ip("netns", "exec", name, "/sbin/sysctl", "--quiet", "--write", bind)
        yield Cable(switch)


def poll() -> bool:
    """Tell whether whoever has the address answers."""
    opener = build_opener(ProxyHandler({}))
    url = f"http://{SHARED}/metadata/scheduledevents?api-version={API_VERSION}"
    asked = Request(url, headers={"Metadata": "true"})
    try:
        with opener.open(asked, timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_address_moves_from_a_replica_that_hangs_or_dies_and_not_back(
    tmp_path: Path, environment: Mapping[str, str]
) -> None:
    make_certificate(tmp_path, "control", "test only")
    (tmp_path / "fleet.toml").write_text(FLEET, encoding="utf-8")
    names = tuple(f"fw-{letter}-{os.getpid()}" for letter in "ab")
    with network(names) as switch, ExitStack() as stack:
        machines = []
        for number, name in enumerate(names):
            (tmp_path / name).mkdir()
            machines.append(Machine(name, f"10.0.0.{11 + number}", tmp_path / name, environment))
            stack.callback(machines[-1].stop)
            machines[-1].serve()
            machines[-1].keep_alive()
        wait_until(lambda: switch.run(poll), "nobody has the address", START_SECONDS, 0.2)
        for machine in machines:
            wait_until(machine.is_ready, f"{machine.name} is not ready", START_SECONDS)
        first, second = sorted(machines, key=Machine.has_address, reverse=True)

        first.signal(signal.SIGSTOP)
        wait_until(second.has_address, "it does not move", MOVE_SECONDS)
        wait_until(lambda: switch.run(poll), "nobody answers", MOVE_SECONDS)
        first.signal(signal.SIGCONT)
        wait_until(lambda: "BACKUP" in first.said()[-300:], "it is not back", START_SECONDS)
        assert second.has_address()
        assert not first.has_address()
        second.signal(signal.SIGKILL)
        wait_until(first.has_address, "it does not move back", MOVE_SECONDS)
        wait_until(lambda: switch.run(poll), "nobody answers", MOVE_SECONDS)

    assert "SECURITY VIOLATION" not in first.said()
