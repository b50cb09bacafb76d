"""Hints at changes: what any of them hints at is in the one that stands for all of them."""

from dataclasses import fields

import pytest

from forewarn.ports.changes import StoreChange
from forewarn.storage.changes import merge
from forewarn.storage.postgres_changes import EVERYTHING

FLAGS = [field.name for field in fields(StoreChange) if field.default is False]


@pytest.mark.parametrize("flag", FLAGS)
def test_merged_hint_hints_at_all_that_its_parts_do(flag: str) -> None:
    hint, other = StoreChange(sequence=1, **{flag: True}), StoreChange(sequence=2)  # type: ignore[arg-type]

    assert getattr(merge([hint, other]), flag)
    assert not getattr(merge([other, other]), flag)


def test_after_a_gap_everything_may_have_changed() -> None:
    assert all(getattr(EVERYTHING, flag) for flag in FLAGS)
