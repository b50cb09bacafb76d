"""What executors remember of orders: for which leader, and that it survives a loss of power."""

import os
from pathlib import Path

import pytest
from tests.syncs import is_lasting, is_named, record_syncs

from forewarn.domain.impact import ImpactStatus
from forewarn.executors.attendant import write_ending
from forewarn.executors.records import LINEAGE, OrderKey, Records
from forewarn.ports.store import LeaseLostError

KEY: OrderKey = ("602D9444-D2CD-49C7-8624-8643E7171297", "web-0")


@pytest.mark.parametrize("epoch", [1, 3])
def test_order_of_any_epoch_but_the_leaders_is_refused(tmp_path: Path, epoch: int) -> None:
    records = Records(tmp_path, epoch=lambda: 2)

    records.check_epoch(2)

    with pytest.raises(LeaseLostError) as refusal:
        records.check_epoch(epoch)
    assert (refusal.value.epoch, refusal.value.current) == (epoch, 2)


def test_order_is_on_disk_before_it_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = record_syncs(monkeypatch)
    records = Records(tmp_path / "impacts")

    file = records.claim(KEY, {"executor": "command"})

    assert file is not None
    os.close(file)
    assert is_lasting(records.order_path(KEY), syncs)


def test_folders_of_an_order_are_on_disk_before_the_order_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = record_syncs(monkeypatch)
    records = Records(tmp_path / "impacts")

    records.end(KEY, ImpactStatus.DONE)

    first, second, *_ = syncs
    assert is_named(tmp_path / "impacts", [first])
    assert is_named(tmp_path / "impacts" / KEY[0], [second])


def test_result_of_an_order_is_on_disk_before_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = record_syncs(monkeypatch)
    records = Records(tmp_path / "impacts")

    records.end(KEY, ImpactStatus.FAILED, "no power")

    assert is_lasting(tmp_path / "impacts" / KEY[0] / "web-0.ended", syncs)


def test_result_that_the_attendant_writes_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = record_syncs(monkeypatch)

    write_ending(tmp_path / "web-0.ended", {"status": "done", "reason": "", "host": None})

    assert is_lasting(tmp_path / "web-0.ended", syncs)


def test_lineage_is_on_disk_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = Records(tmp_path / "impacts")
    with records.locked():
        syncs = record_syncs(monkeypatch)
        records.keep_lineage('{"generation": 1}')

    assert is_lasting(tmp_path / "impacts" / LINEAGE, syncs)
