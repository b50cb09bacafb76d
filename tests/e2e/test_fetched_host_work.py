"""Real hosts fetch their work from real servers; either is killed while the work is under way."""

import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import (
    ANSWER_SECONDS,
    FOREWARN,
    START_SECONDS,
    STOP_SECONDS,
    Server,
    ServerMaker,
    wait_until,
)
from tests.e2e.replicas import Trio
from tests.e2e.test_host_work import look

pytestmark = pytest.mark.timeout(300)

FLEET = """
[[virtual_machine]]
name = "solo-0"
host = "kvm-0"

[[host]]
name = "kvm-1"
"""
EXECUTORS = """
[[host_work]]
fetched = ["work", "verify", "return"]
verify_within = "1m"
verify_every = "1s"
"""
SCRIPTS = {
    "patch": "while [ ! -e go ]; do sleep 0.02; done; [ ! -e bad ] || { echo 'no disk'; exit 3; }",
    "is-back": "[ $OPERATION_ATTEMPT -gt 1 ] || { echo booting; exit 1; }",
    "give-back": "true",
}
HOST_FILE = """
server = "http://127.0.0.1:{port}"
token_file = "{host}.token"
state_dir = "{host}"
run = ["./patch"]
verify = ["./is-back"]
return = ["./give-back"]
"""


@dataclass(slots=True, kw_only=True)
class WorkingHost:
    """`forewarn host work`, with files of its own."""

    name: str
    folder: Path
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def config(self) -> Path:
        return self.folder / f"{self.name}.toml"

    def prepare(self, server: Server, token: str = "") -> None:
        text = HOST_FILE.format(port=server.control_port, host=self.name)
        self.config.write_text(text, encoding="utf-8")
        path = self.folder / f"{self.name}.token"
        path.write_text(token or relay_token(server, self.name), encoding="utf-8")
        path.chmod(0o600)

    def start(self) -> None:
        with (self.folder / f"{self.name}.log").open("ab") as log:
            command = [str(FOREWARN), "host", "work", "--config", str(self.config)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def said(self) -> str:
        return (self.folder / f"{self.name}.log").read_text(encoding="utf-8")


def relay_token(server: Server, host: str) -> str:
    order = {"name": f"work-{host}", "role": "relay", "host": host}
    answer = server.operate("POST", "tokens", order)
    assert answer.status == 201, answer
    return str(answer.json()["secret"])


MakeHost = Callable[[str], WorkingHost]


@pytest.fixture
def make_host(tmp_path: Path) -> Iterator[MakeHost]:
    note = "$OPERATION_HOST $OPERATION_TASK $OPERATION_ATTEMPT $OPERATION_VM"
    for name, text in SCRIPTS.items():
        path = tmp_path / name
        lines = ("#!/bin/sh", f"cd {tmp_path}", f'echo "{note}" >> runs', text, "")
        path.write_text("\n".join(lines), encoding="utf-8")
        path.chmod(0o755)
    with ExitStack() as closing:
        closing.callback((tmp_path / "go").touch)

        def make(name: str) -> WorkingHost:
            made = WorkingHost(name=name, folder=tmp_path)
            closing.callback(made.close)
            return made

        yield make


@pytest.fixture
def executors(tmp_path: Path) -> Path:
    path = tmp_path / "executors.toml"
    path.write_text(EXECUTORS, encoding="utf-8")
    return path


@pytest.fixture
def server(make_server: ServerMaker, tmp_path: Path, executors: Path) -> Server:
    made = make_server("--executor-file", str(executors), "--speed", "10000")
    (tmp_path / "fleet.toml").write_text(FLEET, encoding="utf-8")
    made.start()
    return made


def runs(folder: Path) -> list[str]:
    path = folder / "runs"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def begin(server: Server, *hosts: str) -> str:
    begun = server.operate("POST", "maintenances", {"event_type": "Reboot", "hosts": hosts})
    assert begun.status == 201, begun
    return f"maintenances/{begun.json()['maintenance_id']}"


def wait_for_explanation(server: Server, path: str, part: str) -> None:
    wait_until(
        lambda: part in str(look(server, f"{path}/explain")),
        f"it does not say {part!r}: {look(server, f'{path}/explain')}",
        START_SECONDS,
    )


def wait_for_outcome(server: Server, path: str) -> dict[str, Any]:
    wait_until(lambda: bool(look(server, path)["outcome"]), "it does not end", START_SECONDS)
    return look(server, path)


def wait_for_work(folder: Path) -> None:
    wait_until(lambda: bool(runs(folder)), "no work is begun", START_SECONDS)


def test_work_is_done_once_whoever_is_killed(
    server: Server, make_host: MakeHost, tmp_path: Path
) -> None:
    host = make_host("kvm-0")
    host.prepare(server)
    path = begin(server, "kvm-0")
    wait_for_explanation(
        server, path, "the host has not fetched it yet; check that forewarn host work"
    )
    host.start()
    wait_for_work(tmp_path)
    host.kill()
    server.kill()
    server.start()
    host.start()
    server.kill()
    (tmp_path / "go").touch()
    server.start()

    ended = wait_for_outcome(server, path)

    assert ended["outcome"] == "succeeded", ended
    assert runs(tmp_path) == [
        "kvm-0 work 1 ",
        "kvm-0 verify 1 ",
        "kvm-0 verify 2 ",
        "kvm-0 return 1 solo-0",
    ]
    assert host.stop() == 0, host.said()
    audit = look(server, "audit")["audit"]
    assert Counter(each["action"] for each in audit if "host work" in each["action"]) == {
        "host work take": 2,
        "host work done": 2,
    }


def test_work_that_fails_on_the_host_holds_the_maintenance(
    server: Server, make_host: MakeHost, tmp_path: Path
) -> None:
    for name in ("bad", "go"):
        (tmp_path / name).touch()
    host = make_host("kvm-1")
    host.prepare(server)
    host.start()

    path = begin(server, "kvm-1")

    wait_until(lambda: look(server, path)["status"] == "held", "it is not held", START_SECONDS)
    assert "exit code 3: no disk" in str(look(server, f"{path}/explain"))
    assert runs(tmp_path) == ["kvm-1 work 1 "]


def test_another_replica_continues_what_the_killed_leader_has_offered(
    make_server: ServerMaker,
    make_host: MakeHost,
    postgres_url: str,
    executors: Path,
    tmp_path: Path,
) -> None:
    """Each has a state directory of its own, and the host asks whichever it is given."""
    flags = ("--database", postgres_url, "--executor-file", str(executors), "--speed", "10000")
    servers = [
        # The first one makes the token of the admin.
        make_server(*flags, "--state-dir", str(tmp_path / name), database=tmp_path / "s1/no.db")
        for name in ("s1", "s2")
    ]
    (tmp_path / "fleet.toml").write_text(FLEET, encoding="utf-8")
    for server in servers:
        server.start()
    pair = Trio(postgres_url, servers)
    leader, (other,) = pair.leader(), pair.followers()
    host = make_host("kvm-0")
    host.prepare(other)
    host.start()

    path = begin(other, "kvm-0")
    wait_for_work(tmp_path)
    leader.kill()
    (tmp_path / "go").touch()
    ended = wait_for_outcome(other, path)

    assert ended["outcome"] == "succeeded", ended
    assert set(Counter(runs(tmp_path)).values()) == {1}


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ('run = ["./patch"]', 2, "run: "),
        ("http://127.0.0.1", 2, "over plain HTTP, which others can read"),
    ],
)
def test_file_that_cannot_be_used_ends_it_with_a_sentence(
    server: Server, make_host: MakeHost, change: str, code: int, said: str
) -> None:
    host = make_host("kvm-0")
    host.prepare(server, "x" * 40)
    text = host.config.read_text(encoding="utf-8")
    other = {'run = ["./patch"]': 'run = ["./none"]'}.get(change, "http://10.0.0.5")
    host.config.write_text(text.replace(change, other), encoding="utf-8")

    host.start()

    assert host.process is not None
    assert host.process.wait(ANSWER_SECONDS) == code
    assert said in host.said()


def test_token_that_is_no_relays_ends_it_with_a_sentence(
    server: Server, make_host: MakeHost
) -> None:
    host = make_host("kvm-0")
    host.prepare(server, server.token())

    host.start()

    assert host.process is not None
    assert host.process.wait(ANSWER_SECONDS) == 1
    assert "Use a token from forewarn token create --relay HOST" in host.said()


def test_second_process_with_the_same_files_is_refused(
    server: Server, make_host: MakeHost, tmp_path: Path
) -> None:
    host, second = make_host("kvm-0"), make_host("kvm-0")
    host.prepare(server)
    host.start()
    log = tmp_path / "kvm-0.log"
    wait_until(lambda: "server_reached" in log.read_text(), "it does not start", ANSWER_SECONDS)

    second.start()

    assert second.process is not None
    assert second.process.wait(ANSWER_SECONDS) == 1
    assert "Another forewarn host work uses" in host.said()
