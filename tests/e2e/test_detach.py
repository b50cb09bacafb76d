"""`serve --detach`, and the first commands of the README, pasted as one block."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path

import pytest
from tests.e2e.conftest import FOREWARN, START_SECONDS, STOP_SECONDS, wait_until
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
OURS = {"fleet.toml", "in", "out", "err", "pids", "node.id", "tasks"}
READY = re.compile(r"the server is ready; process (\d+), log (\S+)")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with the fleet of the README; servers that were left running there are stopped."""
    (section,) = re.findall(r"^## Run it$(.*?)^## ", readme(), re.DOTALL | re.MULTILINE)
    (fleet,) = re.findall(r"^```toml\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    (tmp_path / "fleet.toml").write_text(fleet)
    yield tmp_path
    pids = tmp_path / "pids"
    for pid in map(int, pids.read_text().split() if pids.exists() else ()):
        stop(pid)


@pytest.fixture
def ports(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        **environment,
        "FOREWARN_METADATA": f"127.0.0.1:{free_port()}",
        "FOREWARN_CONTROL": f"127.0.0.1:{free_port()}",
    }


def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def is_ignored(name: str) -> bool:
    """Whether git leaves *name* alone, so that nobody commits a token that was made here."""
    patterns = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    return any(fnmatch(name, pattern.strip("/")) for pattern in patterns)


def stop(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    wait_until(lambda: not is_running(pid), "the server has not stopped", STOP_SECONDS)


def is_running(pid: int) -> bool:
    # Nobody may have waited for it, and then it is still there in a way.
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def run(
    words: list[str | Path], folder: Path, environment: Mapping[str, str], text: str = ""
) -> subprocess.CompletedProcess[str]:
    # Through files: a server that kept a pipe of ours open would keep us waiting.
    with (folder / "out").open("w+") as out, (folder / "err").open("w+") as err:
        (folder / "in").write_text(text)
        with (folder / "in").open() as given:
            done = subprocess.run(
                words,
                cwd=folder,
                env=dict(environment),
                stdin=given,
                stdout=out,
                stderr=err,
                timeout=START_SECONDS,
                check=False,
            )
    said = (folder / "err").read_text()
    for pid, _ in READY.findall(said):
        with (folder / "pids").open("a") as pids:
            pids.write(f"{pid}\n")
    return subprocess.CompletedProcess(words, done.returncode, (folder / "out").read_text(), said)


def test_block_of_the_readme_works_as_pasted(folder: Path, ports: Mapping[str, str]) -> None:
    (block,) = re.findall(r"^```sh\n(.*?--detach.*?)^```$", readme(), re.DOTALL | re.MULTILINE)
    (folder / ".venv").symlink_to(Path(sys.executable).parents[1])
    assert "127.0.0.1:8169" in block

    pasted = block.replace("127.0.0.1:8169", ports["FOREWARN_METADATA"])
    done = run(["bash"], folder, ports, pasted)

    assert done.returncode == 0, done.stderr
    assert (
        '"EventType":"Reboot","ResourceType":"VirtualMachine","Resources":["web-0"]' in done.stdout
    )
    assert "Cannot connect" not in done.stderr
    ((pid, log),) = READY.findall(done.stderr)
    assert is_running(int(pid))
    assert "serving" in (folder / log).read_text()
    assert (folder / log).stat().st_mode & 0o777 == 0o600
    assert not (folder / "control.starting").exists()
    assert {each.name for each in folder.iterdir() if not is_ignored(each.name)} <= OURS
    second = run([FOREWARN, "serve", "--detach"], folder, ports)
    assert second.returncode == 4
    assert (
        f"is running at http://{ports['FOREWARN_CONTROL']} with the state directory"
        in second.stderr
    )


def test_detached_server_that_cannot_start_says_why(folder: Path, ports: Mapping[str, str]) -> None:
    (folder / "server.log").write_text("of yesterday\n")
    refused = run([FOREWARN, "serve", "--detach", "--fleet", "gone.toml"], folder, ports)

    assert refused.returncode == 1
    assert "The fleet file gone.toml cannot be read" in refused.stderr
    assert "yesterday" not in refused.stderr
    assert not (folder / "control.starting").exists()


def test_command_waits_for_a_server_that_was_just_started(
    folder: Path, ports: Mapping[str, str]
) -> None:
    flags = "--fleet fleet.toml"
    script = f"{FOREWARN} serve {flags} 2>server.log & echo $! >pids\n"
    # The server has begun when its mark is there; the command is given nothing but the folder.
    script += "until [ -e control.starting ] || [ -e control.url ]; do :; done\n"
    script += f"{FOREWARN} vm list\n"

    done = run(["bash"], folder, ports, script)

    assert done.returncode == 0, done.stderr
    assert "web-0" in done.stdout
