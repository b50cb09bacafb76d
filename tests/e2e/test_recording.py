"""`forewarn scenario record` and `replay`: the life of an event, recorded and served again."""

import signal
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import monotonic

import pytest
from tests.e2e.conftest import FOREWARN, wait_until
from tests.spawning import Spawn, spawning

from forewarn.client import Client
from forewarn.files.recording import read_recording
from forewarn.testing import Emulator

SECONDS = 45
SPEED = 10
QUERY = "metadata/scheduledevents?api-version=2020-07-01"


@pytest.fixture
def start(environment: Mapping[str, str], tmp_path: Path) -> Iterator[Spawn]:
    """Return a function that starts a command in the folder of the test; it is killed after it."""
    with spawning(environment, tmp_path) as spawn:
        yield lambda *words, prefix=(): spawn(*prefix, FOREWARN, "scenario", *words)


def read(url: str) -> bytes:
    request = urllib.request.Request(f"{url}/{QUERY}", headers={"Metadata": "true"})
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        body: bytes = answer.read()
        return body


def await_answers(path: Path, number: int) -> None:
    def is_there() -> bool:
        return path.exists() and path.read_text("utf-8").count("[[answer]]") >= number

    wait_until(is_there, f"there are no {number} answers", SECONDS)


def test_life_of_an_event_is_replayed_byte_for_byte(start: Spawn, tmp_path: Path) -> None:
    path = tmp_path / "life.toml"
    with Emulator() as emulator:
        web = emulator.vm("web-0")
        recorder = start("record", "--from", web.url, "--output", path.name)
        await_answers(path, 1)
        seen = [read(web.url)]
        event = web.reboot()
        for go_on in (lambda: None, event.approve, lambda: emulator.clock.advance(minutes=10)):
            go_on()
            seen.append(read(web.url))
            await_answers(path, len(seen))
        recorder.send_signal(signal.SIGINT)
        assert recorder.wait(SECONDS) == 0

    recording = read_recording(path)
    assert [answer.body for answer in recording.answers] == seen
    assert len(set(seen)) == 4

    replay = start(
        "replay", path.name, "--speed", str(SPEED), "--vm", "web-0", "--ready-file", "replay.env"
    )
    url = await_url(tmp_path / "replay.env")
    began = monotonic()
    replayed = follow(url, seen[-1])
    passed = monotonic() - began

    with Client(url) as client:
        client.approve("00000000-0000-4000-8000-000000000000")
        assert client.whoami().name == "web-0"
    replay.terminate()
    assert replayed == seen
    assert passed >= recording.answers[-1].at / SPEED * 0.9
    assert replay.wait(SECONDS) == 0


def follow(url: str, last: bytes) -> list[bytes]:
    """Return every body that *url* shows, until it shows the *last*."""
    shown = [read(url)]

    def is_last() -> bool:
        if (body := read(url)) != shown[-1]:
            shown.append(body)
        return body == last

    wait_until(is_last, "the recording does not end", SECONDS, pause=0.005)
    return shown


def await_url(path: Path) -> str:
    wait_until(path.exists, f"there is no {path.name}", SECONDS)
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines)["FOREWARN_METADATA_URL"]


def test_recorder_that_is_killed_has_lost_nothing(start: Spawn, tmp_path: Path) -> None:
    with Emulator() as emulator:
        web = emulator.vm("web-0")
        recorder = start("record", "--from", web.url)
        await_answers(tmp_path / "recording.toml", 1)
        web.freeze()
        await_answers(tmp_path / "recording.toml", 2)
        recorder.kill()
        recorder.wait(SECONDS)

        body = read(web.url)

    assert read_recording(tmp_path / "recording.toml").answers[-1].body == body


def test_full_disk_leaves_a_complete_recording(start: Spawn, tmp_path: Path) -> None:
    with Emulator() as emulator:
        web = emulator.vm("web-0")
        recorder = start("record", "--from", web.url, prefix=("prlimit", "--fsize=400"))
        await_answers(tmp_path / "recording.toml", 1)
        web.redeploy()
        _, said = recorder.communicate(timeout=SECONDS)

    assert recorder.returncode == 1
    assert "cannot be written: File too large; it is complete up to here" in said
    assert len(read_recording(tmp_path / "recording.toml").answers) == 1
