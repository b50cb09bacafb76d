"""A program that prints a fleet, or fails to in every way."""

import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from tests.discovery.conftest import ENVIRONMENT, ScriptWriter
from tests.waiting import wait_until

from forewarn.discovery.command import CommandSource
from forewarn.discovery.sources import SourceError

FLEET = """cat <<'END'
[[virtual_machine]]
name = "web-0"
host = "kvm-1"
END"""
JSON = """echo '{"virtual_machine": [{"name": "web-0", "host": "kvm-1"}]}'"""


def source(words: tuple[str, ...], tmp_path: Path, seconds: float = 20) -> CommandSource:
    timeout = timedelta(seconds=seconds)
    return CommandSource(run=words, timeout=timeout, environment=ENVIRONMENT, folder=tmp_path)


@pytest.mark.parametrize("text", [FLEET, JSON])
def test_fleet_is_read_from_toml_and_json(text: str, script: ScriptWriter, tmp_path: Path) -> None:
    census = source(script(text), tmp_path).count(threading.Event())

    (found,) = census.fleet.virtual_machines
    assert (found.vm.name, found.vm.host, census.is_partial) == ("web-0", "kvm-1", False)


def test_program_runs_beside_its_file(script: ScriptWriter, tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text('[[host]]\nname = "kvm-1"\n', encoding="utf-8")

    census = source(script("cat fleet.toml"), tmp_path).count(threading.Event())

    assert [host.name for host in census.fleet.hosts] == ["kvm-1"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("echo no such host >&2; exit 3", "no such host. It exited with code 3."),
        ("exit 4", "It exited with code 4."),
        ("kill -9 $$", "It was killed by signal 9."),
        ("echo '[['", "Its output is not valid TOML, line 1: "),
        ("echo '{\"a\":'", "Its output is not valid JSON: "),
        (r"""echo '{"virtual_machine": [{"name": "\ud800"}]}'""", "half of a surrogate pair"),
        ("printf '\\377'", "Its output is not UTF-8 text."),
        ("echo 'x = 1'", "It printed an invalid fleet: x: "),
        ("printf '[[host]]\\n[[host]]\\n'", "(1 more)"),
        ("yes", "It printed more than 256 MiB."),
        ("yes >&2", "It printed more than 16 MiB on standard error."),
    ],
)
def test_program_that_fails_says_why(
    text: str, problem: str, script: ScriptWriter, tmp_path: Path
) -> None:
    with pytest.raises(SourceError) as refusal:
        source(script(text), tmp_path).count(threading.Event())

    assert problem in str(refusal.value)


def test_program_that_is_gone_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be started: No such file"):
        source((str(tmp_path / "gone"),), tmp_path).count(threading.Event())


def test_program_that_hangs_is_ended_with_all_it_has_started(
    script: ScriptWriter, tmp_path: Path
) -> None:
    words = script(f"(sleep 600; echo >> {tmp_path}/late) & echo $! > {tmp_path}/child; sleep 600")
    since = time.monotonic()

    with pytest.raises(SourceError, match=r"It did not answer within 0\.5 seconds\."):
        source(words, tmp_path, 0.5).count(threading.Event())

    assert time.monotonic() - since < 20
    child = (tmp_path / "child").read_text(encoding="utf-8").strip()
    wait_until(lambda: has_ended(child), "the end of what the program started")


def has_ended(process: str) -> bool:
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


def test_program_is_ended_when_the_server_stops(script: ScriptWriter, tmp_path: Path) -> None:
    stopping = threading.Event()
    stopping.set()

    with pytest.raises(SourceError, match="has stopped asking"):
        source(script("sleep 600"), tmp_path).count(stopping)
