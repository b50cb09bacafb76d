"""`forewarn emulator`: a server for one program, of which nothing is left."""

import json
import os
import shlex
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from tests.e2e.conftest import FOREWARN, wait_until
from tests.e2e.forks import Forks
from tests.ports import free_port
from tests.spawning import Spawn, spawning

SECONDS = 45
QUERY = "metadata/scheduledevents?api-version=2020-07-01"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def surroundings(environment: Mapping[str, str], tmp_path: Path) -> Mapping[str, str]:
    """Our command on the path, and temporary files of their own."""
    (tmp_path / "tmp").mkdir()
    path = f"{environment['PATH']}{os.pathsep}{FOREWARN.parent}"
    return {**environment, "PATH": path, "TMPDIR": str(tmp_path / "tmp")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder to be in."""
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def emulate(surroundings: Mapping[str, str], forks: Forks, folder: Path) -> Run:
    """Return a function that runs `forewarn emulator` with some words to its end."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return forks.run([str(FOREWARN), "emulator", *words], surroundings, SECONDS, folder)

    return run


@pytest.fixture
def start(surroundings: Mapping[str, str], folder: Path) -> Iterator[Spawn]:
    """Return a function that starts `forewarn emulator` where there is no terminal."""
    with spawning(surroundings, folder, start_new_session=True) as spawn:
        yield lambda *words: spawn(FOREWARN, "emulator", *words)


def left_in(*folders: Path) -> list[Path]:
    return [path for folder in folders for path in folder.iterdir()]


def read_document(url: str) -> dict[str, object]:
    request = urllib.request.Request(url, headers={"Metadata": "true"})
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        document: dict[str, object] = json.load(answer)
        return document


GET = (
    "import os, sys, urllib.request as u\n"
    "print(u.urlopen(u.Request(os.path.expandvars(sys.argv[1]), headers={'Metadata': 'true'}),"
    " timeout=30).read().decode())"
)


def test_program_has_all_it_needs_and_nothing_is_left(
    emulate: Run, folder: Path, tmp_path: Path
) -> None:
    get = f"python3 -c {shlex.quote(GET)}"
    script = f"""
        forewarn event create --type Reboot --resource web-0 >&2
        {get} '$FOREWARN_METADATA_URL/{QUERY}'
        {get} '$FOREWARN_METADATA_URL/vm/web-1/{QUERY}'
        {get} '$FOREWARN_METADATA_URL/vm/newcomer/{QUERY}'
        {get} '$AZURE_SCHEDULEDEVENTS_URL'
        {get} '$AZURE_METADATAINSTANCE_URL'
        forewarn clock advance 15m >&2
        {get} '$FOREWARN_METADATA/{QUERY}'
        forewarn vm list -o json | tr -d '\\n'
        exit 7
    """

    done = emulate("--clock", "virtual", "--vm", "web-0", "--vm", "web-1", "--", "sh", "-c", script)

    assert done.returncode == 7, done.stderr
    mine, neighbours, newcomers, old, instance, started, listed = map(
        json.loads, done.stdout.splitlines()
    )
    assert [event["EventStatus"] for event in mine["Events"]] == ["Scheduled"]
    assert neighbours["Events"] == newcomers["Events"] == []
    assert "DurationInSeconds" not in old["Events"][0], "which is of another api-version"
    assert instance["compute"]["name"] == "web-0"
    assert [event["EventStatus"] for event in started["Events"]] == ["Started"]
    names = [vm["name"] for vm in listed["virtual_machines"]]
    assert names == ["web-0", "web-1", "newcomer"]
    assert left_in(folder, tmp_path / "tmp") == []


def test_fleet_says_which_machines_there_are(emulate: Run, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text('[[virtual_machine]]\nname = "db-0"\n[[virtual_machine]]\nname = "db-1"\n')
    stranger = f"$FOREWARN_METADATA_URL/vm/db-9/{QUERY}"

    done = emulate("--fleet", str(fleet), "--", "python3", "-c", GET, stranger)

    assert "is ready for db-0" in done.stderr
    assert "HTTP Error 404" in done.stderr
    assert done.returncode == 1


def test_program_has_no_files_but_its_own(emulate: Run) -> None:
    listing = "import os; print(*sorted(os.listdir('/proc/self/fd'), key=int))"

    done = emulate("--", "python3", "-c", listing)
    closed = emulate("--", "sh", "-c", f'test ! -S /dev/stdin && python3 -c "{listing}" <&-')

    assert done.stdout.split() == ["0", "1", "2", "3"]  # the last is what is listed itself
    assert closed.returncode == 0


def test_ready_file_of_before_is_replaced_only_by_a_server(emulate: Run, folder: Path) -> None:
    ready = folder / "ready"
    ready.write_text("kept")

    done = emulate("--ready-file", "ready", "--fleet", "nowhere.toml", "--", "true")

    assert done.returncode == 1
    assert ready.read_text() == "kept"


def test_it_serves_until_it_is_stopped(start: Spawn, folder: Path, tmp_path: Path) -> None:
    metadata, control = free_port(), free_port()
    process = start(
        "--port", str(metadata), "--control-port", str(control), "--ready-file", "emulator.env"
    )
    ready = folder / "emulator.env"
    wait_until(ready.exists, "there is no ready file", SECONDS)

    script = "set -a; . ./emulator.env; forewarn vm restart vm-0 >&2; env"
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        cwd=folder,
        env={"PATH": f"{os.defpath}{os.pathsep}{FOREWARN.parent}"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    variables = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    document = read_document(f"{variables['FOREWARN_METADATA_URL']}/{QUERY}")
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=SECONDS)

    assert variables["FOREWARN_METADATA_URL"] == f"http://127.0.0.1:{metadata}"
    assert variables["FOREWARN_SERVER"] == f"http://127.0.0.1:{control}"
    assert document["DocumentIncarnation"] == 1
    exported = {line.strip() for line in said.splitlines() if "export" in line}
    assert f"export FOREWARN_METADATA_URL=http://127.0.0.1:{metadata}" in exported
    assert variables["FOREWARN_TOKEN"] not in said
    assert process.returncode == 0
    assert left_in(folder, tmp_path / "tmp") == []


def test_ready_file_is_for_its_owner_and_says_nothing_of_another_server(
    start: Spawn, folder: Path
) -> None:
    ready = folder / "emulator.env"
    ready.write_text("FOREWARN_METADATA_URL=http://127.0.0.1:1\n")

    process = start(
        "--ready-file", "emulator.env", "--", "sh", "-c", "cat emulator.env; exec sleep 600"
    )
    first = process.stdout.readline() if process.stdout else ""
    mode = ready.stat().st_mode & 0o777
    process.terminate()

    assert first.startswith("FOREWARN_METADATA_URL=http://127.0.0.1:")
    assert first.strip() != "FOREWARN_METADATA_URL=http://127.0.0.1:1"
    assert mode == 0o600
    assert process.wait(SECONDS) == 128 + signal.SIGTERM
    assert not ready.exists()


COUNT = """
import signal, time
seen = []
signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
print("begun", flush=True)
while not seen: time.sleep(0.01)
time.sleep(0.5)
raise SystemExit(len(seen))
"""


def test_interrupt_without_a_terminal_reaches_the_program(start: Spawn) -> None:
    process = start("--", "python3", "-c", COUNT)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"

    process.send_signal(signal.SIGINT)

    assert process.wait(SECONDS) == 1


def test_interrupt_of_a_terminal_reaches_the_program_once(
    surroundings: Mapping[str, str], folder: Path
) -> None:
    keyboard, terminal = os.openpty()
    process = subprocess.Popen(
        ["/usr/bin/setsid", "--ctty", FOREWARN, "emulator", "--", "python3", "-c", COUNT],
        env=dict(surroundings),
        cwd=folder,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    with os.fdopen(keyboard, "r+b", buffering=0) as shown, process:
        said = b""
        while b"begun" not in said:
            said += shown.read(1000)

        shown.write(b"\x03")

        assert process.wait(SECONDS) == 1


def test_program_that_cannot_be_run_leaves_nothing(
    emulate: Run, folder: Path, tmp_path: Path
) -> None:
    done = emulate("--ready-file", "emulator.env", "--", "/no/such/program")

    assert done.returncode == 127
    assert "/no/such/program cannot be run" in done.stderr
    assert left_in(folder, tmp_path / "tmp") == []


def test_port_that_is_taken_is_named(emulate: Run, folder: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = emulate("--port", port, "--ready-file", "emulator.env", "--", "true")

    assert done.returncode == 1
    assert f"--port: cannot listen on 127.0.0.1:{port}: Address already in use." in done.stderr
    assert left_in(folder, tmp_path / "tmp") == []
