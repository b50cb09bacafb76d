"""The way through "Patch your hosts", with its files, its scripts and a real server."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.conftest import ANSWER_SECONDS, FOREWARN, Server, wait_until

pytestmark = pytest.mark.timeout(300)

ALL = (Path(__file__).parents[2] / "docs/how-to/patch-your-hosts.md").read_text("utf-8")
PAGE, FETCHING = ALL.split("\n## 8.")
COMMANDS = [shlex.split(line) for line in re.findall(r"^\$ forewarn (.*)$", PAGE, re.MULTILINE)]
SSH = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
[ "$2" != apt-get ] || [ ! -e "$(dirname "$0")/$1.broken" ] || { echo "no space left"; exit 1; }
"""
"""Stands in for every host; those that are broken cannot be patched."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Return the server that the page starts, sped up."""
    fleet, executors = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "fleet.toml").write_text(fleet, encoding="utf-8")
    (tmp_path / "executors.toml").write_text(executors, encoding="utf-8")
    scripts = re.findall(r"```sh\n(#!/bin/sh\n# (\S+)\n.*?)```", PAGE, re.DOTALL)
    for text, name in [*scripts, (SSH, "ssh")]:
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "data").mkdir()
    verb, *flags = (str(tmp_path / word) if ".toml" in word else word for word in COMMANDS[0])
    assert verb == "serve"
    server = Server(
        database=tmp_path / "data" / "forewarn.db",
        fleet=tmp_path / "fleet.toml",
        flags=(*flags, "--speed", "10000"),
        environment={"PATH": f"{tmp_path}:{os.defpath}", "HOME": str(tmp_path)},
        log=tmp_path / "server.log",
    )
    server.start()
    yield server
    server.kill()


def test_cluster_is_patched_as_the_page_says(server: Server, tmp_path: Path) -> None:
    (tmp_path / "root@kvm-2.broken").touch()
    begun = ""

    for words in COMMANDS[1:]:
        wait_until_it_is_time(server, words, begun)
        done = server.try_command(*(begun if word == "ID" else word for word in words))
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        if words[:2] == ["maintenance", "start"] and not begun:
            begun = done.stdout.split()[1]

    ended = server.operate("GET", f"maintenances/{begun}").json()
    assert ended["outcome"] == "incomplete"
    first, *patched = re.findall(r"root@(\S+) apt-get", (tmp_path / "calls").read_text("utf-8"))
    assert first == "kvm-1"
    assert sorted(patched) == ["kvm-2", "kvm-2", "kvm-3", "kvm-4", "kvm-4"]
    assert "root@kvm-4 virsh start db-0" in (tmp_path / "calls").read_text("utf-8")


def test_hosts_fetch_their_work_as_the_page_says(server: Server, tmp_path: Path) -> None:
    ours, theirs = re.findall(r"```toml\n(.*?)```", FETCHING, re.DOTALL)
    (tmp_path / "executors.toml").write_text(ours, encoding="utf-8")
    server.restart()
    host = tmp_path / "kvm-4"
    host.mkdir()
    for name in ("apt-get", "virsh"):
        text = f'#!/bin/sh\necho "{name} $@" >> {host}/calls\n'
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    ((word, *words),) = (
        shlex.split(line.replace("kvm-1", "kvm-4"))
        for line in re.findall(r"^\$ forewarn (.*)$", FETCHING, re.MULTILINE)
    )
    (host / "host-work.token").write_text(server.command(word, *words)["secret"], encoding="ascii")
    (host / "host-work.token").chmod(0o600)
    for text, name in re.findall(r"```sh\n(#!/bin/sh\n# (\S+)\n.*?)```", FETCHING, re.DOTALL):
        (host / name).write_text(text.replace("/var/tmp", str(host)), encoding="utf-8")  # noqa: S108
        (host / name).chmod(0o755)
    here = theirs.replace("/etc/forewarn", str(host)).replace("/usr/local/sbin", str(host))
    lines = [line for line in here.splitlines() if not line.startswith(("server", "ca_file"))]
    local = (f'server = "http://127.0.0.1:{server.control_port}"', f'state_dir = "{host}/state"')
    (host / "host-work.toml").write_text("\n".join((*local, *lines)), encoding="utf-8")

    command = [str(FOREWARN), "host", "work", "--config", str(host / "host-work.toml")]
    with (host / "log").open("wb") as log:
        working = subprocess.Popen(command, env=dict(server.environment), stdout=log, stderr=log)
    try:
        order = ("maintenance", "start", "--type", "Reboot", "--host", "kvm-4", "--wait")
        done = server.try_command(*order)
        assert done.returncode == 0, (host / "log").read_text("utf-8")
    finally:
        working.terminate()
        assert working.wait(ANSWER_SECONDS) == 0

    assert (host / "calls").read_text("utf-8").splitlines() == [
        "apt-get -qy full-upgrade",
        "virsh domstate db-0",
        "virsh start db-0",
    ]


def wait_until_it_is_time(server: Server, words: list[str], begun: str) -> None:
    """Wait until the reader of the page would do what *words* say."""
    if words[1] in {"retry", "skip"}:
        wait_for(server, begun, f"'place': '{words[3]}'")
    if words[1] == "close":
        wait_for(server, begun, "'outcome': 'incomplete'")


def wait_for(server: Server, begun: str, text: str) -> None:
    def is_so() -> bool:
        shown = server.operate("GET", f"maintenances/{begun}").json()
        return text in str({key: shown[key] for key in ("outcome", "failures")})

    wait_until(is_so, f"it is not {text}", ANSWER_SECONDS)
