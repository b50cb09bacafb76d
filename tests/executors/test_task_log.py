"""What runners remember of orders: it survives a loss of power."""

import os
from pathlib import Path

import pytest
from tests.syncs import is_lasting, is_named, record_syncs

from forewarn.domain.impact import ImpactStatus
from forewarn.domain.task import TaskKey
from forewarn.executors.attendant import write_ending
from forewarn.executors.task_log import LINEAGE, TaskLog

KEY: TaskKey = ("602D9444-D2CD-49C7-8624-8643E7171297", "web-0")


def test_order_is_on_disk_before_it_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = record_syncs(monkeypatch)
    log = TaskLog(tmp_path / "tasks")

    file = log.claim(KEY, {"executor": "command"})

    assert file is not None
    os.close(file)
    assert is_lasting(log.claim_path(KEY), syncs)


def test_task_is_claimed_once(tmp_path: Path) -> None:
    log = TaskLog(tmp_path / "tasks")
    os.close(log.claim(KEY, {"executor": "command"}) or 0)

    again = log.claim(KEY, {"executor": "webhook"})

    assert again is None
    assert log.begun(KEY) == {"executor": "command"}


def test_intent_is_on_disk_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = record_syncs(monkeypatch)
    log = TaskLog(tmp_path / "tasks")

    for _ in range(2):
        log.intend(KEY)

    assert log.is_intended(KEY)
    assert is_named(tmp_path / "tasks" / KEY[0] / "web-0.intended", syncs)


def test_intent_is_no_record(tmp_path: Path) -> None:
    log = TaskLog(tmp_path / "tasks")

    log.intend(KEY)

    assert not log.has(KEY)
    assert log.begun(KEY) is None
    assert not log.is_intended((KEY[0], "web-1"))


def test_intents_are_forgotten_and_records_are_not(tmp_path: Path) -> None:
    log = TaskLog(tmp_path / "tasks")
    log.forget_intents()  # there are none, and no directory
    log.intend(KEY)
    log.end(KEY, ImpactStatus.DONE)

    log.forget_intents()

    assert not log.is_intended(KEY)
    assert log.has(KEY)


def test_folders_of_an_order_are_on_disk_before_the_order_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = record_syncs(monkeypatch)
    log = TaskLog(tmp_path / "tasks")

    log.end(KEY, ImpactStatus.DONE)

    first, second, *_ = syncs
    assert is_named(tmp_path / "tasks", [first])
    assert is_named(tmp_path / "tasks" / KEY[0], [second])


def test_result_of_an_order_is_on_disk_before_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = record_syncs(monkeypatch)
    log = TaskLog(tmp_path / "tasks")

    log.end(KEY, ImpactStatus.FAILED, "no power")

    assert is_lasting(tmp_path / "tasks" / KEY[0] / "web-0.ended", syncs)


def test_result_that_the_attendant_writes_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = record_syncs(monkeypatch)

    write_ending(tmp_path / "web-0.ended", {"status": "done", "reason": "", "host": None})

    assert is_lasting(tmp_path / "web-0.ended", syncs)


def test_lineage_is_on_disk_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = TaskLog(tmp_path / "tasks")
    with log.locked():
        syncs = record_syncs(monkeypatch)
        log.keep_lineage('{"generation": 1}')

    assert is_lasting(tmp_path / "tasks" / LINEAGE, syncs)
