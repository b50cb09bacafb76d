"""Commands that run on the host, by way of a real sshd."""

import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.executors.conftest import (
    EVENT,
    SECONDS,
    begin,
    is_over,
    make_command,
    order_for,
    wait_for,
    wait_until,
)
from tests.needs import need
from tests.ports import free_port

from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import VmName
from forewarn.executors.command import Command
from forewarn.executors.configuration import read_executors
from forewarn.files.tables import TablesError

SSHD = "/usr/sbin/sshd"


@dataclass(frozen=True, slots=True)
class Host:
    """A machine that can be reached by ssh, called anything."""

    folder: Path
    port: int

    def command(self, run: str, destination: str = "{host}") -> Command:
        """Return the command of an executor file that is to *run* there."""
        file = self.folder / "executors.toml"
        file.write_text(f"[[command]]\nssh = '{destination}'\nrun = {run}\n", encoding="utf-8")
        (command,) = read_executors(file, f"{self.folder}:/usr/bin:/bin").impacts
        assert isinstance(command, Command)
        return command


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    need(SSHD, "ssh", "ssh-keygen")
    folder = tmp_path_factory.mktemp("host")
    for name in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(words, check=True)
    port = free_port()
    keys = f"-oAuthorizedKeysFile={folder}/user.pub", "-oStrictModes=no", "-oUsePAM=no"
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd gives its rights up, if it has any
    where = f"-oListenAddress=127.0.0.1:{port}", f"-oHostKey={folder}/host", "-oPidFile=none"
    process = subprocess.Popen([SSHD, "-D", "-e", "-f", "/dev/null", *where, *keys])
    config = f"""Host *
HostName 127.0.0.1
Port {port}
IdentityFile {folder}/user
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
"""
    (folder / "config").write_text(config, encoding="utf-8")
    (folder / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {folder}/config "$@"\n')
    (folder / "ssh").chmod(0o755)
    try:
        wait_until(lambda: answers(port), "sshd does not answer")
        yield Host(folder, port)
    finally:
        process.terminate()
        process.wait(SECONDS)


def answers(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def test_command_runs_on_the_host_with_the_variables_of_the_order(
    host: Host, tmp_path: Path
) -> None:
    told = f'echo "$SSH_CONNECTION|$EVENT_VM|$EVENT_DESCRIPTION|$1" > {tmp_path}/told'
    executor = make_command(
        tmp_path, host.command(f"""["sh", "-c", '{told}', "x", "it's $HOME"]""")
    )

    begin(executor)

    assert wait_for(executor, is_over) == Impact(status=ImpactStatus.DONE)
    connection, *rest = (tmp_path / "told").read_text(encoding="utf-8").strip().split("|")
    assert connection.endswith(f"127.0.0.1 {host.port}")
    assert rest == ["web-0", EVENT.description, "it's $HOME"]


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        ("['sh', '-c', 'echo no power; exit 7']", "exit code 7: no power"),
        ("['no-such-program']", "exit code 127: env: "),
    ],
)
def test_failure_on_the_host_is_told_as_it_was(
    host: Host, tmp_path: Path, run: str, reason: str
) -> None:
    executor = make_command(tmp_path, host.command(run))

    begin(executor)

    ended = wait_for(executor, is_over)
    assert ended.status is ImpactStatus.FAILED
    assert ended.reason.startswith(reason)


def test_host_that_does_not_answer_is_a_failure(host: Host, tmp_path: Path) -> None:
    command = host.command("['true']", "ssh://{host}:1")
    executor = make_command(tmp_path, command)

    begin(executor)

    ended = wait_for(executor, is_over)
    assert "Connection refused" in ended.reason


def test_virtual_machine_without_a_host_is_a_failure(host: Host, tmp_path: Path) -> None:
    executor = make_command(tmp_path, host.command("['true']"))
    homeless = order_for(VmName("web-9"))

    begin(executor, homeless)

    assert (
        "the fleet has no host for the virtual machine"
        in wait_for(executor, is_over, homeless).reason
    )


@pytest.mark.parametrize(
    "destination", ["", "-oProxyCommand=x", "root@{hots}", "root@{host} rm", "$(rm)"]
)
def test_destination_that_is_none_is_refused(host: Host, destination: str) -> None:
    with pytest.raises(TablesError, match="ssh of command 1: write an ssh destination"):
        host.command("['true']", destination)
