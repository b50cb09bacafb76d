"""Clusters of PostgreSQL that fail over by themselves: Patroni with two members, and etcd."""

import json
import os
import signal
import subprocess
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.e2e.conftest import wait_until
from tests.needs import need
from tests.ports import free_port
from tests.postgres import ENVIRONMENT, as_user, find_binaries, make_folder

SECONDS = 45.0


@dataclass(slots=True, kw_only=True)
class Member:
    name: str
    folder: Path
    etcd_port: int
    settings: Mapping[str, object]
    """What the whole cluster agrees on."""
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
                "dcs": {"loop_wait": 1, "retry_timeout": 5, **self.settings},
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

    def start(self) -> None:
        self.process = start(self.folder, "patroni", str(self.file))

    def kill(self) -> None:
        """Kill -9 of all that runs there, the database as well."""
        if self.process is None:
            return
        database = self._database()
        kill(self.process)
        self.process = None
        for number in database:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def _database(self) -> list[int]:
        """Return the processes of the database, the first one first."""
        try:
            text = (self.data / "postmaster.pid").read_text(encoding="ascii")
            first = text.partition("\n")[0]
            children = Path("/proc", first, "task", first, "children").read_text(encoding="ascii")
        except FileNotFoundError:
            return []
        return [int(first), *map(int, children.split())]

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


@contextmanager
def run_patroni(**settings: object) -> Generator[tuple[Member, Member]]:
    """Run a leader and a replica; *settings* are those that the cluster agrees on."""
    need("etcd", "patroni", "patronictl", path=ENVIRONMENT["PATH"])
    binaries = find_binaries()
    with make_folder() as folder, ExitStack() as stack:
        etcd_port = free_port()
        etcd = start(folder, "etcd", *_etcd_options(folder, etcd_port))
        stack.callback(kill, etcd)
        first, second = (
            Member(name=name, folder=folder, etcd_port=etcd_port, settings=settings)
            for name in ("db-0", "db-1")
        )
        for member in (first, second):
            member.write(binaries)
            stack.callback(member.kill)
            member.start()
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


def start(folder: Path, *command: str) -> subprocess.Popen[bytes]:
    """Start *command* as the user of the database."""
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(as_user(*command), cwd="/", env=ENVIRONMENT, stdout=log, stderr=log)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill -9."""
    process.kill()
    process.wait(SECONDS)
