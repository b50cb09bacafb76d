"""The state directory of a host that does its own work."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from forewarn.domain.impact import ImpactStatus
from forewarn.executors.task_log import TaskLog
from forewarn.host_worker.process import KEPT, StateDirectoryError, held, remove_old

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)


def test_directory_is_made_private_and_has_one_user(tmp_path: Path) -> None:
    directory = tmp_path / "lib" / "state"

    with held(directory):
        assert directory.stat().st_mode & 0o777 == 0o700
        with (
            pytest.raises(StateDirectoryError, match="Another forewarn host work"),
            held(directory),
        ):
            pass
    with held(directory):
        pass


def test_directory_that_others_can_change_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    directory.mkdir()
    directory.chmod(0o777)

    with pytest.raises(StateDirectoryError, match="Other users can change"), held(directory):
        pass


def test_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StateDirectoryError, match="cannot be used"), held(tmp_path / "file" / "x"):
        pass


def test_only_old_records_are_removed(tmp_path: Path) -> None:
    records = TaskLog(tmp_path / "host-work")
    for name, age in (("old", KEPT + timedelta(days=1)), ("new", KEPT - timedelta(days=1))):
        records.end((name, "work"), ImpactStatus.DONE)
        moment = (NOW - age).timestamp()
        os.utime(tmp_path / "host-work" / name, (moment, moment))

    remove_old(records, tmp_path / "host-work", NOW)

    assert list(records.subjects()) == ["new"]
