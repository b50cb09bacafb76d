"""The way through "Run several replicas", with its database, its settings and its balancer."""

import csv
import os
import re
import socket
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT, Block
from tests.e2e.conftest import FOREWARN, START_SECONDS, STOP_SECONDS, wait_until
from tests.e2e.soak_keepalived import SETTINGS
from tests.e2e.test_postgres_access import make_certificate
from tests.e2e.test_replica_cut_off import ip
from tests.needs import find_program
from tests.ports import free_port
from tests.postgres import Cluster
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.storage.sqlite import open_sqlite

pytestmark = pytest.mark.timeout(300)  # it starts a server five times

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]
UNIT = (ROOT / "contrib/systemd/forewarn.service").read_text("utf-8")
NAME = "as_the_page_says"
"""The role and the database in place of `forewarn`, which is taken in tests."""
URL = re.compile(r"postgresql://forewarn@pg-1(?:,pg-2,pg-3)?/forewarn(\w*)(?:\?[^\"\s]*)?")


class Machine:
    """A machine with one replica, on which a reader follows the page."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        for name in ("etc/forewarn", "var/lib/forewarn", "var/backups"):
            (folder / name).mkdir(parents=True)
        self.folder, self.etc, self.state = folder, folder / "etc/forewarn", folder / "var/lib"
        self.shared = free_port()
        self._here = {
            "10.0.0.5:80": f"127.0.0.1:{free_port()}",
            "10.0.0.10:8170": f"127.0.0.1:{self.shared}",
            "10.0.0.11:8170": f"127.0.0.1:{free_port()}",
            "10.0.0.12:8170": f"127.0.0.1:{free_port()}",  # where nobody is
            "10.0.0.13:8170": f"127.0.0.1:{free_port()}",
        }
        self._cluster = cluster
        self._server: subprocess.Popen[bytes] | None = None
        make_certificate(self.etc, "control", "test only")
        (self.etc / "executors.toml").touch()
        (self.etc / "fleet.toml").write_text('[[virtual_machine]]\nname = "web-0"\n')

    def type(self, words: list[str]) -> None:
        """Do what a reader does with a command."""
        match [self.say(word) for word in words]:
            case ["cd", folder]:
                os.chdir(folder)
            case ["pip", "install", "--upgrade", package]:
                assert package.removeprefix("forewarn")[1:-1] in EXTRAS
            case ["systemctl", verb, "forewarn"]:
                self.stop()
                if verb != "stop":
                    self._start()
            case ["forewarn", *more]:
                done = self.run(*more)
                assert done.exit_code == 0, f"{more}: {done.output}"
            case unknown:
                raise AssertionError(unknown)

    def run(self, *words: str, **variables: str) -> Result:
        """Run a command of forewarn."""
        trusted = {"FOREWARN_CA_FILE": str(self.etc / "control.pem")}
        return CliRunner().invoke(app, words, env={**trusted, **variables})

    def stop(self) -> None:
        if self._server is not None:
            self._server.terminate()
            assert self._server.wait(STOP_SECONDS) == 0
            self._server = None

    def say(self, text: str) -> str:
        """Return *text* with the addresses, the folders and the database of this test."""
        text = URL.sub(rf"postgresql://{NAME}@127.0.0.1:{self._cluster.port}/{NAME}\1", text)
        text = re.sub(r"\b(ROLE|DATABASE|OWNER) forewarn\b", rf"\1 {NAME}", text)
        for there, here in self._here.items():
            text = text.replace(there, here)
        return re.sub(r"(?<![\w.])/(etc|var)/", rf"{self.folder}/\1/", text)

    def _start(self) -> None:
        """Start what the unit does."""
        (line,) = re.findall(r"^ExecStart=/usr/local/bin/forewarn (.*)$", UNIT, re.MULTILINE)
        log = self.folder / "log"
        with log.open("wb") as printed:
            self._server = subprocess.Popen(
                [FOREWARN, *self.say(line).split()],
                env={"PATH": os.defpath, "HOME": str(self.folder)},
                stdout=printed,
                stderr=printed,
            )
        wait_until(
            lambda: "serving" in log.read_text(encoding="utf-8"),
            f"the replica is not ready: {log}",
            START_SECONDS,
        )


@pytest.fixture
def machine(
    postgres: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Machine]:
    monkeypatch.chdir(tmp_path)  # and back in the end
    made = Machine(tmp_path, postgres)
    yield made
    made.stop()
    for name in (NAME, f"{NAME}_new"):
        postgres.drop(postgres.url(name))
    postgres.run_sql(f"DROP ROLE IF EXISTS {NAME}")


def test_way_through_the_page_works(
    machine: Machine, postgres: Cluster, blocks: list[Block]
) -> None:
    database, settings, start, balancer, upgrade, backup, restore, mark, copy, away = blocks
    role, create = re.findall(r"[^;]+;", machine.say(database.text))
    assert settings.file

    for statement in (role, create, create.replace(NAME, f"{NAME}_new", 1)):
        postgres.run_sql(statement)
    (machine.folder / settings.file.lstrip("/")).write_text(machine.say(settings.text))
    follow(machine, start)
    operate_through(balancer, machine)
    follow(machine, upgrade, away, backup)
    machine.stop()
    follow(machine, restore, mark)
    postgres.drop(postgres.url(NAME))
    postgres.run_sql(create)
    open_sqlite(machine.state / "forewarn/forewarn.db").close()
    follow(machine, copy)


def follow(machine: Machine, *blocks: Block) -> None:
    for block in blocks:
        for words in block.commands:
            machine.type(words)


def operate_through(block: Block, machine: Machine) -> None:
    """Ask the replica for its fleet by way of the balancer, which has to find it among others."""
    file, statistics = machine.folder / "haproxy.cfg", machine.folder / "statistics"
    file.write_text(f"global\n    stats socket {statistics}\n{machine.say(block.text)}")
    with subprocess.Popen(
        [find_program("haproxy"), "-db", "-f", file], stderr=subprocess.DEVNULL
    ) as balancer:
        try:
            wait_until(
                lambda: checks(statistics) == {"a": "L7OK", "b": "L4CON", "c": "L4CON"},
                "the balancer does not find the replica",
                START_SECONDS,
                pause=0.2,
            )
            token = (machine.state / "forewarn/admin.token").read_text().strip()
            where = f"https://127.0.0.1:{machine.shared}"
            listed = machine.run("vm", "list", FOREWARN_SERVER=where, FOREWARN_TOKEN=token)
        finally:
            balancer.kill()
    assert "web-0" in listed.stdout, listed.output


def checks(statistics: Path) -> dict[str, str]:
    """Return what the balancer has found at each replica."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(statistics))
        except OSError:
            return {}
        client.sendall(b"show stat\n")
        text = b"".join(iter(lambda: client.recv(65536), b"")).decode()
    rows = csv.DictReader(text.removeprefix("# ").splitlines())
    return {row["svname"]: row["check_status"] for row in rows if row["svname"] in {*"abc"}}


def test_keepalived_takes_its_settings(tmp_path: Path) -> None:
    """`make soak` runs it with them."""
    name = f"fw-vrrp-{os.getpid()}"
    ip("netns", "add", name)
    try:
        ip("-netns", name, "link", "add", "eth0", "type", "veth", "peer", "eth1")
        complaints = complain(SETTINGS, name, tmp_path)
        others = complain(SETTINGS.replace("interval", "intervall"), name, tmp_path)
    finally:
        ip("netns", "delete", name)

    assert (complaints, "Unknown keyword 'intervall'" in others) == ("", True)


def complain(settings: str, namespace: str, folder: Path) -> str:
    """Return what keepalived has against *settings*; it ends by a signal either way."""
    file, log = folder / "keepalived.conf", folder / "keepalived.log"
    file.write_text(settings, encoding="utf-8")
    log.unlink(missing_ok=True)
    command = [
        "/sbin/ip",
        "netns",
        "exec",
        namespace,
        find_program("keepalived"),
        f"--config-test={log}",
    ]
    subprocess.run([*command, f"--use-file={file}"], timeout=30, check=False)
    return log.read_text(encoding="utf-8")
