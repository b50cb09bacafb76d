import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.agent.conftest import ID, make_case, make_event
from tests.syncs import is_lasting, record_syncs

from forewarn.agent.cases import Case
from forewarn.agent.errors import StateError
from forewarn.agent.state import StateFile, check_folder, decode_cases, encode_cases
from forewarn.agent.vocabulary import Consent, HookOutcome, HookPhase, RuleVerdict
from forewarn.protocol.vocabulary import EventSource, EventStatus

CASES = [
    make_case(),
    make_case(
        HookPhase.STARTED,
        event=make_event(
            event_status=EventStatus.STARTED,
            event_type="Unheard-of",
            not_before=None,
            event_source=EventSource.USER,
            duration_in_seconds=9,
            description="Größe",
        ),
        verdict=RuleVerdict.NOTIFY,
        outcomes={
            HookPhase.SCHEDULED: {"first": HookOutcome.READY, "a 'command'": HookOutcome.RUNNING}
        },
        consent=Consent.GIVEN,
        may_postpone=False,
    ),
]


@pytest.mark.parametrize("case", CASES)
def test_case_is_read_as_it_was_written(case: Case) -> None:
    assert decode_cases(encode_cases({ID: case})) == {ID: case}


def test_state_is_there_after_it_was_saved(tmp_path: Path) -> None:
    with StateFile(tmp_path / "new" / "folder") as state:
        assert state.load() == {}
        state.save({ID: CASES[0]})

    assert StateFile(tmp_path / "new" / "folder").load() == {ID: CASES[0]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"[" * 100_000,
        b'{"version": 2, "cases": []}',
        b'{"version": 1, "cases": [{}]}',
    ],
)
def test_state_that_cannot_be_read_is_set_aside(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state.json").write_bytes(content)

    assert StateFile(tmp_path).load() == {}

    aside = tmp_path / "state.broken"
    assert aside.read_bytes() == content
    assert "state_broken" in caplog.text
    assert f"state_set_aside file={aside}" in caplog.text


def test_writing_that_is_cut_short_leaves_the_last_state(tmp_path: Path) -> None:
    StateFile(tmp_path).save({ID: CASES[0]})
    (tmp_path / "state.new").write_bytes(b'{"version": 1, "ca')

    assert StateFile(tmp_path).load() == {ID: CASES[0]}


def test_state_is_on_disk_before_and_after_it_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = record_syncs(monkeypatch)

    StateFile(tmp_path).save({ID: CASES[0]})

    assert is_lasting(tmp_path / "state.json", syncs)


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with (
        pytest.raises(StateError, match="file cannot store the state of the agent"),
        StateFile(tmp_path / "file"),
    ):
        pass


@pytest.mark.parametrize("name", ["", "new", "new/newer"])
def test_folder_that_is_or_can_be_made_is_fine(tmp_path: Path, name: str) -> None:
    check_folder(tmp_path / name)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["file", "file/new", "dangling"])
def test_folder_that_could_not_be_made_is_told_beforehand(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")

    with pytest.raises(StateError, match="set state_dir to another folder"):
        check_folder(tmp_path / name)


def test_folder_that_could_not_be_written_to_is_told_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root, who runs all tests, may write everywhere."""
    monkeypatch.setattr(os, "access", lambda *_: False)

    with pytest.raises(StateError, match="cannot be written to"):
        check_folder(tmp_path)


def test_state_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StateError, match="cannot be written"):
        StateFile(tmp_path / "file").save({})


def test_state_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "state.json").mkdir()

    with pytest.raises(StateError, match="cannot be read"):
        StateFile(tmp_path).load()


def test_second_agent_is_kept_out_until_the_first_has_ended(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from forewarn.agent.state import StateFile;"
        "StateFile(Path(sys.argv[1])).__enter__()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]

    with StateFile(tmp_path):
        second = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    third = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    assert "Another agent is using" in second.stderr
    assert third.returncode == 0, third.stderr


def test_state_of_a_newer_agent_is_said_to_be_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state.json").write_bytes(b'{"version": 2, "cases": []}')

    StateFile(tmp_path).load()

    assert "version is 2, but this agent needs version 1" in caplog.text
    assert "Traceback" not in caplog.text


def test_folder_that_is_removed_while_the_agent_runs_is_made_again(tmp_path: Path) -> None:
    with StateFile(tmp_path / "state") as state:
        shutil.rmtree(tmp_path / "state")
        state.save({ID: CASES[0]})

    assert StateFile(tmp_path / "state").load() == {ID: CASES[0]}


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[1]", b'["a", 1]', b"[" * 100_000])
def test_folders_that_cannot_be_read_are_forgotten(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "folders").write_bytes(content)

    assert StateFile(tmp_path).recall_folders() == frozenset()


def test_dry_state_is_only_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "state.json").write_bytes(b"{")

    with StateFile(tmp_path, is_dry=True) as dry:
        dry.load()
        dry.save({ID: CASES[0]})
        dry.keep_name("web-0")
        dry.keep_folders({tmp_path})

    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]
    assert (tmp_path / "state.json").read_bytes() == b"{"
    assert "state_set_aside" not in caplog.text


def test_file_is_json_that_people_can_read(tmp_path: Path) -> None:
    StateFile(tmp_path).save({ID: CASES[0]})

    content = json.loads((tmp_path / "state.json").read_bytes())

    assert content["cases"][0]["event"]["EventId"] == ID
