"""The hook for Patroni against a cluster of two members, with etcd."""

import json
import signal
import subprocess
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from tests.e2e.conftest import wait_until
from tests.hooks.conftest import FAILED, NOT_YET, READY, InstalledMaker, need
from tests.ports import free_port
from tests.postgres import ENVIRONMENT, as_user, find_binaries, make_folder, run

SECONDS = 60.0


@dataclass(slots=True, kw_only=True)
class Member:
    name: str
    folder: Path
    etcd_port: int
    port: int = field(default_factory=free_port)
    database_port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.folder / self.name

    @property
    def file(self) -> Path:
        return self.folder / f"{self.name}.yml"

    def write(self, binaries: Path) -> None:
        trusted = (
            "local all all",
            "host all all 127.0.0.1/32",
            "host replication all 127.0.0.1/32",
        )
        accounts = ("superuser", "replication", "rewind")
        settings = {
            "scope": "db",
            "name": self.name,
            "etcd3": {"host": f"127.0.0.1:{self.etcd_port}"},
            "restapi": dict.fromkeys(("listen", "connect_address"), f"127.0.0.1:{self.port}"),
            "bootstrap": {
                "dcs": {"loop_wait": 1, "retry_timeout": 5},
                "initdb": ["no-sync", {"encoding": "UTF8"}],
                "pg_hba": [f"{who} trust" for who in trusted],
            },
            "postgresql": {
                **dict.fromkeys(("listen", "connect_address"), f"127.0.0.1:{self.database_port}"),
                "data_dir": str(self.data),
                "bin_dir": str(binaries),
                "pgpass": str(self.folder / f"{self.name}.pgpass"),
                "authentication": {who: {"username": who, "password": "-"} for who in accounts},
                "parameters": {"unix_socket_directories": str(self.folder), "fsync": "off"},
            },
        }
        self.file.write_text(json.dumps(settings), encoding="ascii")  # which is YAML
        self.file.chmod(0o644)

    def is_a(self, role: str) -> bool:
        """Ask as a load balancer does: /leader or /replica."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/{role}", timeout=SECONDS) as answer:
                return bool(answer.status == 200)
        except URLError:
            return False

    @contextmanager
    def suspended(self) -> Generator[None]:
        """Let it hang for a while."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def wait_to_be_a(self, role: str) -> None:
        wait_until(lambda: self.is_a(role), f"{self.name} is no {role}", SECONDS, pause=0.2)


@pytest.fixture(scope="module")
def cluster() -> Generator[tuple[Member, Member]]:
    """A leader and a replica, and later the other way round."""
    need("etcd", "patroni", "patronictl")
    binaries = find_binaries()
    with make_folder() as folder, ExitStack() as stack:
        etcd_port = free_port()
        stack.enter_context(_running(folder, "etcd", *_etcd_options(folder, etcd_port)))
        first, second = (
            Member(name=name, folder=folder, etcd_port=etcd_port) for name in ("db-0", "db-1")
        )
        for member in (first, second):
            member.write(binaries)
            stop = (
                f"{binaries}/pg_ctl",
                "--pgdata",
                str(member.data),
                "--mode",
                "immediate",
                "stop",
            )
            stack.callback(run, *stop)
            member.process = stack.enter_context(_running(folder, "patroni", str(member.file)))
            member.wait_to_be_a("leader" if member is first else "replica")
        yield first, second


def _etcd_options(folder: Path, port: int) -> list[str]:
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
    options = {
        "data-dir": f"{folder}/etcd",
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"default={peer}",
    }
    return [f"--{name}={value}" for name, value in options.items()]


@contextmanager
def _running(folder: Path, *command: str) -> Generator[subprocess.Popen[bytes]]:
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            as_user(*command), cwd="/", env=ENVIRONMENT, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(SECONDS)


@pytest.fixture
def leader(cluster: tuple[Member, Member]) -> Member:
    return next(member for member in cluster if member.is_a("leader"))


@pytest.fixture
def replica(cluster: tuple[Member, Member], leader: Member) -> Member:
    (replica,) = (member for member in cluster if member is not leader)
    replica.wait_to_be_a("replica")
    return replica


def test_leader_hands_over(leader: Member, replica: Member, install: InstalledMaker) -> None:
    settings = {"MEMBER": leader.name, "CLUSTER": "db", "CONFIG": str(leader.file)}
    hook = install("patroni-switchover", **settings)

    assert hook.run("recovered").status == READY
    assert leader.is_a("leader")
    assert hook.run("scheduled").status == READY
    replica.wait_to_be_a("leader")
    again = hook.run("scheduled")

    assert (again.status, again.said) == (READY, f"patroni-switchover: {leader.name} is Replica\n")


def test_leader_waits_while_nobody_can_take_over(
    leader: Member, replica: Member, install: InstalledMaker
) -> None:
    hook = install("patroni-switchover", MEMBER=leader.name, CONFIG=str(leader.file))

    with replica.suspended():
        ended = hook.run("scheduled")

    assert ended.status == NOT_YET
    assert "no good candidates have been found" in ended.said
    assert leader.is_a("leader")


def test_unknown_member_is_a_failure(leader: Member, install: InstalledMaker) -> None:
    hook = install("patroni-switchover", MEMBER="db-9", CLUSTER="db", CONFIG=str(leader.file))

    ended = hook.run("scheduled")

    assert ended.status == FAILED
    assert "no member db-9" in ended.said
